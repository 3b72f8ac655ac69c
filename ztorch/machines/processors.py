"""The table of processors, with numbers for lowering, and the table of SIMD levels.

A row has the facts that schedules depend on: sizes and bandwidths of caches, and multiply-adds per
cycle. Sizes are those of one core. Numbers are published by the makers unless a comment says
otherwise; fields that a row omits are those of ANY.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import chain
from typing import NamedTuple

from ztorch.errors import unknown

KIB, MIB = 1 << 10, 1 << 20


class SimdLevel(NamedTuple):
    """A set of vector instructions; its name follows `cpu:` in the name of a device."""

    name: str
    arch: str  # its architecture
    feature: str  # the feature of processors that support it; empty: all do


SIMD_LEVELS = (  # from the lowest to the highest of each architecture
    SimdLevel("scalar", "x86_64", ""),
    SimdLevel("sse4.1", "x86_64", "sse4.1"),
    SimdLevel("avx2", "x86_64", "avx2"),
    SimdLevel("avx512", "x86_64", "avx512bw"),
    SimdLevel("neon", "aarch64", "neon"),
)


class Processor(NamedTuple):
    """The numbers of a processor for lowering."""

    name: str
    level: str = ""  # its best SIMD level; empty if the row is no particular processor
    l1_bytes: int = 32 * KIB  # data cache of a core
    l2_bytes: int = MIB  # L2 cache of a core
    l2_ways: int = 8  # associativity of the L2 cache
    l3_bytes: int = 8 * MIB  # the part of the last-level cache that one core may fill
    l2_bytes_per_cycle: float = 24.0  # from the L2 cache while the core computes (Zen 4)
    outer_bytes_per_cycle: float = 16.0  # from beyond the L2 cache
    memory_bytes_per_cycle: float = 5.0  # of one core, from and to memory (measured on Zen 5)
    fma_ports: int = 2  # vector multiply-adds that start in a cycle
    load_ports: int = 2  # vector loads that start in a cycle
    port_bits: int = 512  # width of these ports; a wider vector takes several cycles
    fma_cycles: int = 4  # latency of a multiply-add
    row_addresses: int = 10  # addresses of rows that general registers hold beside counters
    ids: tuple[tuple[str, int, range], ...] = ()  # (vendor, family, models) as CPUID reports them
    # A feature that no earlier processor of the vendor has, since virtual machines hide the model.
    feature: str = ""
    byte_dots: bool = False  # whether it multiplies words of bytes, which its level does not imply

    def with_caches(self, **sizes: int) -> Processor:
        """The row with the cache sizes that the system reports; 0 leaves a field unchanged.

        >>> processor("zen4").with_caches(l1_bytes=0, l2_bytes=2 * MIB).l2_bytes
        2097152
        """
        return self._replace(**{field: n for field, n in sizes.items() if n > 0})  # type: ignore[arg-type]


def _amd(family: int, *models: tuple[int, int]) -> tuple[tuple[str, int, range], ...]:
    """AMD's processors of a family, by ranges of models: first and end."""
    return tuple(("AuthenticAMD", family, range(*pair)) for pair in models)


def _intel(*models: int) -> tuple[tuple[str, int, range], ...]:
    """Intel's processors, all of family 6."""
    return tuple(("GenuineIntel", 6, range(n, n + 1)) for n in models)


def _arm(part: int) -> tuple[tuple[str, int, range], ...]:
    """A core designed by Arm; the family is the architecture's version."""
    return (("0x41", 8, range(part, part + 1)),)


# Code is compiled for this row if the processor that will run it is not known.
ANY = Processor("any")

