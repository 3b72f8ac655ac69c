"""What lowering needs to know of a machine: plain numbers, no names of machines."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.abi import BUFFER_ALIGN
from ztorch.dtypes import DType, i32, i64
from ztorch.ir.kernel import MmaShape
from ztorch.machines.processors import ANY, Processor


@dataclass(frozen=True)
class GridLimits:
    """A machine that runs workgroups of threads over a grid."""

    threads: int = 256  # most threads of one workgroup
    shared_bytes: int = 32 * 1024  # memory that the threads of one workgroup share
    subgroup: int = 0  # threads that exchange values without memory; 0: unknown, memory is used
    max_groups: int = 65535  # most workgroups along one axis
    max_buffers: int = 64  # most buffers that one kernel may name
    max_buffer_bytes: int = (1 << 31) - 1  # most bytes of one buffer that a kernel may see
    buffer_align: int = 256  # offsets of buffers are multiples of this, in bytes
    compute_units: int = 32  # workgroups that run at once, roughly
    load_width: int = 1  # neighbouring elements that one thread loads at once
    implicit_simd: bool = False  # its compiler makes vectors out of neighbouring threads
    # Elements that threads stored one by one may be loaded as a vector. Without, a memory is
    # declared as an array either of elements or of vectors, and used only so.
    scalar_stores_readable_as_vectors: bool = True
    mma_shapes: tuple[MmaShape, ...] = ()  # products of one matrix instruction, the fastest first


@dataclass(frozen=True)
class Limits:
    """What one target can do."""

    vector_bits: int  # width of a vector register; 0: it computes with single numbers
    vector_registers: int  # how many of them there are
    fma: bool  # multiplies and adds in one instruction
    processor: Processor = ANY  # caches and ports; of no meaning on a grid
    grid: GridLimits | None = None  # None: a processor, whose workers share out parallel loops
    product_mantissa_bits: int = 23  # of float32 operands that a product keeps at least; 23: all

    @property
    def index(self) -> DType:
        """The dtype of positions: on a grid, registers and address units are 32 bits wide."""
        return i64 if self.grid is None else i32

    @property
    def buffer_align(self) -> int:
        """Offsets of buffers are multiples of this, in bytes."""
        return BUFFER_ALIGN if self.grid is None else self.grid.buffer_align

    def lanes(self, d: DType) -> int:
        """How many elements of a dtype one register holds."""
        return max(1, self.vector_bits // max(d.bits, 8))
