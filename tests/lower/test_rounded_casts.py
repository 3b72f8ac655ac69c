"""Rounded floats as integers: an addition where the range is known, a conversion elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, NARROW, WIDE, Job, compiled, interpreted, plan_of
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value

# Halves of both parities, their neighbors, the ends of ranges, and what has to be clipped.
HALVES = np.arange(-6, 6, dtype=np.float32) + np.float32(0.5)
NUMBERS = np.concatenate([
    HALVES, np.nextafter(HALVES, np.float32(9)), np.nextafter(HALVES, np.float32(-9)),
    np.array([-0.0, 0.0, 126.5, 127.4999, 254.5, 255.5, 4194303.5, 4194304.0, -4194304.0, 3e38,
              -3e38, np.inf, -np.inf, 1e-30, 2147483648.0, -2147483648.0], np.float32)])


def _clipped(x: Value, low: float, high: float) -> Value:
    """x between two numbers; the lower one where x is NaN."""
    x = OPS.where(OPS.greater(x, low), x, low)
    return OPS.where(OPS.less(x, high), x, high)


def _job(low: float, high: float, dtype: str, x: np.ndarray = NUMBERS) -> Job:
    left = leaf("input", "x", x.shape, "float32")
    y = OPS.cast(OPS.round(_clipped(left, low, high)), dtype)
    return Job(Graph({"y": y}), {left: x})


def _converts(job: Job) -> bool:
    """Whether a kernel converts floats to integers."""
    return any(i.opcode == "cast" and i.args[0].dtype.is_float
               for s in plan_of(job.alone("j"), WIDE)[0].steps for i in s.kernel.body)


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (-120.0, 135.0, "int32"), (0.0, 255.0, "uint8"), (-128.0, 127.0, "int8"),
    (-4194304.0, 4194304.0, "int32"), (-3.25, 2.5, "int32"), (0.0, 65535.0, "uint16")])
def test_known_ranges_take_an_addition(low: float, high: float, dtype: str) -> None:
    job, wanted = _job(low, high, dtype), np.rint(NUMBERS.clip(low, high)).astype(dtype)
    assert not _converts(job)
    for level in HERE:
        np.testing.assert_array_equal(compiled(job, level)[0], wanted)
    for limits in (NARROW, WIDE):
        np.testing.assert_array_equal(interpreted(job, limits)[0], wanted)


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (-4194305.0, 0.0, "int32"), (0.0, 8388608.0, "int32"), (-1.0, 255.0, "uint8"),
    (0.0, 256.0, "uint8"), (0.0, np.inf, "int32")])
def test_other_ranges_are_converted(low: float, high: float, dtype: str) -> None:
    info, job = np.iinfo(dtype), _job(low, high, dtype)
    wanted = np.rint(NUMBERS.astype(np.float64).clip(low, high)).clip(info.min, info.max)
    assert _converts(job)
    np.testing.assert_array_equal(compiled(job, HERE[-1])[0], wanted.astype(dtype))


def test_nan_becomes_the_lower_end() -> None:
    x = np.array([np.nan, 3.0, -np.nan, 300.0] * 9, np.float32)
    for level in HERE:
        np.testing.assert_array_equal(compiled(_job(-7.0, 255.0, "int32", x), level)[0],
                                      np.array([-7, 3, -7, 255] * 9))


def test_clipped_nan_is_no_number() -> None:
    """`clip` leaves NaN as it is, which a conversion takes to zero."""
    x = np.array([np.nan, 3.5, -300.0] * 7, np.float32)
    left = leaf("input", "x", x.shape, "float32")
    job = Job(Graph({"y": OPS.cast(OPS.round(OPS.clip(left, 5.0, 255.0)), "int32")}), {left: x})
    assert _converts(job)
    np.testing.assert_array_equal(compiled(job, HERE[-1])[0], np.array([0, 5, 5] * 7))
