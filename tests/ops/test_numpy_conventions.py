"""What users of NumPy and Keras expect of odd calls: no axis, no elements, other dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.errors import ShapeError

A = np.arange(6.0).reshape(2, 3)
CUBE = np.random.default_rng(3).normal(size=(2, 3, 4))
WHOLE = np.array([[3, -1, 2], [0, 7, -5]], np.int32)
LARGE = np.array([2**62 + 1, 3])  # no float64 holds the first
NONE = np.zeros((3, 0))

# Calls that mean the same for NumPy, with the dtype of its result.
SAME: dict[str, Callable[[Any], Any]] = {
    "take without an axis": lambda m: m.take(A, np.array([0, 4, -1])),
    "take along no axis": lambda m: m.take_along_axis(A, np.array([5, 0]), axis=None),
    "sums without an axis": lambda m: m.cumsum(A),
    "products without an axis": lambda m: m.cumprod(A),
    "complex products": lambda m: m.cumprod(A + 1j), "complex sums": lambda m: m.cumsum(A + 1j),
    "sums of a number": lambda m: m.cumsum(np.array(2.0)),
    "in order without an axis": lambda m: m.sort(CUBE, axis=None),
    "order without an axis": lambda m: m.argsort(CUBE, axis=None).astype(np.int64),
    "diagonal of a cube": lambda m: m.diagonal(CUBE),
    "trace of a cube": lambda m: m.trace(CUBE),
    "rounded integers": lambda m: m.round(LARGE),
    "rounded bytes": lambda m: m.round(np.array([3, -4], np.int8)),
    "largest integer": lambda m: m.nanmax(LARGE),
    "smallest integer": lambda m: m.nanmin(LARGE, axis=0),
    "where the smallest is": lambda m: m.nanargmin(WHOLE.astype(np.int64), axis=1).astype(np.int64),
    "sum of bytes": lambda m: m.nansum(np.array([250, 3, 200], np.uint8)),
    "products of bytes": lambda m: m.nancumprod(np.array([100, 3, -7], np.int8)),
    "median of nothing": lambda m: m.median(NONE, axis=1),
    "medians of no rows": lambda m: m.median(NONE, axis=0),
    "powers of nothing": lambda m: m.vander(np.zeros(0)), "no powers": lambda m: m.vander(A[0], 0),
    "diagonal of nothing": lambda m: m.diagflat(NONE), "stacks of nothing": lambda m: m.dstack([NONE[0]]),
    "padded all around": lambda m: m.pad(A, 1), "padded by a pair": lambda m: m.pad(A, (1, 2)),
    "padded by one pair": lambda m: m.pad(CUBE, ((1, 0),), "edge"),
    "padded by pairs": lambda m: m.pad(A, ((1, 0), (2, 1)), mode="reflect"),
    "mean of integers": lambda m: m.nanmean(WHOLE),
    "deviation of integers": lambda m: m.nanstd(WHOLE, axis=0),
    "fmax": lambda m: m.fmax(A, WHOLE), "fmin": lambda m: m.fmin(WHOLE, A),
    "isin": lambda m: m.isin(A, WHOLE), "append": lambda m: m.append(A, WHOLE),
    "gcd": lambda m: m.gcd(WHOLE, 2), "lcm": lambda m: m.lcm(2, WHOLE),
    "concatenate": lambda m: m.concatenate([A, WHOLE]), "stack": lambda m: m.stack([WHOLE, A]),
    "dot": lambda m: m.dot(A, 2), "kron": lambda m: m.kron(WHOLE, A),
    "inner": lambda m: m.inner(A, WHOLE), "vdot": lambda m: m.vdot(A, WHOLE),
    "heaviside": lambda m: m.heaviside(WHOLE, 0.5),
    "logaddexp2": lambda m: m.logaddexp2(WHOLE, WHOLE),
    "a vector again": lambda m: m.reshape(A, -1), "of six": lambda m: m.reshape(A, 6),
    "one number everywhere": lambda m: m.broadcast_to(A[1, 2], 4),
    "differences twice": lambda m: m.diff(CUBE, 2), "differences of rows": lambda m: m.diff(CUBE, 1, 0),
    "changes": lambda m: m.diff(np.array([True, False, False, True])),
    "sums of bools": lambda m: m.nansum(A > 2, axis=0), "products of bools": lambda m: m.nanprod(A > 2),
    "a limit among the largest": lambda m: m.max(A, axis=1, initial=4.0),
    "a limit among the smallest": lambda m: m.min(WHOLE, initial=-9, keepdims=True),
    "largest of none": lambda m: m.max(NONE, axis=1, initial=-np.inf),
    "median of infinities": lambda m: m.median(np.full(4, np.inf)),
    "points and their distance": lambda m: m.linspace(0, 10, 5, endpoint=False, retstep=True)[1].astype(np.float32),
    "ends of intervals": lambda m: m.histogram(A, [0.0, 1.5, 4.0])[1],
    "histogram of equal numbers": lambda m: m.histogram(np.full(3, 2.0))[1],
    "histogram of nothing": lambda m: m.histogram(np.zeros(0))[1],
    "histogram of an empty range": lambda m: m.histogram(A, 3, (1, 1))[1],
    "padded by an array": lambda m: m.pad(A, np.array([[1, 0], [2, 1]])),
    "padded by a scalar of NumPy": lambda m: m.pad(A, np.int64(2)),
    "powers of two beyond the range": lambda m: m.ldexp(np.array([1e-300, 1.0, 5e-324, 3.0]), np.array([1100, -1074, 2097, -2000])),
    "condition of zeros": lambda m: m.linalg.cond(np.zeros((2, 2))) if m is np else m.condition_number(np.zeros((2, 2))),
    "condition of zeros by sums": lambda m: m.linalg.cond(np.zeros((2, 2)), 1) if m is np else m.condition_number(np.zeros((2, 2)), 1),
    "a row everywhere": lambda m: m.full_like(A, [1, 2, 3]),
    "bools everywhere": lambda m: m.full_like(WHOLE, np.array([True, False, True])),
}


@together()
@pytest.mark.parametrize("case", SAME)
def test_as_in_numpy(case: str) -> None:
    got, want = SAME[case](zt.ops), SAME[case](np)
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(("numbers", "bins"), [
    (np.full(3, 2.0), 10), (np.full(3, 2.0), 1), (np.zeros(0), 4), (WHOLE, 5),
    (A, [0, 1, 4]), (WHOLE, [-5, -5, 0, 3]), (np.zeros(0), [0.0, 1.0])])
def test_counts_as_in_numpy(numbers: np.ndarray, bins: Any) -> None:
    np.testing.assert_array_equal(zt.ops.histogram(numbers, bins)[0],
                                  np.histogram(numbers, bins)[0])


def test_bins_of_integers_keep_their_fractions() -> None:
    np.testing.assert_array_equal(zt.ops.digitize(np.array([0, 1, 2]), np.array([0.5, 1.5])),
                                  [0, 1, 2])


def test_places_of_other_dtypes() -> None:
    bounds, single = np.array([1, 2, 3]), np.array([0.5, 2.5], np.float32)
    np.testing.assert_array_equal(zt.ops.searchsorted(bounds, [1.5, 3.0]), [1, 2])
    np.testing.assert_array_equal(zt.ops.searchsorted(single, np.array([0, 1, 2**25 + 1])),
                                  [0, 1, 2])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_new_axis_of_one_hot(axis: int) -> None:
    labels = np.array([[0, 2], [1, 3]])
    np.testing.assert_array_equal(zt.ops.one_hot(labels, 3, axis=axis),
                                  np.moveaxis((np.arange(3) == labels[..., None]), -1, axis))


def test_views_are_shapes_or_bits() -> None:
    x = zt.tensor(A, dtype="float32")
    for y in (x.view(3, 2), x.view((3, 2)), x.view([3, -1]), zt.ops.view(x, (3, 2))):
        np.testing.assert_array_equal(y, A.reshape(3, 2))
    for y in (x.view("int32"), x.view(np.int32), x.view(dtype="int32"), zt.ops.view(x, "int32")):
        np.testing.assert_array_equal(y, A.astype(np.float32).view(np.int32))


@pytest.mark.parametrize("wide", [np.float64, np.int32, np.float16])
@pytest.mark.parametrize("narrow", [np.int8, np.uint16, np.float32])
def test_views_of_other_sizes_change_the_last_axis(wide: Any, narrow: Any) -> None:
    bits = np.random.default_rng(0).integers(0, 100, (3, 16), np.uint8)
    for x, to in ((bits.view(wide), narrow), (bits.view(narrow), wide)):
        y = zt.ops.view(zt.tensor(x, dtype=x.dtype.name), np.dtype(to).name).numpy()
        assert y.dtype == to
        np.testing.assert_array_equal(y.view(np.uint8), bits)
    with pytest.raises(ShapeError, match="cannot read the bits of int8 as int16"):
        zt.ops.view(np.zeros((2, 3), np.int8), "int16")


@pytest.mark.parametrize("name", ["abs", "floor", "ceil", "trunc", "round"])
def test_bools_are_rounded_as_by_numpy(name: str) -> None:
    x = np.array([True, False])
    y, want = getattr(zt.ops, name)(zt.tensor(x)).numpy(), getattr(np, name)(x)
    assert y.dtype == want.dtype
    np.testing.assert_array_equal(y, want)


def test_places_outside_of_a_shape_are_ignored() -> None:
    places = np.array([[0, -1], [1, 0], [0, 3], [-3, 0], [1, -4]], np.int8)
    want = [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]  # flattened, (0, 3) would be (1, 0)
    np.testing.assert_array_equal(zt.ops.scatter(places, np.arange(1.0, 6.0), (2, 3)), want)
    np.testing.assert_array_equal(
        zt.ops.scatter_update(np.zeros((2, 3)), places, np.arange(1.0, 6.0)), want)
    wide = zt.ops.scatter_update(np.zeros((100, 100), bool), np.full((1, 2), 99, np.int8), [True])
    assert wide.dtype == bool and wide[99, 99] and wide.sum() == 1


def test_segments_without_rows() -> None:
    for name, empty in (("sum", 0), ("max", -np.inf), ("min", np.inf), ("prod", 1)):
        rows = getattr(zt.ops, f"segment_{name}")(np.zeros((0, 2)), np.zeros(0, int), 3)
        np.testing.assert_array_equal(rows, np.full((3, 2), empty))


def test_tolerances_of_a_rank() -> None:
    matrix = np.diag([3.0, 0.1, 1e-3])
    assert [zt.ops.matrix_rank(matrix, tol).item() for tol in (0.5, 0.05, 1e-4)] == [1, 2, 3]
    assert zt.ops.matrix_rank(matrix * (1 + 1j), 0.5).item() == 1
    assert zt.ops.matrix_rank(matrix, rtol=0.04).item() == 1


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sparsemax"])
def test_rows_without_elements(name: str) -> None:
    assert getattr(zt.ops, name)(NONE).shape == NONE.shape
    assert getattr(zt.ops, name)(NONE.T).shape == (0, 3)


def test_logsumexp_of_all_elements_and_of_none() -> None:
    np.testing.assert_allclose(zt.ops.logsumexp(A), np.log(np.exp(A).sum()))
    np.testing.assert_array_equal(zt.ops.logsumexp(NONE, axis=1), np.full(3, -np.inf))
    assert zt.ops.logsumexp(NONE, axis=0).shape == (0,)


@together()
@pytest.mark.parametrize("name", ["sigmoid", "softmax", "log_softmax", "sparsemax", "logsumexp",
                                  "norm", "layer_norm", "rms_norm"])
def test_integers_are_computed_in_float64(name: str) -> None:
    y = getattr(zt.ops, name)(WHOLE)
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, getattr(zt.ops, name)(WHOLE.astype(np.float64)))


def test_ratios_and_norms_of_integers_do_not_wrap() -> None:
    a, b = np.array([[1, 250], [7, 9]], np.uint8), np.array([[2, 3], [7, 8]], np.uint8)
    error = np.mean((a.astype(float) - b) ** 2)
    np.testing.assert_allclose(zt.ops.psnr(a, b, 255.0), 10 * np.log10(255.0**2 / error))
    np.testing.assert_allclose(zt.ops.batch_norm(WHOLE, np.full(3, 0.5), np.full(3, 4.0), epsilon=0.0),
                               (WHOLE - 0.5) / 2.0)


@together()
@pytest.mark.parametrize("op", [
    lambda x: zt.ops.average_pool(x[..., None], 2, 1, "same"), lambda x: zt.ops.average_pool(x[..., None], 2),
    lambda x: zt.ops.upsample(x[..., None], 2, "bilinear"), lambda x: zt.ops.rotary(x),
    lambda x: zt.ops.categorical_crossentropy(np.eye(4)[None, [0, 2, 3]], x, from_logits=True),
    lambda x: zt.ops.binary_crossentropy(np.ones((1, 3, 4)), x, from_logits=True),
    lambda x: zt.ops.sparse_categorical_crossentropy(np.array([[0, 2, 3]]), x, from_logits=False),
    lambda x: zt.ops.ctc_loss(np.array([[1]]), x, np.array([1]), np.array([3]))])
def test_integers_are_not_rounded_again(op: Callable[[Any], Any]) -> None:
    x = np.array([[[1, 2, 3, 5], [2, 1, 7, 4], [4, 4, 1, 2]]])
    np.testing.assert_array_equal(op(x), op(x.astype(np.float64)))


@pytest.mark.parametrize("ord", [-1, -2, -3.5])
def test_norms_of_negative_orders(ord: float) -> None:
    """The smallest number decides; its power alone would overflow."""
    x = np.array([[1e-30, 1.0, 1e30], [3.0, 4.0, 5.0], [2.0, 0.0, 1.0], [np.inf] * 3, [np.inf, 2.0, 3.0]])
    with np.errstate(divide="ignore"):
        want = np.linalg.norm(x.astype(np.longdouble), ord, axis=1)
    np.testing.assert_allclose(zt.ops.vector_norm(x.astype(np.float32), ord, axis=1), want.astype(float), rtol=1e-6)


def test_infinities_beside_nan() -> None:
    """An infinity is a number, also where it is all that NaN could be replaced by."""
    x = np.array([[np.nan, -np.inf], [np.nan, np.inf], [np.nan, np.nan], [2.0, 3.0]])
    np.testing.assert_array_equal(zt.ops.nanargmax(x, axis=1), [1, 1, -1, 1])
    np.testing.assert_array_equal(zt.ops.nanargmin(x, axis=1, keepdims=True), [[1], [1], [-1], [0]])
    assert zt.ops.nanargmax(x) == 3 and zt.ops.nanargmin(x) == 1


def test_the_slope_of_no_deviation() -> None:
    slope = zt.grad(lambda x: zt.ops.nanstd(x, axis=1).sum())(zt.tensor([[1.0, np.nan, 1.0], [1.0, 3.0, np.nan]]))
    np.testing.assert_allclose(slope, [[0.0, 0.0, 0.0], [-0.5, 0.5, 0.0]])


@pytest.mark.parametrize(("call", "text"), [
    (lambda: zt.ops.sum(A, axis=(0, 0)), r"axis \(0, 0\) names an axis twice; name each axis once"),
    (lambda: zt.ops.max(A, axis=(1, -1)), "names an axis twice"),
    (lambda: zt.ops.flip(A, (0, -2)), "names an axis twice"),
    (lambda: zt.ops.max(A[0, 0], axis=0), "rank 0; a tensor of one number has no axes"),
    (lambda: zt.ops.top_k(A, 2, True), "axis True is not an integer"),
    (lambda: zt.ops.unstack(A, num=3), r"unstack\(num=3\) does not fit axis 0 of \(2, 3\)"),
    (lambda: zt.ops.histogram(A, [2, 1]), "at least two ends in ascending order"),
    (lambda: zt.ops.concat([]), "ops.concat needs at least one tensor"),
    (lambda: zt.ops.hstack([]), "at least one tensor"),
    (lambda: zt.ops.vander(A), r"ops.vander takes a vector, not \(2, 3\)"),
    (lambda: zt.ops.corrcoef(A[0, 0]), r"ops.corrcoef takes a matrix or a vector, not \(\)"),
    (lambda: zt.ops.corrcoef(CUBE), r"ops.corrcoef takes a matrix or a vector, not \(2, 3, 4\)"),
    (lambda: zt.ops.cov(A[0, 0]), r"ops.cov takes a matrix or a vector, not \(\)"),
    (lambda: zt.ops.vdot(A, A[:1]), r"as many elements each, not \(2, 3\) and \(1, 3\)")])
def test_errors_of_numpy(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        call()


def test_counts_are_exact_beyond_the_integers_of_float32() -> None:
    counts, _ = zt.ops.histogram(zt.tensor(np.zeros((1 << 24) + 3, np.float32)), 1, (0, 1))
    assert counts.tolist() == [(1 << 24) + 3]
