"""Builds expressions: converts numbers, broadcasts scalars, reuses equal values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean
from ztorch.ir.kernel import Fragment, Instr, Operand, constant
from ztorch.ir.opcodes import OPCODES

Number = int | float | bool
Arg = Operand | Number


class Expressions:
    """Appends instructions that compute, to `body`."""

    def __init__(self, index: DType, first_id: int):
        self.index = index
        self.body: list[Instr] = []
        self._next = first_id  # the next free id
        self._visible: dict[tuple, Operand] = {}  # pure values in scope, by operation
        self._scopes: list[list[tuple]] = [[]]  # keys of `_visible` for each open loop or if

    def fresh(self) -> int:
        """Take the next free id."""
        self._next += 1
        return self._next - 1

    def raw(self, opcode: str, dtype: DType, lanes: int, args: tuple[Operand, ...],
            kind: str = "value", fragment: Fragment | None = None, **attrs: Any) -> Operand:
        """Append an instruction as it is, without conversion, folding or reuse."""
        dest = Operand(self.fresh(), dtype, lanes, kind, None, fragment)
        self.body.append(Instr(opcode, dest, args, attrs))
        return dest

    def _token(self, opcode: str, *args: Operand, **attrs: Any) -> Operand:
        return self.raw(opcode, boolean, 1, args, "token", **attrs)

    def _pure(self, opcode: str, dtype: DType, lanes: int, args: tuple[Operand, ...],
              **attrs: Any) -> Operand:
        # An id represents its operand: it is hashed faster.
        key = (opcode, dtype, lanes, *[a.id if a.bits is None else a for a in args],
               *(sorted(attrs.items()) if attrs else ()))
        dest = self._visible.get(key)
        if dest is None:
            dest = self._visible[key] = self.raw(opcode, dtype, lanes, args, **attrs)
            self._scopes[-1].append(key)
        return dest

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append([])
        yield
        self.forget()
        self._scopes.pop()

    def forget(self) -> None:
        """Drop the values of the innermost scope: later code must not reuse them."""
        for key in self._scopes[-1]:
            del self._visible[key]
        self._scopes[-1].clear()

    def const(self, number: Number, dtype: DType, lanes: int = 1) -> Operand:
        return constant(number, dtype, lanes)

    def __getattr__(self, opcode: str) -> Callable[..., Operand]:
        name = opcode.rstrip("_")  # and_, or_, not_: the plain names are Python keywords
        if name not in OPCODES:
            raise AttributeError(opcode)

        def emitted(self: Expressions, *args: Arg, dtype: DType | None = None) -> Operand:
            return self.emit(name, *args, dtype=dtype)

        setattr(Expressions, opcode, emitted)  # found there from now on, which is faster
        method: Callable[..., Operand] = getattr(self, opcode)
        return method

    def emit(self, opcode: str, *args: Arg, dtype: DType | None = None) -> Operand:
        """Append a scalar opcode. Numbers become constants, scalars are broadcast to the lanes."""
        row = OPCODES[opcode]
        assert row.meaning is not None, f"{opcode} is not a scalar opcode"
        assert len(args) == row.arity, f"{opcode} takes {row.arity} operands, not {len(args)}"
        typed = self._adapt(args, first=1 if opcode == "select" else 0)
        source = typed[-1].dtype
        result = source if row.result == "same" else boolean if row.result == "bool" else dtype
        assert result is not None, f"{opcode} needs dtype="
        if opcode == "cast" and result == source:
            return typed[0]
        lanes = typed[-1].lanes
        if typed[0].is_const and all(a.is_const for a in typed) and opcode != "bitcast":
            with np.errstate(all="ignore"):
                folded = row.meaning(*[np.array(a.number, a.dtype.working) for a in typed],
                                     **({"dtype": result} if row.result == "attr" else {}))
            return constant(np.asarray(folded).item(), result, lanes)
        if opcode == "select" and typed[0].is_const:
            return typed[1] if typed[0].number else typed[2]
        return self._pure(opcode, result, lanes, typed)

    def apply(self, formula: Callable[..., Operand], *args: Operand) -> Operand:
        """The result of a formula, such as a rewriting: a function of a builder and operands."""
        return formula(self, *args)

    def _adapt(self, args: tuple[Arg, ...], first: int = 0) -> tuple[Operand, ...]:
        """Make numbers constants of the dtype of args[first:], and broadcast scalars to lanes."""
        operands = [a for a in args if isinstance(a, Operand)]
        widths = {a.lanes for a in operands}
        if len(operands) == len(args) and len(widths) == 1:  # most are so
            return tuple(operands)
        lanes = max(widths, default=0)
        typed = [a for a in args[first:] if isinstance(a, Operand)]
        assert operands, "an instruction on plain numbers has no dtype; use const() for one of them"
        assert typed, "select between plain numbers has no dtype; use const() for one of them"
        dtype = typed[0].dtype
        adapted: list[Operand] = []
        for place, a in enumerate(args):
            if not isinstance(a, Operand):
                a = constant(a, dtype if place >= first else boolean, lanes)
            adapted.append(a if a.lanes == lanes else self.splat(a, lanes))
        return tuple(adapted)

    # -- lanes -------------------------------------------------------------------------------

    def splat(self, x: Operand, lanes: int) -> Operand:
        """A vector with the scalar x in every lane."""
        if x.lanes == lanes:
            return x
        assert x.lanes == 1, f"cannot broadcast {x.lanes} lanes to {lanes}"
        if x.is_const:
            return Operand(-1, x.dtype, lanes, "const", x.bits)
        return self._pure("splat", x.dtype, lanes, (x,))

    def iota(self, lanes: int, dtype: DType | None = None) -> Operand:
        """0, 1, 2, ... across the lanes."""
        d = dtype or self.index
        return constant(0, d) if lanes == 1 else self._pure("iota", d, lanes, ())

    def extract(self, x: Operand, lane: int) -> Operand:
        """One lane of a vector, as a scalar."""
        if x.lanes == 1:
            return x
        if x.is_const:
            return Operand(-1, x.dtype, 1, "const", x.bits)
        return self._pure("extract", x.dtype, 1, (x,), lane=lane)

    def join(self, *xs: Operand) -> Operand:
        """A vector whose lanes are the given scalars."""
        return self._pure("join", xs[0].dtype, len(xs), xs)

    def shuffle(self, x: Operand, y: Operand, perm: tuple[int, ...]) -> Operand:
        """A vector of lanes of x (numbers 0 to n-1) and y (n to 2n-1), chosen by `perm`."""
        return self._pure("shuffle", x.dtype, len(perm), (x, y), perm=tuple(perm))

    def fold(self, opcode: str, x: Operand) -> Operand:
        """Reduce all lanes of x. The tree of halves gives the same order on every target."""
        while x.lanes > 1:
            half = x.lanes // 2
            if half == 1:
                return self.emit(opcode, self.extract(x, 0), self.extract(x, 1))
            low = self.shuffle(x, x, tuple(range(half)))
            high = self.shuffle(x, x, tuple(range(half, 2 * half)))
            x = self.emit(opcode, low, high)
        return x
