"""Which devices there are, and what a device string means."""

from __future__ import annotations

from ztorch.backends import host
from ztorch.errors import DeviceError, unknown

# CPU levels from the best; each with the feature that tells it and the machines it is for.
LEVELS = {
    "x86_64": (("avx512", "avx512bw"), ("avx2", "avx2"), ("sse4.1", "sse4.1")),
    "aarch64": (("neon", "neon"),),
}
NAMES = ("scalar", "sse4.1", "avx2", "avx512", "neon")


def best_level() -> str:
    """The best SIMD level of this CPU."""
    for level, feature in LEVELS.get(host.architecture(), ()):
        if feature in host.features():
            return level
    raise DeviceError(f"no code generator for {host.architecture()} CPUs yet")


def resolve(device: str) -> str:
    """The CPU target a device string means.

    >>> resolve("cpu:avx2")
    'avx2'
    """
    kind, _, level = str(device).partition(":")
    if kind not in ("auto", "cpu"):
        raise unknown("device", device, ["auto", "cpu", *(f"cpu:{n}" for n in NAMES)])
    if not level:
        return best_level()
    if level not in NAMES:
        raise unknown("device", device, ["auto", "cpu", *(f"cpu:{n}" for n in NAMES)])
    return level
