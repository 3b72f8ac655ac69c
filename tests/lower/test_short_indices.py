"""Gathers whose indices are computed in 32 bits, and those that need 64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.parity import HERE, NARROW, WIDE, Job, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import DType, f32, i32, i64, u32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.cpu.short_indices import short_indices

ENDS = np.array([-(1 << 31), -2, 0, 6, 7, (1 << 31) - 1], np.int64)  # two inside of 7 elements


def job(d: DType) -> Job:
    """Elements of rows, at positions in range and out of it."""
    x, at = leaf("input", "x", (5, 7), f32), leaf("input", "at", (5, 35), d)
    random = np.random.default_rng(1)
    places = random.integers(0, 7, at.shape)
    places[:, :6] = ENDS if d is not u32 else np.abs(ENDS)
    y = ops.take_along_axis(x, at, axis=1)
    return Job(Graph({"y": y}), {x: random.normal(size=x.shape).astype(np.float32),
                                 at: places.astype(d.numpy)})


@pytest.mark.parametrize("d", [i32, i64, u32])
def test_positions_out_of_range_are_clamped(d: DType) -> None:
    lookup = job(d)
    x, at = lookup.feeds.values()
    places = at.astype(np.int64)
    places = np.where(places < 0, places + 7, places)  # those below zero count from the end
    expected = np.take_along_axis(x, np.clip(places, 0, 6), 1)
    for level in HERE:
        np.testing.assert_array_equal(compiled(lookup, level)[0], expected)
    for limits in (NARROW, WIDE):
        np.testing.assert_array_equal(interpreted(lookup, limits)[0], expected)


@pytest.mark.parametrize(("d", "index"), [(i32, i32), (i64, i64)])
def test_indices_have_the_bits_of_the_positions(d: DType, index: DType) -> None:
    [step] = plan_of(job(d).graph, WIDE)[0].steps
    assert {i.args[0].dtype for i in step.kernel.body if i.opcode == "gather"} == {index}


@pytest.mark.parametrize(("size", "index", "bits"), [
    (1 << 30, lambda b, at: b.add(b.mul(at, 3), 1 << 40), 32),  # the sum wraps
    (1 << 31, lambda b, at: b.mul(at, 3), 64),  # 32 bits do not count the memory
    (64, lambda b, at: b.min(b.mul(at, 3), 60), 64)])  # what has wrapped is not compared
def test_only_what_wraps_is_computed_in_32_bits(
        size: int, index: Callable[[Builder, Operand], Operand], bits: int) -> None:
    b = Builder("lookup")
    b.memory("x", f32, size)
    b.memory("at", i32, 8)
    b.load("x", index(b, b.cast(b.load("at", 0, lanes=8), dtype=b.index)))
    [gather] = [i for i in short_indices(b.kernel()).body if i.opcode == "gather"]
    assert gather.args[0].dtype.bits == bits


def test_offsets_and_tables_of_columns() -> None:
    """Columns of a table are gathered at offsets from one index."""
    table, at = leaf("input", "table", (9, 3), f32), leaf("input", "at", (70,), i32)

    def column(k: int) -> Value:
        return ops.take(table[:, k], at)

    random = np.random.default_rng(2)
    lookup = Job(Graph({"y": column(0) - 2.0 * column(1) + 4.0 * column(2)}), {
        table: random.integers(-9, 9, table.shape).astype(np.float32),
        at: random.integers(0, 9, at.shape).astype(np.int32)})
    numbers, places = lookup.feeds.values()
    for level in HERE:
        np.testing.assert_array_equal(compiled(lookup, level)[0],
                                      numbers[places] @ np.array([1, -2, 4], np.float32))
