"""Movements of movements become one: with the right starts and steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph import passes
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

X = leaf("input", "x", (23, 30), f32)
NUMBERS = np.arange(23 * 30, dtype=np.float32).reshape(23, 30)


def check(y: Value, want: np.ndarray, most: int) -> None:
    """y after all passes has the expected value, and takes at most `most` nodes besides its input."""
    graph = passes.run(Graph({"y": y}))
    [got] = evaluate(graph.roots, {X: NUMBERS})
    np.testing.assert_array_equal(got, want)
    assert len(graph.nodes()) <= most + 1


starts, steps = st.integers(0, 3), st.integers(1, 3)


@given(starts, steps, starts, steps)
def test_a_slice_of_a_slice_is_one(start: int, step: int, again: int, further: int) -> None:
    check(X[start::step, ::2][again::further, 1:], NUMBERS[start::step, ::2][again::further, 1:], 1)


@pytest.mark.parametrize(("rows", "most"), [
    (slice(2, 9), 1), (slice(25, 40, 3), 1), (slice(45, 22, -2), 1), (slice(20, 25), 2)])
def test_a_slice_of_a_part_of_joined_values_reads_the_part(rows: slice, most: int) -> None:
    """The last one crosses from one part to the next."""
    joined = np.concatenate([NUMBERS, NUMBERS])
    check(ops.concat(X, X, axis=0)[rows, 1:], joined[rows, 1:], most)


def test_a_slice_of_all_is_nothing() -> None:
    check(X[:, :][0:23], NUMBERS, 1)  # a root is never an input itself


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_transpose_of_a_transpose(order: tuple[int, int]) -> None:
    check(ops.transpose(ops.transpose(X, (1, 0)), order), NUMBERS.T.transpose(order), 1)


def test_a_broadcast_of_a_broadcast_is_one() -> None:
    row = ops.reshape(X[0], (1, 30))
    check(ops.broadcast_to(ops.broadcast_to(row, (4, 30)), (2, 4, 30)), np.broadcast_to(NUMBERS[0], (2, 4, 30)), 3)


def test_a_broadcast_adds_the_axes_that_a_reshape_drops() -> None:
    one = X[0:1]
    check(ops.broadcast_to(ops.reshape(one, (30,)), (4, 30)), np.broadcast_to(NUMBERS[0], (4, 30)), 2)
