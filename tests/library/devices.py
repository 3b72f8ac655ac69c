"""Arrays on the devices that the routines are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device
from ztorch.library.buffers import Strided, span
from ztorch.library.device_library import DeviceLibrary

DEVICES = ("cpu", "opencl:0", "vulkan:0", "webgpu:0")


def library(name: str) -> DeviceLibrary:
    """The object of a device; a skip where the device is not here."""
    if name != "cpu":
        device(name.partition(":")[0])
    result: DeviceLibrary = zt.backends.get(name)
    return result


class Operand:
    """An array with gaps in a buffer of a device: NaN (or -7) before, between and after its elements."""

    def __init__(self, own: DeviceLibrary, array: Any, strides: Sequence[int] | None = None,
                 offset: int = 0, dtype: str | None = None):
        array = np.asarray(array)
        self.own, self.shape = own, array.shape
        strides = strides or tuple(s // array.itemsize for s in np.array(array, order="C").strides)
        self.strides, self.offset, self.kind = tuple(strides), offset, array.dtype
        size = offset + span(self.shape, self.strides) + 3
        self.filler = np.nan if array.dtype.kind == "f" else array.dtype.type(1) if array.dtype.kind == "b" else 7
        self.before = np.full(size, self.filler, array.dtype)
        self.places(self.before)[...] = array
        self.buffer = own.alloc(self.before.nbytes)
        own.upload(self.buffer, self.before)
        self.tensor: Strided = self.buffer.tensor(self.shape, dtype or array.dtype.name, self.strides,
                                                  offset * array.itemsize)

    @property
    def start(self) -> Any:
        return self.buffer.at(self.offset * self.kind.itemsize)

    def places(self, flat: np.ndarray) -> np.ndarray:
        """The elements in a flat array, as a view."""
        return np.lib.stride_tricks.as_strided(
            flat[self.offset:], self.shape, [s * flat.itemsize for s in self.strides])

    def now(self) -> np.ndarray:
        """The elements; the bytes between them must be unchanged."""
        flat = np.empty_like(self.before)
        self.own.download(self.buffer, flat)
        result, rest = self.places(flat).copy(), flat.copy()
        self.places(rest)[...] = self.places(self.before)
        np.testing.assert_array_equal(rest, self.before)
        return result


def close(got: np.ndarray, want: Any, terms: int = 1) -> None:
    """Floats within a few roundings of a sum of terms; everything else equal."""
    assert got.shape == np.shape(want)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    size = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0,
                               atol=float(np.finfo(got.dtype).eps) * (8 + 2 * terms) * size)


sampled = pytest.mark.parametrize("name", DEVICES)
