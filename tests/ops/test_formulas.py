"""Functions that are formulas of opcodes: how accurate they are, and their values at the ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf

POINTS = 20_000
WIDER: dict[Any, Any] = {np.float32: np.float64, np.float64: np.longdouble}
OLD_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
             "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2"}  # those of NumPy 1


def numpys(name: str) -> Callable[..., Any]:
    return getattr(np, OLD_NAMES.get(name, name))


def even(low: float, high: float) -> Callable[[Any], np.ndarray]:
    return lambda rng: rng.uniform(low, high, POINTS)


def spread(low: float, high: float, signs: tuple[float, ...] = (-1.0, 1.0)
           ) -> Callable[[Any], np.ndarray]:
    """Numbers of all these powers of two."""
    return lambda rng: rng.choice(signs, POINTS) * np.exp2(rng.uniform(low, high, POINTS))


def near_one(rng: Any) -> np.ndarray:
    return 1 + np.exp2(rng.uniform(-20, 6, POINTS))


# Points, and the greatest error in f32 and f64, in units of the last place.
ACCURACY: dict[str, tuple[list[Any], float]] = {
    "tan": ([even(-20, 20), spread(-30, 4)], 3.2),
    "asin": ([even(-1, 1), spread(-30, 0)], 3.1),
    "acos": ([even(-1, 1), lambda rng: 1 - np.exp2(rng.uniform(-20, 0, POINTS))], 2.9),
    "atan": ([even(-5, 5), spread(-30, 30)], 2.2),
    "sinh": ([even(-89, 89), spread(-30, 4)], 2.7),
    "cosh": ([even(-89, 89), even(-3, 3)], 2.7),
    "asinh": ([even(-9, 9), spread(-30, 120)], 1.8),
    "acosh": ([near_one, spread(1, 120, (1.0,))], 2.5),
    "atanh": ([even(-1, 1), spread(-30, 0)], 2.0),
    "log10": ([spread(-120, 120, (1.0,)), even(0.5, 2)], 2.1),
}


@pytest.mark.parametrize("d", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", ACCURACY)
def test_error_is_below_its_bound(name: str, d: Any) -> None:
    if np.finfo(WIDER[d]).nmant <= np.finfo(d).nmant + 8:
        pytest.skip("no wider type to compare with on this machine")
    rng = np.random.default_rng(0)
    groups, bound = ACCURACY[name]
    x = np.concatenate([group(rng) for group in groups]).astype(d)
    with np.errstate(all="ignore"):
        truth = numpys(name)(x.astype(WIDER[d]))
    error = units(getattr(zt.ops, name)(x), truth, d)
    print(f"\n{name:6} {np.dtype(d)} {error:.2f}", end="")
    assert error <= bound


@pytest.mark.parametrize("d", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize(("name", "bound"), [("atan2", 2.5), ("hypot", 2.1), ("logaddexp", 1.7)])
def test_error_of_two_arguments(name: str, bound: float, d: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (spread(-8, 8)(rng).astype(d) for _ in range(2))
    if name == "logaddexp":  # where the two terms cancel, nothing relative is left
        x, y = abs(x), abs(y)
    wide = [a.astype(WIDER[d]) for a in (x, y)]
    error = units(getattr(zt.ops, name)(x, y), numpys(name)(*wide), d)
    print(f"\n{name:6} {np.dtype(d)} {error:.2f}", end="")
    assert error <= bound


def units(y: np.ndarray, truth: np.ndarray, d: Any) -> float:
    """The greatest error, in units of the last place of the truth, where that is finite."""
    assert y.dtype == d
    info = np.finfo(d)
    inside = np.isfinite(truth) & (abs(truth) <= info.max)
    size = np.maximum(np.abs(truth), float(info.smallest_normal))[inside]
    unit = np.ldexp(truth.dtype.type(1), np.frexp(size)[1] - 1 - info.nmant)
    return float(np.max(np.abs(y.astype(truth.dtype) - truth)[inside] / unit))


# -- ends ------------------------------------------------------------------------------------------

INF, NAN = np.inf, np.nan
ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, INF, -INF, NAN]


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal numbers up to rounding, NaN at the same places, and zeros of the same sign."""
    np.testing.assert_allclose(got, want, rtol=3e-7)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", [*ACCURACY, "isinf", "signbit", "sign"])
def test_ends_of_one_argument_are_numpys(name: str) -> None:
    x = np.array(ENDS, np.float32)
    x = x[np.isfinite(x)] if name == "tan" else x
    with np.errstate(all="ignore"):
        want = numpys(name)(x)
    got = getattr(zt.ops, name)(x)
    if want.dtype == bool:
        np.testing.assert_array_equal(got, want)
    elif name == "sign":
        np.testing.assert_array_equal(got, want)  # zeros keep their sign here
    else:
        same(got, want)


@pytest.mark.parametrize("name", ["isfinite", "isnan", "isinf"])
def test_infinity_and_nan_are_recognized_by_their_bits(name: str) -> None:
    """The largest number is next to infinity, and a NaN may have any bits after the exponent's."""
    for d, bits in ((np.float16, np.uint16), (np.float32, np.uint32), (np.float64, np.uint64)):
        info = np.finfo(d)
        x = np.array([info.max, -info.max, info.tiny, INF, -INF, NAN, 1.0, 0.0], d)
        x = np.append(x, (x[3:4].view(bits) + bits(1)).view(d))  # the first NaN
        np.testing.assert_array_equal(getattr(zt.ops, name)(x), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["atan2", "hypot", "logaddexp", "copysign", "nextafter",
                                  "remainder", "floor_divide"])
