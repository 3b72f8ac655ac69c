"""Movement: NumPy's slicing, and error messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parity import HERE, Job, compiled, interpreted
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import boolean, f32, f64, i8
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, layer_scope

X = leaf("input", "x", (4, 6), "float32")


@st.composite
def slicing(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple]:
    """A shape and a key that NumPy accepts for it."""
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    ends = st.one_of(st.none(), st.integers(-8, 8))
    steps = st.one_of(st.none(), st.sampled_from((-3, -2, -1, 1, 2, 3)))
    key: list = []
    for n in shape[:draw(st.integers(0, len(shape)))]:
        if n and draw(st.booleans()):
            key.append(draw(st.integers(-n, n - 1)))
        else:
            key.append(slice(draw(ends), draw(ends), draw(steps)))
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
        # keys after the ellipsis count from the end: keep one only if it still fits
        try:
            np.empty(shape)[tuple(key)]
        except IndexError:
            key.remove(Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return shape, tuple(key)


@settings(max_examples=200, deadline=None)
@given(slicing())
def test_slicing_is_numpys(case: tuple[tuple[int, ...], tuple]) -> None:
    shape, key = case
    data = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float64)
    x = leaf("input", "x", shape, f64)
    y = ops.slice_by(x, key)
    got, slope = evaluate([y, *gradients(y, [x])], {x: data})
    np.testing.assert_array_equal(got, data[key])
    assert got.shape == y.shape == data[key].shape
    picked = np.zeros(shape)
    picked[key] = 1  # a slice reads no element twice
    np.testing.assert_array_equal(slope, picked)


def test_take_adds_up_the_gradient_of_repeated_rows() -> None:
    table = leaf("state", "table", (4, 2), f64)
    rows = leaf("input", "rows", (2, 3), "int32")
    feeds = {table: np.arange(8.0).reshape(4, 2), rows: np.array([[0, 3, 0], [3, 0, 1]], np.int32)}
    y = ops.take(table, rows, 0)
    got, slope = evaluate([y, *gradients(y, [table])], feeds)
    np.testing.assert_array_equal(got, feeds[table][feeds[rows]])
    np.testing.assert_array_equal(slope, [[3, 3], [1, 1], [0, 0], [2, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_any_axis_with_its_gradient(axis: int) -> None:
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(3, 4, 5)), rng.normal(size=(6,))
    at = rng.integers(0, x.shape[axis], 6).astype(np.int32)
    v = leaf("input", "x", x.shape, f64)
    shape = [1, 1, 1]
    shape[axis] = 6
    y = ops.take(v, constant(at), axis) * constant(g.reshape(shape))
    want = np.zeros_like(x)
    np.add.at(want, (slice(None),) * (axis % 3) + (at,), g.reshape([6] + [1] * (2 - axis % 3)))
    np.testing.assert_allclose(evaluate(gradients(y, [v]), {v: x})[0], want)


def test_take_never_leaves_the_tensor() -> None:
    y = ops.take(constant([1.0, 2.0, 3.0]), constant([-5, 1, 99], "int32"))
    np.testing.assert_array_equal(evaluate([y], {})[0], [1.0, 2.0, 3.0])


def test_small_dtypes_in_take() -> None:
    table = leaf("state", "t", (300, 2), f64)
    rows = constant([250, 250, 7], "uint8")
    y = ops.take(table, rows, 0)
    slope = evaluate(gradients(y, [table]), {table: np.zeros((300, 2))})[0]
    assert slope[250, 0] == 2 and slope[7, 0] == 1 and slope.sum() == 6


def test_movement_that_moves_nothing_is_nothing() -> None:
    assert ops.reshape(X, (4, 6)) is X and ops.transpose(X, (0, 1)) is X
    assert ops.broadcast_to(X, (4, 6)) is X and ops.pad(X, (0, 0), (0, 0)) is X
    assert X[:, :] is X and ops.concat(X) is X


def test_joins_of_a_list_along_an_axis() -> None:
    a = np.arange(6.0).reshape(2, 3)
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(ops.concat([a, a], axis), np.concatenate([a, a], axis))
        np.testing.assert_array_equal(ops.stack([a, a], axis), np.stack([a, a], axis))
    np.testing.assert_array_equal(ops.cat([a, a]), np.concatenate([a, a]))
    assert ops.concat([X, X], 1).shape == (4, 12)


def test_reshape_of_nothing() -> None:
    empty = leaf("input", "e", (0, 3), "float32")
    assert ops.reshape(empty, (3, 0)).shape == (3, 0)


def test_padding_with_any_number() -> None:
    y = ops.pad(constant([1.0, 2.0], "float32"), (1,), (2,), -np.inf)
    np.testing.assert_array_equal(evaluate([y], {})[0], [-np.inf, 1, 2, -np.inf, -np.inf])


@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda: ops.reshape(X, (5, 5)), ["(4, 6)", "(5, 5)", "24"]),
    (lambda: ops.reshape(X, (5, -1)), ["(4, 6)", "(5, -1)"]),
    (lambda: ops.transpose(X, (0, 0)), ["(0, 0)", "(4, 6)"]),
    (lambda: ops.broadcast_to(X, (4, 5)), ["(4, 6)", "(4, 5)"]),
    (lambda: ops.concat(X, X[:, :3], axis=0), ["(4, 6)", "(4, 3)", "axis 0"]),
    (lambda: ops.pad(X, (-1, 0), (0, 0)), ["negative", "(4, 6)"]),
    (lambda: ops.slice(X, (0, 0), (1, 1), (5, 6)), ["axis 0", "(4, 6)"]),
    (lambda: X[4], ["index 4", "(4, 6)"]),
    (lambda: X[0, 0, 0], ["3 indices", "(4, 6)"]),
    (lambda: X[:, [1, 0]], ["[1, 0]", "ops.take"]),
    (lambda: X[np.array([True, False])], ["True", "ops.where"]),
    (lambda: ops.take(X, X), ["integer indices", "ops.cast"]),
    (lambda: ops.flip(X, 2), ["axis 2", "rank 2"]),
])
def test_errors_name_the_layer_and_the_shapes(wrong, parts) -> None:
    with layer_scope("reader"), pytest.raises(ShapeError) as caught:
        wrong()
    for part in ["layer 'reader'", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize("target", HERE)
def test_elements_read_backwards(target: str) -> None:
    """Whole vectors are loaded and turned round; the ends of rows are not read past."""
    xs = [leaf("input", f"x{k}", shape, d) for k, (shape, d) in enumerate([
        ((37,), f32), ((3, 33), f64), ((70,), i8), ((2, 64), boolean), ((5, 16, 3), f32)])]
    ys = {f"y{k}": ops.flip(x, x.rank - 1 if k != 4 else (0, 1, 2)) for k, x in enumerate(xs)}
    ys["sum"] = ys["y0"] + xs[0]
    data = {x: np.arange(x.size).reshape(x.shape) % 5 % 2 == 0 if x.dtype is boolean else
            np.arange(x.size).reshape(x.shape) for x in xs}
    job = Job(Graph(ys), data)
    for results in compiled(job, target), interpreted(job, TARGETS[target].limits):
        for got, want in zip(results, job.oracle(), strict=True):
            np.testing.assert_array_equal(got, want)
