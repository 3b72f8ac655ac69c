"""Normalizations, convolutions and Adam as functions: PyTorch's, Keras' and the layers' numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.parity import SCALAR, plan_of
from ztorch import ops, optimizers
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value

random = np.random.default_rng(6)


def with_slopes(make: Any, *arrays: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """A function of values, and its gradients by each array, of a weighted sum."""
    leaves = [leaf("input", f"x{k}", a.shape, f64) for k, a in enumerate(arrays)]
    y: Value = make(*leaves)
    weights = np.cos(np.arange(y.size)).reshape(y.shape)
    result = gradients(ops.sum(y * weights), leaves)
    got = evaluate([y, *result], dict(zip(leaves, arrays, strict=True)))
    return got[0], got[1:]


def theirs(make: Any, *arrays: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    torch = references.torch()
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = make(torch.nn.functional, *tensors)
    weights = np.cos(np.arange(y.numel())).reshape(y.shape)
    (y * torch.tensor(weights)).sum().backward()
    return y.detach().numpy(), [t.grad.numpy() for t in tensors]


def same(ours: tuple, want: tuple) -> None:
    np.testing.assert_allclose(ours[0], want[0], rtol=1e-9, atol=1e-12)
    for a, b in zip(ours[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_layer_norm_is_pytorchs() -> None:
    x, scale, offset = (random.normal(size=s) for s in ((3, 4, 5), (4, 5), (4, 5)))
    same(with_slopes(lambda *a: ops.layer_norm(*a, axis=(1, 2), epsilon=1e-5), x, scale, offset),
         theirs(lambda f, x, s, o: f.layer_norm(x, (4, 5), s, o, 1e-5), x, scale, offset))


def test_rms_norm_is_pytorchs() -> None:
    x, scale = random.normal(size=(3, 5)), random.normal(size=5)
    same(with_slopes(ops.rms_norm, x, scale),
         theirs(lambda f, x, s: f.rms_norm(x, (5,), s, 1e-6), x, scale))


def test_batch_norm_in_training_equals_pytorch() -> None:
    x, scale, offset = (random.normal(size=s) for s in ((6, 3, 4), (3,), (3,)))

    def ours(x: Value, scale: Value, offset: Value) -> Value:
        return ops.batch_norm(x, ops.mean(x, (0, 2)), ops.var(x, (0, 2)), scale, offset, axis=1,
                              epsilon=1e-5)

    same(with_slopes(ours, x, scale, offset),
         theirs(lambda f, x, s, o: f.batch_norm(x, None, None, s, o, True), x, scale, offset))


@pytest.mark.parametrize("ddof", [0, 1])
def test_spread_is_pytorchs(ddof: int) -> None:
    x = random.normal(size=(3, 5))
    torch_std = theirs(lambda f, x: x.std(1, correction=ddof), x)
    same(with_slopes(lambda x: ops.std(x, 1, ddof=ddof), x), torch_std)
    same(with_slopes(lambda x: ops.var(x, 1, ddof=ddof), x),
         theirs(lambda f, x: x.var(1, correction=ddof), x))


@pytest.mark.parametrize("ord", [1, 2, np.inf])
def test_norm_is_pytorchs(ord: float) -> None:
    x = random.normal(size=(3, 5))
    torch = references.torch()
    same(with_slopes(lambda x: ops.norm(x, ord, 1), x),
         theirs(lambda f, x: torch.linalg.vector_norm(x, ord, 1), x))


@pytest.mark.parametrize(("padding", "strides", "rate", "groups"), [
    ("valid", 1, 1, 1), ("same", 2, 1, 1), ("valid", (2, 1), 1, 2), ("same", 1, 2, 1)])
def test_conv2d_is_keras(padding: str, strides: Any, rate: int, groups: int) -> None:
    keras = references.keras()
    x, kernel = random.normal(size=(2, 7, 6, 4)), random.normal(size=(3, 2, 4 // groups, 6))
    want = np.asarray(keras.ops.conv(x, kernel, strides, padding, "channels_last", rate))
    got = ops.conv2d(constant(x), constant(kernel), strides, padding, "channels_last", rate, groups)
    np.testing.assert_allclose(evaluate([got], {})[0], want, rtol=1e-6, atol=1e-6)
    first = ops.conv2d(constant(x.transpose(0, 3, 1, 2)), constant(kernel), strides, padding,
                       "channels_first", rate, groups)
    np.testing.assert_allclose(evaluate([first], {})[0].transpose(0, 2, 3, 1), want, rtol=1e-6,
                               atol=1e-6)


def test_adam_is_the_optimizers_and_one_kernel() -> None:
    data = [random.normal(size=(4, 5)) for _ in range(3)] + [random.random((4, 5))]
    w, g, m, v = (leaf("state" if k != 1 else "input", n, (4, 5), f64, a)
                  for k, (n, a) in enumerate(zip("wgmv", data, strict=True)))
    step = leaf("state", "optimizer/step", (), "uint32", np.array(6, np.uint32))
    updates = optimizers.AdamW(0.01, weight_decay=0.1).new_values([w], [g], step)
    slots = {u.attrs["name"].rpartition("/")[2]: u for u in updates}
    feeds = {w: data[0], g: data[1], step: np.array(6, np.uint32)}
    rate = next(x for x in Graph({}, {"w": updates[w]}).leaves("state")
                if x.attrs["name"].endswith("learning_rate"))
    feeds |= {rate: 0.01, slots["m"]: data[2], slots["v"]: data[3]}
    want = evaluate([updates[w], updates[slots["m"]], updates[slots["v"]]], feeds)
    ours = ops.fused_adam_step(w, g, m, v, 7, 0.01, weight_decay=0.1)
    got = evaluate(ours, dict(zip((w, g, m, v), data, strict=True)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    plan, _ = plan_of(Graph(dict(zip("wmv", ours, strict=True))), SCALAR)
    assert len(plan.steps) == 1


X = leaf("input", "x", (3, 4, 5), "float32")
P = leaf("input", "p", (4,), "float32")


@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda: ops.layer_norm(X, P), ["layer_norm: scale", "(4,)", "(3, 4, 5)", "shape (5,)"]),
    (lambda: ops.layer_norm(X, offset=P), ["layer_norm: offset"]),
    (lambda: ops.batch_norm(X, P, P), ["batch_norm: mean", "axis -1", "shape (5,)"]),
    (lambda: ops.batch_norm(X, P, P[:2], axis=1), ["batch_norm: variance", "(2,)"]),
    (lambda: ops.rms_norm(X, P), ["rms_norm: scale"]),
    (lambda: ops.conv2d(X, X), ["conv2d", "rank 4", "(3, 4, 5)"]),
    (lambda: ops.conv1d(X, X, data_format="first"), ["data_format 'first'"]),
    (lambda: ops.fused_adam_step(X, P, X, X, 1), ["gradient", "(4,)", "(3, 4, 5)"]),
    (lambda: ops.vector_norm(X, "fro"), ["ord='fro'", "matrix_norm"]),
    (lambda: ops.var(P, ddof=4), ["ddof=4", "(4,)"]),
])
def test_errors_name_the_mismatch(wrong, parts) -> None:
    with pytest.raises(ShapeError) as caught:
        wrong()
    for part in parts:
        assert part in str(caught.value)
