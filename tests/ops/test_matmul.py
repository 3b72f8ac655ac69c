"""Matrix products: every pair of shapes that NumPy takes, and gradients through broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ztorch import ops
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import layer_scope

PAIRS = [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
         ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)),
         ((1, 2, 3), (5, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 0, 3), (3, 4))]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_value_and_gradient(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, w = leaf("input", "x", a, f64), leaf("state", "w", b, f64)
    feeds = {x: rng.normal(size=a), w: rng.normal(size=b)}
    y = x @ w
    weights = rng.normal(size=y.shape)
    dx, dw = gradients(ops.sum(y * weights) if y.rank else y * weights, [x, w])
    got, slope, tilt = evaluate([y, dx, dw], feeds)
    np.testing.assert_allclose(got, feeds[x] @ feeds[w], rtol=1e-12)
    # linear in each operand, so one step of any length is exact
    for v, g in ((x, slope), (w, tilt)):
        step = rng.normal(size=v.shape)
        moved = evaluate([y], {**feeds, v: feeds[v] + step})[0]
        np.testing.assert_allclose(((moved - got) * weights).sum(), (g * step).sum(), rtol=1e-9,
                                   atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4),
       st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_shapes_fit_exactly_when_they_do_in_numpy(a: list[int], b: list[int]) -> None:
    x, w = leaf("input", "x", tuple(a), f64), leaf("input", "w", tuple(b), f64)
    try:
        want = np.matmul(np.ones(a), np.ones(b)).shape
    except ValueError:
        with pytest.raises(ShapeError):
            x @ w
    else:
        assert (x @ w).shape == want


def test_a_shared_matrix_gives_one_large_product() -> None:
    x, w = leaf("input", "x", (5, 2, 3), f64), leaf("state", "w", (3, 4), f64)
    y = x @ w
    assert y.op.name == "reshape" and y.args[0].shape == (10, 4)


def test_errors_name_layer_shapes_and_fix() -> None:
    x, w = leaf("input", "x", (8, 20), f64), leaf("state", "w", (10, 5), f64)
    with layer_scope("dense_1"), pytest.raises(ShapeError) as caught:
        x @ w
    for part in ("layer 'dense_1'", "(8, 20)", "(10, 5)", "20, must equal", "second, 10"):
        assert part in str(caught.value)
    with pytest.raises(ShapeError, match="float64 and float32; cast"):
        x @ leaf("state", "w", (20, 5), "float32")
    with pytest.raises(ShapeError, match="vectors or matrices"):
        ops.matmul(x, leaf("state", "w", (), f64))
