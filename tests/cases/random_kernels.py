"""Random kernels that are well formed, in bounds, free of races, and mean the same on every target.

Every store has a separate memory in which every trip of the loops around it has its own place, so that all that a
kernel computes can be seen afterwards. Operations on which targets may differ are left
out: division by zero, shifts beyond the width, the sign of min(0, -0), the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import numpy as np

from ztorch.dtypes import ALL, DType, boolean, i32, i64, to_storage, u8
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand
from ztorch.ir.opcodes import OPCODES

EXACT = ("add", "sub", "mul", "div", "rem", "neg", "abs", "min", "max", "mulhi", "round", "floor",
         "ceil", "trunc", "sqrt", "lt", "le", "gt", "ge", "eq", "ne", "select", "and", "or", "xor",
         "not", "shl", "shr", "cast", "bitcast")
"""Opcodes with one right answer, to the bit."""


def random_kernel(rng: Random, statements: int = 12, dtypes: tuple[DType, ...] = ALL,
                  opcodes: tuple[str, ...] = EXACT, lanes: tuple[int, ...] = (2, 4, 8),
                  kinds: tuple[str, ...] = ("serial", "parallel")) -> Kernel:
    """A kernel of about so many statements.

    >>> from ztorch.ir.verify import verify
    >>> verify(random_kernel(Random(1)))
    """
    return _Generator(rng, statements, dtypes, opcodes, lanes, kinds).kernel()


def random_buffers(kernel: Kernel, rng: Random) -> dict[str, np.ndarray]:
    """Contents for the memories of a kernel: ordinary numbers with a few edge cases among them."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    out = {}
    for m in kernel.memories:
        if m.dtype.is_float:
            x = numbers.normal(0, 4, m.size)
            edges = numbers.choice([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], m.size)
            x = np.where(numbers.random(m.size) < 0.1, edges, x).astype(m.dtype.working)
        else:
            info = np.iinfo(m.dtype.numpy)
            x = numbers.integers(info.min, info.max, m.size, m.dtype.numpy, endpoint=True)
            x = np.where(numbers.random(m.size) < 0.5, x % 16, x).astype(m.dtype.numpy)
        out[m.name] = np.ascontiguousarray(to_storage(m.dtype, x))
    return out


@dataclass
class _Loop:
    counter: Operand
    start: int
    extent: int  # counter - start stays below this


