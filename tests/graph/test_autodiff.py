"""Differentiation as a whole; the gradient of each op is tested with the ops."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch import ops
from ztorch.dtypes import f32, f64
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.movement import simplify_movement
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value, layer_scope

X = leaf("input", "x", (3, 4), f64)
W = leaf("state", "w", (4, 5), f64)
RNG = np.random.default_rng(0)
FEEDS = {X: RNG.uniform(-1, 1, X.shape), W: RNG.uniform(-1, 1, W.shape)}


def numeric(y: Value, v: Value, feeds: dict[Value, np.ndarray]) -> np.ndarray:
    out = np.empty(v.shape)
    for at in np.ndindex(v.shape):
        ends = []
        for h in (1e-6, -1e-6):
            moved = feeds[v].copy()
            moved[at] += h
            ends.append(evaluate([y], {**feeds, v: moved})[0].sum())
        out[at] = (ends[0] - ends[1]) / 2e-6
    return out


def check(y: Value, wrt: list[Value], feeds: dict[Value, np.ndarray]) -> None:
    for v, got in zip(wrt, evaluate(gradients(y, wrt), feeds), strict=True):
        np.testing.assert_allclose(got, numeric(y, v, feeds), rtol=1e-5, atol=1e-8)


def test_a_network() -> None:
    logits = ops.tanh(X @ W) @ ops.transpose(W)
    loss = -ops.mean(ops.log_softmax(logits)[:, 1]) + ops.mean(ops.square(W)) * 0.1
    check(loss, [X, W], FEEDS)


def test_second_derivatives() -> None:
    [slope] = gradients(ops.sum(ops.tanh(X) * X), [X])
    check(slope * slope, [X], FEEDS)


def test_a_value_used_often_collects_every_share() -> None:
    y = ops.exp(X)
    check(y * y + y * X - y, [X], FEEDS)
    [two] = evaluate(gradients(X + X, [X]), FEEDS)
    np.testing.assert_array_equal(two, np.full(X.shape, 2.0))


def test_by_an_inner_value_and_by_its_input() -> None:
    inner = ops.sin(X)
    y = inner * inner * X
    by_inner, by_x = evaluate(gradients(y, [inner, X]), FEEDS)
    np.testing.assert_allclose(by_inner, 2 * np.sin(FEEDS[X]) * FEEDS[X])
    # a value named as a variable counts as independent
    np.testing.assert_allclose(by_x, np.sin(FEEDS[X]) ** 2)


def test_no_path_means_zeros() -> None:
    [dw, dx] = gradients(ops.sum(X), [W, X])
    assert dw.shape == W.shape
    np.testing.assert_array_equal(evaluate([dw], FEEDS)[0], np.zeros(W.shape))
    np.testing.assert_array_equal(evaluate([dx], FEEDS)[0], np.ones(X.shape))


def test_stop_gradient_stops() -> None:
    [dx] = gradients(ops.stop_gradient(X) * X, [X])
    np.testing.assert_array_equal(evaluate([dx], FEEDS)[0], FEEDS[X])


def test_through_casts_but_not_through_integers() -> None:
    [dx] = gradients(ops.cast(ops.cast(X, "float32") * 3.0, "float64"), [X])
    assert dx.dtype == f64
    np.testing.assert_allclose(evaluate([dx], FEEDS)[0], 3.0)
    [none] = gradients(ops.cast(ops.cast(X, "int32"), "float64"), [X])
    np.testing.assert_array_equal(evaluate([none], FEEDS)[0], 0.0)


def test_shapes_and_dtypes_of_gradients() -> None:
    x = leaf("input", "x", (2, 1, 3), "float16")
    [dx] = gradients(ops.sum(ops.broadcast_to(x, (5, 2, 4, 3))), [x])
    assert (dx.shape, str(dx.dtype)) == (x.shape, "float16")


def test_gradients_belong_to_the_layer_of_their_value() -> None:
    with layer_scope("dense"):
        y = ops.exp(X)
    with layer_scope("loss"):
        total = ops.sum(y)
    [dx] = gradients(total, [X])
    spread = {v.layer for v in Graph({"dx": dx}).nodes() if v.op.name == "broadcast_to"}
    assert dx.layer == "dense" and spread == {"loss"}


def test_an_op_without_gradient_is_named() -> None:
    seed, step = leaf("input", "s", (2,), "uint32"), leaf("input", "t", (), "uint32")
    y = ops.cast(ops.random_bits((2,), seed, step), f64)
    gradients(ops.sum(y * X[0, :2]), [X])  # beside the path: no matter
    from ztorch.graph.value import Op

    rootless = Op("rootless", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x)
    with pytest.raises(Unsupported, match=r"op rootless has no gradient; .*stop_gradient"):
        gradients(rootless(X), [X])


def test_far_from_zero_gradients_are_finite() -> None:
    x = leaf("input", "x", (3,), "float32")
    feeds = {x: np.array([-1e4, 0.0, 1e4], np.float32)}
    for name in ("sigmoid", "softplus", "log_sigmoid", "silu", "gelu", "mish", "elu", "selu",
                 "celu", "tanh", "softmax", "log_softmax", "logsumexp", "relu", "softsign",
                 "squareplus", "hard_silu", "standardize"):
        y = getattr(ops, name)(x)
        for got in evaluate([y, *gradients(y, [x])], feeds):
            assert np.isfinite(got).all(), name


@pytest.mark.parametrize("axes", [(1, 0), (0, 2, 1), (0, 2, 3, 1)])
def test_gradients_of_transposed_operands_keep_their_order(axes: tuple[int, ...]) -> None:
    """So the kernel that computes it need not write across rows."""
    shape = (2, 3, 4, 5)[:len(axes)]
    b = leaf("input", "b", shape, f32)
    turned = ops.transpose(b, axes)
    a = leaf("input", "a", (*turned.shape[:-2], 7, turned.shape[-2]), f32)
    graph = simplify_movement(Graph({"g": gradients(ops.sum(ops.matmul(a, ops.neg(turned)) ** 2), [b])[0]}))
    [product] = [v for v in graph.nodes() if v.op.name == "matmul" and v.shape[-1] == b.shape[-1]]
    assert product.size == b.size
    assert not [v for v in graph.nodes() if v.op.name == "matmul" and v.shape[-2:] == turned.shape[-2:]]
