"""Queries macOS about its processor and memory, with sysctl."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# Names in hw.optional.arm and LLVM's names.
_ARM = {
    "FP16": "fullfp16",
    "FHM": "fp16fml",
    "DotProd": "dotprod",
    "BF16": "bf16",
    "I8MM": "i8mm",
}
# Names in machdep.cpu and LLVM's names, if they differ from Linux's names in capitals.
_X86 = {"SSE3": "sse3", "AVX1.0": "avx", "SSE4.1": "sse4.1", "SSE4.2": "sse4.2"}


def features(arm: bool, linux_names: Mapping[str, str]) -> set[str]:
    """Optional features of the processor, by LLVM's names.

    Args:
        arm: Whether it is an Arm processor.
        linux_names: LLVM's names of x86-64 features, by their names in /proc/cpuinfo.

    >>> features(True, {})     # doctest: +SKIP
    {'fullfp16', 'fp16fml', 'dotprod', 'bf16', 'i8mm'}
    """
    if arm:
        keys = {f"hw.optional.arm.FEAT_{word}": name for word, name in _ARM.items()}
        return {name for key, name in keys.items() if sysctl_number(key)}
    names = {word.replace("_", "").upper(): name for word, name in linux_names.items()} | _X86
    words = sysctl_text("machdep.cpu.features") + " " + sysctl_text("machdep.cpu.leaf7_features")
    return {names[word] for word in words.split() if word in names}


def sysctl_text(name: str) -> str:
    """The text of a sysctl; empty if there is none of that name.

    >>> sysctl_text("machdep.cpu.brand_string")     # doctest: +SKIP
    'Apple M1'
    """
    return _sysctl(name).rstrip(b"\0").decode("utf-8", "replace")


def sysctl_number(name: str) -> int:
    """The integer value of a sysctl; 0 if there is none of that name.

    >>> sysctl_number("hw.memsize")     # doctest: +SKIP
    17179869184
    """
    return int.from_bytes(_sysctl(name), "little")


def _sysctl(name: str) -> bytes:
    sysctlbyname = ctypes.CDLL(None).sysctlbyname
    size = ctypes.c_size_t()
    if sysctlbyname(name.encode(), None, ctypes.byref(size), None, 0):
        return b""
    value = ctypes.create_string_buffer(size.value)
    if sysctlbyname(name.encode(), value, ctypes.byref(size), None, 0):
        return b""
    return value.raw[: size.value]
