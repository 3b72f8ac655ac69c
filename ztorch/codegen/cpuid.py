"""The CPUID queries that detect features of an x86-64 processor, as data for templates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ztorch.errors import Unsupported

EAX, EBX, ECX, EDX = range(4)  # the registers of a CPUID result
_EXTENDED = 1 << 31  # the first leaf of the extended range

# Leaf, register and bit that report a feature.
_BITS = {
    "sse3": (1, ECX, 0), "ssse3": (1, ECX, 9), "fma": (1, ECX, 12), "sse4.1": (1, ECX, 19),
    "sse4.2": (1, ECX, 20), "movbe": (1, ECX, 22), "popcnt": (1, ECX, 23), "avx": (1, ECX, 28),
    "f16c": (1, ECX, 29), "bmi": (7, EBX, 3), "avx2": (7, EBX, 5), "bmi2": (7, EBX, 8),
    "avx512f": (7, EBX, 16), "avx512dq": (7, EBX, 17), "avx512cd": (7, EBX, 28),
    "avx512bw": (7, EBX, 30), "avx512vl": (7, EBX, 31), "avx512vnni": (7, ECX, 11),
    "lzcnt": (_EXTENDED | 1, ECX, 5),
}
_OSXSAVE = 1 << 27  # leaf 1, ECX: XCR0 can be read
_YMM, _ZMM = 0b110, 0b11100110  # XCR0 bits that AVX and AVX-512 need


@dataclass(frozen=True)
class CpuidQuery:
    """A test of one register of a leaf."""

    leaf: int  # number of the leaf
    register: int  # EAX, EBX, ECX or EDX
    mask: int  # the bits of the register that must all be set

    @property
    def range(self) -> int:
        """The leaf that reports the last leaf of this one's range."""
        return self.leaf & _EXTENDED


def cpuid_queries(features: Iterable[str]) -> tuple[tuple[CpuidQuery, ...], int]:
    """The CPUID queries for these features, and the XCR0 bits that the system must have set.

    Wide registers need both: the processor must have them, and the operating system must save them
    at each context switch.

    >>> cpuid_queries(["sse4.1", "popcnt"])
    ((CpuidQuery(leaf=1, register=2, mask=8912896),), 0)
    """
    masks: dict[tuple[int, int], int] = {}
    xcr0 = 0
    for feature in features:
        if feature not in _BITS:
            raise Unsupported(f"there is no CPUID bit for {feature!r} yet; add it "
                              "to ztorch/codegen/cpuid.py")

        leaf, register, bit = _BITS[feature]
        masks[leaf, register] = masks.get((leaf, register), 0) | 1 << bit
        if feature.startswith("avx512"):
            xcr0 |= _ZMM
        elif feature in ("avx", "avx2", "fma", "f16c"):
            xcr0 |= _YMM
    if xcr0:
        masks[1, ECX] = masks.get((1, ECX), 0) | _OSXSAVE
    return tuple(CpuidQuery(*place, mask) for place, mask in sorted(masks.items())), xcr0
