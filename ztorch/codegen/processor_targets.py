"""The rows of the table of targets that are levels of processors, whose code LLVM assembles."""

from __future__ import annotations

from ztorch.codegen.target import Target
from ztorch.ir.limits import Limits

FMOD = frozenset({("rem", d) for d in ("f32", "f64")})  # would call fmod
# Numbers of Linux's system calls, with which workers sleep, wake and choose their cores.
LINUX_X86 = (("futex", 202), ("sched_yield", 24), ("getcpu", 309), ("sched_setaffinity", 203),
              ("sched_getaffinity", 204))
LINUX_ARM = (("futex", 98), ("sched_yield", 124), ("getcpu", 168), ("sched_setaffinity", 122),
              ("sched_getaffinity", 123))
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
                  no_fma | FMOD,
                  converted_dtypes=("f16",) if "f16c" in features else (), frame_data=LINUX_X86,
                  assembler="assemble", one_module_per_kernel=True, llvm_strength_reduction=False,
                  byte_dots="avx512vnni" if bits == 512 else "")


# A program for this machine needs these alone: the rows of GPUs are many, and load later.
PROCESSOR_TARGETS = (
    _x86("scalar", 0, 16, False, _X86_64_V2),
    _x86("sse4.1", 128, 16, False, _X86_64_V2),
    _x86("avx2", 256, 16, True, _X86_64_V3),
    _x86("avx512", 512, 32, True, _X86_64_V4),
    Target("neon", ("llvm",), "ll", Limits(128, 32, True), "aarch64",
           "aarch64-unknown-linux-gnu", "generic", ("neon", "fp-armv8"), ("neon",), FMOD,
           converted_dtypes=("f16",), frame_data=LINUX_ARM, assembler="assemble",
           one_module_per_kernel=True),
)
