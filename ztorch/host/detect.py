"""Detects the processor of this machine: its row in `machines.processors`, with its cache sizes.

Only the compiler imports this.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

from ztorch.host.processor import architecture, cpuinfo, file_text, number
from ztorch.machines.processors import ANY, PROCESSORS, Processor, identify

# Fields of `Processor`, and the last part of their names in macOS.
_MAC_CACHES = {"l1_bytes": "l1dcachesize", "l2_bytes": "l2cachesize", "l3_bytes": "l3cachesize"}
# Fields of `Processor`, and glibc's numbers: _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE and
# _SC_LEVEL2_CACHE_ASSOC.
_GLIBC_CACHES = {"l1_bytes": 188, "l2_bytes": 191, "l2_ways": 192}


@cache
def detected() -> Processor:
    """The row of this processor, with the cache sizes that the system reports.

    If the system reports none, as in some sandboxes, the row's own sizes remain. A processor
    without a row gets ANY.

    >>> detected().l2_bytes >= detected().l1_bytes
    True
    """
    if sys.platform == "darwin":
        from ztorch.host.mac import sysctl_number

        row = PROCESSORS["apple-m1"] if architecture() == "aarch64" else ANY
        return row.with_caches(**{
            field: sysctl_number(f"hw.perflevel0.{name}") or sysctl_number(f"hw.{name}")
            for field, name in _MAC_CACHES.items()})
    return _row(cpuinfo()).with_caches(**(_linux_caches() or _libc_caches()))


def _row(cpu: dict[str, str]) -> Processor:
    """The row that matches an entry of /proc/cpuinfo."""
    if "CPU part" in cpu:
        numbers = (cpu.get("CPU architecture", ""), cpu["CPU part"])
        vendor = cpu.get("CPU implementer", "")
    else:
        numbers = (cpu.get("cpu family", ""), cpu.get("model", ""))
        vendor = cpu.get("vendor_id", "")
    try:
        family, model = (int(text, 0) for text in numbers)
    except ValueError:
        return ANY
    return identify(vendor, family, model, cpu.get("flags", "").split())


def _linux_caches(root: str = "/sys/devices/system/cpu/cpu0/cache") -> dict[str, int]:
    """The data caches of the first processor as Linux reports them; empty if it does not."""
    caches: dict[str, int] = {}
    for index in range(8):
        folder = f"{root}/index{index}"
        level, kind = number(file_text(f"{folder}/level")), file_text(f"{folder}/type")
        if kind not in ("Data", "Unified") or not 1 <= level <= 3:
            continue
        size = file_text(f"{folder}/size")  # such as 512K
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        caches[f"l{level}_bytes"] = max(0, number(size.rstrip("KM")) * unit)
        if level == 2:
            caches["l2_ways"] = max(0, number(file_text(f"{folder}/ways_of_associativity")))
    return caches


def _libc_caches() -> dict[str, int]:
    """The data caches as glibc reports them, which queries the processor itself.

    The last-level cache is omitted, because glibc often reports the total of the whole machine.
    """
    if platform.libc_ver()[0] != "glibc":  # other libraries number these differently
        return {}
    try:
        return {field: max(0, os.sysconf(key)) for field, key in _GLIBC_CACHES.items()}
    except (OSError, ValueError):
        return {}
