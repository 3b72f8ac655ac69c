"""One row for each machine we generate code for; nothing else in the compiler names one."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.abi import WASM_ARCH
from ztorch.dtypes import ALL, bf16, f16, f32, f64
from ztorch.errors import UnknownName, unknown
from ztorch.host import plugins
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.machines.chips import Chip, chips_of
from ztorch.machines.gpus import gpus_of
from ztorch.machines.processors import Processor


@dataclass(frozen=True)
class Target:
    """A machine: its language and its capabilities."""

    name: str  # for devices and artifacts
    template_folders: tuple[str, ...]  # of its language, the most specific first
    template_suffix: str  # of the files in them
    limits: Limits  # for lowering
    arch: str = ""  # of a processor: its instruction set
    llvm_triple: str = ""  # architecture and operating system
    llvm_cpu: str = ""  # processor or chip
    llvm_features: tuple[str, ...] = ()  # instructions that LLVM may use
    required_features: tuple[str, ...] = ()  # features without which the code must not run
    missing_opcodes: frozenset = field(default_factory=frozenset)  # opcode, or (opcode, dtype)
    stored_dtypes: tuple[str, ...] = tuple(d.name for d in HALVES)  # moved and converted alone
    converted_dtypes: tuple[str, ...] = ()  # those of them with an instruction from and to f32
    frame_data: tuple[tuple[str, int | str], ...] = ()  # more values for the module's template
    backend: str = "cpu"  # the driver that runs the code
    chip: str = ""  # which of its devices the code is for; empty: all
    assembler: str = ""  # module of `codegen` that makes code of text; empty: the text is the code
    one_module_per_kernel: bool = False  # each kernel is assembled by itself
    linked_by_assembler: bool = False  # the assembler's output is loaded as it is
    declares_registers: bool = False  # its text names all registers before it uses them
    emits_source: bool = False  # C programs include the text itself
    llvm_opt_level: int = 1  # of LLVM's code generator, 0 to 3
    llvm_strength_reduction: bool = True  # LLVM may replace the counters and addresses of loops
    template_root: str = ""  # where a third party has its template folders; empty: with ours

    def on_device(self, limits: Mapping[str, Any]) -> Target:
        """The target with limits that a device reports, by the names of GridLimits' fields, in
        place of those of the row.

        >>> target("vulkan").on_device({"threads": 1024}).limits.grid.threads
        1024
        """
        assert self.limits.grid is not None, f"{self.name} is a processor"
        return replace(self, limits=replace(self.limits, grid=replace(self.limits.grid, **limits)))

    def on_processor(self, processor: Processor) -> Target:
        """The target with the caches and ports of one processor in place of those of the row.

        >>> from ztorch.machines.processors import processor
        >>> target("avx2").on_processor(processor("zen3")).limits.processor.l2_bytes
        524288
        """
        assert self.limits.grid is None, f"{self.name} is not a processor"
        return replace(self, limits=replace(self.limits, processor=processor))

    def with_precision(self, precision: str) -> Target:
        """The target with products of float32 as exact as one of PRECISIONS.

        >>> target("cuda:sm_80").with_precision("tf32").limits.product_mantissa_bits
        10
        """
        if str(precision) not in PRECISIONS:
            raise unknown("matmul_precision", precision, PRECISIONS)
        return replace(self, limits=replace(
            self.limits, product_mantissa_bits=PRECISIONS[precision],
            transforms=precision != "exact"))

    def without_tensor_cores(self) -> Target:
        """The target without the instructions that multiply matrices.

        >>> target("cuda:sm_80").without_tensor_cores().limits.grid.mma_shapes
        ()
        """
        return self if self.limits.grid is None else self.on_device(
            {"mma_shapes": (), "mma_layout": ""})


# Bits of a float32's mantissa that a product keeps of its operands, at least; "exact" also adds up
# the very products of a convolution, where others may transform its windows.
PRECISIONS = {"float32": 23, "high": 20, "tf32": 10, "exact": 23}
NATIVE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
_CALLS = frozenset({("rem", d) for d in ("f32", "f64")})  # would be a call of fmod
# On processors without AVX-512, Mesa's llvmpipe rounds 1.5 in float64 to 1, and -0.5 to +0.
_ROUNDED_WRONG = frozenset((o, "f64") for o in ("round", "floor", "ceil", "trunc"))
_EXCHANGED = frozenset(("shuffle_xor", d.name) for d in ALL if d.bits != 32)  # whole registers only
# Numbers of Linux's calls: workers sleep and wake, and keep off each other's cores.
_LINUX_X86 = (("futex", 202), ("sched_yield", 24), ("getcpu", 309), ("sched_setaffinity", 203),
              ("sched_getaffinity", 204))
_LINUX_ARM = (("futex", 98), ("sched_yield", 124), ("getcpu", 168), ("sched_setaffinity", 122),
              ("sched_getaffinity", 123))
_LINUX = tuple((f"{cpu}_{name}", number)  # for C source, which serves both
               for cpu, calls in (("x86", _LINUX_X86), ("arm", _LINUX_ARM))
               for name, number in calls)
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


def _x86(name: str, bits: int, registers: int, fma: bool, features: tuple[str, ...]) -> Target:
    no_fma = frozenset() if fma else frozenset({"fma"})
    limits = Limits(bits, registers, fma, mask_registers=bits == 512)
    return Target(name, ("llvm",), "ll", limits, "x86_64",
                  "x86_64-unknown-linux-gnu", "x86-64", features, features, no_fma | _CALLS,
                  converted_dtypes=("f16",) if "f16c" in features else (), frame_data=_LINUX_X86,
                  assembler="assemble", one_module_per_kernel=True, llvm_strength_reduction=False)


@dataclass(frozen=True)
class Family:
    """The common properties of a family's chips."""

    template_folders: tuple[str, ...]
    subgroup: int  # threads that run in lockstep
    converted_dtypes: tuple[str, ...]
    mma_shapes: tuple[MmaShape, ...]


