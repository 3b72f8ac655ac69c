"""Detected features of the host, against LLVM's answer and made-up machines."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.written import made_up
from ztorch.host import mac, processor

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


def test_cores_that_a_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    assert processor._allowed() == {0, 2, 5}
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processor._allowed() == {*range(8)}


def test_numbers_are_sane() -> None:
    assert processor.cpu_name()
    assert 1 <= processor.physical_cores() <= processor.usable_cores() <= (os.cpu_count() or 1)
    assert 1 << 20 < processor.memory_bytes() < 1 << 50


@linux
def test_affinity_counts_at_once() -> None:
    """In a separate process: taking processors from the test runner would slow the rest."""
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


@pytest.mark.cheap
@linux
@pytest.mark.parametrize("text", CPUINFO)
def test_cpuinfo_is_read_as_far_as_the_first_processor(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, expected = CPUINFO[text]
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    seen = processor.cpuinfo(str(path))
    monkeypatch.setattr(processor, "cpuinfo", lambda: seen)
    monkeypatch.setattr(processor, "architecture", lambda: machine)
    actual = processor.features.__wrapped__()
    assert expected <= actual and not actual & {"fma", "amx-tile"}
    name = processor.cpu_name.__wrapped__()
    assert name == {"x86_64": "Fast One", "aarch64": "Neoverse V1"}[machine] or not text


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


def test_control_groups_are_found(tmp_path: Path) -> None:
    for number, (files, expected) in enumerate(QUOTAS.values()):
        root = made_up(tmp_path / str(number), files)
        assert processor._limits("cpu", "cpu.max", "cpu.cfs_quota_us", root) == expected


QUOTA_TEXTS = [
    ([], 8),
    (["max 100000"], 8),
    (["-1 100000"], 8),
    (["garbage"], 8),
    (["9900000 100000"], 8),
    (["250000 100000", "max 100000"], 2),
    (["150000 100000", "250000 100000"], 1),
    (["50000 100000"], 1),
]


def test_quotas_round_down_but_never_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quota_now = processor._quota.__wrapped__
    for texts, cores in QUOTA_TEXTS:
        monkeypatch.setattr(processor, "_limits", lambda *names, texts=texts: texts)
        quota = quota_now()
        monkeypatch.setattr(processor, "_quota", lambda quota=quota: quota)
        assert processor._within_quota(8) == cores


def test_a_container_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_limits", lambda *names: ["max", str(1 << 26), str(1 << 27)])
    if sys.platform != "darwin":
        assert processor.memory_bytes.__wrapped__() == 1 << 26


@pytest.mark.parametrize(("arm", "answers", "expected"), [
    (True, {"hw.optional.arm.FEAT_BF16": b"\1\0\0\0", "hw.optional.arm.FEAT_FP16": b"\0\0\0\0"}, {"bf16"}),
    (False, {"machdep.cpu.features": b"FPU SSE4.1 AVX1.0 FMA\0",
             "machdep.cpu.leaf7_features": b"AVX2 BMI1 AVX512F\0"},
     {"sse4.1", "avx", "fma", "avx2", "bmi", "avx512f"}),
])
def test_what_macos_says_has_llvms_names(arm: bool, answers: dict[str, bytes], expected: set[str],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mac, "_sysctl", lambda name: answers.get(name, b""))
    assert mac.features(arm, processor._X86) == expected
