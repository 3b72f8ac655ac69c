"""What the host can do, against LLVM's answer and made-up machines."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ztorch.host import processor
from ztorch.machines.processors import PROCESSORS

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_features_are_a_subset_of_llvms() -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    theirs = {name for name, present in llvm.get_host_cpu_features().items() if present}
    if not theirs:
        pytest.skip("LLVM does not know this processor")
    assert processor.features() <= theirs
    known = {*processor._X86.values(), *processor._ARM.values()}
    assert theirs & known <= processor.features()


def test_architecture_has_one_name_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"AMD64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}
    for machine, expected in names.items():
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert processor.architecture.__wrapped__() == expected


def test_numbers_are_sane() -> None:
    assert processor.cpu_name()
    assert 1 <= processor.physical_cores() <= processor.usable_cores() <= (os.cpu_count() or 1)
    assert 1 << 20 < processor.memory_bytes() < 1 << 50


@linux
def test_affinity_counts_at_once() -> None:
    """In a process of its own: taking processors from the test runner would slow the rest."""
    code = (
        "import os; from ztorch.host import processor; processor.usable_cores();"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "print(processor.usable_cores(), processor.physical_cores())"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["1", "1"]


CPUINFO = {
    "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu pni avx avx2 amx_tile avx512_fp16\n\n"
    "processor\t: 1\nmodel name\t: Other\nflags\t\t: fma\n": ("x86_64", {"sse3", "avx512fp16"}),
    "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp bf16\nCPU implementer\t: 0x41\n"
    "CPU part\t: 0xd40\n\n": ("aarch64", {"neon", "fullfp16", "dotprod", "bf16"}),
    "": ("x86_64", {"sse2"}),
}


@linux
@pytest.mark.parametrize("text", CPUINFO)
def test_cpuinfo_is_read_as_far_as_the_first_processor(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, expected = CPUINFO[text]
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    seen = processor._cpuinfo(str(path))
    monkeypatch.setattr(processor, "_cpuinfo", lambda: seen)
    monkeypatch.setattr(processor, "architecture", lambda: machine)
    found = processor.features.__wrapped__()
    assert expected <= found and not found & {"fma", "amx-tile"}
    name = processor.cpu_name.__wrapped__()
    assert name == {"x86_64": "Fast One", "aarch64": "Neoverse V1"}[machine] or not text


def made_up(tmp_path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)


QUOTAS = {
    "none": ({}, []),
    "v2, a parent is tighter": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "250000 100000\n",
        },
        ["max 100000", "250000 100000"],
    ),
    "v1 in a container": (
        {
            "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/123\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        ["150000 100000"],
    ),
    "hybrid": (
        {
            "proc/self/cgroup": "1:cpu:/\n0::/job\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/unified/job/cpu.max": "50000 100000\n",
        },
        ["-1 100000", "50000 100000"],
    ),
    "a path out of the mount": ({"proc/self/cgroup": "0::/../../etc\n"}, []),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_control_groups_are_found(case: str, tmp_path: Path) -> None:
    files, expected = QUOTAS[case]
    root = made_up(tmp_path, files)
    assert processor._limits("cpu", "cpu.max", "cpu.cfs_quota_us", root) == expected


@pytest.mark.parametrize(
    ("texts", "cores"),
    [
        ([], 8),
        (["max 100000"], 8),
        (["-1 100000"], 8),
        (["garbage"], 8),
        (["9900000 100000"], 8),
        (["250000 100000", "max 100000"], 2),
        (["50000 100000"], 1),
    ],
)
def test_quotas_round_down_but_never_to_nothing(
    texts: list[str], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_limits", lambda *names: texts)
    quota = processor._quota.__wrapped__()
    monkeypatch.setattr(processor, "_quota", lambda: quota)
    assert processor._within_quota(8) == cores


def test_a_container_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_limits", lambda *names: ["max", str(1 << 26), str(1 << 27)])
    if sys.platform != "darwin":
        assert processor.memory_bytes.__wrapped__() == 1 << 26


CACHES = {
    "index0/level": "1", "index0/type": "Data", "index0/size": "48K", "index0/ways_of_associativity": "12",
    "index1/level": "1", "index1/type": "Instruction", "index1/size": "64K",
    "index2/level": "2", "index2/type": "Unified", "index2/size": "2M", "index2/ways_of_associativity": "16",
    "index3/level": "3", "index3/type": "Unified", "index3/size": "36864K",
}


def test_caches_as_linux_describes_them(tmp_path: Path) -> None:
    told = processor._caches(made_up(tmp_path, CACHES))
    assert told == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20, "l2_ways": 16, "l3_bytes": 36 << 20}
    assert processor._caches(str(tmp_path / "nowhere")) == {}


@linux
def test_caches_as_the_c_library_describes_them() -> None:
    """They are what Linux says, where both answer; what neither knows is left to the row."""
    linux_says, libc_says = processor._caches(), processor._caches_of_libc()
    for field in linux_says.keys() & libc_says.keys():
        assert libc_says[field] in (0, linux_says[field])


@pytest.mark.parametrize(("cpu", "name"), [
    ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}, "zen3"),
    ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "zen4"),
    ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143"}, "sapphire-rapids"),
    ({"CPU implementer": "0x41", "CPU architecture": "8", "CPU part": "0xd40"}, "neoverse-v1"),
    ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "?"}, "any"),
    ({"vendor_id": "Acme", "cpu family": "6", "model": "143"}, "any"),
    ({}, "any"),
])
def test_processors_by_what_they_say_of_themselves(cpu: dict[str, str], name: str) -> None:
    assert processor._described(cpu).name == name


def test_the_processor_is_its_row_with_the_caches_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor.sys, "platform", "linux")
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"})
    monkeypatch.setattr(processor, "_caches", lambda: {"l2_bytes": 123 << 10, "l3_bytes": 0})
    seen = processor.detected.__wrapped__()
    assert seen == PROCESSORS["zen3"].with_caches(l2_bytes=123 << 10) and seen.l3_bytes == 32 << 20
    monkeypatch.setattr(processor, "_caches", dict)
    monkeypatch.setattr(processor, "_caches_of_libc", dict)
    assert processor.detected.__wrapped__() == PROCESSORS["zen3"]  # a sandbox that tells nothing
