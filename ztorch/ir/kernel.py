"""What a kernel is: memories, variables and a flat list of typed instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.dtypes import DType, from_storage, to_storage

OPENING = {"loop": "end_loop", "if": "end_if"}
PRIVATE_KINDS = ("parallel", "grid", "block")  # of loops: a trip may be on a thread of its own

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class MmaShape:
    """A size in which subgroups multiply matrices in one instruction: a (m by k) times b (k by n)
    added to c (m by n).

    `of` is the dtype of a and b, `into` that of c.
    """

    m: int
    n: int
    k: int
    of: DType
    into: DType
    mantissa_bits: int = 0  # of a and b that count, the rest is rounded away; 0: all of them

    def __str__(self) -> str:
        bits = f":{self.mantissa_bits}" if self.mantissa_bits else ""
        return f"{self.m}x{self.n}x{self.k} {self.of!r}{bits} {self.into!r}"


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a value is that is one thread's part of a matrix: which of the three matrices of which
    shape. Where in the matrix its elements lie is the machine's secret."""

    role: str  # a, b or c
    shape: MmaShape

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
        return self.extent[0] * self.extent[1]


@dataclass(frozen=True, slots=True)
class Operand:
    """What an instruction reads or defines.

    kind is `value` (assigned once), `variable` (mutable, declared on the kernel), `counter` (of a
    loop, read-only in its body), `token` (names an instruction without a result) or `const`.
    Constants are held as bits, so that 0.0 and -0.0, or 1 and 1.0, never pass for one another.
    With lanes > 1 a constant stands for the same number in every lane. A `fragment` is the part
    of a matrix that a thread holds in its lanes.
    """

    id: int
    dtype: DType
    lanes: int = 1
    kind: str = "value"
    bits: int | None = None
    fragment: Fragment | None = None

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
        """The Python number of a constant."""
        assert self.bits is not None, "only constants have a number"
        if self.dtype.kind == "b":
            return bool(self.bits)
        raw = np.array(self.bits, dtype=f"u{self.dtype.bytes}").view(self.dtype.numpy)
        return from_storage(self.dtype, raw).item()


def constant(number: Any, dtype: DType, lanes: int = 1) -> Operand:
    """A constant operand.

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


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. Every instruction has a dest (a token where there is no result), so that
    templates can derive the names of their temporaries from its id alone."""

    opcode: str
    dest: Operand
    args: tuple[Operand, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """A named, typed buffer of `size` elements.

    space is `global` (a parameter of the kernel), `shared` (one array a workgroup) or `local` (one
    a thread, on its stack); access is `r`, `w` or `rw`; vec (1, 2 or 4) is how many neighbours it
    is an array of, in languages where that must be said to load them at once.
    """

    name: str
    dtype: DType
    size: int
    space: str = "global"
    access: str = "r"
    vec: int = 1


@dataclass(frozen=True)
class Kernel:
    """One launch. `exact` forbids contraction: mul and add are never fused by a target."""

    name: str
    memories: tuple[Memory, ...]
    variables: tuple[Operand, ...]
    body: tuple[Instr, ...]
    index: DType  # dtype of every index and loop counter
    exact: bool = True
    origin: tuple[str, ...] = ()  # names of the layers it came from
    workgroup: tuple[int, int, int] = (1, 1, 1)  # threads of one block, where there are blocks

    def memory(self, name: str) -> Memory:
        for m in self.memories:
            if m.name == name:
                return m
        raise KeyError(name)

    def opcodes(self) -> set[str]:
        return {i.opcode for i in self.body}


def matching(body: tuple[Instr, ...] | list[Instr]) -> Iterator[tuple[int, int]]:
    """Positions of each `loop`/`if` and of its end."""
    open_at: list[int] = []
    for at, instr in enumerate(body):
        if instr.opcode in OPENING:
            open_at.append(at)
        elif instr.opcode in OPENING.values():
            yield open_at.pop(), at


def launch_grid(kernel: Kernel) -> Grid:
    """Workgroups per axis that give each trip of the kernel's grid loops its own."""
    size = [1, 1, 1]
    for i in kernel.body:
        if i.opcode == "loop" and i.attrs["kind"] == "grid" and all(a.is_const for a in i.args):
            axis = i.attrs.get("axis", 0)
            size[axis] = max(size[axis], len(range(*[a.number for a in i.args])))
    return size[0], size[1], size[2]
