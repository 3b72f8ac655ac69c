"""How a target spells types, registers, memories and constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from ztorch.codegen.targets import Target
from ztorch.codegen.templates import SPELLING, macros
from ztorch.codegen.views import MemoryView, OperandView
from ztorch.dtypes import DType, boolean, codes_dtype
from ztorch.errors import Unsupported
from ztorch.ir.kernel import Memory, Operand


@dataclass(frozen=True)
class VectorType:
    """A vector type, for languages that declare types."""

    t: str  # the vector type
    e: str  # the type of a lane
    lanes: int  # number of lanes


@dataclass(frozen=True)
class Literal:
    """A constant in a kernel's text, for languages that declare constants."""

    r: str  # its text
    t: str  # its type
    dtype: str  # name of its dtype
    bits: int  # the bits of the value, as an integer
    number: Any  # the value


class Spelling:
    """The spelling of one target, from its template `spelling`."""

    def __init__(self, target: Target):
        self.target = target
        self._macros: Any = SimpleNamespace(**macros(target, "spelling", SPELLING))
        # Names of integer dtypes that registers hold in a wider one.
        self.widened = str(getattr(self._macros, "widened", str)()).split()
        self._types: dict[tuple[str, int], tuple[str, str]] = {}

    def operand(self, o: Operand, number: str) -> OperandView:
        """An operand as macros receive it. `number` is its number in the text."""
        o = self.as_stored(o)
        t, e = self.type(o.dtype, o.lanes)
        if o.is_const:
            r = self.literal(o)
        else:
            r = str(self._macros.register(o.kind, number))
        k = o.dtype.kind
        parts: tuple[str, ...] = (r,)
        if o.fragment is not None:
            t, count = self.registers(o)
            parts = tuple(r if o.is_const else f"{r}_{n}" for n in range(count))
        return OperandView(
            r, t, e, self._predicate(o.lanes), number, o.dtype.name, o.lanes, k, o.dtype.bits,
            o.number if o.is_const else None, str(self._macros.suffix(o.dtype.name, o.lanes)),
            parts, o.fragment, o.kind)

    def memory(self, m: Memory, number: str) -> MemoryView:
        """A memory as macros receive it. `number` is its number in the text."""
        d = self.register_dtype(m.dtype)
        return MemoryView(str(self._macros.memory(number)), self.type(d, 1)[0],
                          self.type(d, m.vec)[0], number, d.name, m.dtype.bytes, m.size, m.vec,
                          m.space, m.access, m.atomic, m.swizzled, m.streamed, m.is_far)

    def registers(self, o: Operand) -> tuple[str, int]:
        """The type and the number of the registers that hold an operand."""
        if o.fragment is None:
            return self.type(o.dtype, o.lanes)[1], o.lanes
        registers = str(self._macros.fragment_registers(
                o.dtype.name, o.lanes, o.fragment.role, o.fragment.shape.split))
        t, _, count = registers.rpartition(" ")
        return t, int(count)

    def as_stored(self, o: Operand) -> Operand:
        """The operand, with an integer dtype if the target only stores its dtype."""
        return replace(o, dtype=self.register_dtype(o.dtype)) if self.only_stores(o.dtype) else o

    def only_stores(self, d: DType) -> bool:
        """Whether the target stores a dtype but neither converts it nor computes with it. Values
        then have an integer type in the text, which is never converted implicitly."""
        return d.name in self.target.stored_dtypes and d.name not in self.target.converted_dtypes

    def register_dtype(self, d: DType) -> DType:
        """The dtype of the registers and memories that hold numbers of this dtype."""
        return codes_dtype(d) if self.only_stores(d) else d

    def has(self, d: DType) -> bool:
        """Whether the target has a dtype, if only to store it."""
        return self.only_stores(d) or bool(str(self._macros.type(d.name, 1)))

    def type(self, d: DType, lanes: int) -> tuple[str, str]:
        """The types of a vector of this dtype and of one of its lanes."""
        key = (d.name, lanes)
        if key not in self._types:
            vector, lane = (str(self._macros.type(d.name, n)) for n in (lanes, 1))
            if not vector:
                raise Unsupported(f"{self.target.name} has no {d}; use a dtype that it has, such "
                                  "as float32 or int32, or another device")
            self._types[key] = (vector, lane)
        return self._types[key]

    def _predicate(self, lanes: int) -> str:
        return self.type(boolean, lanes)[0]

    def constant(self, o: Operand) -> Literal:
        """A constant as frames receive it."""
        o = self.as_stored(o)
        assert o.bits is not None
        return Literal(self.literal(o), self.type(o.dtype, 1)[0], o.dtype.name, o.bits, o.number)

    def literal(self, o: Operand) -> str:
        """The text of a constant.

        The macro receives its bits. For a float it also receives the bits of the equal double, and
        C's hexadecimal notation if the number is finite.
        """
        number = o.number
        hex16 = hex64 = exact = ""
        if o.dtype.is_float:
            with np.errstate(all="ignore"):
                hex64 = f"{int(np.float64(number).view(np.uint64)):016X}"
            exact = float(number).hex() if np.isfinite(number) else ""
        if o.dtype.is_float and o.dtype.bits == 16:
            hex16 = f"{o.bits:04X}"
        return str(self._macros.literal(o.dtype.name, o.lanes, o.dtype.kind, number, hex16, hex64,
                                        o.bits, exact))

    def offset(self, number: int, bits: int) -> str:
        """The text of a constant offset, from the target's macro if it has one."""
        macro = getattr(self._macros, "offset", None)
        return str(number if macro is None else macro(number, bits))
