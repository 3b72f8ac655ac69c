"""Which devices there are, and what a device string means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ztorch.backends import host
from ztorch.errors import DeviceError, unknown

# CPU levels from the best; each with the feature that tells it and the machines it is for.
LEVELS = {
    "x86_64": (("avx512", "avx512bw"), ("avx2", "avx2"), ("sse4.1", "sse4.1")),
    "aarch64": (("neon", "neon"),),
}
NAMES = ("scalar", "sse4.1", "avx2", "avx512", "neon")


@dataclass(frozen=True)
class Level:
    """A set of instructions that code may be compiled for; `reason` says why not here."""

    name: str
    available: bool
    reason: str = ""


@dataclass(frozen=True)
class Device:
    """One device of this machine. `id` is what `compile` takes."""

    id: str
    kind: str
    name: str
    cores: int  # physical
    threads: int  # that can run at once
    memory_bytes: int
    levels: tuple[Level, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def devices() -> list[Device]:
    """The devices of this machine.

    >>> devices()[0].id
    'cpu'
    """
    return [Device("cpu", "cpu", host.cpu_name(), host.physical_cores(), host.usable_cores(),
                   host.memory_bytes(), tuple(_level(name) for name in NAMES))]


def _level(name: str) -> Level:
    made_for = next((arch for arch, rows in LEVELS.items() if name in dict(rows)), "x86_64")
    if made_for != host.architecture():
        return Level(name, False, f"for {made_for} processors, this one is {host.architecture()}")
    feature = dict(LEVELS[made_for]).get(name)  # scalar code needs none
    if feature is not None and feature not in host.features():
        return Level(name, False, f"this processor has no {feature}")
    return Level(name, True)


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
    if device in ("auto", "cpu"):
        return best_level()
    kind, _, level = str(device).partition(":")
    if kind != "cpu" or level not in NAMES:
        raise unknown("device", device, ["auto", "cpu", *(f"cpu:{n}" for n in NAMES)])
    return level
