"""What one run and a few days of runs take of the product of ops and machines."""

from __future__ import annotations

import pytest

from tests.cases.covering import DAYS, full, today
from tests.cases.jobs import Maker, jobs, sharing
from ztorch.dtypes import f64

OPS = {op.rstrip("'") for op in jobs()}


@pytest.mark.skipif(full(), reason="a full run has no days")
@pytest.mark.parametrize("doubles", [True, False])
@pytest.mark.parametrize("machines", [3, 8, 9])
def test_each_day_has_each_op_on_each_machine_and_few_days_each_job(
        machines: int, doubles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[Maker]] = {op: set() for op in jobs()}
    for day in range(5, 5 + DAYS):
        monkeypatch.setenv("ZTORCH_DAY", str(day))
        for machine in range(machines):
            of_machine = sharing(machine, machines, doubles)
            assert {op.rstrip("'") for op, some in of_machine.items() if some} == OPS
            for op, some in of_machine.items():
                seen[op].update(some.makers)
    for op, some in jobs().items():
        assert seen[op] == {m for m in some.makers if doubles or m.dtype is not f64}


@pytest.mark.skipif(full(), reason="a full run has no days")
def test_a_slow_machine_has_each_op_once_in_few_days(monkeypatch: pytest.MonkeyPatch) -> None:
    days: list[set[str]] = []
    modes: set[str] = set()
    for day in range(DAYS * DAYS):
        monkeypatch.setenv("ZTORCH_DAY", str(day))
        some = [op for op, of_op in sharing(0, 3, slow=True).items() if of_op]
        days.append({op.rstrip("'") for op in some})
        modes.update(some)
    assert modes == set(jobs())
    for first in range(0, len(days), DAYS):
        assert sum(map(len, days[first:first + DAYS])) == len(OPS) == len(set().union(*days[first:first + DAYS]))


def test_a_turn_is_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for turn, day in (("7", 7), ("0", 0)):
        monkeypatch.delenv("ZTORCH_DAY", raising=False)
        monkeypatch.setenv("ZTORCH_TURN", turn)
        assert today() == day
        monkeypatch.setenv("ZTORCH_TURN", "all")  # as conftest does where files are named: the day stays
        assert today() == day
