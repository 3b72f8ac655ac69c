"""The table of targets, a row for each machine that we generate code for.

The rest of the compiler decides by fields of the row, never by the name of a target.
"""

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
from ztorch.ir.kernel import PART_BITS, MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.machines.chips import Chip, chips_of
from ztorch.machines.gpus import gpus_of
from ztorch.machines.processors import Processor


@dataclass(frozen=True)
class Target:
    """A machine: its language and its capabilities."""

    name: str  # its name in devices and artifacts
    template_folders: tuple[str, ...]  # folders of its language, the most specific first
    template_suffix: str  # suffix of the files in them
    limits: Limits  # numbers for lowering
    arch: str = ""  # instruction set of a processor
    llvm_triple: str = ""  # architecture and operating system
    llvm_cpu: str = ""  # processor or chip
    llvm_features: tuple[str, ...] = ()  # instruction sets that LLVM may use
    required_features: tuple[str, ...] = ()  # features that a processor must have to run the code
    missing_opcodes: frozenset = field(default_factory=frozenset)  # opcode, or (opcode, dtype)
    stored_dtypes: tuple[str, ...] = tuple(d.name for d in HALVES)  # dtypes without arithmetic
    converted_dtypes: tuple[str, ...] = ()  # those with instructions that convert from and to f32
    frame_data: tuple[tuple[str, int | str], ...] = ()  # other values for the module's template
    backend: str = "cpu"  # the driver that runs the code
    chip: str = ""  # the chip that the code is for; empty: all devices of the backend
    assembler: str = ""  # module of `codegen` that assembles the text; empty: the text is the code
    one_module_per_kernel: bool = False  # whether each kernel is a module of its own
    linked_by_assembler: bool = False  # whether the assembler's output needs no linking
    declares_registers: bool = False  # whether the text declares its registers
    emits_source: bool = False  # whether C libraries can include the text itself
    llvm_opt_level: int = 1  # optimization level of LLVM's code generator, 0 to 3
    llvm_strength_reduction: bool = True  # whether LLVM runs loop strength reduction
    llvm_in_child: bool = False  # whether LLVM runs in a process of its own, and leaves no memory
    byte_dots: str = ""  # optional feature: products of words of bytes; also its template folder
    template_root: str = ""  # parent of a third party's template folders; empty: ours

    def on_device(self, limits: Mapping[str, Any]) -> Target:
        """The target with the limits that a device reports, by field names of GridLimits.

        >>> target("vulkan").on_device({"threads": 1024}).limits.grid.threads
        1024
        """
        assert self.limits.grid is not None, f"{self.name} is a processor"
        return replace(self, limits=replace(self.limits, grid=replace(self.limits.grid, **limits)))

    def on_processor(self, processor: Processor) -> Target:
        """The target with the caches and ports of one processor.

        >>> from ztorch.machines.processors import processor
        >>> target("avx2").on_processor(processor("zen3")).limits.processor.l2_bytes
        524288
        """
        assert self.limits.grid is None, f"{self.name} is not a processor"
        return replace(self, limits=replace(self.limits, processor=processor))

    def with_byte_dots(self) -> Target:
        """The target with products of words of bytes, if processors of its level may have them."""
        return self if not self.byte_dots else replace(
            self, template_folders=(self.byte_dots, *self.template_folders),
            llvm_features=(*self.llvm_features, self.byte_dots),
            required_features=(*self.required_features, self.byte_dots),
            limits=replace(self.limits, byte_dots=True))

    def with_precision(self, precision: str) -> Target:
        """The target with a precision of float32 products, by its name in PRECISIONS.

        >>> target("cuda:sm_80").with_precision("tf32").limits.product_mantissa_bits
        10
        """
        if str(precision) not in PRECISIONS:
            raise unknown("matmul_precision", precision, PRECISIONS)
        return replace(self, limits=replace(
            self.limits, product_mantissa_bits=PRECISIONS[precision],
            transforms=precision != "exact"))

    def without_tensor_cores(self) -> Target:
        """The target without matrix instructions.

        >>> target("cuda:sm_80").without_tensor_cores().limits.grid.mma_shapes
        ()
        """
        return self if self.limits.grid is None else self.on_device(
            {"mma_shapes": (), "mma_layout": ""})