class _Generator:
    def __init__(self, rng: Random, statements: int, dtypes: tuple[DType, ...],
                 opcodes: tuple[str, ...], lanes: tuple[int, ...], kinds: tuple[str, ...]):
        self.rng, self.opcodes, self.kinds = rng, opcodes, kinds
        self.dtypes = [d for d in dtypes if d.kind != "b"]
        self.b = Builder("random", index=rng.choice((i32, i64)))
        self.lanes = rng.choice(lanes)
        self.left = statements
        self.loops: list[_Loop] = []
        self.values: list[Operand] = []
        self.variables: list[Operand] = []
        self.count = 0

    def kernel(self) -> Kernel:
        self.load()
        while self.left > 0:
            self.statement()
        self.store(self.values[-1])
        return self.b.kernel()

    def statement(self) -> None:
        self.left -= 1
        generate = self.rng.choices(
            (self.load, self.scalar, self.keep, self.variable, self.vector, self.loop, self.branch),
            (2, 6, 2, 2, 2, 2 if len(self.loops) < 3 else 0, 1))[0]
        generate()

    def keep(self) -> None:
        self.store(self.rng.choice(self.values))

    @contextmanager
    def scope(self, fresh: bool = False) -> Iterator[None]:
        """Names bound inside are dropped after; variables of a parallel trip are its own."""
        values, variables = len(self.values), list(self.variables)
        if fresh:
            self.variables = []
        yield
        del self.values[values:]
        self.variables = variables

    def body(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.statement()
        self.keep()

    # -- memory ------------------------------------------------------------------------------------

    def place(self, width: int) -> tuple[Operand | int, int, int]:
        """(index, off, size): `width` elements that belong to this trip of the loops alone."""
        index: Operand | int = 0
        size = width
        for loop in self.loops:
            step = self.b.mul(self.b.sub(loop.counter, loop.start), size)
            index = step if isinstance(index, int) else self.b.add(index, step)
            size *= loop.extent
        off = self.rng.choice((0, 0, 1, 3))
        return index, off, size + off

    def width(self, lanes: int) -> tuple[int, Operand | None]:
        """How many lanes are touched, and the mask that says so."""
        if lanes == 1 or self.rng.random() < 0.6:
            return lanes, None
        live = self.rng.randint(1, lanes)
        return live, self.b.lt(self.b.iota(lanes), live)

    def memory(self, what: str, d: DType, size: int, access: str) -> str:
        self.count += 1
        return self.b.memory(f"{what}{self.count}", d, size, access=access)

    def load(self) -> None:
        lanes = self.rng.choice((1, self.lanes))
        width, mask = self.width(lanes)
        index, off, size = self.place(width)
        stored = self.rng.choice(self.dtypes)
        mem = self.memory("in", stored, size, "r")
        if lanes > 1 and self.rng.random() < 0.3:
            index = self.b.add(self.b.iota(lanes), index)
        computed = stored
        if stored.is_float and self.rng.random() < 0.3:
            computed = self.rng.choice([d for d in self.dtypes if d.is_float])
        self.values.append(self.b.load(mem, index, off, lanes, computed, mask))

    def store(self, x: Operand) -> None:
        width, mask = self.width(x.lanes)
        index, off, size = self.place(width)
        mem = self.memory("out", u8 if x.dtype == boolean else x.dtype, size,
                          self.rng.choice(("w", "rw")))
        if x.lanes > 1 and self.rng.random() < 0.2:
            index = self.b.add(self.b.iota(x.lanes), index)
        self.b.store(mem, index, x, off, mask)

    # -- values --------------------------------------------------------------------------------------

    def like(self, x: Operand) -> Operand | float:
        """Another operand that goes with x: a value or a number."""
        result = [v for v in self.values if v.dtype == x.dtype and v.lanes in (1, x.lanes)]
        if result and self.rng.random() < 0.7:
            return self.rng.choice(result)
        return self.rng.choice((0.0, -0.0, 1.5, -2.0, float("inf")) if x.dtype.is_float
                               else (0, 1, 3, 100))

    def scalar(self) -> None:
        b, opcode, x = self.b, self.rng.choice(self.opcodes), self.rng.choice(self.values)
        row = OPCODES[opcode]
        whole = not x.dtype.is_float
        if x.dtype.kind not in row.kinds or (opcode in ("min", "max") and not whole):
            return
        if opcode == "cast":
            y = b.cast(x, dtype=self.rng.choice([*self.dtypes, boolean]))
        elif opcode == "bitcast":
            same = [d for d in self.dtypes if d.bits == x.dtype.bits]
            y = b.bitcast(x, dtype=self.rng.choice(same)) if whole else x
        elif opcode == "select":
            masks = [v for v in self.values if v.dtype == boolean and v.lanes in (1, x.lanes)]
            c = self.rng.choice(masks) if masks else b.eq(x, x)
            y = b.select(c, x, self.like(x))
        elif whole and opcode in ("div", "rem", "shl", "shr"):
            y = b.emit(opcode, x, self.rng.randint(1, 7))
        else:
            y = b.emit(opcode, x, *[self.like(x) for _ in range(row.arity - 1)])
        self.values.append(y)

    def vector(self) -> None:
        b, x = self.b, self.rng.choice(self.values)
        if x.lanes == 1:
            y = b.splat(x, self.lanes)
        elif self.rng.random() < 0.5:
            y = b.extract(x, self.rng.randrange(x.lanes))
        else:
            others = [v for v in self.values if (v.dtype, v.lanes) == (x.dtype, x.lanes)]
            perm = tuple(self.rng.randrange(2 * x.lanes) for _ in range(self.lanes))
            y = b.shuffle(x, self.rng.choice(others), perm)
        self.values.append(y)

    def variable(self) -> None:
        b = self.b
        if self.variables and self.rng.random() < 0.6:
            v = self.rng.choice(self.variables)
            now = b.get(v)
            self.values.append(now)
            if v.dtype.kind != "b":
                b.set(v, b.add(now, self.like(now)))
        else:
            x = self.rng.choice(self.values)
            self.variables.append(b.var(x.dtype, x.lanes, x))

    # -- structure -------------------------------------------------------------------------------------

    def loop(self) -> None:
        start, step, trips = self.rng.randint(0, 5), self.rng.randint(1, 3), self.rng.randint(0, 3)
        inside = self.b._scopes[1:]  # a parallel loop stands outside of everything
        kind = self.rng.choice([k for k in self.kinds if not (k == "parallel" and inside)])
        extent = max(1, (trips - 1) * step + 1)
        with self.b.loop(start, start + trips * step, step, kind) as counter:
            self.loops.append(_Loop(counter, start, extent))
            with self.scope(fresh=kind == "parallel"):
                self.body()
                masks = [v for v in self.values if v.dtype == boolean]
                if kind == "serial" and masks and self.rng.random() < 0.5:
                    self.b.while_(counter, self.rng.choice(masks))
                    self.body()
            self.loops.pop()

    def branch(self) -> None:
        x = self.rng.choice([v for v in self.values if v.lanes == 1] or [self.b.extract(
            self.values[0], 0)])
        c = x if x.dtype == boolean else self.b.ne(x, 0)
        els = self.rng.random() < 0.5
        with self.b.if_(c, els=els) as token:
            with self.scope():
                self.body()
            if els:
                self.b.else_(token)
                with self.scope():
                    self.body()
