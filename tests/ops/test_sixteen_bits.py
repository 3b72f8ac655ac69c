"""Results in 16 bits whose sums, positions and factors do not fit in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together

HALVES = ["float16", "bfloat16"]
random = np.random.default_rng(11)


def half(x: Any, d: str) -> Any:
    return zt.ops.cast(zt.tensor(np.asarray(x, np.float32)), d)


def numbers(x: Any) -> np.ndarray:
    return zt.ops.cast(x, "float32").numpy()


@together()
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_windows_whose_sum_overflows(padding: str) -> None:
    x = half(np.full((1, 18, 17, 1), 300.0), "float16")
    np.testing.assert_array_equal(numbers(zt.ops.average_pool(x, 16, 3, padding)), 300.0)


def test_statistics_whose_sums_overflow() -> None:
    x = np.array([300.0, np.nan, 500.0] * 200)
    y = half(x, "float16")
    assert numbers(zt.ops.nanmean(y)) == 400.0
    assert numbers(zt.ops.nanvar(y)) == 10_000.0
    assert numbers(zt.ops.nanstd(y)) == 100.0


@together()
@pytest.mark.parametrize("d", HALVES)
@pytest.mark.parametrize("q", [0.25, 0.301, 0.5, 0.777])
def test_positions_of_quantiles(d: str, q: float) -> None:
    x = np.repeat(np.arange(8.0), [301, 300, 299, 501, 250, 777, 1000, 573])
    position = round(q * (x.size - 1))
    step = np.arange(x.size) >= position  # the number changes where the quantile is
    for y in (x, step):
        got = numbers(zt.ops.quantile(half(random.permutation(y), d), q, method="nearest"))
        assert got == np.quantile(y.astype(float), q, method="nearest")


def test_halfway_between_the_largest_numbers() -> None:
    assert numbers(zt.ops.median(half([65504.0, -65504.0], "float16"))) == 0.0


def test_decimals_of_large_numbers() -> None:
    x = half([1000.0, 0.5, -3.0], "float16")
    for decimals in (2, 5):
        np.testing.assert_array_equal(numbers(zt.ops.round(x, decimals)), [1000.0, 0.5, -3.0])


@together()
@pytest.mark.parametrize("d", ["uint16", "int32", "uint32", "int64", "float32", "bfloat16"])
def test_numbers_beyond_float16_saturate(d: str) -> None:
    x = [60_000, 65_535, 3] if d.startswith("u") else [100_000, -100_000, 3]
    got = numbers(zt.ops.saturate_cast(zt.ops.cast(zt.tensor(x, dtype="int64"), d), "float16"))
    np.testing.assert_array_equal(got, np.clip(numbers(zt.ops.cast(
        zt.ops.cast(zt.tensor(x, dtype="int64"), d), "float64")), -65504, 65504).astype(np.float16))


@pytest.mark.parametrize("d", ["float16", "float32"])
def test_queries_that_see_nothing_beside_a_bias(d: str) -> None:
    """Their result is zero, with a bias as without one; others have that of NumPy."""
    q, k, v = (random.normal(size=(2, 3, heads, 4)) for heads in (4, 2, 2))
    bias, mask = random.normal(size=(2, 4, 3, 3)), np.ones((2, 1, 3, 3), bool)
    mask[0, :, 1] = False
    mask[1, :, 2, :2] = False
    got = numbers(zt.ops.dot_product_attention(
        *(half(x, d) for x in (q, k, v, bias)), mask=zt.tensor(mask)))
    scores = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, 2, 2)) / 2 + bias
    weights = np.where(mask, np.exp(scores), 0.0)
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    want = np.einsum("bhqk,bkhd->bqhd", weights, np.repeat(v, 2, 2))
    np.testing.assert_array_equal(got[0, 1], 0.0)
    np.testing.assert_allclose(got, want, atol=1e-2 if d == "float16" else 1e-5)


def test_powers_of_two_beyond_the_dtype() -> None:
    x, n = np.array([6e-8, 1.0, 2.0**-24]), np.array([20, -24, 39])
    got = numbers(zt.ops.ldexp(half(x, "float16"), zt.tensor(n)))
    np.testing.assert_array_equal(got, np.ldexp(x.astype(np.float16), n).astype(np.float32))


@together()
@pytest.mark.parametrize("d", HALVES)
def test_images_at_positions_that_16_bits_round(d: str) -> None:
    """A shift by a quarter of a pixel, far from the first column."""
    x = np.tile(np.arange(8.0), 256).reshape(1, -1, 1)
    shift = np.array([1.0, 0.0, 0.25, 0.0, 1.0, 0.0, 0.0, 0.0])
    got = numbers(zt.ops.affine_transform(half(x, d), half(shift, d)))
    want = 0.75 * x + 0.25 * np.append(x[:, 1:], [[[0.0]]], 1)
    np.testing.assert_array_equal(got, want)


def test_images_whose_squares_overflow() -> None:
    x, y = random.uniform(0.0, 255.0, (2, 12, 12, 3)).round()
    for name, bound in (("ssim", 2e-3), ("psnr", 1e-2)):
        op = getattr(zt.ops, name)
        got = numbers(op(half(4.0 * x, "float16"), half(4.0 * y, "float16"), 1020.0))
        np.testing.assert_allclose(got, op(4.0 * x, 4.0 * y, 1020.0), atol=bound)


def test_waves_of_large_numbers() -> None:
    x = np.array([100.25, -60.5, 0.125])
    np.testing.assert_allclose(numbers(zt.ops.sinc(half(x, "float16"))), np.sinc(x), rtol=2e-3)
