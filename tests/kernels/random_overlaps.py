"""Random kernels whose iterations share places of an array, so that their order counts."""

from __future__ import annotations

from tests.kernels.random_sources import Writer

SIZE = 32  # elements of the shared array


class OverlapWriter(Writer):
    """Writes kernels as `Writer` does; some loops write to places of `line` that overlap."""

    max_steps = 12

    def __init__(self, seed: int):
        super().__init__(seed)
        self.data_bounds = False

    def text(self) -> str:
        text = super().text()
        body, self.lines = text.removesuffix("    return out, sums, total\n"), []
        self.line(1, self.random.choice([f"line = np.zeros({SIZE})", f"line = np.full({SIZE}, 0.5)",
                                         "line = np.concatenate((y, x[0], x[1], x[2], x[3], y, y[0:2]))"]))
        self.line(1, f"marks = np.zeros({SIZE}, np.int32)")
        for _ in range(self.random.randint(1, 3)):
            self.overlapping()
        self.line(1, "return out, sums, total, line, marks")
        return body + "\n".join(self.lines) + "\n"

    def overlapping(self) -> None:
        """Loops over i and k with a place that is a sum of both, mostly."""
        r = self.random
        step, start = r.choice([1, 2, 3, 4, 5]), r.randint(0, 3)
        outer = r.choice(["range(n)", "range(n)", "range(n - 1, -1, -1)", "range(1, n)"])
        self.line(1, f"for i in {outer}:")
        first, depth = f"{start} + {step} * i", 2
        if r.random() < 0.3:
            self.line(2, f"first = {first}")
            first = "first"
        if r.random() < 0.2:
            self.line(2, f"if {self.test(['i'], [])}:")
            depth = 3
        r.choice([self.elements, self.elements, self.elements, self.steps, self.slice, self.one])(depth, first)

    def elements(self, depth: int, first: str) -> None:
        """An inner loop, or two."""
        r = self.random
        span = r.choice(["m", "m", "2, m", "m - 1, -1, -1", "0, m, 2", "i, m", "i + 1", "p[i]"])
        carried = r.random() < 0.25  # a number that the inner loop carries
        if carried:
            self.line(depth, "level = 0.25")
        self.line(depth, f"for k in range({span}):")
        if carried:
            self.line(depth + 1, f"level = level * 0.5 + {self.value(['i', 'k'], [], 1)}")
        place = r.choice([f"{first} + k", f"{first} + k", f"k + {first}", f"{first} - k + 4", "p[i] + k", "p[i] * 2 + k",
                          "i + k", "k", "(3 * i + k) % 7", "2 * i + 2 * k", "3 * k + i", "3 * k + 2 * i", "i * k",
                          f"min({first} + k, {SIZE // 2})", "23 - i - k", "i * 4 + k // 2"])
        counters = ["i", "k"]
        if r.random() < 0.25:
            self.line(depth + 1, f"for q in range({r.choice(['2', '3', 'k + 1'])}):")
            place, depth = f"{place} + {r.choice(['q', '2 * q', 'q * 0'])}", depth + 1
            counters += ["q"]
        if r.random() < 0.25:
            self.line(depth + 1, f"if {self.test(['i', 'k'], [])}:")
            if r.random() < 0.4:
                self.line(depth + 2, r.choice(["break", "continue"]))
            else:
                depth += 1
        self.store(depth + 1, f"({place}) % {SIZE}" if "i * k" in place else place, ["i", "k"],
                   ["level"] if carried else [])
        if r.random() < 0.3:
            self.store(depth + 1, r.choice([f"{first}", "k", f"{first} + 1", "i", f"({place} + 1) % {SIZE}"]), ["i", "k"])

    def steps(self, depth: int, first: str) -> None:
        """A loop that data or a number ends."""
        r = self.random
        self.line(depth, "k = 0")
        self.line(depth, f"while k < {r.choice(['5', '4', '5 - i'])}:")
        self.store(depth + 1, r.choice([f"{first} + k", f"{first} + k", "i + 3 * k", "k"]), ["i", "k"])
        self.line(depth + 1, f"k += {r.choice(['1', '1', '2'])}")

    def slice(self, depth: int, first: str) -> None:
        """A slice of the array: updated, or set from another that overlaps."""
        r = self.random
        here = f"line[{first}:{first} + 5]"
        other = f"line[{first} + {r.choice(['0', '1', '2'])}:{first} + 7][0:5]"
        self.line(depth, r.choice([
            f"{here} = {here} * 0.5 + x[i]", f"{here} = {other} * 0.5 + y", f"{here} += x[i]",
            f"{here} = np.maximum({here}, x[n - 1 - i])", f"{here} = x[i] * line[i]",
            f"line[{first}] = {here}.sum() * 0.25 + x[i, 1]", f"{here} = y * {here}.max()"]))

    def one(self, depth: int, first: str) -> None:
        """One element in each iteration, from others."""
        r = self.random
        place = r.choice([first, first, "i", "p[i]", "n - 1 - i", "i // 2", "i % 2", f"{first} + p[i]"])
        self.store(depth, place, ["i"])

    def store(self, depth: int, place: str, counters: list[str], variables: list[str] | None = None) -> None:
        """Sets or changes one element, of numbers or of integers."""
        r = self.random
        if r.random() < 0.2:
            target, value = f"marks[{place}]", f"{counters[-1]} * 3 + p[i]"
            self.line(depth, r.choice([f"{target} = {target} * 2 + {value}", f"{target} += {value}", f"{target} = {value}",
                                       f"{target} = max({target}, {value})"]))
            return
        target, value = f"line[{place}]", self.value(counters, variables or [], 1)
        other = "line[" + r.choice([f"({place} + 1) % {SIZE}", "i", "p[i]", counters[-1], f"max({place} - 1, 0)",
                                    f"({place} + 2 * i) % {SIZE}"]) + "]"
        self.line(depth, r.choice([
            f"{target} = {target} * 0.5 + {value}", f"{target} = {target} * 0.5 + {value}", f"{target} += {value}",
            f"{target} = max({target}, {value})", f"{target} = {value}", f"{target} = {other} * 0.5 + {value}",
            f"{target} = {other} * 0.5 + {target} * 0.25 + {value}", f"{target} += {other} * 0.5",
            *[f"{target} = {v} + {value}" for v in variables or []]]))
