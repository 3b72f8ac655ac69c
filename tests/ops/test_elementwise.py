"""Elementwise ops at their edges; the plain cases are in test_every_op."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf


def value(y):
    return evaluate([y], {})[0]


@pytest.mark.parametrize(("data", "to"), [
    (np.array([1.5, -2.5], np.float32), "uint32"), (np.array([1, -1], np.int64), "float64"),
    (np.array([1, 65535], np.uint16), "float16")])
def test_bitcast_reads_the_same_bits(data: np.ndarray, to: str) -> None:
    got = value(ops.bitcast(constant(data), to))
    np.testing.assert_array_equal(got, data.view(to))


def test_bitcast_needs_equal_sizes() -> None:
    with pytest.raises(ShapeError, match="sizes must agree"):
        ops.bitcast(constant([1.0], "float32"), "uint16")


def test_float_to_integer_saturates() -> None:
    x = constant([np.nan, np.inf, -np.inf, 300.0, -1.9, 1e20], "float32")
    np.testing.assert_array_equal(value(ops.cast(x, "int8")), [0, 127, -128, 127, -1, 127])
    np.testing.assert_array_equal(value(ops.cast(x, "uint8")), [0, 255, 0, 255, 0, 255])
    top = np.iinfo(np.int64).max
    np.testing.assert_array_equal(value(ops.cast(x, "int64")), [0, top, ~top, 300, -1, top])


def test_cast_to_its_own_dtype_is_nothing() -> None:
    x = leaf("input", "x", (2,), "float32")
    assert ops.cast(x, "float32") is x


def test_integers_wrap_and_divide_towards_zero() -> None:
    x = constant([-7, 7, -(2**31)], "int32")
    np.testing.assert_array_equal(value(ops.div(x, 2)), [-3, 3, -(2**30)])
    np.testing.assert_array_equal(value(ops.rem(x, 4)), [-3, 3, 0])
    np.testing.assert_array_equal(value(ops.div(x, 0)), [0, 0, 0])
    np.testing.assert_array_equal(value(x / 2), [-3.5, 3.5, -(2**30)])  # as Python's operators
    np.testing.assert_array_equal(value(x // 2), [-4, 3, -(2**30)])
    np.testing.assert_array_equal(value(x % 4), [1, 3, 0])
    np.testing.assert_array_equal(value(x - 1), [-8, 6, 2**31 - 1])
    np.testing.assert_array_equal(value(ops.shift_right(x, 1)), [-4, 3, -(2**30)])


def test_nan_wins_min_and_max_and_passes_through_clip() -> None:
    x = constant([np.nan, 5.0], "float32")
    assert np.isnan(value(ops.minimum(x, 1.0))[0]) and np.isnan(value(ops.maximum(1.0, x))[0])
    np.testing.assert_array_equal(value(ops.clip(x, -1, 1)), [np.nan, 1.0])


def test_round_takes_ties_to_even() -> None:
    np.testing.assert_array_equal(value(ops.round(constant([0.5, 1.5, 2.5, -0.5]))), [0, 2, 2, 0])


def test_sign_of_zero_and_its_dtype() -> None:
    np.testing.assert_array_equal(value(ops.sign(constant([-3, 0, 9], "int32"))), [-1, 0, 1])


def test_full_of_numbers_and_where_of_numbers() -> None:
    c = constant([True, False])
    assert value(ops.where(c, 1.0, 2.0)).dtype == np.float32
    np.testing.assert_array_equal(value(ops.where(c, 1.0, 2.0)), [1, 2])
