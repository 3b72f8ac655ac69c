"""Values that join others or have a border: each part has loops of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, NARROW, WIDE, Job, agree, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.ir.text import show
from ztorch.lower.insets import BORDER, INSET
from ztorch.lower.rewrites.in_place_concat import with_insets


def parts(axis: int, *sizes: int) -> list[Value]:
    shape = [3, 5]
    return [leaf("input", f"x{k}", (*shape[:axis], n, *shape[axis:]), f32) for k, n in enumerate(sizes)]


def job(axis: int, *sizes: int) -> Job:
    """Joined parts with a reader, which reads another value at the same place."""
    xs = parts(axis, *sizes)
    joined = ops.concat(*xs, axis=axis)
    beside = leaf("input", "beside", joined.shape, f32)
    y = ops.exp(joined) - beside
    rng = np.random.default_rng(sum(sizes))
    return Job(Graph({"y": y}), {v: rng.normal(size=v.shape).astype(np.float32) for v in (*xs, beside)})


def bordered(channels: int, low: tuple[int, ...], high: tuple[int, ...]) -> Job:
    x = leaf("input", "x", (2, 4, 5, channels), f32)
    y = ops.pad(x, low, high, value=0.5) * 2.0
    return Job(Graph({"y": y}), {x: np.random.default_rng(1).normal(size=x.shape).astype(np.float32)})


BORDERED = {"both sides": bordered(3, (0, 1, 2, 0), (0, 1, 1, 0)), "one side": bordered(7, (0, 0, 1, 0), (0, 2, 0, 0)),
            "channels": bordered(20, (0, 0, 0, 0), (0, 0, 0, 12)), "batch": bordered(4, (1, 0, 0, 0), (0, 0, 0, 0))}
JOINED = BORDERED | {"whole vectors": job(2, 16, 32, 16), "remainders": job(2, 17, 1, 30, 4), "rows": job(1, 2, 1, 4),
                     "first": job(0, 1, 3, 2), "few elements": job(2, 1, 2, 3)}


@pytest.mark.parametrize("name", JOINED)
def test_each_part_is_where_it_belongs(name: str) -> None:
    for limits in (NARROW, WIDE):
        agree(JOINED[name], interpreted(JOINED[name], limits))


@pytest.mark.parametrize("target", HERE)
def test_compiled_code_agrees(target: str) -> None:
    for name in ("remainders", "both sides"):
        agree(JOINED[name], compiled(JOINED[name], target))


def text_of(graph: Graph, limits: Limits = WIDE) -> str:
    [step] = plan_of(graph, limits)[0].steps
    return show(step.kernel)


@pytest.mark.parametrize(("name", "asks"), [("whole vectors", False), ("remainders", False), ("rows", False),
                                            ("first", False), ("few elements", True)])
def test_loops_over_one_part_test_no_other(name: str, asks: bool) -> None:
    """Unless all parts together fill less than a vector each."""
    text = text_of(JOINED[name].graph)
    assert ("select" in text) == asks
    if name == "whole vectors":
        assert text.count("load") == 2 * 3  # an element of a part, and its neighbor


def test_the_interior_of_a_border_is_copied_at_once() -> None:
    """Of a whole row of an image: three channels of each place are not a vector."""
    text = text_of(BORDERED["both sides"].graph)
    [asked] = [line for line in text.splitlines() if "load" in line]
    mask = asked.split()[-1]
    assert "select" not in text and f"{mask}:boolx16 = lt" in text and ", 15:i64x16" in text


def test_very_many_parts_share_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztorch.lower.cpu.index_set_splitting.PART_VALUES", 16)
    few, many = (text_of(Graph({"y": ops.concat(*parts(1, *[1] * n), axis=1)})) for n in (3, 17))
    assert "select" not in few and "select" in many


def test_a_border_that_nothing_reads_is_not_stored() -> None:
    x = leaf("input", "x", (2, 4, 32), f32)
    padded = ops.pad(ops.exp(x), (0, 1, 0), (0, 1, 0))
    for rows, read in ((slice(1, 5), False), (slice(0, 5), True), (slice(2, 6), True), (slice(1, 6, 2), True)):
        nodes = with_insets(Graph({"y": padded[:, rows] * 2.0})).nodes()
        assert any(v.op is INSET for v in nodes) and any(v.op is BORDER for v in nodes) == read, rows


def test_a_border_around_nothing_has_no_part() -> None:
    x, rows = leaf("input", "x", (3, 0), f32), leaf("input", "rows", (2,), "int32")
    y = ops.take(ops.pad(ops.relu(x), (1, 0), (0, 3), value=0.5), rows, axis=0) * 2.0
    j = Job(Graph({"y": y}), {x: np.zeros((3, 0), np.float32), rows: np.array([3, 0], np.int32)})
    for got in (compiled(j, HERE[-1]), interpreted(j, NARROW)):
        np.testing.assert_array_equal(got[0], np.ones((2, 3)))
