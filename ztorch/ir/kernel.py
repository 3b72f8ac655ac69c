"""The data model of a kernel: memories, variables and a flat list of typed instructions."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ztorch.dtypes import DType, from_storage, to_storage

OPENING = {"loop": "end_loop", "if": "end_if"}  # opcodes that open a scope, and their ends
PRIVATE_KINDS = ("parallel", "grid", "block")  # loops shared by threads

SWIZZLE_LINE = 128  # bytes of a line of a swizzled memory: all banks of a GPU's shared memory
SWIZZLE_REPEAT = 1024  # bytes after which the swizzle repeats, and to which the memory is aligned
PART_BITS = 10  # mantissa bits of float32 that matrix units multiply, where they round it
WARPGROUP = 4  # neighboring subgroups that compute an asynchronous product together
ASYNC_PRODUCTS = ("mma_async", "mma_held_async")  # opcodes; the third operand on is a variable

Grid = tuple[int, int, int]  # workgroups along x, y and z


@dataclass(frozen=True, slots=True)
class MmaShape:
    """The shape of a matrix product that a subgroup computes in one instruction: a @ b + c."""

    m: int  # rows of a and c
    n: int  # columns of b and c
    k: int  # columns of a, rows of b
    of: DType  # dtype of a and b
    into: DType  # dtype of c
    mantissa_bits: int = 0  # kept of a and b by rounding (asynchronous: truncation); 0: all

    @property
    def split(self) -> bool:
        """Whether a and b are each two parts, their leading bits and the rest, of which three
        products are added: all but the one of both rests."""
        return self.mantissa_bits > PART_BITS

    @property
    def products(self) -> int:
        """Products of the matrix units in one instruction."""
        return 3 if self.split else 1

    @property
    def parts(self) -> int:
        """Parts of an operand that is stored for asynchronous products."""
        return 2 if self.split else 1

    @property
    def rate(self) -> str:
        """The name of the rate of such products in data sheets."""
        return "tf32" if self.mantissa_bits else self.of.name

    def __str__(self) -> str:
        bits = f":{self.mantissa_bits}" if self.mantissa_bits else ""
        return f"{self.m}x{self.n}x{self.k} {self.of!r}{bits} {self.into!r}"


@dataclass(frozen=True, slots=True)
class Fragment:
    """Marks a value as one thread's part of a matrix. Without a named layout, the layout depends on
    the machine."""

    role: str  # which of the matrices: a, b or c
    shape: MmaShape  # shape of the product that it takes part in
    layout: str = ""  # name in `layouts.py`: which thread has which element; empty: unknown

    @property
    def dtype(self) -> DType:
        return self.shape.into if self.role == "c" else self.shape.of

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        s = self.shape
        return {"a": (s.m, s.k), "b": (s.k, s.n), "c": (s.m, s.n)}[self.role]

    @property
    def size(self) -> int:
        """Number of elements of the whole matrix."""
        return self.extent[0] * self.extent[1]


# Operands and instructions are immutable. They are not `frozen`, because there are very many of
# them and a frozen one takes four times as long to create: `Final` lets mypy check the rule.
@dataclass(slots=True)
class Operand:
    """Something that an instruction reads or defines.

    kind is `value` (assigned once), `variable` (mutable, declared on the kernel), `counter` (of a
    loop, read-only in its body), `token` (the id of an instruction without a result) or `const`.
    """

    id: Final[int]  # unique in the kernel; -1 for constants
    dtype: Final[DType]  # of each lane
    lanes: Final[int] = 1  # elements of a vector; a constant is the same number in every lane
    kind: Final[str] = "value"  # value, variable, counter, token or const
    bits: Final[int | None] = None  # of a constant; as bits, 0.0 differs from -0.0 and 1 from 1.0
    fragment: Final[Fragment | None] = None  # not None: the lanes are a thread's part of a matrix

    def __hash__(self) -> int:
        return hash((self.id, self.bits, self.lanes))

    @property
    def type(self) -> tuple[DType, int, Fragment | None]:
        return self.dtype, self.lanes, self.fragment

    @property
    def is_const(self) -> bool:
        return self.kind == "const"

    @property
    def number(self) -> Any:
        """The value of a constant as a Python number."""
        assert self.bits is not None, "only constants have a number"
        if self.dtype.kind == "b":
            return bool(self.bits)
        if self.dtype.is_int:
            negative = self.dtype.kind == "s" and self.bits >> (self.dtype.bits - 1)
            return self.bits - (1 << self.dtype.bits) if negative else self.bits
        raw = np.array(self.bits, dtype=f"u{self.dtype.bytes}").view(self.dtype.numpy)
        return from_storage(self.dtype, raw).item()


def constant(number: Any, dtype: DType, lanes: int = 1) -> Operand:
    """Make a constant operand.

    >>> from ztorch.dtypes import f32
    >>> hex(constant(1.0, f32).bits), constant(-0.0, f32) == constant(0.0, f32)
    ('0x3f800000', False)
    """
    if dtype.kind == "b":
        return Operand(-1, dtype, lanes, "const", int(bool(number)))
    if dtype.is_int:
        return Operand(-1, dtype, lanes, "const", int(number) & ((1 << dtype.bits) - 1))
    stored = to_storage(dtype, np.array(number, dtype.working))
    return Operand(-1, dtype, lanes, "const", int(stored.view(f"u{dtype.bytes}")))


@dataclass(slots=True)
class Instr:
    """One instruction.

    Every instruction has a dest, so that templates can derive the names of temporaries from its id.
    """

    opcode: Final[str]  # a key of OPCODES
    dest: Final[Operand]  # the result; a token if there is none
    args: Final[tuple[Operand, ...]] = ()  # operands; an access with a mask has it last
    attrs: Final[dict[str, Any]] = field(default_factory=dict)  # by name, as OPCODES lists them


@dataclass(frozen=True, slots=True)
class Memory:
    """A named, typed buffer.

    space is `global` (a parameter of the kernel), `shared` (one array per workgroup) or `local`
    (one array per thread, on its stack).

    Indices count elements in their logical order, also in a swizzled memory. There a target may
    store chunk c (16 bytes) of line r (128 bytes) at chunk `c ^ (r % 8)`, so that threads that
    access the same chunk of eight lines use different banks.
    """

    name: str  # an identifier, unique in the kernel
    dtype: DType  # of an element
    size: int  # number of elements
    space: str = "global"  # global, shared or local
    access: str = "r"  # r, w or rw
    vec: int = 1  # 1, 2 or 4: vector width of its elements, in languages that must declare it
    atomic: bool = False  # elements are updated atomically, in languages that must declare it
    swizzled: bool = False  # the chunks of each line are permuted; shared memory only
    streamed: bool = False  # stores bypass the caches if the machine can; never read

    @property
    def is_far(self) -> bool:
        """Whether 32 bits do not hold the byte offsets of all elements."""
        return self.size * self.dtype.bytes > 1 << 32


@dataclass(frozen=True)
class Kernel:
    """The code of one launch."""

    name: str  # an identifier
    memories: tuple[Memory, ...]  # those in global space are the parameters
    variables: tuple[Operand, ...]  # operands of kind variable
    body: tuple[Instr, ...]  # flat; loop and if are closed by end_loop and end_if
    index: DType  # dtype of every index and loop counter
    exact: bool = True  # no target may fuse a mul and an add
    origin: tuple[str, ...] = ()  # names of the layers it came from
    workgroup: tuple[int, int, int] = (1, 1, 1)  # threads per workgroup along x, y, z on a grid
    cluster: int = 1  # neighboring workgroups along x that reach each other's shared memory
    resident_threads: int = 0  # that share a compute unit's registers; 0: as many as usual
    # For errors, the user's line of instructions from an id on, in order; "" if it is not known.
    lines: tuple[tuple[int, str], ...] = field(default=(), compare=False, repr=False)

    def memory(self, name: str) -> Memory:
        """The memory of this name."""
        for m in self.memories:
            if m.name == name:
                return m
        raise KeyError(name)

    def opcodes(self) -> set[str]:
        """The opcodes that occur in the body."""
        return {i.opcode for i in self.body}

    def line_at(self, at: int) -> str:
        """The user's line of an instruction, or of the closest one before it that has one:
        instructions that took the place of others have none."""
        for instr in reversed(self.body[:at + 1]):
            after = bisect.bisect_right(self.lines, instr.dest.id, key=operator.itemgetter(0))
            if after and self.lines[after - 1][1]:
                return self.lines[after - 1][1]
        return ""


def matching(body: tuple[Instr, ...] | list[Instr]) -> Iterator[tuple[int, int]]:
    """Yield the positions of each `loop` or `if` and of its end."""
    open_at: list[int] = []
    for at, instr in enumerate(body):
        if instr.opcode in OPENING:
            open_at.append(at)
        elif instr.opcode in OPENING.values():
            yield open_at.pop(), at


def branches(body: tuple[Instr, ...] | list[Instr], start: int, end: int) -> int:
    """The position of the `else` of the `if` from `start` to `end`; its end where it has none."""
    depth = 0
    for at in range(start + 1, end):
        opcode = body[at].opcode
        depth += (opcode in OPENING) - (opcode in OPENING.values())
        if opcode == "else" and depth == 0:
            return at
    return end


def set_in_loop(body: tuple[Instr, ...], start: int) -> set[int]:
    """The ids of the variables that are set in the loop that starts at a position."""
    variables: set[int] = set()
    depth = 0
    for i in body[start:]:
        depth += (i.opcode == "loop") - (i.opcode == "end_loop")
        if depth == 0:
            break
        variables.update(v.id for v in assigned(i))
    return variables


def assigned(instr: Instr) -> tuple[Operand, ...]:
    """The variables that an instruction assigns.

    >>> from ztorch.dtypes import f32
    >>> v = Operand(0, f32, kind="variable")
    >>> [x.id for x in assigned(Instr("set", v, (v, constant(1.0, f32))))]
    [0]
    """
    if instr.opcode == "set":
        return instr.args[:1]
    return instr.args[2:] if instr.opcode in ASYNC_PRODUCTS else ()


def launch_grid(kernel: Kernel) -> Grid:
    """The number of workgroups along each axis: one per iteration of the kernel's grid loops."""
    size = [1, 1, 1]
    for i in kernel.body:
        if i.opcode == "loop" and i.attrs["kind"] == "grid" and all(a.is_const for a in i.args):
            axis = i.attrs.get("axis", 0)
            size[axis] = max(size[axis], len(range(*[a.number for a in i.args])))
    return size[0], size[1], size[2]
