"""cuDNN without a GPU: a library in C that checks every call, and convolves in the memory of a pretended driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.machines.compiled_c import library_of
from tests.machines.fake_cuda import FakeCuda
from ztorch.backends import cudnn
from ztorch.dtypes import DType, bf16, f16, f32, from_storage, to_storage

TYPES = {0: f32, 2: f16, 9: bf16}
FORWARD, FILTER_GRADIENT, IMAGE_GRADIENT = 10, 11, 12
MOST = 8  # axes
_axes = ctypes.c_int64 * MOST


class Convolution(ctypes.Structure):
    """What the library in C tells of a convolution."""

    _fields_ = (*((n, ctypes.c_int) for n in ("operation", "engine", "mirrored", "axes", "type", "result")),
                *((n, _axes) for n in ("x", "w", "y", "xs", "ws", "ys", "strides", "dilations", "before", "after")),
                *((n, ctypes.c_uint64) for n in ("px", "pw", "py", "workspace", "bytes", "stream")))


class Copy(ctypes.Structure):
    """What the library in C tells of a copy."""

    _fields_ = (("axes", ctypes.c_int), ("type", ctypes.c_int), *((n, _axes) for n in ("extents", "start", "to")),
                *((n, ctypes.c_uint64) for n in ("source", "target", "stream")))


class FakeCudnn:
    """The library, in place of NVIDIA's.

    Args:
        folder: Where it is compiled to.
        driver: The pretended driver.
        monkeypatch: Makes it the one that is found.
    """

    def __init__(self, folder: Path, driver: FakeCuda, monkeypatch: pytest.MonkeyPatch):
        path = folder / "libcudnn.so"
        path.write_bytes(library_of(Path(__file__).with_name("pretended_cudnn.c")))
        self.driver, self.library = driver, ctypes.CDLL(str(path))
        self.convolutions: list[tuple[int, int]] = []  # the operation and the engine of each
        self.copies = 0
        self._functions = (ctypes.CFUNCTYPE(None, ctypes.POINTER(Convolution))(self._convolve),
                           ctypes.CFUNCTYPE(None, ctypes.POINTER(Copy))(self._copy))
        self.library.pretended_functions(*self._functions)
        monkeypatch.setattr(cudnn, "_paths", lambda: iter([str(path)]))
        cudnn.cudnn.cache_clear()

    @property
    def live(self) -> int:
        """Objects that were not given back."""
        return int(self.library.pretended_live())

    def refuse(self, how: bool) -> None:
        self.library.pretended_refuses(int(how))

    def refuse_layouts(self) -> None:
        """Operations on filters that engines do not read are refused as such."""
        self.library.pretended_refuses_layouts(1)

    def read_any_filters(self, how: bool) -> None:
        """Whether engines read filters whose channels are not contiguous."""
        self.library.pretended_reads_any(int(how))

    def fail(self, engine: int) -> None:
        """An engine that has no plan after all."""
        self.library.pretended_failing(engine)

    def _tensor(self, address: int, d: DType, extents: Sequence[int], pitches: Sequence[int]) -> np.ndarray:
        """A view of the elements of a tensor in the memory of the device."""
        reach = 1 + sum((n - 1) * p for n, p in zip(extents, pitches, strict=True))
        data = self.driver.bytes_at(address, reach * d.bytes).view(d.numpy)
        return np.lib.stride_tricks.as_strided(data, extents, [p * d.bytes for p in pitches])

    def _convolve(self, pointer: Any) -> None:
        """Submits the convolution to its stream."""
        c = Convolution.from_buffer_copy(pointer.contents)
        assert self.driver.stack, "without a context"
        self.convolutions.append((c.operation, c.engine))
        axes = c.axes + 2
        steps = [[*numbers][:c.axes] for numbers in (c.strides, c.dilations, c.before, c.after)]
        result = {FORWARD: 2, FILTER_GRADIENT: 1, IMAGE_GRADIENT: 0}[c.operation]  # of x, w and y

        def work() -> None:
            of, into = TYPES[c.type], TYPES[c.result]
            tensors = [self._tensor(p, into if k == result else of, [*n][:axes], [*s][:axes]) for k, (p, n, s) in enumerate((
                (c.px, c.x, c.xs), (c.pw, c.w, c.ws), (c.py, c.y, c.ys)))]
            x, w, y = (from_storage(of, t).astype(np.float64) if k != result else t for k, t in enumerate(tensors))
            if c.mirrored:
                w = np.flip(w, tuple(range(2, axes)))
            self.driver.bytes_at(c.workspace, c.bytes)[...] = 0xff
            tensors[result][...] = to_storage(into, (
                forward_of(x, w, *steps) if c.operation == FORWARD else image_gradient_of(y, w, x.shape, *steps)
                if c.operation == IMAGE_GRADIENT else filter_gradient_of(x, y, w.shape, *steps)))
        self.driver.enqueue(c.stream, work)

    def _copy(self, pointer: Any) -> None:
        c = Copy.from_buffer_copy(pointer.contents)
        self.copies += 1

        def work() -> None:
            source, target = (self._tensor(p, TYPES[c.type], [*c.extents][:c.axes], [*s][:c.axes])
                              for p, s in ((c.source, c.start), (c.target, c.to)))
            target[...] = source
        self.driver.enqueue(c.stream, work)


def _windows(shape: Sequence[int], w: np.ndarray, strides: Any, dilations: Any, positions: Any) -> Any:
    """Each place of a window, and the elements of padded images that it is over."""
    for place in np.ndindex(w.shape[2:]):
        yield place, (slice(None), slice(None), *(
            slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilations, positions, strides, strict=True)))


def _all_but(window: Any) -> tuple[Any, ...]:
    """An index of the axes of a window, and all along the two before."""
    return slice(None), slice(None), *window


def forward_of(x: np.ndarray, w: np.ndarray, strides: Any, dilations: Any, before: Any, after: Any) -> np.ndarray:
    """Images (n, c, ...) convolved with filters (k, c, ...), in float64."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(before, after, strict=True)])
    positions = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(
        x.shape[2:], w.shape[2:], dilations, strides, strict=True)]
    y = np.zeros((len(x), len(w), *positions))
    for place, over in _windows(x.shape, w, strides, dilations, positions):
        taps = w[_all_but(place)]
        y += np.moveaxis(np.moveaxis(x[over], 1, -1) @ taps.T, -1, 1)
    return y


def image_gradient_of(y: np.ndarray, w: np.ndarray, shape: Sequence[int], strides: Any, dilations: Any, before: Any,
                after: Any) -> np.ndarray:
    """The gradient of images of a shape from that of results, in float64."""
    padded = np.zeros([*shape[:2], *(n + a + b for n, a, b in zip(shape[2:], before, after, strict=True))])
    for place, over in _windows(padded.shape, w, strides, dilations, y.shape[2:]):
        taps = w[_all_but(place)]
        padded[over] += np.moveaxis(np.moveaxis(y.astype(np.float64), 1, -1) @ taps, -1, 1)
    return padded[_all_but(slice(a, a + n) for a, n in zip(before, shape[2:], strict=True))]


def filter_gradient_of(x: np.ndarray, y: np.ndarray, shape: Sequence[int], strides: Any, dilations: Any, before: Any,
                       after: Any) -> np.ndarray:
    """The gradient of filters of a shape from images and the gradient of results, in float64."""
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    w, summed = np.zeros(shape), (0, *range(2, x.ndim))
    for place, over in _windows(x.shape, w, strides, dilations, y.shape[2:]):
        w[_all_but(place)] = np.tensordot(y, x[over], (summed, summed))
    return w