PROCESSORS: dict[str, Processor] = {p.name: p for p in (
    ANY,
    Processor("zen2", "avx2", l2_bytes=512 * KIB, l3_bytes=16 * MIB, port_bits=256, fma_cycles=5,
              ids=_amd(23, (0x30, 0x100))),
    Processor("zen3", "avx2", l2_bytes=512 * KIB, l3_bytes=32 * MIB, port_bits=256,
              l2_bytes_per_cycle=14.0,  # measured: tiles that need 16 reach 85 % of the peak
              ids=_amd(25, (0x00, 0x10), (0x20, 0x60))),
    Processor("zen4", "avx512", l2_bytes=MIB, l3_bytes=32 * MIB, port_bits=256,
              byte_dots=True, ids=_amd(25, (0x10, 0x20), (0x60, 0xB0))),
    Processor("zen5", "avx512", l1_bytes=48 * KIB, l2_bytes=MIB, l2_ways=16, l3_bytes=32 * MIB,
              byte_dots=True, ids=_amd(26, (0x00, 0x100))),
    Processor("haswell", "avx2", l2_bytes=256 * KIB, l3_bytes=8 * MIB, port_bits=256, fma_cycles=5,
              ids=_intel(0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56)),
    Processor("skylake", "avx2", l2_bytes=256 * KIB, l3_bytes=8 * MIB, port_bits=256,
              ids=_intel(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6)),
    Processor("skylake-server", "avx512", l2_ways=16, l3_bytes=1408 * KIB, ids=_intel(0x55)),
    Processor("icelake", "avx512", l1_bytes=48 * KIB, l2_bytes=512 * KIB, l3_bytes=8 * MIB,
              byte_dots=True, ids=_intel(0x7D, 0x7E)),
    Processor("icelake-server", "avx512", l1_bytes=48 * KIB, l2_bytes=1280 * KIB,
              l2_ways=20, l3_bytes=1536 * KIB, byte_dots=True, ids=_intel(0x6A, 0x6C)),
    Processor("sapphire-rapids", "avx512", l1_bytes=48 * KIB, l2_bytes=2 * MIB,
              l2_ways=16, l3_bytes=1920 * KIB, ids=_intel(0x8F, 0xCF), feature="avx512_fp16",
              byte_dots=True),
    Processor("alderlake", "avx2", l1_bytes=48 * KIB, l2_bytes=1280 * KIB, l2_ways=10,
              l3_bytes=30 * MIB, port_bits=256, ids=_intel(0x97, 0x9A, 0xB7, 0xBA, 0xBF)),
    Processor("cortex-a72", "neon", l2_bytes=512 * KIB, l3_bytes=2 * MIB, fma_ports=1, load_ports=1,
              port_bits=128, fma_cycles=7, l2_bytes_per_cycle=8.0, outer_bytes_per_cycle=4.0,
              ids=_arm(0xD08)),
    Processor("neoverse-n1", "neon", l1_bytes=64 * KIB, l2_bytes=MIB, l3_bytes=32 * MIB,
              port_bits=128, row_addresses=26, ids=_arm(0xD0C)),
    Processor("neoverse-v1", "neon", l1_bytes=64 * KIB, l2_bytes=MIB, l3_bytes=32 * MIB,
              fma_ports=4, load_ports=3, port_bits=128, row_addresses=26, ids=_arm(0xD40)),
    Processor("neoverse-n2", "neon", l1_bytes=64 * KIB, l2_bytes=MIB, l3_bytes=32 * MIB,
              port_bits=128, load_ports=3, row_addresses=26, ids=_arm(0xD49)),
    Processor("neoverse-v2", "neon", l1_bytes=64 * KIB, l2_bytes=2 * MIB, l3_bytes=32 * MIB,
              fma_ports=4, load_ports=3, port_bits=128, row_addresses=26, ids=_arm(0xD4F)),
    Processor("apple-m1", "neon", l1_bytes=128 * KIB, l2_bytes=3 * MIB, l3_bytes=8 * MIB,
              fma_ports=4, load_ports=3, port_bits=128, row_addresses=26),
)}


def processor(name: str) -> Processor:
    """The row of a processor by its name.

    >>> processor("zen3").l2_bytes
    524288
    """
    if name not in PROCESSORS:
        raise unknown("processor", name, PROCESSORS)
    return PROCESSORS[name]


def identify(maker: str, family: int, model: int,
             flags: Container[str] = ()) -> Processor:
    """The row of a processor by the numbers that it reports, or by its features; or ANY.

    Args:
        maker: The vendor that it reports.
        family: The family.
        model: The model.
        flags: Its features. Default: `()`.

    >>> identify("AuthenticAMD", 25, 1).name, identify("GenuineIntel", 6, 0x55).name
    ('zen3', 'skylake-server')
    """
    rows = PROCESSORS.values()
    by_id = (row for row in rows if any(
        maker == m and family == f and model in models for m, f, models in row.ids))
    by_feature = (row for row in rows if row.feature in flags and maker in {m for m, *_ in row.ids})
    return next(chain(by_id, by_feature), ANY)
