"""The limits of a machine for lowering: plain numbers, no machine names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ztorch.abi import BUFFER_ALIGN
from ztorch.dtypes import DType, i32, i64
from ztorch.machines.processors import ANY, Processor
from ztorch.machines.unit_rates import ANY_UNIT, UnitRates

if TYPE_CHECKING:
    from ztorch.ir.kernel import MmaShape


@dataclass(frozen=True)
class GridLimits:
    """Limits of a machine that runs a grid of workgroups of threads."""

    threads: int = 256  # maximum threads per workgroup
    shared_bytes: int = 32 * 1024  # shared memory per workgroup, in bytes
    static_shared_bytes: int = 0  # the part that kernels can declare; launches set more; 0: all
    shared_unit_bytes: int = 0  # shared memory of a compute unit, for all workgroups; 0: unknown
    subgroup: int = 0  # threads that exchange values without memory; 0: unknown, use shared memory
    max_groups: int = 65535  # maximum workgroups along one axis
    max_buffers: int = 64  # maximum buffers bound to one kernel
    max_buffer_bytes: int = (1 << 31) - 1  # maximum bytes of one buffer that a kernel can address
    max_buffer_elements: int = (1 << 31) - 1  # the same in elements, which 32-bit indices count
    buffer_align: int = 256  # alignment of buffer offsets, in bytes
    compute_units: int = 32  # rough number of workgroups that run at once
    unit: UnitRates = ANY_UNIT  # the rates of a compute unit
    resident_threads: int = 0  # threads per compute unit that registers suffice for; 0: unknown
    load_width: int = 1  # neighboring elements that one thread loads at once
    implicit_simd: bool = False  # the compiler vectorizes across neighboring threads
    skips_branches: bool = True  # branches that no thread of a workgroup takes cost no time
    scalar_stores_readable_as_vectors: bool = True  # False: a memory has one access width only
    asynchronous_copies: bool = False  # from global to shared memory, while threads continue
    mma_shapes: tuple[MmaShape, ...] = ()  # shapes of matrix instructions, fastest first
    mma_layout: str = ""  # layout of 16-bit fragments; empty: unknown
    asynchronous_products: bool = False  # of 16 bits from shared memory, by four subgroups
    launch_barriers: bool = False  # of all workgroups of a launch, which then run at once
    tile_copies: bool = False  # of boxes by tensor maps, with mbarriers; and clusters

    @property
    def declared_shared_bytes(self) -> int:
        """Shared memory that a kernel may declare."""
        return self.static_shared_bytes or self.shared_bytes

    def shared_share(self, threads: int) -> int:
        """Shared memory that a workgroup of so many threads may take without reducing the number of
        workgroups per compute unit that registers allow.

        >>> GridLimits(shared_bytes=99 << 10, shared_unit_bytes=100 << 10,
        ...            resident_threads=512).shared_share(256)
        51200
        """
        return self.shared_rooms(threads)[0]

    def shared_rooms(self, threads: int) -> list[int]:
        """The same for fewer and fewer workgroups per compute unit: half as many each time, the
        last time one.

        >>> GridLimits(shared_bytes=99 << 10, shared_unit_bytes=100 << 10,
        ...            resident_threads=512).shared_rooms(256)
        [51200, 101376]
        """
        groups = max(1, self.resident_threads // threads)
        counts = (groups >> k for k in range(groups.bit_length()))
        return [min(self.shared_bytes, self.shared_unit_bytes // n or self.shared_bytes)
                for n in counts]


@dataclass(frozen=True)
class Limits:
    """Limits of one target."""

    vector_bits: int  # width of a vector register; 0: scalar code only
    vector_registers: int  # number of vector registers
    fma: bool  # has a fused multiply-add instruction
    processor: Processor = ANY  # caches and ports of a CPU; unused on a grid
    grid: GridLimits | None = None  # None: a CPU, whose workers split parallel loops
    product_mantissa_bits: int = 23  # least mantissa bits kept of float32 operands; 23: all
    transforms: bool = True  # convolutions may use Winograd transforms
    byte_dots: bool = False  # of a CPU: an instruction multiplies bytes, the opcode `dot4`
    mask_registers: bool = False  # of a CPU: masked stores cost no more than full stores
    # Libraries of this machine whose functions kernels may call: names and versions.
    libraries: tuple[tuple[str, str], ...] = ()

    @property
    def index(self) -> DType:
        """The dtype of indices: i32 on a grid, where registers and address units have 32 bits."""
        return i64 if self.grid is None else i32

    @property
    def buffer_align(self) -> int:
        """Alignment of buffer offsets, in bytes."""
        return BUFFER_ALIGN if self.grid is None else self.grid.buffer_align

    def lanes(self, d: DType) -> int:
        """Number of elements of a dtype in one vector register."""
        return max(1, self.vector_bits // max(d.bits, 8))