# Matrices that a warp multiplies at once; the last rounds float32 to 10 bits ("tf32").
_MMA = (MmaShape(16, 8, 16, f16, f32), MmaShape(16, 8, 16, bf16, f32),
        MmaShape(16, 8, 8, f32, f32, mantissa_bits=10))
# Matrices that 32 threads multiply at once by WMMA, and 64 by MFMA, which can keep all bits of
# float32. The older of its chips takes subnormal numbers of 16 bits for zeros. Those of float16 are
# large enough to be missed, so it gets them as float32.
_WMMA = (MmaShape(16, 16, 16, f16, f32), MmaShape(16, 16, 16, bf16, f32))
_MFMA = (MmaShape(16, 16, 4, f32, f32), MmaShape(16, 16, 4, f64, f64))
_MFMA2 = (MmaShape(16, 16, 16, bf16, f32), *_MFMA)
_MFMA3 = (*_WMMA, MmaShape(16, 16, 8, f32, f32, mantissa_bits=10), *_MFMA)

FAMILIES: dict[str, Family] = {
    "turing": Family(("ptx",), 32, ("f16",), ()),
    "ampere": Family(("ptx80", "ptx"), 32, ("f16", "bf16"), _MMA),
    "hopper": Family(("ptx90a", "ptx80", "ptx"), 32, ("f16", "bf16"), _MMA),
    "cdna2": Family(("cdna", "amdgcn", "llvm"), 64, ("f16",), _MFMA2),
    "cdna3": Family(("cdna", "amdgcn", "llvm"), 64, ("f16",), _MFMA3),
    "rdna3": Family(("rdna3", "amdgcn", "llvm"), 32, ("f16",), _WMMA),
    "rdna4": Family(("rdna4", "amdgcn", "llvm"), 32, ("f16",), _WMMA),
}


_EARLY = 90  # the first generation whose kernels may start before those that they wait for
_STATIC_SHARED = 48 << 10  # bytes that a CUDA kernel may declare
_ADDRESSED = 1 << 47  # bytes that addresses of 64 bits reach on GPUs
_CUDA_GRID = GridLimits(threads=1024, shared_bytes=_STATIC_SHARED,
                        static_shared_bytes=_STATIC_SHARED, subgroup=32, max_groups=(1 << 31) - 1,
                        max_buffers=256, max_buffer_bytes=_ADDRESSED, compute_units=100,
                        resident_threads=512, load_width=4)


def _units(target_name: str) -> dict[str, Any]:
    """How many units the GPU has that a target's code is best for, and their rates; nothing if no
    row of `machines/gpus.py` says."""
    return next(({"compute_units": g.units, "unit": g.rates} for g in gpus_of(target_name)), {})


def _cuda(chip: Chip) -> Target:
    family = FAMILIES[chip.family]
    grid = replace(_CUDA_GRID, shared_bytes=chip.shared_bytes or _STATIC_SHARED,
                   shared_unit_bytes=chip.shared_bytes, subgroup=family.subgroup,
                   mma_shapes=family.mma_shapes,
                   mma_layout="quads" if family.mma_shapes else "",
                   asynchronous_copies="ptx80" in family.template_folders,
                   asynchronous_products="ptx90a" in family.template_folders,
                   tile_copies="ptx90a" in family.template_folders,
                   **_units(f"cuda:{chip.name}"))
    return Target(f"cuda:{chip.name}", family.template_folders, "ptx",
                  Limits(0, 255, True, grid=grid), missing_opcodes=_CALLS,
                  converted_dtypes=family.converted_dtypes,
                  frame_data=(("version", chip.isa), ("early", chip.generation >= _EARLY)),
                  backend="cuda", chip=chip.name, assembler="ptx",
                  declares_registers=True, one_module_per_kernel=True)


# A launch on AMD's GPUs counts its threads in 32 bits, which limits the groups.
_ROCM_GRID = GridLimits(threads=1024, shared_bytes=64 * 1024, max_groups=(1 << 22) - 1,
                        max_buffers=256, max_buffer_bytes=_ADDRESSED, compute_units=100,
                        load_width=4)


