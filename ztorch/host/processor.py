"""What this machine's processor can do, and how much of it this process may use.

Asked without LLVM, since an artifact must be checked where no compiler is installed. Features
carry LLVM's names. Where an operating system does not answer, the answer is the safe one: no
optional features, one thread per processor.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

from ztorch.errors import DeviceError
from ztorch.machines.processors import ANY, PROCESSORS, Processor, identified

# /proc/cpuinfo's words and LLVM's. The kernel lists only what it has switched on. Left out are
# features that a process must ask for before use, such as AMX.
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
# Every processor of the architecture has these, whatever the system says.
_ALWAYS = {"aarch64": {"neon", "fp-armv8"}, "x86_64": {"sse2"}}
_MAC_X86 = {word.replace("_", "").upper(): name for word, name in _X86.items()}
_MAC_X86 |= {"SSE3": "sse3", "AVX1.0": "avx", "SSE4.1": "sse4.1", "SSE4.2": "sse4.2"}
_MAC_ARM = {"FP16": "fullfp16", "FHM": "fp16fml", "DotProd": "dotprod", "BF16": "bf16"}
_MAC_ARM |= {"I8MM": "i8mm"}
_ARM_CORES = {
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
    """The instruction set by one name everywhere: `x86_64`, `aarch64`, else what Python says.

    >>> architecture() in ("AMD64", "arm64")
    False
    """
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@cache
def features() -> frozenset[str]:
    """Optional instructions that code may use here, by LLVM's names.

    >>> {"avx2", "fma"} <= features()     # doctest: +SKIP
    True
    """
    arm = architecture() == "aarch64"
    if sys.platform == "darwin":
        names = _mac_features(arm)
    else:
        cpu = _cpuinfo()
        words = cpu.get("flags", cpu.get("Features", "")).split()
        table = _ARM if arm else _X86
        names = {table[word] for word in words if word in table}
    return frozenset(names | _ALWAYS.get(architecture(), set()))


@cache
def cpu_name() -> str:
    """What the maker calls it, for people to read.

    >>> cpu_name()     # doctest: +SKIP
    'AMD EPYC 9654 96-Core Processor'
    """
    if sys.platform == "darwin":
        return _sysctl_text("machdep.cpu.brand_string") or architecture()
    cpu = _cpuinfo()
    core = (cpu.get("CPU implementer", ""), cpu.get("CPU part", ""))
    name = cpu.get("model name") or _ARM_CORES.get(core) or platform.processor()
    return name or f"{architecture()} processor"


def usable_cores() -> int:
    """How many threads of this process can really run at once.

    Counts logical processors, less what affinity (`taskset`) and container quotas take away.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    return _within_quota(len(_allowed()))


def physical_cores() -> int:
    """Like `usable_cores`, but two hyper-threads of one core count once.

    >>> 1 <= physical_cores() <= usable_cores()
    True
    """
    if sys.platform == "darwin":
        return _sysctl_number("hw.physicalcpu") or usable_cores()
    return _within_quota(len({_core_of(processor) for processor in _allowed()}))


@cache
def detected() -> Processor:
    """The row of this processor, with its caches as the system tells them. Where a system tells
    nothing, as in some sandboxes, it is the row alone; for a processor in no row, that of ANY.

    >>> detected().l2_bytes >= detected().l1_bytes
    True
    """
    if sys.platform == "darwin":
        row = PROCESSORS["apple-m1"] if architecture() == "aarch64" else ANY
        sizes = {"l1_bytes": "l1dcachesize", "l2_bytes": "l2cachesize", "l3_bytes": "l3cachesize"}
        return row.with_caches(**{
            field: _sysctl_number(f"hw.perflevel0.{name}") or _sysctl_number(f"hw.{name}")
            for field, name in sizes.items()})
    return _described(_cpuinfo()).with_caches(**(_caches() or _caches_of_libc()))


@cache
def memory_bytes() -> int:
    """Memory that this process can have: the machine's, or its container's limit if that is less.

    >>> memory_bytes() > 2**20
    True
    """
    if sys.platform == "darwin":
        return _sysctl_number("hw.memsize")
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 32  # unknown: assume little
    limits = [_number(text) for text in _limits("memory", "memory.max", "memory.limit_in_bytes")]
    return min([total, *(limit for limit in limits if limit > 0)])


def need_memory(subject: str, nbytes: int, fix: str) -> None:
    """An error where the machine has less memory than that: the system might kill a process that
    asks for more."""
    if nbytes > 1 << 28 and nbytes > memory_bytes():  # below 256 MiB, do not ask the system
        raise DeviceError(f"{subject} needs {nbytes / 2**30:,.1f} GiB of memory; there are "
                          f"{memory_bytes() / 2**30:,.1f}: {fix}")


