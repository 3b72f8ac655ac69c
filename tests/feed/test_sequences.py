"""Rows of different lengths as one array, and as padded batches."""

from __future__ import annotations

import numpy as np

from ztorch.feed.grids import Grids
from ztorch.feed.sequences import Sequences, joined

ROWS = [np.arange(first, first + 2 * n, dtype=np.int32).reshape(n, 2)
        for first, n in ((0, 3), (10, 1), (20, 4))]


def test_rows_are_filled_up_by_their_own_last_step() -> None:
    """Data of another row would be data that nobody checked for this one."""
    rows = Sequences.of(ROWS)
    order = np.array([2, 0, 1, 0])
    wanted = np.stack([np.concatenate([ROWS[k], ROWS[k][-1:].repeat(5 - len(ROWS[k]), 0)])
                       for k in order])
    np.testing.assert_array_equal(rows.padded(order, (5,)), wanted)
    out = np.zeros((4, 5, 2), np.int32)
    assert rows.padded(order, (5,), out) is out
    np.testing.assert_array_equal(out, wanted)


def test_parts_and_rows() -> None:
    rows = Sequences.of(ROWS)
    assert len(rows) == 3 and rows.dtype == np.int32
    for part, wanted in ((rows[1:], ROWS[1:]), (rows[:2], ROWS[:2]), (rows[::-1], ROWS[::-1]),
                         (joined([rows[2:], rows[:1]]), [ROWS[2], ROWS[0]])):
        assert isinstance(part, Sequences) and len(part) == len(wanted)
        for k, row in enumerate(wanted):
            np.testing.assert_array_equal(part[k], row)
    assert len(rows[3:]) == 0


def test_rows_of_one_size_are_one_array() -> None:
    same = Sequences.of([ROWS[0], ROWS[0] + 1])
    array = same.joined(3)
    assert isinstance(array, np.ndarray) and np.shares_memory(array, same.steps)
    np.testing.assert_array_equal(array, [ROWS[0], ROWS[0] + 1])
    mixed = Sequences.of([ROWS[1], ROWS[0]])  # four steps, as two rows of two would have
    assert mixed.joined(2) is mixed and same.joined(2) is same


def test_rows_of_two_open_axes_are_joined() -> None:
    rows = [np.arange(k, k + 2 * h * w, dtype=np.int32).reshape(h, w, 2) for k, (h, w) in enumerate([(2, 3), (1, 4), (3, 1)])]
    first, last = Grids(rows[:1], (0, 1)), Grids(rows[1:], (0, 1))
    for parts, wanted in (([first], rows[:1]), ([last, first], [*rows[1:], rows[0]])):
        whole = joined(parts)
        assert isinstance(whole, Grids) and whole.axes == (0, 1) and len(whole) == len(wanted)
        for k, row in enumerate(wanted):
            np.testing.assert_array_equal(whole[k], row)


def test_rows_of_two_open_axes_are_filled_up_by_their_last_elements() -> None:
    rows = [np.arange(h * w, dtype=np.int32).reshape(h, w) for h, w in ((2, 3), (1, 4))]
    wanted = [np.pad(row, ((0, 3 - row.shape[0]), (0, 4 - row.shape[1])), mode="edge") for row in rows]
    padded = Grids(rows, (0, 1)).padded(np.array([1, 0]), (3, 4))
    np.testing.assert_array_equal(padded, wanted[::-1])
