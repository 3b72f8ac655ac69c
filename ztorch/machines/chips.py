"""The table of GPU chips that code is generated for. Targets and drivers read it."""

from __future__ import annotations

from typing import NamedTuple


class Chip(NamedTuple):
    """A chip that code is assembled for in advance."""

    backend: str  # the driver that runs its code
    name: str  # its name in the vendor's compilers
    family: str  # its row of FAMILIES in codegen/targets.py
    generation: int = 0  # later generations run its code too; 0: no other chip does
    exact: bool = False  # whether only this chip runs its code, despite the generation
    shared_bytes: int = 0  # limit of a workgroup's shared memory; 0: see its target's row
    isa: str = ""  # oldest version of the assembly language that supports the chip


CHIPS: tuple[Chip, ...] = (
    Chip("cuda", "sm_75", "turing", 75, shared_bytes=64 << 10, isa="7.0"),
    Chip("cuda", "sm_80", "ampere", 80, shared_bytes=163 << 10, isa="7.0"),
    Chip("cuda", "sm_86", "ampere", 86, shared_bytes=99 << 10, isa="7.1"),
    Chip("cuda", "sm_89", "ampere", 89, shared_bytes=99 << 10, isa="7.8"),
    Chip("cuda", "sm_90", "ampere", 90, shared_bytes=227 << 10, isa="7.8"),
    Chip("cuda", "sm_90a", "hopper", 90, exact=True, shared_bytes=227 << 10, isa="8.0"),
    Chip("cuda", "sm_100", "ampere", 100, shared_bytes=227 << 10, isa="8.6"),
    Chip("cuda", "sm_120", "ampere", 120, shared_bytes=99 << 10, isa="8.7"),
    Chip("rocm", "gfx90a", "cdna2"),
    Chip("rocm", "gfx942", "cdna3"),
    Chip("rocm", "gfx1100", "rdna3"),
    Chip("rocm", "gfx1201", "rdna4"),
)


def chips_of(backend: str) -> tuple[Chip, ...]:
    """The chips of a backend, the oldest first.

    >>> [c.name for c in chips_of("rocm")][0]
    'gfx90a'
    """
    return tuple(c for c in CHIPS if c.backend == backend)


def runnable(backend: str, name: str = "", generation: int = 0) -> tuple[str, ...]:
    """The chips whose code a device runs, the best last.

    Args:
        backend: The backend of the device.
        name: The name of its chip. Default: unknown.
        generation: The generation of its chip. Default: unknown.

    >>> runnable("cuda", generation=80), runnable("cuda", generation=61)
    (('sm_75', 'sm_80'), ())
    >>> runnable("rocm", "gfx942"), runnable("rocm", "gfx803")
    (('gfx942',), ())
    """
    return tuple(c.name for c in chips_of(backend) if c.name == name or (
        c.generation and (c.generation == generation or (
            c.generation < generation and not c.exact))))
