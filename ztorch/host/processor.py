"""The features of this processor, and the cores and memory that this process may use.

Artifacts are also checked on machines without a compiler, so this needs no LLVM, but features have
LLVM's names. If the operating system gives no answer, the safe one is assumed: no optional
features, one thread per processor. `host.detect` has the caches, `host.mac` the queries for macOS.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

from ztorch.errors import DeviceError

# Names in /proc/cpuinfo and LLVM's names. The kernel lists only features that are enabled. Features
# that a process must request before use, such as AMX, are omitted.
_X86 = {
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "movbe": "movbe",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "abm": "lzcnt",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512cd": "avx512cd",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
}
_ARM = {
    "fp": "fp-armv8",
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimdfhm": "fp16fml",
    "asimddp": "dotprod",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}
# Features that every processor of the architecture has.
_ALWAYS = {"aarch64": {"neon", "fp-armv8"}, "x86_64": {"sse2"}}
_ARM_CORES = {  # names by the numbers of vendor and part
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1",
    ("0x41", "0xd40"): "Neoverse V1",
    ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2",
}


@cache
def architecture() -> str:
    """The instruction set, by one name on all systems: `x86_64`, `aarch64`, or Python's name.

    >>> architecture() in ("AMD64", "arm64")
    False
    """
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@cache
def features() -> frozenset[str]:
    """Optional CPU features that code can use on this machine, by LLVM's names.

    >>> {"avx2", "fma"} <= features()     # doctest: +SKIP
    True
    """
    arm = architecture() == "aarch64"
    if sys.platform == "darwin":
        from ztorch.host import mac

        names = mac.features(arm, _X86)
    else:
        cpu = cpuinfo()
        words = cpu.get("flags", cpu.get("Features", "")).split()
        table = _ARM if arm else _X86
        names = {table[word] for word in words if word in table}
    return frozenset(names | _ALWAYS.get(architecture(), set()))


@cache
def cpu_name() -> str:
    """The vendor's name of the processor, for display.

    >>> cpu_name()     # doctest: +SKIP
    'AMD EPYC 9654 96-Core Processor'
    """
    if sys.platform == "darwin":
        from ztorch.host import mac

        return mac.sysctl_text("machdep.cpu.brand_string") or architecture()
    cpu = cpuinfo()
    core = (cpu.get("CPU implementer", ""), cpu.get("CPU part", ""))
    name = cpu.get("model name") or _ARM_CORES.get(core) or platform.processor()
    return name or f"{architecture()} processor"


def usable_cores() -> int:
    """The number of threads of this process that can run at the same time: the logical processors
    that affinity (`taskset`) and container quotas allow.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    return _within_quota(len(_allowed()))


def physical_cores() -> int:
    """Like `usable_cores`, but hyper-threads of the same core count once.

    >>> 1 <= physical_cores() <= usable_cores()
    True
    """
    if sys.platform == "darwin":
        from ztorch.host import mac

        return mac.sysctl_number("hw.physicalcpu") or usable_cores()
    return _within_quota(len({_core_of(processor) for processor in _allowed()}))


@cache
def memory_bytes() -> int:
    """The memory of the machine in bytes, or the limit of its container if that is lower.

    >>> memory_bytes() > 2**20
    True
    """
    if sys.platform == "darwin":
        from ztorch.host import mac

        return mac.sysctl_number("hw.memsize")
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 32  # unknown: assume 4 GiB
    limits = [number(text) for text in _limits("memory", "memory.max", "memory.limit_in_bytes")]
    return min([total, *(limit for limit in limits if limit > 0)])


def free_memory_bytes() -> int:
    """The bytes of memory that are free, without those used by file caches.

    >>> 0 < free_memory_bytes() <= memory_bytes()
    True
    """
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return memory_bytes()  # unknown
    return min(free, memory_bytes())


def need_memory(subject: str, nbytes: int, fix: str) -> None:
    """Raises an error if something needs more memory than the machine has, before the system kills
    the process.

    Args:
        subject: What needs the memory, for the error.
        nbytes: The number of bytes.
        fix: Advice for the error.
    """
    if nbytes > 1 << 28 and nbytes > memory_bytes():  # 256 MiB always fit, so skip the query
        raise DeviceError(f"{subject} needs {nbytes / 2**30:,.1f} GiB of memory; this machine has "
                          f"{memory_bytes() / 2**30:,.1f}: {fix}")


# ---- Linux ---------------------------------------------------------------------------------


@cache
def cpuinfo(path: str = "/proc/cpuinfo") -> dict[str, str]:
    """The entry of the first processor in /proc/cpuinfo.

    The kernel generates the file while it is read, so reading stops after the first entry.

    >>> "flags" in cpuinfo()     # doctest: +SKIP
    True
    """
    text = b""
    try:
        with open(path, "rb", buffering=0) as file:
            while b"\n\n" not in text and (more := file.read(8192)):
                text += more
    except OSError:
        pass
    lines = text.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def _core_of(processor: int) -> str:
    """A text that is the same for all hyper-threads of a core."""
    siblings = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    return (file_text(siblings) if _hyperthreaded() else "") or str(processor)


@cache
def _hyperthreaded() -> bool:
    return file_text("/sys/devices/system/cpu/smt/active") != "0"


def _within_quota(count: int) -> int:
    """`count`, or the CPU quota if that is lower, rounded down: with a quota of 2.5 processors, a
    third thread would stall the other two."""
    return max(1, int(min(count, _quota())))


@cache
def _quota() -> float:
    """The number of processors that the strictest control group allows."""
    quotas = [float("inf")]
    for text in _limits("cpu", "cpu.max", "cpu.cfs_quota_us"):
        quota, _, period = text.partition(" ")
        if number(quota) > 0 and number(period) > 0:
            quotas.append(number(quota) / number(period))
    return min(quotas)


def _limits(controller: str, v2_file: str, v1_file: str, root: str = "") -> list[str]:
    """The limit of one resource in each control group, from the group of this process to the root.

    Version 1 stores the period of a CPU quota in a second file; the result contains both, like the
    file of version 2. In a container, the path may name groups that are not visible. Then only the
    limits of the mounted folder count.
    """
    base, texts = f"{root}/sys/fs/cgroup", []
    for line in file_text(f"{root}/proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":  # version 2
            mounts, name = [base, f"{base}/unified"], v2_file
        elif controller in controllers.split(","):
            mounts, name = [f"{base}/{controllers}", f"{base}/{controller}"], v1_file
        else:
            continue
        group = [part for part in path.split("/") if part]
        for mount in dict.fromkeys(mounts):
            if ".." in group or not os.path.isdir(mount):
                continue
            for depth in range(len(group), -1, -1):
                folder = "/".join([mount, *group[:depth]])
                text = file_text(f"{folder}/{name}")
                if text and name == "cpu.cfs_quota_us":
                    text += " " + file_text(f"{folder}/cpu.cfs_period_us")
                texts += [text] if text else []
    return texts


def file_text(path: str) -> str:
    """The text of a small file without surrounding spaces; empty if it cannot be read.

    >>> file_text("/no/such/file")
    ''
    """
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def number(text: str) -> int:
    """The integer in `text`; -1 if there is none, as in "max" or an empty file.

    >>> number("42"), number("max")
    (42, -1)
    """
    try:
        return int(text)
    except ValueError:
        return -1
