"""What lowering needs to know of a machine: plain numbers, no names of machines."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.dtypes import DType, i32, i64
from ztorch.ir.kernel import MmaShape


@dataclass(frozen=True)
class Grid:
    """A machine that runs workgroups of threads over a grid.

    `threads` is the most of one workgroup, `shared` the bytes its threads share, `subgroup` how
    many of them exchange values without memory (0: not known, so memory is used), `groups` the most
    workgroups along an axis, `memories` the most that a kernel may name, `span` the most bytes of
    one that it may see, `align` what the place of each must be a multiple of, `units` how many
    workgroups are at work at once, roughly, `vector` how many neighbours a thread loads at once,
    `abreast` whether its compiler makes vectors of neighbouring threads, `parts` whether what
    threads write one by one can be loaded so, `mma` the shapes in which its subgroups multiply
    matrices, fastest first.
    """

    threads: int = 256
    shared: int = 32 * 1024
    subgroup: int = 0
    groups: int = 65535
    memories: int = 64
    span: int = (1 << 31) - 1
    align: int = 256
    units: int = 32
    vector: int = 1
    abreast: bool = False
    parts: bool = True
    mma: tuple[MmaShape, ...] = ()


@dataclass(frozen=True)
class Limits:
    """vector_bits is 0 for a scalar machine; registers counts the vector registers. `grid` is None
    for a processor, whose workers share loops out. `mantissa` is how many bits of the mantissas of
    float32 operands a product must keep: all, unless the user allows less."""

    vector_bits: int
    registers: int
    fma: bool
    l1: int = 32 * 1024
    l2: int = 1024 * 1024
    grid: Grid | None = None
    mantissa: int = 23

    @property
    def index(self) -> DType:
        """The dtype of positions: on a grid, registers and address units are 32 bits wide."""
        return i64 if self.grid is None else i32

    @property
    def align(self) -> int:
        """What the place of a buffer is a multiple of."""
        return 64 if self.grid is None else self.grid.align

    def lanes(self, d: DType) -> int:
        """How many elements of a dtype one register holds."""
        return max(1, self.vector_bits // max(d.bits, 8))
