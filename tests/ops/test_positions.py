"""Positions of any integer dtype, also of one that is narrower than the axis is long, and axes that
do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.errors import ShapeError

LONG = 300  # more than 8 bits count
ROWS = np.arange(12.0).reshape(4, 3)
CUBE = np.arange(24.0).reshape(2, 3, 4)
BYTES = [np.int8, np.uint8]


@pytest.mark.parametrize("d", BYTES)
@pytest.mark.parametrize("axis", [0, -1])
def test_labels_among_more_classes_than_their_dtype_counts(d: Any, axis: int) -> None:
    labels = np.array([3, 100, -100]).astype(d)
    want = np.moveaxis(labels.astype(int)[:, None] == np.arange(LONG), -1, axis)
    np.testing.assert_array_equal(zt.ops.one_hot(labels, LONG, axis=axis), want)


@together()
@pytest.mark.parametrize("count", [40, LONG])  # segments that compare all rows, and sorted ones
@pytest.mark.parametrize(("name", "function", "empty"), [
    ("sum", np.add, 0.0), ("prod", np.multiply, 1.0), ("max", np.maximum, -np.inf),
    ("min", np.minimum, np.inf)])
@pytest.mark.parametrize("d", BYTES)
def test_more_segments_than_their_dtype_counts(count: int, name: str, function: Any, empty: float,
                                               d: Any) -> None:
    ids = np.array([3, 5, 3, 7], d)
    want = np.full((count, 3), empty)
    function.at(want, ids, ROWS)
    np.testing.assert_array_equal(
        getattr(zt.ops, f"segment_{name}")(ROWS, ids, num_segments=count), want)


def test_segments_need_integers() -> None:
    for name in ("sum", "max", "min", "prod"):
        with pytest.raises(ShapeError, match=f"ops.(segment_{name}|scatter_add) needs integer"):
            getattr(zt.ops, f"segment_{name}")(ROWS, np.zeros(4), num_segments=3)


@pytest.mark.parametrize("d", BYTES)
def test_a_long_block_from_a_start_in_one_byte(d: Any) -> None:
    want = np.zeros(2 * LONG)
    want[2:LONG + 2] = 1.0
    y = zt.ops.slice_update(np.zeros(2 * LONG), np.array([2], d), np.ones(LONG))
    np.testing.assert_array_equal(y, want)


def test_a_flat_position_in_one_byte() -> None:
    row, column = zt.ops.unravel_index(np.array([5, 100], np.int8), (3, LONG))
    assert row.tolist() == [0, 0] and column.tolist() == [5, 100]


@pytest.mark.parametrize("d", [np.int8, np.int16])
def test_narrow_positions_from_the_end(d: Any) -> None:
    x, places = np.arange(40_000.0), np.array([-1, 2], d)
    for call in (zt.ops.take, zt.ops.take_along_axis):
        np.testing.assert_array_equal(call(x, places, axis=0), [39_999.0, 2.0])
        y = call(zt.tensor(x), zt.tensor(places), axis=0)
        np.testing.assert_array_equal(y.numpy(), [39_999.0, 2.0])


def test_bins_of_a_narrower_dtype() -> None:
    x, bins = np.array([256, 5, -1], np.int32), np.array([1, 10], np.uint8)
    np.testing.assert_array_equal(zt.ops.digitize(x, bins), np.digitize(x, bins))


@together()
@pytest.mark.parametrize(("call", "text"), [
    (lambda: zt.ops.transpose(CUBE, (3, 1, 2)), "axis 3 is out of range for rank 3"),
    (lambda: zt.ops.transpose(CUBE, (-4, 1, 2)), "axis -4 is out of range for rank 3"),
    (lambda: zt.ops.windows(CUBE, (3,), 2), "axis 3 is out of range for rank 3"),
    (lambda: zt.ops.rotary(CUBE, axis=4), "axis 4 is out of range for rank 3"),
    (lambda: zt.ops.concat([CUBE], axis=7), "axis 7 is out of range for rank 3"),
    (lambda: zt.ops.tensordot(ROWS, ROWS, -1), r"tensordot\(axes=-1\) needs as many axes of"),
    (lambda: zt.ops.take(zt.zeros((0, 3)), zt.tensor([0]), axis=0),
     r"ops.take finds no elements along axis 0 of \(0, 3\)"),
    (lambda: zt.ops.take_along_axis(zt.zeros((3, 0)), zt.tensor([[0]]), axis=1),
     r"ops.take_along_axis finds no elements along axis 1 of \(3, 0\)")])
def test_positions_that_do_not_exist(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        call()


def test_nothing_of_nothing() -> None:
    none = zt.tensor(np.zeros((0, 3), np.int32))
    assert zt.ops.take(zt.zeros((0, 2)), none, axis=0).shape == (0, 3, 2)
    assert zt.ops.take_along_axis(zt.zeros((0, 3)), none, axis=0).shape == (0, 3)
