"""Which devices there are, and what a device string means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ztorch.backends import host, registry
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


class Where(NamedTuple):
    """What a device string means: the target to compile for, and the device to run on, which is
    None where the string names a chip that need not be here."""

    target: str
    backend: str
    ordinal: int | None


def resolve(device: str) -> Where:
    """The target and the device that a string means: backend[:number or chip].

    >>> resolve("cpu:avx2")
    Where(target='avx2', backend='cpu', ordinal=0)
    >>> resolve("cuda:sm_90")
    Where(target='cuda:sm_90', backend='cuda', ordinal=None)
    """
    if device in ("auto", "cpu"):
        return Where(best_level(), "cpu", 0)
    kind, _, rest = str(device).partition(":")
    if kind == "cpu" and rest in NAMES:
        return Where(rest, "cpu", 0)
    if kind not in registry.names() or kind == "cpu":
        known = ["auto", "cpu", *(f"cpu:{n}" for n in NAMES), *registry.names()]
        raise unknown("device", device, known)
    if rest and not rest.isdigit():
        return Where(device, kind, None)
    ordinal = int(rest or 0)
    chip = registry.opened(kind, ordinal).found.chip
    return Where(f"{kind}:{chip}" if chip else kind, kind, ordinal)
