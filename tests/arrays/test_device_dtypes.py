"""Dtypes that a device lacks are told at the line that makes a tensor or records an op."""

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
from ztorch.errors import ConfigError, Unsupported

MAKING: list[tuple[str, str, Callable[[], Any]]] = [
    ("hold a tensor", "int64", lambda: zt.tensor([1, 2, 3])),
    ("hold a tensor", "float64", lambda: zt.asarray(np.ones(3))),
    ("do arange", "int64", lambda: zt.arange(3)),
    ("do full", "float64", lambda: zt.zeros((2, 2), "float64")),
    ("do cast", "int64", lambda: zt.ones(3).astype("int64")),
    ("do sum", "int64", lambda: (zt.ones(3) > 0).sum()),
    ("do mean", "float64", lambda: zt.ones(3, "int32").mean())]


@pytest.mark.parametrize(("purpose", "dtype", "make"), MAKING, ids=[m[0] for m in MAKING])
def test_the_line_of_a_lacking_dtype_raises(purpose: str, dtype: str,
                                            make: Callable[[], Any]) -> None:
    available("webgpu")
    with zt.device("webgpu:0"), pytest.raises(
            Unsupported, match=rf"^backend webgpu:0 cannot {purpose} of {dtype}: webgpu has no"):
        make()  # not realized


def test_the_error_for_default_integers_names_a_fix() -> None:
    available("webgpu")
    with zt.device("webgpu:0"):
        order = zt.permutation(9, seed=1, dtype="int32")
        drawn = zt.randint(3, 7, (5,), dtype="int32", seed=1)
    np.testing.assert_array_equal(order.numpy(), zt.permutation(9, seed=1, device="cpu").numpy())
    np.testing.assert_array_equal(drawn.numpy(), zt.randint(3, 7, (5,), seed=1, device="cpu").numpy())
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
