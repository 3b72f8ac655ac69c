"""What one run and a few days of runs take of the product of ops and machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.cases import device_programs
from tests.cases.covering import COMPOSED_DAYS, DAYS, full, today
from tests.cases.jobs import Maker, Together, composed, jobs, sharing
from tests.parity import Job
from ztorch.dtypes import f32, f64
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

OPS = {op.rstrip("'") for op in jobs()}


@pytest.mark.skipif(full(), reason="a full run has no days")
@pytest.mark.parametrize("doubles", [True, False])
@pytest.mark.parametrize("machines", [3, 8, 9])
def test_each_day_has_each_primitive_on_each_machine_and_few_days_each_job(
        machines: int, doubles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops that are made of others are on some machines of each day, and on each every second day."""
    seen: dict[str, set[Maker]] = {op: set() for op in jobs()}
    primitives = {op for op in OPS if not composed(op)}
    before: list[set[str]] = []
    for day in range(5, 5 + COMPOSED_DAYS):
        monkeypatch.setenv("ZTORCH_DAY", str(day))
        on_machines = []
        for machine in range(machines):
            of_machine = sharing(machine, machines, doubles)
            on_machines.append({op.rstrip("'") for op, some in of_machine.items() if some})
            assert primitives <= on_machines[-1]
            assert not before or on_machines[-1] | before[machine] == OPS
            for op, some in of_machine.items():
                if day < 5 + DAYS or composed(op):
                    seen[op].update(some.makers)
        before = on_machines
        assert set().union(*on_machines) == OPS
    for op, some in jobs().items():
        assert seen[op] == {m for m in some.makers if doubles or m.dtype is not f64}


def test_a_turn_is_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for turn, day in (("7", 7), ("0", 0)):
        monkeypatch.delenv("ZTORCH_DAY", raising=False)
        monkeypatch.setenv("ZTORCH_TURN", turn)
        assert today() == day
        monkeypatch.setenv("ZTORCH_TURN", "all")  # as conftest does where files are named: the day stays
        assert today() == day


class Doubling:
    """A module that runs jobs of the name "right", and does not compile those of the name "refused"."""

    def __init__(self, some: Sequence[Job], backend: str = ""):
        if any(job.label == "refused" for job in some):
            raise ValueError("refused")
        self.jobs = some

    def run(self, number: int) -> list[np.ndarray]:
        job = self.jobs[number]
        return [2 * a + (job.label == "wrong") for a in job.feeds.values()]


def doubled(label: str) -> Job:
    x = leaf("input", "x", (3,), f32)
    return Job(Graph({"y": x + x}), {x: np.arange(3, dtype=np.float32)}, label)


def test_jobs_compiled_together_fail_alone() -> None:
    right, refused = doubled("right"), doubled("refused")
    for others in ([], [refused]):
        together = Together([*others, right], Doubling)
        np.testing.assert_array_equal(together.run(right), [[0, 2, 4]])
        assert (together.module is None) == bool(others)
    with pytest.raises(ValueError, match="refused"):
        together.run(refused)


def test_the_error_names_each_job_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_programs, "Module", Doubling)
    monkeypatch.setattr(device_programs, "device", lambda name: None)
    device_programs.all_agree("some", [doubled("right"), doubled("right")])
    with pytest.raises(AssertionError) as error:
        device_programs.all_agree("some", [doubled(n) for n in ("wrong", "right", "refused")])
    first, *_, last = str(error.value).splitlines()
    assert first.startswith("wrong on some: AssertionError") and last == "refused on some: ValueError: refused"
    assert "right on" not in str(error.value)
