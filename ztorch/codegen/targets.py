"""The table of targets, a row for each machine that we generate code for.

The rest of the compiler decides by fields of the row, never by the name of a target.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ztorch.abi import WASM_ARCH
from ztorch.codegen.processor_targets import FMOD, LINUX_ARM, LINUX_X86, PROCESSOR_TARGETS
from ztorch.codegen.target import Target as Target
from ztorch.dtypes import ALL, bf16, f16, f32, f64
from ztorch.errors import UnknownName, unknown
from ztorch.host import plugins
from ztorch.ir.kernel import PART_BITS, MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.machines.chips import Chip, chips_of
from ztorch.machines.gpus import gpus_of

NATIVE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
# On processors without AVX-512, Mesa's llvmpipe rounds 1.5 in float64 to 1, and -0.5 to +0.
_FLOAT64_ROUNDING = frozenset((o, "f64") for o in ("round", "floor", "ceil", "trunc"))
# Shuffles move 32-bit registers only.
_NARROW_SHUFFLE = frozenset(("shuffle_xor", d.name) for d in ALL if d.bits != 32)
_LINUX = tuple((f"{cpu}_{name}", number)  # for C source, which serves both architectures
               for cpu, calls in (("x86", LINUX_X86), ("arm", LINUX_ARM))
               for name, number in calls)


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
                   launch_barriers="ptx80" in family.template_folders,
                   tile_copies="ptx90a" in family.template_folders,
                   **_gpu_rates(f"cuda:{chip.name}"))
    return Target(f"cuda:{chip.name}", family.template_folders, "ptx",
                  Limits(0, 255, True, grid=grid), missing_opcodes=FMOD,
                  converted_dtypes=family.converted_dtypes,
                  frame_data=(("version", chip.isa),
                              ("early", chip.generation >= _EARLY_LAUNCH_GENERATION)),
                  backend="cuda", chip=chip.name, assembler="ptx",
                  declares_registers=True, one_module_per_kernel=True)


def _cuda_cpp(chip: Chip) -> Target:
    """The same kernels as those of `_cuda`, as CUDA C++."""
    assembly = _cuda(chip)
    folders = tuple(f.replace("ptx", "cuda") for f in assembly.template_folders if f != "ptx")
    return replace(assembly, name=f"cuda:c:{chip.name}",
                   template_folders=(*folders, "cuda75", "cuda", "cpp", "clike"),
                   template_suffix="c", assembler="nvrtc", declares_registers=False)


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
                  llvm_cpu=chip.name,
                  missing_opcodes=FMOD | _NARROW_SHUFFLE | {
                      "library_product", "library_convolution"},
                  converted_dtypes=family.converted_dtypes, frame_data=(("code_object", 500),),
                  backend="rocm", chip=chip.name, assembler="amdgcn", llvm_opt_level=3)


def table() -> dict[str, Target]:
    """All targets by name. Those of chips follow from the rows of `machines/chips.py`."""
    rows = (
        *PROCESSOR_TARGETS,
        Target("c", ("c", "clike"), "c", Limits(0, 16, False), NATIVE,
               missing_opcodes=FMOD | {"fma"}, frame_data=_LINUX, assembler="cc",
               emits_source=True),
        Target("opencl", ("opencl", "clike"), "c",
               Limits(0, 64, True, grid=GridLimits(load_width=4)), missing_opcodes=FMOD,
               backend="opencl"),
        Target("opencl:spirv", ("spirv_cl", "spirv"), "spvasm",
               Limits(0, 64, True, grid=GridLimits(load_width=4)),
               missing_opcodes=FMOD | {"shuffle_xor"}, frame_data=(("version", 0x10000),),
               backend="opencl", chip="spirv", assembler="spirv", declares_registers=True,
               one_module_per_kernel=True),
        Target("metal", ("msl", "clike"), "c", Limits(0, 64, True, grid=GridLimits(
            threads=1024, subgroup=32, max_buffers=31, load_width=4, **_gpu_rates("metal"))),
            missing_opcodes=FMOD | _NARROW_SHUFFLE, converted_dtypes=("f16",), backend="metal"),
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
               missing_opcodes=FMOD, backend="cuda", chip="c", assembler="nvrtc",
               frame_data=(("version", chips_of("cuda")[0].isa), ("early", False)),
               one_module_per_kernel=True),  # CUDA C++, for all chips
        *map(_cuda_cpp, chips_of("cuda")),
        *map(_rocm, chips_of("rocm")),
        Target("rocm:hip", ("hip", "cpp", "clike"), "c",  # text, for all chips
               Limits(0, 128, True, grid=_ROCM_GRID),
               missing_opcodes=FMOD | _NARROW_SHUFFLE, backend="rocm", chip="hip"),
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
