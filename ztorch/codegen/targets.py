"""One row for each machine we generate code for; nothing else in the compiler names one."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.dtypes import ALL, bf16, f16, f32, f64
from ztorch.errors import UnknownName, unknown
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import Grid, Limits


@dataclass(frozen=True)
class Target:
    """A machine: the language it is spoken to in, and what it can do.

    chain lists template folders, the most special first. needs names the CPU features without
    which the code must not run. lacks takes words away: an opcode, or (opcode, dtype). backend is
    the driver that runs the code, chip what of its devices it is for (empty: all). assembler names
    the module of `codegen` that turns text into code (empty: the text is the code); with `apart`
    each kernel is a text of its own. source: the text itself is what C programs take in.
    """

    name: str
    chain: tuple[str, ...]
    suffix: str
    limits: Limits
    arch: str = ""
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    lacks: frozenset = field(default_factory=frozenset)
    stored: tuple[str, ...] = ("f16", "bf16")  # dtypes only moved and converted, never computed
    converts: tuple[str, ...] = ()  # those of them with an instruction from and to f32
    data: tuple[tuple[str, int | str], ...] = ()  # more for the frame
    backend: str = "cpu"
    chip: str = ""
    assembler: str = ""
    apart: bool = False
    source: bool = False
    effort: int = 1  # how hard LLVM's code generator tries, of 3

    def on(self, limits: Mapping[str, Any]) -> Target:
        """The target with what one device says of itself in place of what the row assumes."""
        assert self.limits.grid is not None
        return replace(self, limits=replace(self.limits, grid=replace(self.limits.grid, **limits)))

    def keeping(self, precision: str) -> Target:
        """The target with products of float32 as exact as one of PRECISIONS.

        >>> target("cuda:sm_80").keeping("tf32").limits.mantissa
        10
        """
        if str(precision) not in PRECISIONS:
            raise unknown("matmul_precision", precision, PRECISIONS)
        return replace(self, limits=replace(self.limits, mantissa=PRECISIONS[precision]))


# Bits of a float32's mantissa that a product keeps of its operands.
PRECISIONS = {"float32": 23, "tf32": 10}
NATIVE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
_CALLS = frozenset({("rem", d) for d in ("f32", "f64")})  # would be a call of fmod
_EXCHANGED = frozenset(("shuffle_xor", d.name) for d in ALL if d.bits != 32)  # whole registers only
# Numbers of Linux's calls: workers sleep and wake, and keep off each other's cores.
_LINUX_X86 = (("futex", 202), ("sched_yield", 24), ("getcpu", 309), ("sched_setaffinity", 203),
              ("sched_getaffinity", 204))
_LINUX_ARM = (("futex", 98), ("sched_yield", 124), ("getcpu", 168), ("sched_setaffinity", 122),
              ("sched_getaffinity", 123))
_X86 = {"arch": "x86_64", "triple": "x86_64-unknown-linux-gnu", "data": _LINUX_X86}
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


def _x86(name: str, bits: int, registers: int, fma: bool, features: tuple[str, ...],
         lacks: frozenset = frozenset()) -> Target:
    no_fma = frozenset() if fma else frozenset({"fma"})
    return Target(name, ("llvm",), "ll", Limits(bits, registers, fma), cpu="x86-64",
                  features=features, needs=features, assembler="assemble",
                  converts=("f16",) if "f16c" in features else (),
                  lacks=lacks | no_fma | _CALLS, **_X86)  # type: ignore[arg-type]


# What a warp multiplies at once; the last rounds float32 to 10 bits ("tf32").
_MMA = (MmaShape(16, 8, 16, f16, f32), MmaShape(16, 8, 16, bf16, f32),
        MmaShape(16, 8, 8, f32, f32, kept=10))


def _cuda(chip: str, units: int, isa: str, chain: tuple[str, ...] = ("ptx80", "ptx"),
          converts: tuple[str, ...] = ("f16", "bf16"),
          mma: tuple[MmaShape, ...] = _MMA) -> Target:
    """`units` are the multiprocessors of a typical card; `isa` is the least version of PTX that
    has the chip, so that old drivers take it too."""
    grid = Grid(threads=1024, shared=48 * 1024, subgroup=32, groups=(1 << 31) - 1, memories=256,
                align=256, units=units, vector=4, mma=mma)
    return Target(f"cuda:{chip}", chain, "ptx", Limits(0, 255, True, grid=grid), lacks=_CALLS,
                  converts=converts, data=(("version", isa),), backend="cuda", chip=chip,
                  assembler="ptx")


# What 32 threads multiply at once by WMMA, and 64 by MFMA, which can keep all bits of float32. The
# older of its chips takes subnormal numbers of 16 bits for zeros. Those of float16 are large enough
# to be missed, so it gets them as float32.
_WMMA = (MmaShape(16, 16, 16, f16, f32), MmaShape(16, 16, 16, bf16, f32))
_MFMA = (MmaShape(16, 16, 4, f32, f32), MmaShape(16, 16, 4, f64, f64))
_MFMA2 = (MmaShape(16, 16, 16, bf16, f32), *_MFMA)
_MFMA3 = (*_WMMA, MmaShape(16, 16, 8, f32, f32, kept=10), *_MFMA)


def _rocm(chip: str, family: str, wave: int, units: int, mma: tuple[MmaShape, ...]) -> Target:
    """`family` names the words by which it multiplies matrices, `wave` is how many threads run in
    lockstep, `units` the compute units of a typical card. A launch counts its threads in 32 bits,
    which limits the groups."""
    grid = Grid(threads=1024, shared=64 * 1024, subgroup=wave, groups=(1 << 22) - 1, memories=256,
                align=256, units=units, vector=4, mma=mma)
    return Target(f"rocm:{chip}", (family, "amdgcn", "llvm"), "ll", Limits(0, 128, True, grid=grid),
                  triple="amdgcn-amd-amdhsa", cpu=chip, lacks=_CALLS | _EXCHANGED,
                  converts=("f16",), data=(("code_object", 500),), backend="rocm", chip=chip,
                  assembler="amdgcn", effort=3)


TARGETS: dict[str, Target] = {t.name: t for t in (
    _x86("scalar", 0, 16, False, _V2),
    _x86("sse4.1", 128, 16, False, _V2),
    _x86("avx2", 256, 16, True, _V3),
    _x86("avx512", 512, 32, True, _V4),
    Target("neon", ("llvm",), "ll", Limits(128, 32, True), "aarch64", "aarch64-unknown-linux-gnu",
           "generic", ("neon", "fp-armv8"), ("neon",), _CALLS, converts=("f16",),
           data=_LINUX_ARM, assembler="assemble"),
    Target("c", ("c", "clike"), "c", Limits(0, 16, False), NATIVE, lacks=_CALLS | {"fma"},
           assembler="cc", source=True),
    Target("opencl", ("opencl", "clike"), "c", Limits(0, 64, True, grid=Grid(vector=4)),
           lacks=_CALLS,
           backend="opencl"),
    Target("opencl:spirv", ("spirv_cl", "spirv"), "spvasm", Limits(0, 64, True, grid=Grid(
        vector=4)), lacks=_CALLS | {"shuffle_xor"}, data=(("version", 0x10000),), backend="opencl",
        chip="spirv", assembler="spirv", apart=True),
    Target("metal", ("msl", "clike"), "c", Limits(0, 64, True, grid=Grid(
        threads=1024, subgroup=32, memories=31, vector=4)), lacks=_CALLS | _EXCHANGED,
           converts=("f16",), backend="metal"),
    Target("vulkan", ("spirv",), "spvasm", Limits(0, 64, True, grid=Grid(
        threads=128, shared=16 * 1024, memories=16, span=1 << 27, vector=4)), lacks=_EXCHANGED,
        backend="vulkan", assembler="spirv", apart=True),
    Target("webgpu", ("wgsl",), "wgsl", Limits(0, 64, True, grid=Grid(
        memories=8, shared=16 * 1024, span=128 << 20, vector=4, parts=False)),
        backend="webgpu", apart=True),
    Target("dummy", ("dummy",), "txt", Limits(0, 64, True, grid=Grid(threads=1024, subgroup=32)),
           backend="dummy", stored=()),
    _cuda("sm_75", 40, "7.0", ("ptx",), ("f16",), ()),
    _cuda("sm_80", 108, "7.0"),
    _cuda("sm_86", 84, "7.1"),
    _cuda("sm_89", 76, "7.8"),
    _cuda("sm_90", 132, "7.8"),
    _cuda("sm_90a", 132, "8.0"),
    _cuda("sm_100", 148, "8.6"),
    _rocm("gfx90a", "cdna", 64, 104, _MFMA2),
    _rocm("gfx942", "cdna", 64, 304, _MFMA3),
    _rocm("gfx1100", "rdna3", 32, 96, _WMMA),
    _rocm("gfx1201", "rdna4", 32, 64, _WMMA),
    Target("rocm:hip", ("hip", "clike"), "c",  # text, for all chips
           Limits(0, 128, True, grid=Grid(threads=1024, shared=64 * 1024, groups=(1 << 22) - 1,
                                          memories=256, units=100, vector=4)),
           lacks=_CALLS | _EXCHANGED, backend="rocm", chip="hip"),
)}


def target(name: str) -> Target:
    """The target of a name.

    >>> target("avx2").limits.vector_bits
    256
    """
    if name not in TARGETS:
        chips = [t for t in TARGETS if t.startswith(f"{name}:")]
        if chips:
            raise UnknownName(f"{name!r} is compiled for a chip: name one of {', '.join(chips)}")
        raise unknown("target", name, TARGETS)
    return TARGETS[name]
