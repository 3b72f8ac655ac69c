"""The memory of calls is bounded: a new attribute each turn takes no more of it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import ztorch as zt
from ztorch.arrays import applying, calls, derivatives, functions, programs
from ztorch.arrays.recent import Recent

pytestmark = pytest.mark.usefixtures("by_numpy")


def test_used_members_are_kept_and_others_dropped() -> None:
    table: Recent[int, int] = Recent(100)
    for k in range(1000):
        table.put(k, k)
        assert table.get(3) == (None if k < 3 else 3)  # used in each turn
        assert len(table) <= 100
    assert table.get(2) is None and table.get(4) is None
    assert table.get(999) == 999 and table.get(500) is None
    table.put(999, 7)
    assert table.get(999) == 7


def test_attributes_that_vary_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    programs.forget()
    for table in (applying.recorded, derivatives._derived):
        monkeypatch.setattr(table, "_half", 8)
    x = zt.tensor([1.0, -2.0, 3.0])
    slope = zt.grad(lambda w, k: zt.ops.leaky_relu(w, k).sum())
    gc.collect()
    before = len(calls._calls)
    for k in range(1, 200):
        y = zt.ops.leaky_relu(x, k / 1000)
        slope_k = slope(x, k / 1000)
    assert len(applying.recorded) <= 16 and len(derivatives._derived) <= 16
    assert y.tolist() == pytest.approx([1.0, -2 * 0.199, 3.0])
    assert slope_k.tolist() == pytest.approx([1.0, 0.199, 1.0])
    del y, slope_k
    gc.collect()
    assert len(calls._calls) <= before + 16 + len(programs._programs)


def test_a_call_is_one_object_as_long_as_its_program(builds: list[str]) -> None:
    x = zt.tensor([1.0, 2.0])
    for _ in range(3):
        assert zt.ops.leaky_relu(x - 2.0, 0.5).tolist() == [-0.5, 0.0]
        applying.recorded.newest.clear()
        applying.recorded._old.clear()
        gc.collect()
    assert builds == ["leaky_relu"]


def test_versions_of_a_compiled_function_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "CAPACITY", 6)

    @zt.compiled
    def scaled(x: Any, k: int) -> Any:
        return x * k

    def kept() -> int:
        gc.collect()
        return sum(type(o) is programs.ArrayProgram for o in gc.get_objects())

    before, x = kept(), zt.tensor([2.0])
    for k in range(30):
        assert scaled(x, k).item() == 2.0 * k and scaled(x, 1).item() == 2.0
    assert kept() <= before + 6
