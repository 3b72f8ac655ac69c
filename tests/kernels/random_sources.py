"""Random kernels that are well typed: loops, branches, sums, recurrences, arrays and breaks."""

from __future__ import annotations

import linecache
import math
import random
from typing import Any

import numpy as np

import ztorch as zt

ROWS, COLUMNS = 4, 5


class Writer:
    """Writes a kernel of x (rows, columns), y (columns) and p (rows; integers below columns)."""

    max_steps: int | None = None

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.data_bounds = seed % 4 == 3  # of some loops
        self.lines: list[str] = []
        self.fresh = 0

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def text(self) -> str:
        r = self.random
        self.line(0, "def kernel(x, y, p):")
        self.line(1, "n, m = x.shape")
        self.line(1, "out = np.zeros((n, m))")
        self.line(1, "sums = np.ones(m)")
        self.line(1, "total = 0.25")
        loop = r.choice(["range(n)", "range(n)", "zt.grid(n)", "range(n - 1, -1, -1)"])
        self.line(1, f"for i in {loop}:")
        self.block(2, ["i"], [], r.randint(2, 4))
        if r.random() < 0.5:
            how = r.choice(["total += {}", "total = max(total, {})", "total = min({}, total)"])
            self.line(2, how.format(self.value(["i"], [], 2)))
        if r.random() < 0.4 and "grid" not in loop:
            self.line(2, f"total = total * 0.5 + {self.value(['i'], [], 1)}")
        self.line(2, f"out[i, {r.choice(['0', 'm - 1', 'p[i]'])}] += 1.0")
        if r.random() < 0.5:
            self.line(2, f"sums[p[i]] += {self.value(['i'], [], 1)}")
        self.line(1, "return out, sums, total")
        return "\n".join(self.lines) + "\n"

    # -- statements ------------------------------------------------------------------------------

    def block(self, depth: int, counters: list[str], variables: list[str], count: int,
              breaks: bool = False) -> None:
        variables = list(variables)
        for _ in range(count):
            self.statement(depth, counters, variables, breaks)

    def statement(self, depth: int, counters: list[str], variables: list[str],
                  breaks: bool) -> None:
        r = self.random
        kinds = ["new", "new", "set", "change", "if", "for", "array", "store"]
        kind = r.choice(kinds if depth < 5 else ["new", "set", "change"])
        if (kind in ("set", "change") and not variables) or (
                kind == "store" and len(counters) == 1):
            kind = "new"
        if kind == "new":
            v = self.name("v")
            self.line(depth, f"{v} = {self.value(counters, variables, 2)}")
            variables.append(v)
        elif kind == "set":
            self.line(depth, f"{r.choice(variables)} = {self.value(counters, variables, 2)}")
        elif kind == "change":
            v, term = r.choice(variables), self.value(counters, variables, 1)
            self.line(depth, r.choice([f"{v} += {term}", f"{v} = max({v}, {term})",
                                       f"{v} = {v} * 0.5 + {term}", f"{v} -= {term}",
                                       f"{v} = min({term}, {v})"]))
        elif kind == "if":
            self.line(depth, f"if {self.test(counters, variables)}:")
            self.block(depth + 1, counters, variables, r.randint(1, 2), breaks)
            if breaks and r.random() < 0.5:
                self.line(depth + 1, r.choice(["break", "continue"]))
            if r.random() < 0.4:
                self.line(depth, "else:")
                self.block(depth + 1, counters, variables, r.randint(1, 2), breaks)
        elif kind == "for":
            self.loop(depth, counters, variables)
        elif kind == "array":
            self.array(depth, counters, variables)
        elif kind == "store":
            term = self.value(counters, variables, 1)
            j = counters[-1]
            self.line(depth, r.choice([f"out[i, {j}] = {term}", f"out[i, {j}] += {term}",
                                       f"out[i, {j}] = max(out[i, {j}], {term})"]))

    def loop(self, depth: int, counters: list[str], variables: list[str]) -> None:
        r = self.random
        k = self.name("k")
        ends = ["m", "m", "m - 1", "1, m", "m - 1, -1, -1", "0, m, 2"]
        if counters == ["i"]:
            ends += ["i + 1", "i, m"]
        total, end, at = self.name("s"), r.choice(ends), k
        if self.data_bounds and r.random() < 0.6:
            end, at = r.choice([("p[i]", k), ("p[i], m", k), ("p[n - 1 - i], p[i]", k),
                                ("p[i], -1, -1", k), ("p[i] * 5", f"({k} % m)"),
                                ("p[i], p[i] * 4", f"({k} // 4)")])
        self.line(depth, f"{total} = {r.choice(['0.0', '1.0', '0', '-0.5'])}")
        variables.append(total)
        self.line(depth, f"for {k} in range({end}):")
        inside = [*counters, at]
        self.block(depth + 1, inside, variables, r.randint(1, 3), breaks=r.random() < 0.5)
        term = self.value(inside, variables, 1).replace(total, "1.0")
        self.line(depth + 1, r.choice([
            f"{total} += {term}", f"{total} += {term}", f"{total} = max({total}, {term})",
            f"{total} = {total} * 0.5 + {term}"]))

    def array(self, depth: int, counters: list[str], variables: list[str]) -> None:
        r = self.random
        row, k, got = self.name("row"), self.name("k"), self.name("v")
        self.line(depth, f"{row} = np.zeros(m)")
        self.line(depth, f"for {k} in range(m):")
        inside = [*counters, k]
        self.line(depth + 1, f"{row}[{k}] = {self.value(inside, variables, 1)}")
        style = r.choice([0, 1, 3] if self.data_bounds else [0, 1, 2, 3])
        if style == 0:
            self.line(depth, f"for {k} in range(1, m):")
            self.line(depth + 1, f"{row}[{k}] = {row}[{k} - 1] * 0.5 + {row}[{k}]")
        elif style == 1:
            self.line(depth, f"for {k} in range(m - 1):")
            self.line(depth + 1, f"if {row}[{k}] > {row}[{k} + 1]:")
            self.line(depth + 2, f"{row}[{k}], {row}[{k} + 1] = {row}[{k} + 1], {row}[{k}]")
        elif style == 2:
            self.line(depth, f"{row}[1:4] = {row}[0:3] * 2.0")
        self.line(depth, f"{got} = {r.choice([f'{row}.max()', f'{row}[p[i]]', f'{row}[2]'])}")
        variables.append(got)

    # -- expressions -----------------------------------------------------------------------------

    def element(self, counters: list[str]) -> str:
        r = self.random
        j = counters[-1]
        if len(counters) == 1:
            return r.choice(["y[p[i]]", "x[i, 0]", "x[i, p[i]]", "x[n - 1 - i, 2]", "y[i]"])
        return r.choice([f"x[i, {j}]", f"y[{j}]", f"x[i, m - 1 - {j}]", f"y[min({j} + 1, m - 1)]",
                         f"x[n - 1 - i, {j}]", f"x[i, ({j} + 2) % m]"])

    def value(self, counters: list[str], variables: list[str], depth: int) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.2:
            choices = [self.element(counters), f"{r.randint(-8, 8) / 4}", r.choice(counters)]
            return r.choice([*choices, *variables[-3:]])
        a, b = (self.value(counters, variables, depth - 1) for _ in range(2))
        return r.choice([f"({a} + {b})", f"({a} - {b})", f"{a} * {self.element(counters)}",
                         f"max({a}, {b})", f"abs({a})", f"math.tanh({a})",
                         f"({a} if {self.test(counters, variables)} else {b})"])

    def test(self, counters: list[str], variables: list[str]) -> str:
        r = self.random
        a, b = (self.value(counters, variables, 0) for _ in range(2))
        first = f"{a} {r.choice(['<', '>', '<=', '>='])} {b}"
        if r.random() < 0.25:
            return f"{first} {r.choice(['and', 'or'])} {r.choice(counters)} % 2 == 0"
        return first


def random_kernel(seed: int, writer: type[Writer] = Writer) -> tuple[Any, str]:
    """A kernel, and its source."""
    text = writer(seed).text()
    file = f"<{writer.__name__} {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"np": np, "zt": zt, "math": math}
    exec(compile(text, file, "exec"), names)
    return zt.kernel(max_steps=writer.max_steps)(names["kernel"]), text


def arguments(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and p for a kernel."""
    r = np.random.default_rng(seed)
    return (r.uniform(-1, 1, (ROWS, COLUMNS)), r.uniform(-1, 1, COLUMNS),
            r.integers(0, COLUMNS, ROWS).astype(np.int32))