def test_ends_of_two_arguments_are_numpys(name: str) -> None:
    x, y = np.array(list(itertools.product(ENDS, ENDS)), np.float32).T
    if name == "floor_divide":  # NumPy gives NaN for quotients of infinity, the standard infinity
        x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    if name == "copysign":
        x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    with np.errstate(all="ignore"):
        want = numpys(name)(x, y)
    same(getattr(zt.ops, name)(x, y), want)


@pytest.mark.parametrize(("name", "x"), [
    ("sinh", 89.0), ("cosh", 89.0), ("asinh", 1e38), ("acosh", 3e38), ("asinh", 1e-30),
    ("sinh", 1e-30), ("atanh", 1e-30), ("asin", 1e-30), ("tan", 1e-30), ("atan", 1e-30)])
def test_no_overflow_before_the_result_and_no_loss_next_to_zero(name: str, x: float) -> None:
    number = np.array([x], np.float32)
    want = numpys(name)(number.astype(np.float64))
    np.testing.assert_allclose(getattr(zt.ops, name)(number), want, rtol=4e-7)


def test_hypot_of_huge_and_tiny_numbers() -> None:
    np.testing.assert_allclose(zt.ops.hypot(np.array([3e38, 3e-38, 0.0], np.float32),
                                            np.array([1e38, 4e-38, 0.0], np.float32)),
                               [3.1622777e38, 5e-38, 0.0], rtol=1e-6)
    x = leaf("input", "x", (2,), "float64")
    slope = evaluate(gradients(ops.sum(ops.hypot(x, 0.0)), [x]), {x: np.array([0.0, -2.0])})[0]
    np.testing.assert_array_equal(slope, [0.0, -1.0])


def test_floored_division_of_integers() -> None:
    x = np.array([7, -7, 7, -7, 5, -(2**31), 0], np.int32)
    y = np.array([3, 3, -3, -3, 0, 2, 5], np.int32)
    np.testing.assert_array_equal(zt.ops.floor_divide(x, y), [2, -3, -3, 2, 0, -(2**30), 0])
    np.testing.assert_array_equal(zt.ops.remainder(x, y), [1, 2, -2, -1, 5, 0, 0])
    np.testing.assert_array_equal(zt.ops.floor_divide(np.array([1.0, 7.5]), np.array([0.1, -2.0])),
                                  [9.0, -4.0])


def test_whole_numbers_become_float64() -> None:
    n = np.array([0, 1, 2])
    np.testing.assert_array_equal(zt.ops.divide(n, 2), [0.0, 0.5, 1.0])
    for name in ("sinh", "asinh", "log10"):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(getattr(zt.ops, name)(n), numpys(name)(n), rtol=1e-15)
    assert ops.floor(constant(n)).dtype.name == ops.trunc(constant(n)).dtype.name == "i64"
    assert ops.abs(constant(n.astype(np.uint8))).dtype.name == "u8"


def test_powers_of_integers() -> None:
    x = np.array([3, -2, 7, 0, 0, 1, -1, -1, 5], np.int32)
    y = np.array([4, 5, 31, 0, 3, -2, -3, -4, -1], np.int32)
    wrapped = (7**31 + 2**31) % 2**32 - 2**31
    want = [81, -32, wrapped, 1, 0, 1, -1, 1, 0]
    np.testing.assert_array_equal(zt.compiled(ops.power)(x, y), want)
    np.testing.assert_array_equal(zt.compiled(lambda n: n ** 3)(x), x**3)
    np.testing.assert_array_equal(zt.compiled(lambda n: n ** 0)(x), np.ones(9))
    u = np.array([2, 3, 15], np.uint8)
    np.testing.assert_array_equal(zt.compiled(ops.power)(u, u), u**u)
    with pytest.raises(ShapeError, match="power -2 are fractions"):
        ops.power(constant(x), -2)


def test_bools_have_no_remainder() -> None:
    with pytest.raises(ShapeError, match="remainder does not take bool"):
        ops.remainder(constant([True]), constant([True]))


def test_next_after_in_16_bits() -> None:
    x = constant([1.0, -1.0, 0.0], "bfloat16")
    got = evaluate([ops.nextafter(x, 2.0)], {})[0]
    np.testing.assert_array_equal(got, [1 + 2.0**-7, -1 + 2.0**-8, np.float32(2.0**-133)])
    got = evaluate([ops.nextafter(constant([1.0], "float16"), 0.0)], {})[0]
    np.testing.assert_array_equal(got, [1 - 2.0**-11])


@pytest.mark.parametrize("d", ["float16", "float32", "float64"])
def test_small_exponents_are_products(d: str) -> None:
    x = np.array([-2, -0.0, 0, 3, np.inf, -np.inf, np.nan, 1e-3, 1.1], d)
    compiled = zt.compiled(lambda x, e: x ** e)
    for exponent in (2, 3, 4, -1):
        with np.errstate(all="ignore"):
            want = np.power(x, np.full_like(x, exponent))
        got = compiled(zt.tensor(x, device="cpu"), exponent).numpy()
        np.testing.assert_allclose(got, want, rtol=2 * np.finfo(d).eps)
        same = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[same]), np.signbit(want[same]))
    assert str(constant(x.astype("float32")) ** 3.0).startswith("<mul")
