"""The table of faults belongs to the code as it is."""

from __future__ import annotations

from tools.faults import ROOT
from tools.known_faults import FAULTS


def test_each_fault_matches_one_place_and_has_tests() -> None:
    for fault in FAULTS:
        assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault
        assert fault.new != fault.old
        assert all((ROOT / "tests" / name).exists() for name in fault.tests.split()), fault
