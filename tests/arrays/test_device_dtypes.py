"""Dtypes that a device lacks: an error at the line that asks for one, and 32 bits where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device as available
from ztorch.arrays import device_dtypes
from ztorch.arrays.memory import memory
from ztorch.backends.vulkan_devices import FEATURES
from ztorch.dtypes import f16, f64, i32, i64
from ztorch.errors import ConfigError, DataError, Unsupported

MAKING: list[tuple[str, str, Callable[[], Any]]] = [
    ("hold a tensor", "int64", lambda: zt.tensor([1, 2, 3], "int64")),
    ("hold a tensor", "float64", lambda: zt.asarray(np.ones(3))),
    ("do arange", "int64", lambda: zt.arange(3, dtype="int64")),
    ("do full", "float64", lambda: zt.zeros((2, 2), "float64")),
    ("do random_normal", "float64", lambda: zt.randn(3, dtype="float64")),
    ("do cast", "int64", lambda: zt.ones(3).astype("int64")),
    ("do mean", "float64", lambda: zt.ones(3, "int32").mean()),
    ("hold a tensor", "int64", lambda: zt.ones(3, "int32") + np.int64(1))]

# Nothing in these names a dtype: a device without 64 bits computes them in 32.
UNNAMED: list[Callable[[], Any]] = [
    lambda: zt.tensor([1, 2, 3]), lambda: zt.tensor(3) + 1, lambda: zt.arange(3),
    lambda: zt.full((2,), 3), lambda: zt.randint(3, 7, (5,), seed=1),
    lambda: zt.permutation(9, seed=1), lambda: (zt.ones(3) > 0).sum(),
    lambda: zt.ops.cumsum(zt.ones(3) > 0),
    lambda: zt.tensor([1, 4], "int32") + 0.5, lambda: zt.ops.sqrt(zt.tensor([1, 4], "int32")),
    lambda: zt.arange(4)[np.array([0, 2])], lambda: zt.arange(4)[[3, -1]],
    lambda: zt.ops.take(zt.arange(4), np.array([0, 2])),
    lambda: zt.ops.one_hot(np.array([0, 2]), 3) + zt.zeros(3)]


@pytest.mark.parametrize(("purpose", "dtype", "make"), MAKING, ids=[m[0] for m in MAKING])
def test_the_line_of_a_lacking_dtype_raises(purpose: str, dtype: str,
                                            make: Callable[[], Any]) -> None:
    available("webgpu")
    with zt.device("webgpu:0"), pytest.raises(
            Unsupported, match=rf"^backend webgpu:0 cannot {purpose} of {dtype}: webgpu has no"):
        make()  # not realized


@pytest.mark.parametrize("make", UNNAMED)
def test_dtypes_that_nobody_named_are_those_of_the_device(make: Callable[[], Any]) -> None:
    available("webgpu")
    with zt.device("webgpu:0"):
        there = make()
    here = make()
    assert there.dtype.bits == 32 and there.dtype.is_float == here.dtype.is_float
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-6)


def test_numbers_that_the_dtype_of_the_device_cannot_hold() -> None:
    available("webgpu")
    with zt.device("webgpu:0"):
        with pytest.raises(DataError, match="a tensor's data has numbers that int32 cannot hold"):
            zt.tensor([1, 1 << 31])
        with pytest.raises(ConfigError, match="int32 cannot hold all integers from 0 to 2999999999"):
            zt.randint(0, 3_000_000_000)
        for _ in range(2):  # not by a call that was recorded either
            assert zt.ops.one_hot(np.array([1, 2]), 3).sum().item() == 2
            with pytest.raises(DataError, match="one_hot: x has numbers that int32 cannot"):
                zt.ops.one_hot(np.array([1, 1 << 32]), 3)


def test_arguments_of_random_integers_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"x\[zt.permutation\(len\(x\)\)\]"):
        zt.permutation(zt.arange(3))
    with pytest.raises(ConfigError, match=r"randint\(0, 10, \(3,\)\), not the bounds"):
        zt.randint(10, (3,))


def test_the_driver_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    available("vulkan")
    device_dtypes.need_dtype("vulkan:0", f64, "do exp")
    physical = memory("vulkan:0").device._pipelines._physical
    lacking = {f.capability for f in FEATURES if "Float64" in f.field}
    assert lacking
    monkeypatch.setattr(physical, "capabilities", physical.capabilities - lacking)
    monkeypatch.setattr(device_dtypes, "_lack", device_dtypes._lack.__wrapped__)
    for d in (i64, f16):
        device_dtypes.need_dtype("vulkan:0", d, "do exp")
    with pytest.raises(Unsupported, match=r"^backend vulkan:0 cannot do exp of float64: vulkan:0 "):
        device_dtypes.need_dtype("vulkan:0", f64, "do exp")


def test_each_dtype_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    available("webgpu")
    tried: list[Any] = []
    monkeypatch.setattr(device_dtypes, "build", lambda *args: tried.append(args))
    device_dtypes._lack.cache_clear()
    try:
        for _ in range(3):
            device_dtypes.need_dtype("webgpu:0", i64, "do exp")
            device_dtypes.need_dtype("webgpu:0", i32, "do exp")  # every device has it
            device_dtypes.need_dtype("cpu", i64, "do exp")
        assert len(tried) == 1
    finally:
        device_dtypes._lack.cache_clear()
