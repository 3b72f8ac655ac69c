"""Where naive formulas overflow, cancel or divide by zero: compiled code against float64.

Every bound is in units of the last place of its dtype, of the largest finite result: `UNITS[name]`
for values, and four times that for gradients, which chain several of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import HERE, Job, Module
from ztorch import losses, ops
from ztorch.dtypes import DType, dtype, from_storage, to_storage
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
INF, NAN = math.inf, math.nan
ROWS, COLUMNS = 3, 45  # neither is a whole number of vectors


def held(d: DType, x: Any) -> np.ndarray:
    """Numbers as the dtype holds them: those are the ones that results are exact for."""
    return from_storage(d, to_storage(d, np.asarray(x, np.float64).astype(d.working)))


def run(make: Callable[..., Value], d: DType, *arrays: np.ndarray, slopes: bool = True,
        target: str = HERE[-1]) -> list[tuple[np.ndarray, np.ndarray]]:
    """A function and its gradients, by compiled code and in float64."""
    feeds = {leaf("input", f"x{k}", a.shape, "bool" if a.dtype == bool else d): a
             if a.dtype == bool else held(d, a) for k, a in enumerate(arrays)}
    y = make(*feeds)
    roots = {"y": y}
    if slopes:
        floats = [v for v in feeds if v.dtype.is_float]
        weights = leaf("input", "weights", y.shape, d)
        feeds[weights] = held(d, np.cos(np.arange(y.size)).reshape(y.shape))
        result = gradients(ops.sum(y * weights), floats)
        roots |= {f"d{k}": g for k, g in enumerate(result)}
    job = Job(Graph(roots), feeds)
    return list(zip(Module([job], target).run(0), job.oracle(), strict=True))


def near(got: np.ndarray, want: np.ndarray, d: DType, units: float) -> None:
    """Infinities and NaN where float64 has them, all else within units of the last place."""
    got = got.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    size = np.abs(want[finite]).max(initial=0.0)
    np.testing.assert_allclose(got[finite], want[finite], rtol=0,
                               atol=units * EPS[d.long] * max(size, 1e-30))


def noise(scale: float = 1.0, mean: float = 0.0, rows: int = ROWS) -> np.ndarray:
    return mean + scale * np.random.default_rng(1).normal(size=(rows, COLUMNS))


# -- rows of exponentials ------------------------------------------------------------------------

UNITS = {"softmax": 8, "log_softmax": 4, "logsumexp": 4, "mean": 4, "var": 8, "std": 8,
         "standardize": 8, "layer_norm": 8, "rms_norm": 8, "vector_norm": 4, "attention": 16}


@pytest.mark.parametrize("d", EPS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_rows_far_from_zero(name: str, d: str) -> None:
    for data in (noise(1.0, 1e4), noise(1.0, -1e4), noise(1e4), np.full((2, 5), 1e4),
                 np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])):
        [(y, want), (dy, slope)] = run(lambda x: getattr(ops, name)(x, axis=-1), dtype(d), data)
        near(y, want, dtype(d), UNITS[name])
        near(dy, slope, dtype(d), 4 * UNITS[name])
        assert np.isfinite(y).all() and np.isfinite(dy).all()


@pytest.mark.parametrize("d", EPS)
def test_rows_of_minus_infinity(d: str) -> None:
    rows = np.array([[-INF, -INF, -INF], [-INF, 0.0, 0.0], [-INF, -INF, 1e4]])
    for name, first in (("softmax", [NAN] * 3), ("log_softmax", [NAN] * 3), ("logsumexp", -INF)):
        [(y, want)] = run(lambda x, name=name: getattr(ops, name)(x, axis=-1), dtype(d), rows, slopes=False)
        np.testing.assert_array_equal(y[0], first)
        near(y, want, dtype(d), UNITS[name])


@pytest.mark.parametrize("d", EPS)
def test_log_of_nothing(d: str) -> None:
    [(y, _)] = run(ops.log, dtype(d), np.array([0.0, -0.0, 1.0]), slopes=False)
    np.testing.assert_array_equal(y, [-INF, -INF, 0.0])


@pytest.mark.parametrize("d", ["float32", "float64"])
@pytest.mark.parametrize("name", ["categorical_crossentropy", "binary_crossentropy",
                                  "kl_divergence"])
def test_losses_of_probabilities_that_are_zero(name: str, d: str) -> None:
    loss = losses.get(name)
    truth, given = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    for y, want in run(lambda p, t: loss.per_row(t, p), dtype(d), given, truth):
        assert np.isfinite(y).all()
        # They hold probabilities 1e-7 away from 0 and 1, which float32 rounds near 1.
        np.testing.assert_allclose(y, want, rtol=0.02 if d == "float32" else 1e-8, atol=2e-7)


# -- means and variances ---------------------------------------------------------------------------


@together(of=15)
@pytest.mark.parametrize("d", EPS)
@pytest.mark.parametrize("name", ["mean", "var", "std", "standardize", "layer_norm"])
@pytest.mark.parametrize("mean", [0.0, 1e4, -1e4])
def test_moments_of_numbers_with_a_large_mean(name: str, mean: float, d: str) -> None:
    spread = 100.0 if dtype(d).bits == 16 else 1.0  # 16 bits hold no smaller one at 1e4
    make = getattr(ops, name)
    data = noise(spread, mean)

    def along(x: Value) -> Value:
        return make(x, axis=-1)

    [(y, want), (dy, slope)] = run(along, dtype(d), data)
    near(y, want, dtype(d), UNITS[name])
    near(dy, slope, dtype(d), 4 * UNITS[name])


@pytest.mark.parametrize("d", EPS)
def test_moments_of_equal_numbers(d: str) -> None:
    same = np.full((2, 37), 12345.0)
    for make in (lambda x: ops.var(x, 1), lambda x: ops.std(x, 1), ops.standardize, ops.layer_norm):
        [(y, _), (dy, _)] = run(make, dtype(d), same)
        assert not y.any() and np.isfinite(dy).all()
    [(y, _), (dy, _)] = run(lambda x: ops.std(x, 1), dtype(d), same)
    assert not dy.any()  # where float64 would divide 0 by 0


@pytest.mark.parametrize("d", EPS)
def test_batch_norm_with_a_large_mean(d: str) -> None:
    spread = 100.0 if dtype(d).bits == 16 else 1.0
    x, mean, variance = noise(spread, 1e4), np.full(COLUMNS, 9984.0), np.full(COLUMNS, 4.0)
    for y, want in run(ops.batch_norm, dtype(d), x, mean, variance):
        near(y, want, dtype(d), 16)


@pytest.mark.parametrize("d", EPS)
@pytest.mark.parametrize("size", [1e4, 1e-4])
def test_squares_do_not_overflow(size: float, d: str) -> None:
    size = 5e3 if (size, d) == (1e4, "float16") else size  # whose norm is not a float16
    for name, make in (("vector_norm", lambda x: ops.vector_norm(x, axis=-1)),
                       ("rms_norm", lambda x: ops.rms_norm(x, epsilon=0.0))):
        [(y, want), (dy, slope)] = run(make, dtype(d), noise(size))
        near(y, want, dtype(d), UNITS[name])
        near(dy, slope, dtype(d), 4 * UNITS[name])


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_lengths_as_large_and_as_small_as_float32_itself(size: float) -> None:
    d = dtype("float32")
    [(y, want), (dy, slope)] = run(lambda x: ops.vector_norm(x, axis=-1), d, noise(size))
    assert np.abs(y / want - 1).max() < 4 * EPS["float32"]
    near(dy, slope, d, 16)
    [(y, _), (dy, _)] = run(lambda x: ops.vector_norm(x, axis=-1), d, np.zeros((2, 5)))
    assert not y.any() and not dy.any()
    [(y, _)] = run(lambda x: ops.vector_norm(x, axis=-1), d, np.array([[INF, 1.0], [NAN, 1.0]]), slopes=False)
    np.testing.assert_array_equal(y, [INF, NAN])


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_a_mean_of_many_large_numbers_in_16_bits(d: str) -> None:
    """Their sum is beyond the largest float16."""
    [(y, want)] = run(lambda x: ops.mean(x, 1), dtype(d), np.full((2, 500), 1e4), slopes=False)
    near(y, want, dtype(d), 1)


# -- attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", EPS)
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_attention_with_rows_that_see_nothing(size: float, d: str) -> None:
    size = 50.0 if d == "float16" and size > 1 else size  # products of 1e4 are not float16
    q, k, v = (noise(size, rows=r)[:, :6] for r in (4, 5, 5))
    mask = np.ones((4, 5), bool)
    mask[1] = False
    mask[2, 3:] = False
    results = run(lambda q, k, v, m: ops.attention(q, k, v, m), dtype(d), q, k, v, mask)
    assert all(np.isfinite(y).all() for y, _ in results)
    [(y, _), (dq, _), *_] = results
    assert not y[1].any() and not dq[1].any()
    if size == 1.0:  # beyond, one rounding of a score decides which key is seen
        for got, exact in results:
            near(got, exact, dtype(d), 4 * UNITS["attention"])


# -- activations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("d", EPS)
def test_activations_at_ten_thousand(d: str) -> None:
    x = np.array([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4])
    for name in ("sigmoid", "log_sigmoid", "softplus", "tanh", "silu", "gelu", "mish", "elu",
                 "selu", "squareplus", "erf"):
        [(y, want), (dy, slope)] = run(getattr(ops, name), dtype(d), x)
        near(y, want, dtype(d), 8)
        near(dy, slope, dtype(d), 32)


@pytest.mark.parametrize("d", EPS)
@pytest.mark.parametrize("b", [0.0, 0.25, 4.0])
def test_squareplus_keeps_its_digits_below_zero(b: float, d: str) -> None:
    x = np.array([-5e3, -70.0, -1.0, 0.0, 2.0])
    [(y, _), (dy, _)] = run(lambda x: ops.squareplus(x, b), dtype(d), x)
    exact = held(dtype(d), x).astype(np.float64)
    total = np.sqrt(exact * exact + b) + np.abs(exact)
    want = np.where(x < 0, b / 2 / np.where(total, total, 1.0), total / 2)
    np.testing.assert_allclose(y, want, rtol=4 * EPS[d], atol=1e-7 if d == "float16" else 0)
    assert np.isfinite(dy).all()


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_any_count(name: str, target: str) -> None:
    """By the width or more, or by a negative count, only the sign is left, on a shift to the right."""
    counts = [0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 70, 127, *([-1, -8, -128] if name[0] == "i" else [])]
    a = np.repeat(np.array([5, 99, 1, 0, 77], name), len(counts))
    a, b = np.concatenate([a, ~a]), np.tile(np.array(counts, name), 10)
    x, y = (leaf("input", port, a.shape, name) for port in "xy")
    fixed = {f"{op.__name__}{count}": op(x, OPS.full(a.shape, count, name))
             for op in (ops.shift_left, ops.shift_right) for count in (3, 70)}
    job = Job(Graph({"left": ops.shift_left(x, y), "right": ops.shift_right(x, y), **fixed}), {x: a, y: b})
    want = [np.left_shift(a, b), np.right_shift(a, b),
            *(f(a, np.array(count, name)) for f in (np.left_shift, np.right_shift) for count in (3, 70))]
    for got, expected in zip(Module([job], target).run(0), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_gradient_of_a_power_of_zero() -> None:
    """x ** 0.0 is 1 for any x, so its gradient is 0; where the exponent varies, element by element."""
    base = np.array([0.0, -0.0, 2.0, INF, -3.0, 0.0, 0.0, 4.0])
    exponent = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.5])
    want = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.25])
    x, p = leaf("input", "x", base.shape, "float64"), leaf("input", "p", base.shape, "float64")
    fixed = ops.power(x, OPS.full(base.shape, 0.0, "float64"))
    job = Job(Graph({"varying": gradients(ops.sum(ops.power(x, p)), [x])[0],
                     "fixed": gradients(ops.sum(fixed), [x])[0]}), {x: base, p: exponent})
    varying, zero = Module([job], HERE[-1]).run(0)
    np.testing.assert_array_equal(varying, want)
    np.testing.assert_array_equal(zero, np.zeros(8))
