"""How an x86-64 processor tells what it can do: the questions, as data for templates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ztorch.errors import Unsupported

EAX, EBX, ECX, EDX = range(4)
_EXTENDED = 1 << 31  # where the leaves of the second range begin

# feature -> leaf, register of the answer, bit
_BITS = {
    "sse3": (1, ECX, 0), "ssse3": (1, ECX, 9), "fma": (1, ECX, 12), "sse4.1": (1, ECX, 19),
    "sse4.2": (1, ECX, 20), "movbe": (1, ECX, 22), "popcnt": (1, ECX, 23), "avx": (1, ECX, 28),
    "f16c": (1, ECX, 29), "bmi": (7, EBX, 3), "avx2": (7, EBX, 5), "bmi2": (7, EBX, 8),
    "avx512f": (7, EBX, 16), "avx512dq": (7, EBX, 17), "avx512cd": (7, EBX, 28),
    "avx512bw": (7, EBX, 30), "avx512vl": (7, EBX, 31), "avx512vnni": (7, ECX, 11),
    "lzcnt": (_EXTENDED | 1, ECX, 5),
}
_OSXSAVE = 1 << 27  # of leaf 1, ecx: the system's own register may be asked
_YMM, _ZMM = 0b110, 0b11100110  # what the system must save for AVX, and for AVX-512


@dataclass(frozen=True)
class Question:
    """One leaf to ask: all bits of `mask` must be set in a register of the answer."""

    leaf: int
    register: int
    mask: int

    @property
    def range(self) -> int:
        """The leaf that tells how far this one's range goes."""
        return self.leaf & _EXTENDED


def questions(features: Iterable[str]) -> tuple[tuple[Question, ...], int]:
    """What to ask the processor for these features, and the bits of XCR0 the system must set.

    Wide registers need both: a processor has them, but a program may use them only where the
    system saves them when it switches between programs.

    >>> questions(["sse4.1", "popcnt"])
    ((Question(leaf=1, register=2, mask=8912896),), 0)
    """
    masks: dict[tuple[int, int], int] = {}
    saved = 0
    for feature in features:
        if feature not in _BITS:
            raise Unsupported(f"no x86-64 processor can be asked for {feature!r} yet; add its bit "
                              "to ztorch/codegen/cpuid.py")
        leaf, register, bit = _BITS[feature]
        masks[leaf, register] = masks.get((leaf, register), 0) | 1 << bit
        if feature.startswith("avx512"):
            saved |= _ZMM
        elif feature in ("avx", "avx2", "fma", "f16c"):
            saved |= _YMM
    if saved:
        masks[1, ECX] = masks.get((1, ECX), 0) | _OSXSAVE
    return tuple(Question(*where, mask) for where, mask in sorted(masks.items())), saved
