"""Builds kernels: converts numbers, broadcasts scalars to lanes, reuses equal values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, i64
from ztorch.ir.kernel import Fragment, Instr, Kernel, Memory, Operand, constant
from ztorch.ir.opcodes import OPCODES

Number = int | float | bool
Arg = Operand | Number


class Builder:
    """Appends instructions to a kernel.

    Every scalar opcode is a method: `b.add(x, 1.0)`. Python numbers take the dtype of the other
    operands, and scalars are broadcast to their lanes. Operations on constants are folded. A pure
    operation that was already computed in a visible scope is reused.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("double")
    >>> _ = b.memory("x", f32, 8), b.memory("y", f32, 8, access="w")
    >>> with b.loop(0, 8) as i:
    ...     b.store("y", i, b.mul(b.load("x", i), 2.0))
    >>> [i.opcode for i in b.kernel().body]
    ['loop', 'load', 'mul', 'store', 'end_loop']
    """

    def __init__(self, name: str, index: DType = i64, exact: bool = True, first_id: int = 0):
        self.name = name
        self.index = index
        self.exact = exact
        self.memories: dict[str, Memory] = {}
        self.variables: list[Operand] = []
        self.body: list[Instr] = []
        self.origin: tuple[str, ...] = ()
        self.workgroup: tuple[int, int, int] = (1, 1, 1)
        self._next = first_id  # the next free id
        self._visible: dict[tuple, Operand] = {}  # pure values in scope, by operation
        self._scopes: list[list[tuple]] = [[]]  # keys of `_visible` for each open loop or if

    # -- declarations ------------------------------------------------------------------------

    def memory(
        self, name: str, dtype: DType, size: int, space: str = "global", access: str = "r",
        vec: int = 1,
    ) -> str:
        """Declare a buffer. Returns its name."""
        assert name not in self.memories, f"memory {name} is declared twice"
        self.memories[name] = Memory(name, dtype, size, space, access, vec)
        return name

    def var(self, dtype: DType, lanes: int = 1, init: Arg | None = None) -> Operand:
        """Declare a mutable variable. If `init` is given, set it here."""
        v = Operand(self.fresh(), dtype, lanes, "variable")
        self.variables.append(v)
        if init is not None:
            self.set(v, init)
        return v

    def matrix(self, fragment: Fragment, subgroup: int, init: Arg) -> Operand:
        """Declare a variable that holds a matrix fragment, and set every element to `init`."""
        lanes = fragment.size // subgroup
        v = Operand(self.fresh(), fragment.dtype, lanes, "variable", None, fragment)
        self.variables.append(v)
        self.set(v, init)
        return v

    def kernel(self) -> Kernel:
        """The kernel as built so far."""
        return Kernel(
            self.name, tuple(self.memories.values()), tuple(self.variables), tuple(self.body),
            self.index, self.exact, self.origin, self.workgroup,
        )

    # -- emission ----------------------------------------------------------------------------

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
        key = (opcode, dtype, lanes, args, *sorted(attrs.items()))
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
        return partial(self.emit, name)

    def emit(self, opcode: str, *args: Arg, dtype: DType | None = None) -> Operand:
        """Append a scalar opcode. Numbers become constants, scalars are broadcast to the lanes."""
        row = OPCODES[opcode]
        assert row.meaning is not None, f"{opcode} is not a scalar opcode"
        assert len(args) == row.arity, f"{opcode} takes {row.arity} operands, not {len(args)}"
        typed = self._adapt(args, first=1 if opcode == "select" else 0)
        source = typed[-1].dtype
        result = {"same": source, "bool": boolean, "attr": dtype}[row.result]
        assert result is not None, f"{opcode} needs dtype="
        if opcode == "cast" and result == source:
            return typed[0]
        lanes = typed[-1].lanes
        if all(a.is_const for a in typed) and (opcode != "bitcast"):
            with np.errstate(all="ignore"):
                folded = row.meaning(*[np.array(a.number, a.dtype.working) for a in typed],
                                     **({"dtype": result} if row.result == "attr" else {}))
            return constant(np.asarray(folded).item(), result, lanes)
        return self._pure(opcode, result, lanes, typed)

    def apply(self, formula: Callable[..., Operand], *args: Operand) -> Operand:
        """What a function of a builder and operands emits, such as a rewriting."""
        return formula(self, *args)

    def _adapt(self, args: tuple[Arg, ...], first: int = 0) -> tuple[Operand, ...]:
        """Turn numbers into constants of the dtype of args[first:]; broadcast scalars to lanes."""
        operands = [a for a in args if isinstance(a, Operand)]
        typed = [a for a in args[first:] if isinstance(a, Operand)]
        assert operands, "an instruction on plain numbers has no dtype; use const() for one of them"
        assert typed, "select between plain numbers has no dtype; use const() for one of them"
        dtype = typed[0].dtype
        lanes = max(a.lanes for a in operands)
        adapted: list[Operand] = []
        for place, a in enumerate(args):
            if not isinstance(a, Operand):
                a = constant(a, dtype if place >= first else boolean, lanes)
            adapted.append(self.splat(a, lanes))
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

    # -- memory ------------------------------------------------------------------------------

    def load(self, mem: str, index: Arg, off: int = 0, lanes: int = 1, dtype: DType | None = None,
             mask: Operand | None = None, align: int = 0) -> Operand:
        """Load `lanes` consecutive elements from `index + off` and convert them to `dtype`. Lanes
        that are masked off are zero. An index with several lanes gathers."""
        m = self.memories[mem]
        at = self._index(index)
        opcode = "load"
        if at.lanes > 1:
            opcode, lanes = "gather", at.lanes
        args = (at,) if mask is None else (at, mask)
        d = dtype or m.dtype
        if m.access == "r" and m.space == "global":
            return self._pure(opcode, d, lanes, args, mem=mem, off=off, align=align)
        return self.raw(opcode, d, lanes, args, mem=mem, off=off, align=align)

    def store(self, mem: str, index: Arg, x: Operand, off: int = 0,
              mask: Operand | None = None, align: int = 0) -> None:
        """Store x to consecutive elements from `index + off`. An index with lanes scatters."""
        at = self._index(index)
        opcode = "store" if at.lanes == 1 else "scatter"
        if at.lanes > 1:
            x = self.splat(x, at.lanes)
        args = (at, x) if mask is None else (at, x, mask)
        self._token(opcode, *args, mem=mem, off=off, align=align)

    def prefetch(self, mem: str, index: Arg, off: int = 0) -> None:
        """Prefetch the cache line of an element. It is only a hint and may be out of bounds."""
        self._token("prefetch", self._index(index), mem=mem, off=off)

    def _index(self, index: Arg) -> Operand:
        return index if isinstance(index, Operand) else constant(index, self.index)

    # -- variables ---------------------------------------------------------------------------

    def get(self, v: Operand) -> Operand:
        """The current value of a variable."""
        return self.raw("get", v.dtype, v.lanes, (v,), fragment=v.fragment)

    def set(self, v: Operand, x: Arg) -> None:
        """Assign x to a variable."""
        if not isinstance(x, Operand):
            x = replace(constant(x, v.dtype, v.lanes), fragment=v.fragment)
        self._token("set", v, self.splat(x, v.lanes))

    # -- structure ---------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: Arg, stop: Arg, step: Arg = 1, kind: str = "serial",
             **attrs: Any) -> Iterator[Operand]:
        """A counted loop, tested before each trip. kind: serial, parallel, grid or block."""
        bounds = tuple(self._index(x) for x in (start, stop, step))
        counter = Operand(self.fresh(), self.index, 1, "counter")
        self.body.append(Instr("loop", counter, bounds, {"kind": kind, **attrs}))
        with self._scope():
            yield counter
        self._token("end_loop", counter, *bounds)

    @contextmanager
    def if_(self, condition: Operand, els: bool = False) -> Iterator[Operand]:
        """Run the block if the condition holds. Pass els=True if `else_` is called in it."""
        token = self._token("if", condition, els=els)
        with self._scope():
            yield token
        self._token("end_if", token, els=els)

    def else_(self, token: Operand) -> None:
        """End the first branch of the enclosing `if_` and start the other one."""
        self.forget()
        self._token("else", token)

    # -- threads -----------------------------------------------------------------------------

    def identity(self, which: str, axis: int = 0) -> Operand:
        """The value of `worker`, `workers` (CPU threads), `grid_id` or `block_id` (per axis)."""
        return self._pure(which, self.index, 1, (), axis=axis)

    def barrier(self) -> None:
        """Wait for all threads of the workgroup. Earlier writes to shared memory become visible."""
        self._token("barrier")

    def shuffle_xor(self, x: Operand, mask: int) -> Operand:
        """x of another thread: the one whose number in the subgroup is this one's xor mask."""
        return self.raw("shuffle_xor", x.dtype, x.lanes, (x,), mask=mask)

    def mma_load(self, mem: str, index: Arg, fragment: Fragment, subgroup: int, pitch: int,
                 turned: bool = False, off: int = 0, align: int = 0) -> Operand:
        """Load a matrix. Its rows are `pitch` elements apart, or its columns if it is turned. Each
        thread of the subgroup gets its fragment."""
        return self.raw("mma_load", fragment.dtype, fragment.size // subgroup,
                        (self._index(index),), fragment=fragment, mem=mem, off=off, align=align,
                        pitch=pitch, turned=turned)

    def mma(self, a: Operand, b: Operand, c: Operand) -> Operand:
        """The fragment of the matrix a @ b + c."""
        return self.raw("mma", c.dtype, c.lanes, (a, b, c), fragment=c.fragment)

    def mma_store(self, mem: str, index: Arg, c: Operand, pitch: int, turned: bool = False,
                  off: int = 0, align: int = 0) -> None:
        """Store a matrix. Its rows are `pitch` elements apart, or its columns if it is turned."""
        self._token("mma_store", self._index(index), c, mem=mem, off=off, align=align,
                    pitch=pitch, turned=turned)
