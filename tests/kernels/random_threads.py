"""Random kernels of threads without races: in phases between barriers each thread writes its own
element of shared memory, and reads those of others; updates by several are atomic."""

from __future__ import annotations

import linecache
import math
import random
from typing import Any

import numpy as np

import ztorch as zt

BLOCKS, SIZE = 2, 32
N = BLOCKS * SIZE


class _Writer:
    """Writes a kernel of x (N floats) and p (N integers below SIZE)."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines = ["def kernel(x, p):", "    out = np.zeros((3, x.shape[0]), x.dtype)",
                      "    counts = np.zeros(8, np.int32)",
                      f"    for block, thread in zt.threads({BLOCKS}, {SIZE}):",
                      f"        i = block * {SIZE} + thread", "        a = x[i]", "        n = p[i]",
                      f"        tile, whole = zt.shared({SIZE}, x.dtype), zt.shared({SIZE}, np.int32)"]

    def text(self) -> str:
        r = self.random
        for phase in range(3):
            self.write(2, phase)
            self.line(2, "zt.barrier()")
            self.read(2, phase)
            self.line(2, f"out[{phase}, i] = a")
            self.line(2, "zt.barrier()")
            if r.random() < 0.5:
                self.line(2, r.choice([
                    "a = zt.subgroup_max(a)", "a += zt.shuffle_xor(a, {m})", "n = zt.shuffle(n, n)",
                    "n = zt.subgroup_sum(n) % 32", "a = zt.subgroup_min(a) - a"]).format(m=r.randint(1, 31)))
        self.line(1, "return out, counts")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def write(self, depth: int, phase: int) -> None:
        r = self.random
        place = f"(thread * {r.choice([1, 3, 5, 7])} + {r.randint(0, 9)}) % {SIZE}"
        self.line(depth, f"tile[{place}] = {self.value(2)}")
        self.line(depth, f"whole[{place}] = {self.whole()}")
        if r.random() < 0.7:
            how = r.choice(["add", "max", "min"])
            self.line(depth, f"if {self.test()}:")
            self.line(depth + 1, f"zt.atomic_{how}(counts, {phase} * 2 + n % 2, n % {r.randint(2, 9)})")

    def read(self, depth: int, phase: int) -> None:
        r = self.random
        kind = r.choice(["one", "loop", "while", "branch", "barriers", "own", "known"])
        other = f"tile[(thread + {r.randint(1, 40)}) % {SIZE}]"
        if kind == "one":
            self.line(depth, f"a = a * 0.5 + {other}")
        elif kind == "loop":
            self.line(depth, f"for k in range({r.choice(['thread % 5', '4', 'n % 7'])}):")
            self.line(depth + 1, f"a += tile[k] * {r.choice(['0.5', '0.25'])}")
            if r.random() < 0.5:
                self.line(depth + 1, f"if {self.test()}:")
                self.line(depth + 2, r.choice(["break", "continue"]))
                self.line(depth + 1, "n = n + 1")
        elif kind == "while":
            self.line(depth, f"while n > {r.randint(1, 6)}:")
            self.line(depth + 1, f"n -= 1 + whole[{r.randint(0, 31)}] % 3")
        elif kind == "branch":
            self.line(depth, f"if {self.test()}:")
            self.line(depth + 1, f"a = {other} - a")
            self.line(depth, "else:")
            self.line(depth + 1, f"n = whole[(thread + {r.randint(0, 31)}) % {SIZE}] % {SIZE}")
        elif kind == "own":  # an array of the thread
            size, name = r.randint(2, 5), f"own{phase}"
            self.line(depth, f"{name} = {r.choice([f'np.full({size}, {self.value(1)}, x.dtype)', f'np.zeros({size}, x.dtype)'])}")
            self.line(depth, f"for k in range({r.choice([str(size), f'n % {size + 1}'])}):")
            self.line(depth + 1, f"{name}[k] {r.choice(['=', '+=', '-='])} {name}[(n + k) % {size}] * 0.5 + {self.value(1)}")
            self.line(depth, f"a = a * 0.25 + sum({name}[k] for k in range({size}) if {self.test()})")
        elif kind == "known":  # a loop that is written out
            self.line(depth, f"for m, f in (({r.randint(1, 31)}, 0.5), ({r.randint(1, 31)}, -0.25)):")
            self.line(depth + 1, r.choice(["a += zt.shuffle_xor(a, m) * f", "a = max(a * f, zt.shuffle(a, n + m))"]))
            self.line(depth, f"n = (n + m) % {SIZE}")
        else:  # each iteration of a loop of all threads writes the operand of the next one
            self.line(depth, f"reach = {r.choice([2, 4, 8])}")
            self.line(depth, "while reach > 0:")
            self.line(depth + 1, f"near = tile[(thread + reach) % {SIZE}]")
            self.line(depth + 1, "zt.barrier()")
            self.line(depth + 1, f"tile[thread] = near * 0.5 + a if {self.test()} else near")
            self.line(depth + 1, "zt.barrier()")
            self.line(depth + 1, "reach //= 2")
            self.line(depth, "a = tile[thread]")

    def value(self, depth: int) -> str:
        r = self.random
        if depth == 0:
            return r.choice(["a", "x[i]", "0.5", "float(n)", f"x[(i + {r.randint(1, 9)}) % {N}]"])
        b, c = self.value(depth - 1), self.value(depth - 1)
        return r.choice([f"({b} + {c})", f"({b} - {c})", f"max({b}, {c})", f"math.tanh({b})",
                         f"({b} if {self.test()} else {c})"])

    def whole(self) -> str:
        return self.random.choice(["n", "thread", "n * 2 + 1", "thread - n", "abs(n - 9)"])

    def test(self) -> str:
        r = self.random
        return r.choice(["a > 0.0", "n % 2 == 0", "thread < 7", "a < x[i] or n > 3",
                         f"thread > 3 and x[{r.randint(0, 9)}] > a"])


def random_thread_kernel(seed: int) -> tuple[Any, str]:
    """A kernel, and its source."""
    text = _Writer(seed).text()
    file = f"<random kernel of threads {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"np": np, "zt": zt, "math": math}
    exec(compile(text, file, "exec"), names)
    return zt.kernel(names["kernel"]), text


def thread_arguments(seed: int, floats: str) -> list[np.ndarray]:
    """x and p for a kernel."""
    r = np.random.default_rng(seed)
    return [r.uniform(-1, 1, N).astype(floats), r.integers(0, SIZE, N).astype(np.int32)]
