"""Gathers of adjacent elements: one load for each lane, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, NARROW, SCALAR, WIDE, Job, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import DType, f32, f64, i32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits


def job(columns: int, rows: int, dtype: DType = f32, count: int = 133) -> Job:
    """A weighted sum of the columns of rows that are chosen at run time, the last row among them."""
    table, at = leaf("input", "table", (rows, columns), dtype), leaf("input", "at", (count,), i32)
    y = sum(ops.take(table[:, k], at) * float(k + 1) for k in range(columns))
    random = np.random.default_rng(columns)
    numbers = random.integers(-99, 99, (rows, columns)).astype(dtype.numpy)
    places = random.integers(0, rows, count).astype(np.int32)
    places[[0, -1]] = rows - 1
    return Job(Graph({"y": y}), {table: numbers, at: places})


def counts(columns: int, limits: Limits) -> tuple[int, int]:
    """How many lanes load a row at once, and how many gathers of whole vectors there are."""
    [step] = plan_of(job(columns, 7).graph, limits)[0].steps
    plain = [i for i in step.kernel.body if len(i.args) == 1]  # the others are masked
    rows = sum(i.opcode == "load" and i.dest.lanes == 4 for i in plain)
    return rows, sum(i.opcode == "gather" for i in plain)


@pytest.mark.parametrize(("columns", "rows", "dtype", "count"), [
    (4, 7, f32, 133), (5, 9, f32, 133), (9, 3, f32, 64), (4, 6, f64, 133), (4, 5, f32, 3)])
def test_results_equal_numpy(columns: int, rows: int, dtype: DType, count: int) -> None:
    """Sums of whole numbers are exact. Counts leave a rest of masked lanes."""
    wanted = job(columns, rows, dtype, count)
    table, at = wanted.feeds.values()
    expected = (table[at] * np.arange(1, columns + 1)).sum(1)
    results = [compiled(wanted, level)[0] for level in HERE]
    results += [interpreted(wanted, limits)[0] for limits in (SCALAR, NARROW, WIDE)]
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("limits", [NARROW, WIDE])
def test_four_columns_are_one_load_of_each_lane(limits: Limits) -> None:
    rows, gathers = counts(4, limits)
    assert rows >= limits.lanes(f32) and not gathers


@pytest.mark.parametrize(("columns", "share"), [(3, 0), (5, 1), (9, 2)])
def test_columns_that_make_no_row_are_gathered(columns: int, share: int) -> None:
    """A row of four that ends beyond the last column could end beyond the table."""
    rows, gathers = counts(columns, WIDE)
    assert gathers and (rows > 0) == (share > 0)
    assert share == 0 or counts(4, WIDE)[0] * share == rows