# ---- Linux ---------------------------------------------------------------------------------


@cache
def _cpuinfo(path: str = "/proc/cpuinfo") -> dict[str, str]:
    """The first processor's entry. The kernel writes the file as it is read, so read no more."""
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


def _described(cpu: dict[str, str]) -> Processor:
    """The row of a processor by an entry of /proc/cpuinfo."""
    if "CPU part" in cpu:
        numbers = (cpu.get("CPU architecture", ""), cpu["CPU part"])
        maker = cpu.get("CPU implementer", "")
    else:
        numbers = (cpu.get("cpu family", ""), cpu.get("model", ""))
        maker = cpu.get("vendor_id", "")
    try:
        family, model = (int(text, 0) for text in numbers)
    except ValueError:
        return ANY
    return identified(maker, family, model)


def _caches(root: str = "/sys/devices/system/cpu/cpu0/cache") -> dict[str, int]:
    """The caches that data goes through, as Linux describes those of the first processor; nothing
    where it does not."""
    told: dict[str, int] = {}
    for number in range(8):
        folder = f"{root}/index{number}"
        level, kind = _number(_read(f"{folder}/level")), _read(f"{folder}/type")
        if kind not in ("Data", "Unified") or not 1 <= level <= 3:
            continue
        size = _read(f"{folder}/size")  # such as 512K
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        told[f"l{level}_bytes"] = max(0, _number(size.rstrip("KM")) * unit)
        if level == 2:
            told["l2_ways"] = max(0, _number(_read(f"{folder}/ways_of_associativity")))
    return told


def _caches_of_libc() -> dict[str, int]:
    """The same from the C library, which asks the processor itself. What it says of the last cache
    is often that of a whole machine, so it is left out."""
    if platform.libc_ver()[0] != "glibc":  # the numbers are its own
        return {}
    questions = {"l1_bytes": 188, "l2_bytes": 191, "l2_ways": 192}  # _SC_LEVEL1_DCACHE_SIZE, ...
    try:
        return {field: max(0, os.sysconf(number)) for field, number in questions.items()}
    except (OSError, ValueError):
        return {}


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def _core_of(processor: int) -> str:
    """A name shared by the hyper-threads of one core."""
    shared = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    return (_read(shared) if _hyperthreaded() else "") or str(processor)


@cache
def _hyperthreaded() -> bool:
    return _read("/sys/devices/system/cpu/smt/active") != "0"


def _within_quota(count: int) -> int:
    """A quota of 2.5 processors lets two threads run all the time: the third would stall them."""
    return max(1, int(min(count, _quota())))


@cache
def _quota() -> float:
    """Processors that the tightest control group allows at a time."""
    quotas = [float("inf")]
    for text in _limits("cpu", "cpu.max", "cpu.cfs_quota_us"):
        quota, _, period = text.partition(" ")
        if _number(quota) > 0 and _number(period) > 0:
            quotas.append(_number(quota) / _number(period))
    return min(quotas)


def _limits(controller: str, v2_file: str, v1_file: str, root: str = "") -> list[str]:
    """What each control group from ours up to the root says about one resource.

    Version 1 keeps the period of a CPU quota in a second file; here it is joined as in version 2.
    Inside a container the path may name groups that are not visible: then the mount speaks.
    """
    base, texts = f"{root}/sys/fs/cgroup", []
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
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
                text = _read(f"{folder}/{name}")
                if text and name == "cpu.cfs_quota_us":
                    text += " " + _read(f"{folder}/cpu.cfs_period_us")
                texts += [text] if text else []
    return texts


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1  # "max", or nothing


# ---- macOS ---------------------------------------------------------------------------------


def _mac_features(arm: bool) -> set[str]:
    if arm:
        asked = {f"hw.optional.arm.FEAT_{word}": name for word, name in _MAC_ARM.items()}
        return {name for question, name in asked.items() if _sysctl_number(question)}
    words = _sysctl_text("machdep.cpu.features") + " " + _sysctl_text("machdep.cpu.leaf7_features")
    return {_MAC_X86[word] for word in words.split() if word in _MAC_X86}


def _sysctl(name: str) -> bytes:
    import ctypes

    ask = ctypes.CDLL(None).sysctlbyname
    size = ctypes.c_size_t()
    if ask(name.encode(), None, ctypes.byref(size), None, 0):
        return b""
    answer = ctypes.create_string_buffer(size.value)
    if ask(name.encode(), answer, ctypes.byref(size), None, 0):
        return b""
    return answer.raw[: size.value]


def _sysctl_text(name: str) -> str:
    return _sysctl(name).rstrip(b"\0").decode("utf-8", "replace")


def _sysctl_number(name: str) -> int:
    return int.from_bytes(_sysctl(name), "little")