# The least number of mantissa bits that float32 operands keep in a product. "exact" also forbids
# transformed convolutions (Winograd).
PRECISIONS = {"float32": 23, "high": 20, "tf32": 10, "exact": 23}
NATIVE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
_FMOD = frozenset({("rem", d) for d in ("f32", "f64")})  # would call fmod
# On processors without AVX-512, Mesa's llvmpipe rounds 1.5 in float64 to 1, and -0.5 to +0.
_FLOAT64_ROUNDING = frozenset((o, "f64") for o in ("round", "floor", "ceil", "trunc"))
# Shuffles move 32-bit registers only.
_NARROW_SHUFFLE = frozenset(("shuffle_xor", d.name) for d in ALL if d.bits != 32)
# Numbers of Linux's system calls, with which workers sleep, wake and choose their cores.
_LINUX_X86 = (("futex", 202), ("sched_yield", 24), ("getcpu", 309), ("sched_setaffinity", 203),
              ("sched_getaffinity", 204))
_LINUX_ARM = (("futex", 98), ("sched_yield", 124), ("getcpu", 168), ("sched_setaffinity", 122),
              ("sched_getaffinity", 123))
_LINUX = tuple((f"{cpu}_{name}", number)  # for C source, which serves both architectures
               for cpu, calls in (("x86", _LINUX_X86), ("arm", _LINUX_ARM))
               for name, number in calls)
