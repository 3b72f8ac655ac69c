"""Builds kernels: declarations, memory, variables, loops and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ztorch.dtypes import DType, boolean, i64
from ztorch.ir.expressions import Arg
from ztorch.ir.kernel import Fragment, Instr, Kernel, Memory, Operand, constant
from ztorch.ir.library_convolutions import call_name
from ztorch.ir.ring_builder import Rings


class Builder(Rings):
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
        super().__init__(index, first_id)
        self.name = name
        self.exact = exact
        self.memories: dict[str, Memory] = {}
        self.variables: list[Operand] = []
        self.origin: tuple[str, ...] = ()
        self.line = ""  # of the user's source, that what comes next is from
        self.lines: list[tuple[int, str]] = []
        self.workgroup: tuple[int, int, int] = (1, 1, 1)
        self.cluster = 1
        self.resident_threads = 0

    # -- declarations ------------------------------------------------------------------------

    def memory(
        self, name: str, dtype: DType, size: int, space: str = "global", access: str = "r",
        vec: int = 1, swizzled: bool = False,
    ) -> str:
        """Declare a buffer. Returns its name."""
        assert name not in self.memories, f"memory {name} is declared twice"
        self.memories[name] = Memory(name, dtype, size, space, access, vec,
                                     swizzled=swizzled)
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
            self.index, self.exact, self.origin, self.workgroup, self.cluster,
            self.resident_threads, tuple(self.lines and [*self.lines, (self._next, "")]),
        )

    @contextmanager
    def at_line(self, line: str) -> Iterator[None]:
        """Instructions within are from this line of the user's source; "" is that around it."""
        around, self.line = self.line, line or self.line
        if line:
            self.lines.append((self._next, line))
        yield
        self.line = around
        if line:
            self.lines.append((self._next, around))

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

    def prefetch(self, mem: str, index: Arg, off: int = 0, cache: int = 1) -> None:
        """Prefetch the line of an element into the L1 or L2 cache. It is only a hint and may
        be out of bounds."""
        self._token("prefetch", self._index(index), mem=mem, off=off, cache=cache)

    def _index(self, index: Arg) -> Operand:
        if isinstance(index, Operand):
            return index
        self.need_index(int(index))
        return constant(index, self.index)

    def need_index(self, number: int) -> None:
        """Raises `OverflowError` if an index cannot be so large."""
        most = (1 << self.index.bits - 1) - 1
        if number > most:
            raise OverflowError(f"counts to {number:,}, but indices of this device have "
                                f"{self.index.bits} bits and end at {most:,}")

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
        """A counted loop, tested before each iteration. kind: serial, parallel, grid or block."""
        bounds = tuple(self._index(x) for x in (start, stop, step))
        counter = Operand(self.fresh(), self.index, 1, "counter")
        self.body.append(Instr("loop", counter, bounds, {"kind": kind, **attrs}))
        with self._scope():
            yield counter
        self._token("end_loop", counter, *bounds)

    def while_(self, counter: Operand, condition: Operand, rare: bool = False) -> None:
        """Leave the innermost loop, whose counter this is, unless the condition is true in some
        lane. The rest of the iteration and later iterations do not run then. `rare`: the condition
        is rarely true, so the rest must not take registers from the surrounding code."""
        self._token("while", counter, condition, rare=rare)

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

    def identity(self, name: str, axis: int = 0) -> Operand:
        """The value of `worker`, `workers` (CPU threads), `grid_id` or `block_id` (per axis)."""
        return self._pure(name, self.index, 1, (), axis=axis)

    def barrier(self) -> None:
        """Wait for all threads of the workgroup. Earlier writes to shared memory become visible."""
        self._token("barrier")

    def atomic(self, update: str, mem: str, index: Arg, *xs: Operand, off: int = 0) -> Operand:
        """Update an element atomically: `add`, `min`, `max`, `exchange`, or `cas` (expected, new).
        Returns the old element."""
        return self.raw(f"atomic_{update}", xs[-1].dtype, 1, (self._index(index), *xs), mem=mem,
                        off=off)

    def shuffle_xor(self, x: Operand, mask: int) -> Operand:
        """x of the thread whose number in the subgroup is this thread's number xor mask."""
        return self.raw("shuffle_xor", x.dtype, x.lanes, (x,), mask=mask)

    def copy_async(self, mem: str, index: Arg, source: str, source_index: Arg, elements: int,
                   inside: Operand | None = None, off: int = 0, source_off: int = 0,
                   align: int = 0) -> None:
        """Start to copy contiguous elements of the global memory `source` to the shared memory
        `mem`, both aligned to `align` bytes; zeros if not `inside`. No thread may access the target
        until this thread has waited for the copy."""
        holds = constant(True, boolean) if inside is None else inside
        self._token("copy_async", self._index(index), self._index(source_index), holds, mem=mem,
                    off=off, align=align, source=source, source_off=source_off, elements=elements)

    def copies_commit(self) -> None:
        """End the group of copies that each thread has started since the last group."""
        self._token("copies_commit")

    def copies_wait(self, pending: int = 0) -> None:
        """Wait until all groups of a thread but its last `pending` have completed."""
        self._token("copies_wait", pending=pending)

    def mma_load(self, mem: str, index: Arg, fragment: Fragment, subgroup: int, pitch: int,
                 transposed: bool = False, off: int = 0, align: int = 0) -> Operand:
        """Load a matrix. `pitch` is the stride of its rows, or of its columns if `transposed`. Each
        thread of the subgroup gets its fragment."""
        return self.raw("mma_load", fragment.dtype, fragment.size // subgroup,
                        (self._index(index),), fragment=fragment, mem=mem, off=off, align=align,
                        pitch=pitch, transposed=transposed)

    def mma(self, a: Operand, b: Operand, c: Operand) -> Operand:
        """The fragment of the matrix a @ b + c."""
        return self.raw("mma", c.dtype, c.lanes, (a, b, c), fragment=c.fragment)

    def mma_join(self, fragment: Fragment, *xs: Operand) -> Operand:
        """A fragment from the elements of each thread, rounded to the fragment's dtype."""
        return self.raw("mma_join", fragment.dtype, len(xs), xs, fragment=fragment)

    def mma_store(self, mem: str, index: Arg, c: Operand, pitch: int, transposed: bool = False,
                  off: int = 0, align: int = 0) -> None:
        """Store a matrix. `pitch` is the stride of its rows, or of its columns if `transposed`."""
        self._token("mma_store", self._index(index), c, mem=mem, off=off, align=align,
                    pitch=pitch, transposed=transposed)

    def mma_async(self, mem: str, index: Arg, source: str, source_index: Arg,
                  sums: Sequence[Operand], off: int = 0, transposed: bool = False,
                  source_off: int = 0, source_transposed: bool = False, panel: int = 0,
                  fresh: bool = False) -> None:
        """Start to add a @ b to the adjacent variables `sums`, or to zero if `fresh`. a is in the
        swizzled memory `mem`, b in `source`. No thread may access the variables or write to the
        operands until the threads have waited for the product."""
        self._token("mma_async", self._index(index), self._index(source_index), *sums, mem=mem,
                    off=off, transposed=transposed, source=source, source_off=source_off,
                    source_transposed=source_transposed, panel=panel, fresh=fresh)

    def mma_held_async(self, a: Operand, mem: str, index: Arg, sums: Sequence[Operand],
                       off: int = 0, transposed: bool = False, panel: int = 0, parts: int = 0,
                       fresh: bool = False) -> None:
        """The same with a in registers of each subgroup, and b in the swizzled memory `mem`, whose
        lines run along k if `transposed`. Both parts of b are `parts` elements apart."""
        self._token("mma_held_async", self._index(index), a, *sums, mem=mem, off=off,
                    transposed=transposed, panel=panel, parts=parts, fresh=fresh)

    def library_product(self, mem: str, index: Arg, source: str, source_index: Arg, right: str,
                        right_index: Arg, **sizes: Any) -> None:
        """Multiply the matrices at places of two memories into one of `mem`, by a function of a
        library. `sizes`: the other attributes of the opcode."""
        self._token("library_product", *map(self._index, (index, source_index, right_index)),
                    mem=mem, source=source, right=right,
                    **{"off": 0, "source_off": 0, "right_off": 0, **sizes})

    def library_convolution(self, mem: str, index: Arg, source: str, source_index: Arg, right: str,
                            right_index: Arg, **sizes: Any) -> None:
        """Convolve the images at a place of a memory with the filters of another, in the same
        way."""
        attrs = {"off": 0, "source_off": 0, "right_off": 0, "bias": "", "bias_off": 0,
                 "mirrored": False, "swapped": False, **sizes}
        self._token("library_convolution", *map(self._index, (index, source_index, right_index)),
                    mem=mem, source=source, right=right, call=call_name(attrs), **attrs)

    def mma_fence(self) -> None:
        """Order assignments to matrices before asynchronous products that accumulate into them."""
        self._token("mma_fence")

    def shared_fence(self) -> None:
        """Order this thread's writes to shared memory before asynchronous products."""
        self._token("shared_fence")

    def mma_commit(self) -> None:
        """End the group of products that each thread has started since the last group."""
        self._token("mma_commit")

    def mma_wait(self, pending: int = 0) -> None:
        """Wait until all groups of products of a thread but its last `pending` are complete."""
        self._token("mma_wait", pending=pending)
