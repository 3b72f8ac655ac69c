"""The row and the caches of this machine's processor, from made-up systems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cases.written import made_up
from ztorch.host import detect
from ztorch.machines.processors import PROCESSORS

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")


CACHES = {
    "index0/level": "1", "index0/type": "Data", "index0/size": "48K", "index0/ways_of_associativity": "12",
    "index1/level": "1", "index1/type": "Instruction", "index1/size": "64K",
    "index2/level": "2", "index2/type": "Unified", "index2/size": "2M", "index2/ways_of_associativity": "16",
    "index3/level": "3", "index3/type": "Unified", "index3/size": "36864K",
    "index4/level": "4", "index4/type": "Unified", "index4/size": "128M",
}


def test_caches_as_linux_describes_them(tmp_path: Path) -> None:
    caches = detect._linux_caches(made_up(tmp_path, CACHES))
    assert caches == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20, "l2_ways": 16, "l3_bytes": 36 << 20}
    assert detect._linux_caches(str(tmp_path / "nowhere")) == {}


@linux
def test_caches_as_the_c_library_describes_them() -> None:
    """They agree with Linux where both have values; values unknown to both come from the row."""
    linux_says, libc_says = detect._linux_caches(), detect._libc_caches()
    for field in linux_says.keys() & libc_says.keys():
        assert libc_says[field] in (0, linux_says[field])


DESCRIBED = [
    ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}, "zen3"),
    ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "zen4"),
    ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143"}, "sapphire-rapids"),
    ({"CPU implementer": "0x41", "CPU architecture": "8", "CPU part": "0xd40"}, "neoverse-v1"),
    ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "?"}, "any"),
    ({"vendor_id": "Acme", "cpu family": "6", "model": "143"}, "any"),
    ({}, "any"),
]


def test_processors_are_detected_from_cpuinfo() -> None:
    for cpu, name in DESCRIBED:
        assert detect._row(cpu).name == name


def test_a_feature_identifies_a_processor_of_unknown_model() -> None:
    cpu = {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "167", "flags": "fpu avx2 avx512_fp16"}
    assert detect._row(cpu).name == "sapphire-rapids"
    for other in ({"flags": "fpu avx2"}, {"vendor_id": "AuthenticAMD"}):
        assert detect._row(cpu | other).name == "any"


def test_the_processor_is_its_row_with_the_caches_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect.sys, "platform", "linux")
    monkeypatch.setattr(detect, "cpuinfo", lambda: {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"})
    monkeypatch.setattr(detect, "_linux_caches", lambda: {"l2_bytes": 123 << 10, "l3_bytes": 0})
    seen = detect.detected.__wrapped__()
    assert seen == PROCESSORS["zen3"].with_caches(l2_bytes=123 << 10) and seen.l3_bytes == 32 << 20
    monkeypatch.setattr(detect, "_linux_caches", dict)
    monkeypatch.setattr(detect, "_libc_caches", dict)
    assert detect.detected.__wrapped__() == PROCESSORS["zen3"]  # a sandbox that tells nothing