_X86_64_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_X86_64_V3 = (*_X86_64_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_X86_64_V4 = (*_X86_64_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


def _x86(name: str, bits: int, registers: int, fma: bool, features: tuple[str, ...]) -> Target:
    """A row for a level of x86-64 with vectors of so many bits and so many vector registers."""
    no_fma = frozenset() if fma else frozenset({"fma"})
    limits = Limits(bits, registers, fma, mask_registers=bits == 512)
    folders = ("avx512", "llvm") if bits == 512 else ("llvm",)
    return Target(name, folders, "ll", limits, "x86_64",
                  "x86_64-unknown-linux-gnu", "x86-64", features, features,
                  no_fma | _FMOD,
                  converted_dtypes=("f16",) if "f16c" in features else (), frame_data=_LINUX_X86,
                  assembler="assemble", one_module_per_kernel=True, llvm_strength_reduction=False,
                  byte_dots="avx512vnni" if bits == 512 else "")


@dataclass(frozen=True)
class Family:
    """The common properties of the chips of a family."""

    template_folders: tuple[str, ...]
    subgroup: int  # threads that run in lockstep
    converted_dtypes: tuple[str, ...]
    mma_shapes: tuple[MmaShape, ...]  # products of its matrix instructions


# Products of one instruction of a warp. The third rounds float32 to 10 mantissa bits ("tf32"), and
# the last multiplies two such parts of float32.
_MMA = (MmaShape(16, 8, 16, f16, f32), MmaShape(16, 8, 16, bf16, f32),
        MmaShape(16, 8, 8, f32, f32, PART_BITS), MmaShape(16, 8, 8, f32, f32, 2 * PART_BITS))
# Products of AMD's instructions: WMMA of 32 threads, and MFMA of 64 threads, which also multiplies
# float32 exactly. CDNA 2 flushes subnormal 16-bit operands to zero. In float16 that would be a
# visible error, so products of float16 are computed in float32 there.
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


# The first generation of NVIDIA's chips whose kernels may start early and wait for earlier kernels
# themselves (programmatic dependent launch).
_EARLY_LAUNCH_GENERATION = 90
_STATIC_SHARED = 48 << 10  # shared memory that a CUDA kernel may declare
_ADDRESS_SPACE_BYTES = 1 << 47  # the address space of a GPU
_CUDA_GRID = GridLimits(threads=1024, shared_bytes=_STATIC_SHARED,
                        static_shared_bytes=_STATIC_SHARED, subgroup=32, max_groups=(1 << 31) - 1,
                        max_buffers=256, max_buffer_bytes=_ADDRESS_SPACE_BYTES, compute_units=100,
                        resident_threads=512, load_width=4)


def _gpu_rates(target_name: str) -> dict[str, Any]:
    """The number of compute units and their rates of the first GPU in `machines/gpus.py` that runs
    the target's code; empty if there is none."""
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
                   **_gpu_rates(f"cuda:{chip.name}"))
    return Target(f"cuda:{chip.name}", family.template_folders, "ptx",
                  Limits(0, 255, True, grid=grid), missing_opcodes=_FMOD,
                  converted_dtypes=family.converted_dtypes,
                  frame_data=(("version", chip.isa),
                              ("early", chip.generation >= _EARLY_LAUNCH_GENERATION)),
                  backend="cuda", chip=chip.name, assembler="ptx",
                  declares_registers=True, one_module_per_kernel=True)


# AMD's GPUs count the threads of a launch in 32 bits, which limits the number of groups.
_ROCM_GRID = GridLimits(threads=1024, shared_bytes=64 * 1024, max_groups=(1 << 22) - 1,
                        max_buffers=256, max_buffer_bytes=_ADDRESS_SPACE_BYTES, compute_units=100,
                        load_width=4)


def _rocm(chip: Chip) -> Target:
    family = FAMILIES[chip.family]
    grid = replace(_ROCM_GRID, subgroup=family.subgroup, mma_shapes=family.mma_shapes,
                   **_gpu_rates(f"rocm:{chip.name}"))
    return Target(f"rocm:{chip.name}", family.template_folders, "ll",
                  Limits(0, 128, True, grid=grid), llvm_triple="amdgcn-amd-amdhsa",
                  llvm_cpu=chip.name, missing_opcodes=_FMOD | _NARROW_SHUFFLE,
                  converted_dtypes=family.converted_dtypes, frame_data=(("code_object", 500),),
                  backend="rocm", chip=chip.name, assembler="amdgcn", llvm_opt_level=3)


def table() -> dict[str, Target]:
    """All targets by name. Those of chips follow from the rows of `machines/chips.py`."""
    rows = (
        _x86("scalar", 0, 16, False, _X86_64_V2),
        _x86("sse4.1", 128, 16, False, _X86_64_V2),
        _x86("avx2", 256, 16, True, _X86_64_V3),
        _x86("avx512", 512, 32, True, _X86_64_V4),
        Target("neon", ("llvm",), "ll", Limits(128, 32, True), "aarch64",
               "aarch64-unknown-linux-gnu", "generic", ("neon", "fp-armv8"), ("neon",), _FMOD,
               converted_dtypes=("f16",), frame_data=_LINUX_ARM, assembler="assemble",
               one_module_per_kernel=True),
        Target("c", ("c", "clike"), "c", Limits(0, 16, False), NATIVE,
               missing_opcodes=_FMOD | {"fma"}, frame_data=_LINUX, assembler="cc",
               emits_source=True),
        Target("opencl", ("opencl", "clike"), "c",
               Limits(0, 64, True, grid=GridLimits(load_width=4)), missing_opcodes=_FMOD,
               backend="opencl"),
        Target("opencl:spirv", ("spirv_cl", "spirv"), "spvasm",
               Limits(0, 64, True, grid=GridLimits(load_width=4)),
               missing_opcodes=_FMOD | {"shuffle_xor"}, frame_data=(("version", 0x10000),),
               backend="opencl", chip="spirv", assembler="spirv", declares_registers=True,
               one_module_per_kernel=True),
        Target("metal", ("msl", "clike"), "c", Limits(0, 64, True, grid=GridLimits(
            threads=1024, subgroup=32, max_buffers=31, load_width=4, **_gpu_rates("metal"))),
            missing_opcodes=_FMOD | _NARROW_SHUFFLE, converted_dtypes=("f16",), backend="metal"),
        Target("vulkan", ("spirv",), "spvasm", Limits(0, 64, True, grid=GridLimits(
            threads=128, shared_bytes=16 * 1024, max_buffers=16, max_buffer_bytes=1 << 27,
            load_width=4)), missing_opcodes=_NARROW_SHUFFLE | _FLOAT64_ROUNDING, backend="vulkan",
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
               missing_opcodes=_FMOD, backend="cuda", chip="c", assembler="nvrtc",
               one_module_per_kernel=True),  # CUDA C++, for all chips
        *map(_rocm, chips_of("rocm")),
        Target("rocm:hip", ("hip", "cpp", "clike"), "c",  # text, for all chips
               Limits(0, 128, True, grid=_ROCM_GRID),
               missing_opcodes=_FMOD | _NARROW_SHUFFLE, backend="rocm", chip="hip"),
    )
    return {row.name: row for row in rows}


TARGETS = table()
WASM = replace(TARGETS["c"], name="wasm", arch=WASM_ARCH, assembler="wasm", emits_source=False,
               linked_by_assembler=True)  # only for web pages; no device of this machine runs it


def target(name: str) -> Target:
    """The target with this name.

    >>> target("avx2").limits.vector_bits
    256
    """
    if name not in TARGETS:
        for row in _third_party(name.partition(":")[0]):
            if row.name == name:
                return row
        chips = [t for t in TARGETS if t.startswith(f"{name}:")]
        if chips:
            raise UnknownName(f"code for {name!r} is compiled for one chip; choose one of "
                              f"{', '.join(chips)}")
        raise unknown("target", name, TARGETS)
    return TARGETS[name]


def _third_party(backend: str) -> Iterable[Target]:
    """The targets of a third party's backend."""
    module = plugins.module(backend)
    return () if module is None else module.TARGETS
