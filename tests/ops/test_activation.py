"""Activations and row-wise ops: far from zero, at their kinks, and against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.value import Value

ELEMENTWISE = ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "swish",
               "sigmoid", "hard_sigmoid", "hard_silu", "hard_swish", "softplus", "softsign", "mish",
               "tanh", "tanh_shrink", "hard_tanh", "linear", "log_sigmoid", "sparse_plus",
               "sparse_sigmoid", "hard_shrink", "soft_shrink", "threshold", "squareplus"]
KERAS = [*ELEMENTWISE, "exponential", "softmax", "log_softmax", "glu", "sparsemax"]
INF, NAN = math.inf, math.nan


def both(name: str, data: list, **attrs) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its gradient, in float32."""
    x = leaf("input", "x", np.shape(data), "float32")
    y: Value = getattr(ops, name)(x, **attrs)
    value, slope = evaluate([y, *gradients(y, [x])], {x: np.array(data, np.float32)})
    return value, slope


def test_all_of_keras_is_here() -> None:
    assert set(KERAS) <= set(REGISTRY)


@together()
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_safe_at_ten_thousand(name: str) -> None:
    for x in both(name, [-1e4, -100.0, 0.0, 100.0, 1e4]):
        assert np.isfinite(x).all()


@together()
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_nan_passes(name: str) -> None:
    assert np.isnan(both(name, [NAN])[0]).all()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sparsemax"])
def test_nan_passes_to_its_row_alone(name: str) -> None:
    rows = both(name, [[1.0, NAN, 2.0], [1.0, 0.5, 0.0]])[0]
    np.testing.assert_array_equal(np.isnan(rows), [[True] * 3, [False] * 3])


@pytest.mark.parametrize(("name", "low", "high"), [
    ("relu", 0, INF), ("sigmoid", 0, 1), ("softplus", 0, INF), ("log_sigmoid", -INF, 0),
    ("elu", -1, INF), ("tanh", -1, 1), ("relu6", 0, 6), ("hard_sigmoid", 0, 1)])
def test_limits(name: str, low: float, high: float) -> None:
    np.testing.assert_allclose(both(name, [-INF, INF])[0], [low, high])


def test_sigmoid_is_precise_near_zero() -> None:
    np.testing.assert_allclose(both("sigmoid", [-20.0, -80.0])[0], [2.0611536e-09, 1.8048514e-35],
                               rtol=1e-5)


@together()
@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "softplus",
                                  "gelu", "silu", "sigmoid", "mish", "softsign", "log_sigmoid",
                                  "hard_shrink"])
def test_value_and_gradient_at_kinks_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = {"log_sigmoid": "logsigmoid", "hard_shrink": "hardshrink"}.get(name, name)
    attrs = {"negative_slope": 0.2} if name == "leaky_relu" else {}
    data = [-7.0, -0.5, 0.0, 0.5, 6.0, 7.0]
    x = torch.tensor(data, requires_grad=True)
    y = getattr(torch.nn.functional, theirs)(x, **attrs)
    y.sum().backward()
    value, slope = both(name, data)
    np.testing.assert_allclose(value, y.detach().numpy(), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(slope, x.grad.numpy(), rtol=2e-6, atol=2e-7)


def test_relu_is_one_select() -> None:
    y = ops.relu(leaf("input", "x", (3,), "float32"))
    assert y.op.name == "where" and y.args[0].op.name == "less_equal"


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_rows_are_safe_far_from_zero(shift: float) -> None:
    data = np.array([[0.0, 1.0, 2.0], [-1.0, -1.0, 5.0]]) + shift
    exact = np.exp(data - shift)
    total = exact.sum(-1, keepdims=True)
    for name, want in (("softmax", exact / total), ("log_softmax", np.log(exact / total)),
                       ("logsumexp", np.log(total[:, 0]) + shift)):
        value, slope = both(name, data, axis=-1)
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6)
        assert np.isfinite(slope).all()


def test_rows_with_infinities() -> None:
    rows = [[-INF, 0.0, 0.0], [-INF, -INF, -INF]]
    np.testing.assert_array_equal(both("softmax", rows)[0], [[0, 0.5, 0.5], [NAN] * 3])
    np.testing.assert_allclose(both("log_softmax", rows)[0],
                               [[-INF, -math.log(2), -math.log(2)], [NAN] * 3], rtol=1e-6)
    np.testing.assert_allclose(both("logsumexp", [*rows, [INF, 0.0, 1.0], [NAN, 0.0, 1.0]], axis=-1)[0],
                               [math.log(2), -INF, INF, NAN], rtol=1e-6)
    # a masked element neither gets nor gives a gradient
    x = leaf("input", "x", (3,), f64)
    slope = evaluate(gradients(ops.softmax(x)[1], [x]), {x: np.array(rows[0])})[0]
    np.testing.assert_allclose(slope, [0, 0.25, -0.25])


def test_softmax_over_several_axes_sums_to_one() -> None:
    value, _ = both("softmax", np.random.default_rng(0).normal(size=(2, 3, 4)), axis=(0, 2))
    np.testing.assert_allclose(value.sum((0, 2)), 1.0, rtol=1e-6)


def test_standardize_has_mean_zero_and_variance_one() -> None:
    data = np.random.default_rng(0).normal(100.0, 3.0, (4, 50))
    value, _ = both("standardize", data, epsilon=0.0)
    np.testing.assert_allclose(value.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(value.var(-1), 1, rtol=1e-4)
    assert np.isfinite(both("standardize", [[5.0, 5.0, 5.0]])[0]).all()


def test_glu_needs_two_halves() -> None:
    with pytest.raises(ShapeError, match=r"even number of elements on axis -1, got \(2, 3\)"):
        both("glu", [[1.0, 2.0, 3.0]] * 2)


def test_whole_numbers_are_refused_with_a_fix() -> None:
    with pytest.raises(ShapeError, match=r"ops\.tanh does not take int32; use ops\.cast"):
        ops.tanh(leaf("input", "x", (2,), "int32"))
