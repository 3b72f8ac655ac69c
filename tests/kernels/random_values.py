"""Random kernels with more words: slices as values, pairs of a value and its index, loops that data
ends, ops of the library and functions of other kernels."""

from __future__ import annotations

from tests.kernels.random_sources import Writer


class WideWriter(Writer):
    """Writes kernels as `Writer` does; half of the statements have the words of this file."""

    max_steps = 12

    def __init__(self, seed: int):
        super().__init__(seed)
        self.data_bounds = False  # rows of different lengths take no slices

    def statement(self, depth: int, counters: list[str], variables: list[str],
                  breaks: bool) -> None:
        r = self.random
        if depth > 4 or r.random() < 0.5:
            super().statement(depth, counters, variables, breaks)
            return
        write = r.choice([self.tile, self.tile, self.pair, self.ended, self.op, self.sorted])
        write(depth, counters, variables)

    # -- statements ------------------------------------------------------------------------------

    def tile(self, depth: int, counters: list[str], variables: list[str]) -> None:
        """A slice, arithmetic on it, and a number of it."""
        r = self.random
        t, got = self.name("t"), self.name("v")
        start = r.choice(["0", "1", "2"])
        one = r.choice([f"x[i, {start}:{start} + 3]", f"y[{start}:{start} + 3]", "x[n - 1 - i, 2:5]",
                        "x[i, ::2]", f"x[1:4, {r.choice(['i', '0', '4'])}]"])
        self.line(depth, f"{t} = {one} * {self.value(counters, variables, 1)}")
        for _ in range(r.randint(0, 2)):
            self.line(depth, r.choice([
                f"{t} = {t} + y[1:4]", f"{t} = np.maximum({t}, {self.value(counters, variables, 0)})",
                f"{t} = np.where({t} > 0.1, {t}, -0.5 * {t})", f"{t} = np.exp({t} - {t}.max())",
                f"{t} = np.cumsum({t})", f"{t} = {t}[::-1]"]))
        self.line(depth, f"{got} = " + r.choice([
            f"{t}.sum()", f"{t}.max()", f"{t} @ y[0:3]", f"{t}[1]", f"{t}.mean()", f"({t} * {t}).sum()",
            f"(x[0:2, 0:3] @ {t})[{r.choice(['0', '1'])}]", f"sum({t}[q] * q for q in range(3))",
            f"np.outer({t}, {t})[1, 2]", f"max({t})"]))
        variables.append(got)

    def pair(self, depth: int, counters: list[str], variables: list[str]) -> None:
        """The best value of a loop, and where it is."""
        r = self.random
        best, at, k = self.name("v"), self.name("at"), self.name("k")
        less = r.choice(["<", ">", ">="])
        self.line(depth, f"{best}, {at} = {'9.0' if less == '<' else '-9.0'}, 0")
        self.line(depth, f"for {k} in range(m):")
        self.line(depth + 1, f"c{k} = {self.value([*counters, k], variables, 1)}")
        self.line(depth + 1, f"if c{k} {less} {best}:")
        self.line(depth + 2, f"{best}, {at} = c{k}, {k}")
        self.line(depth, f"{best} = {best} + y[{at}] * 0.5")
        variables.append(best)

    def ended(self, depth: int, counters: list[str], variables: list[str]) -> None:
        """A loop that data ends."""
        r = self.random
        v, steps = self.name("v"), self.name("n")
        self.line(depth, f"{v}, {steps} = {self.value(counters, variables, 1)}, 0")
        self.line(depth, f"while {v} < {r.choice(['1.0', '2.5'])} and {steps} < {r.choice(['3', '8'])}:")
        self.line(depth + 1, f"{v} = {v} * {r.choice(['1.5', '0.5'])} + {r.choice(['0.25', '0.75'])}")
        self.line(depth + 1, f"{steps} += 1")
        if r.random() < 0.4:
            self.line(depth + 1, f"if {v} > {self.value(counters, variables, 0)}:")
            self.line(depth + 2, "break")
        self.line(depth, f"{v} = {v} + {steps}")
        variables.append(v)

    def op(self, depth: int, counters: list[str], variables: list[str]) -> None:
        """An op of the library, of a number or a row."""
        r = self.random
        v, a = self.name("v"), self.value(counters, variables, 1)
        self.line(depth, f"{v} = " + r.choice([
            f"zt.ops.gelu(x[i, 1] + {a})", f"zt.ops.sigmoid(x[i, 0] * {a})",
            "zt.ops.softmax(x[i])[2]", f"zt.ops.softmax(y * {self.element(counters)})[1]",
            "zt.ops.logsumexp(x[n - 1 - i])", "zt.ops.clip(x[i, 3], -0.5, 0.5)"]))
        variables.append(v)

    def sorted(self, depth: int, counters: list[str], variables: list[str]) -> None:
        """The rows of an array in order, or joined."""
        r = self.random
        v = self.name("v")
        self.line(depth, f"{v} = " + r.choice([
            "np.sort(x[i])[1]", "np.concatenate((x[i, 0:2], y))[3]", "np.stack((x[i], y))[1, p[i]]",
            "np.array([x[i, 0], y[i], 0.5]).max()", "x[i].reshape(5, 1).sum()", "x.T[1, i]"]))
        variables.append(v)