def _rocm(chip: Chip) -> Target:
    family = FAMILIES[chip.family]
    grid = replace(_ROCM_GRID, subgroup=family.subgroup, mma_shapes=family.mma_shapes,
                   **_units(f"rocm:{chip.name}"))
    return Target(f"rocm:{chip.name}", family.template_folders, "ll",
                  Limits(0, 128, True, grid=grid), llvm_triple="amdgcn-amd-amdhsa",
                  llvm_cpu=chip.name, missing_opcodes=_CALLS | _EXCHANGED,
                  converted_dtypes=family.converted_dtypes, frame_data=(("code_object", 500),),
                  backend="rocm", chip=chip.name, assembler="amdgcn", llvm_opt_level=3)


def table() -> dict[str, Target]:
    """All targets by their names; those of chips from the rows of `machines/chips.py`."""
    rows = (
        _x86("scalar", 0, 16, False, _V2),
        _x86("sse4.1", 128, 16, False, _V2),
        _x86("avx2", 256, 16, True, _V3),
        _x86("avx512", 512, 32, True, _V4),
        Target("neon", ("llvm",), "ll", Limits(128, 32, True), "aarch64",
               "aarch64-unknown-linux-gnu", "generic", ("neon", "fp-armv8"), ("neon",), _CALLS,
               converted_dtypes=("f16",), frame_data=_LINUX_ARM, assembler="assemble",
               one_module_per_kernel=True),
        Target("c", ("c", "clike"), "c", Limits(0, 16, False), NATIVE,
               missing_opcodes=_CALLS | {"fma"}, frame_data=_LINUX, assembler="cc",
               emits_source=True),
        Target("opencl", ("opencl", "clike"), "c",
               Limits(0, 64, True, grid=GridLimits(load_width=4)), missing_opcodes=_CALLS,
               backend="opencl"),
        Target("opencl:spirv", ("spirv_cl", "spirv"), "spvasm",
               Limits(0, 64, True, grid=GridLimits(load_width=4)),
               missing_opcodes=_CALLS | {"shuffle_xor"}, frame_data=(("version", 0x10000),),
               backend="opencl", chip="spirv", assembler="spirv", declares_registers=True,
               one_module_per_kernel=True),
        Target("metal", ("msl", "clike"), "c", Limits(0, 64, True, grid=GridLimits(
            threads=1024, subgroup=32, max_buffers=31, load_width=4, **_units("metal"))),
            missing_opcodes=_CALLS | _EXCHANGED, converted_dtypes=("f16",), backend="metal"),
        Target("vulkan", ("spirv",), "spvasm", Limits(0, 64, True, grid=GridLimits(
            threads=128, shared_bytes=16 * 1024, max_buffers=16, max_buffer_bytes=1 << 27,
            load_width=4)), missing_opcodes=_EXCHANGED | _ROUNDED_WRONG, backend="vulkan",
            assembler="spirv", declares_registers=True, one_module_per_kernel=True),
        Target("webgpu", ("wgsl",), "wgsl", Limits(0, 64, True, grid=GridLimits(
            max_buffers=8, shared_bytes=16 * 1024, max_buffer_bytes=128 << 20, load_width=4,
            scalar_stores_readable_as_vectors=False)),
            backend="webgpu", one_module_per_kernel=True),
        Target("dummy", ("dummy",), "txt",
               Limits(0, 64, True, grid=GridLimits(threads=1024, subgroup=32)), backend="dummy",
               stored_dtypes=()),
        *map(_cuda, chips_of("cuda")),
        Target("cuda:c", ("cuda", "cpp", "clike"), "c", Limits(0, 255, True, grid=_CUDA_GRID),
               missing_opcodes=_CALLS, backend="cuda", chip="c", assembler="nvrtc",
               one_module_per_kernel=True),  # CUDA C++, for all chips
        *map(_rocm, chips_of("rocm")),
        Target("rocm:hip", ("hip", "cpp", "clike"), "c",  # text, for all chips
               Limits(0, 128, True, grid=_ROCM_GRID),
               missing_opcodes=_CALLS | _EXCHANGED, backend="rocm", chip="hip"),
    )
    return {row.name: row for row in rows}


TARGETS = table()
WASM = replace(TARGETS["c"], name="wasm", arch=WASM_ARCH, assembler="wasm", emits_source=False,
               linked_by_assembler=True)  # of pages alone: no device of this machine runs it


def target(name: str) -> Target:
    """The target of a name.

    >>> target("avx2").limits.vector_bits
    256
    """
    if name not in TARGETS:
        for row in _third_party(name.partition(":")[0]):
            if row.name == name:
                return row
        chips = [t for t in TARGETS if t.startswith(f"{name}:")]
        if chips:
            raise UnknownName(f"{name!r} is compiled for a chip: name one of {', '.join(chips)}")
        raise unknown("target", name, TARGETS)
    return TARGETS[name]


def _third_party(backend: str) -> Iterable[Target]:
    """The rows that a third party's backend brings."""
    module = plugins.module(backend)
    return () if module is None else module.TARGETS
