"""Single calls of cuDNN on a pretended CUDA device: their tensors, the engines that are taken, and errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_smoke
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda
from tests.machines.fake_cudnn import (
    FORWARD,
    IMAGE_GRADIENT,
    FakeCudnn,
    forward_of,
)
from ztorch.backends import cudnn, registry
from ztorch.backends.cudnn_convolutions import ConvolutionCall, LoadedConvolution
from ztorch.dtypes import DType, bf16, f16, from_storage, to_storage
from ztorch.errors import DeviceError
from ztorch.runtime.devices import devices

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
EXACT = 3  # the engine without a numerical note


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)
    cudnn.cudnn.cache_clear()


@pytest.fixture
def library(driver: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    return FakeCudnn(tmp_path, driver, monkeypatch)


CALL = ConvolutionCall(y=(2, 4, 3, 3), x=(2, 3, 5, 5), w=(4, 3, 3, 3), y_pitches=(40, 1, 12, 4), x_pitches=(80, 1, 15, 3),
                       w_pitches=(1, 4, 36, 12), strides=(1, 1), dilations=(1, 1), before=(0, 0), after=(0, 0),
                       mirrored=False, swapped=False, starts=(16, 64, 0), dtypes=("f32", "f32"), mantissa_bits=23,
                       transforms=True, places=(0, 1, 2))


def lying(memory: np.ndarray, start: int, extents: tuple[int, ...], pitches: tuple[int, ...]) -> np.ndarray:
    """The elements of a tensor in a buffer."""
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory[start // size:], extents, [size * p for p in pitches])


def run(call: ConvolutionCall, arrays: list[np.ndarray]) -> np.ndarray:
    """What a convolution leaves in the first of three buffers."""
    device: Any = registry.open_device("cuda")
    buffers = [device.alloc(x.nbytes) for x in arrays]
    for x, buffer in zip(arrays, buffers, strict=True):
        device.write(buffer, x)
    opened = cudnn.cudnn()
    assert opened is not None
    addresses = tuple(int(x.handle) for x in buffers)
    with device._current():
        handle = opened.handle()
        loaded = LoadedConvolution(opened, handle, call)
        workspace = device._alloc(loaded.workspace)
        loaded.enqueue(addresses, int(device._queue), workspace)
        device.synchronize()
        loaded.close()
        device._free(workspace)
        opened.call("Destroy", handle)
    result = np.empty_like(arrays[0])
    device.read(buffers[0], result)
    return result


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("border", [0, 1, 3])
def test_places_borders_and_windows(driver: FakeCuda, library: FakeCudnn, mirrored: bool, border: int) -> None:
    """Tensors in the middle of buffers. A mirrored window over wider borders than a gradient has stays a convolution."""
    side = 3 + 2 * border
    call = CALL._replace(y=(2, 4, side, side), y_pitches=(4 * side * side + 4, 1, 4 * side, 4), mirrored=mirrored,
                         before=(border,) * 2, after=(border,) * 2)
    r = np.random.default_rng(0)
    arrays = [r.normal(size=n).astype(np.float32) for n in (900, 200, 120)]
    result = run(call, arrays)
    assert library.convolutions == [(IMAGE_GRADIENT if mirrored and border < 3 else FORWARD, EXACT)]
    assert library.live == 0 and library.copies == 1
    w = lying(arrays[2], 0, call.w, call.w_pitches).astype(np.float64)
    expected = forward_of(lying(arrays[1], 64, call.x, call.x_pitches), np.flip(w, (2, 3)) if mirrored else w,
                          call.strides, call.dilations, call.before, call.after)
    np.testing.assert_allclose(lying(result, 16, call.y, call.y_pitches), expected, rtol=1e-4, atol=1e-5)
    assert (result != arrays[0]).sum() == expected.size


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("mirrored", [False, True])
def test_halves(driver: FakeCuda, library: FakeCudnn, dtype: DType, mirrored: bool) -> None:
    """By the first engine that does not round operands, and has the same bits in each run; it uses tensor cores."""
    call = CALL._replace(dtypes=("f32", dtype.name), mirrored=mirrored)
    r = np.random.default_rng(0)
    x, w = (to_storage(dtype, r.normal(size=n)) for n in (200, 120))
    result = run(call, [np.zeros(200, np.float32), x, w])
    assert library.convolutions == [(IMAGE_GRADIENT if mirrored else FORWARD, 2)]
    images, filters = (from_storage(dtype, lying(a, start, extents, pitches)).astype(np.float64) for a, start, extents, pitches
                       in ((x, 64, call.x, call.x_pitches), (w, 0, call.w, call.w_pitches)))
    expected = forward_of(images, np.flip(filters, (2, 3)) if mirrored else filters, (1, 1), (1, 1), (0, 0), (0, 0))
    np.testing.assert_allclose(lying(result, 16, call.y, call.y_pitches), expected, rtol=1e-5, atol=1e-5)


def test_filters_whose_layout_is_refused_are_copied(driver: FakeCuda, library: FakeCudnn) -> None:
    library.refuse_layouts()
    r = np.random.default_rng(0)
    arrays = [r.normal(size=n).astype(np.float32) for n in (200, 200, 120)]
    result = run(CALL, arrays)
    assert library.convolutions == [(FORWARD, EXACT)] and library.copies == 1 and library.live == 0
    expected = forward_of(lying(arrays[1], 64, CALL.x, CALL.x_pitches),
                          lying(arrays[2], 0, CALL.w, CALL.w_pitches).astype(np.float64), (1, 1), (1, 1), (0, 0), (0, 0))
    np.testing.assert_allclose(lying(result, 16, CALL.y, CALL.y_pitches), expected, rtol=1e-4, atol=1e-5)


def test_objects_are_given_back_after_errors(driver: FakeCuda, library: FakeCudnn) -> None:
    device: Any = registry.open_device("cuda")
    with device._current():
        opened = cudnn.cudnn()
        assert opened is not None
        handle = opened.handle()
        for wrong, words in (({"w": (4, 2, 3, 3)}, "BackendFinalize: status 2008"),
                             ({"x_pitches": (75, 0, 15, 3)}, "BackendFinalize: status 2000"),
                             ({"after": (0, 5)}, "BackendFinalize: status 2008"),
                             ({"dtypes": ("f64", "f64")}, "has no convolutions of f64"),
                             ({"mantissa_bits": 20}, "with 20 bits")):
            with pytest.raises(DeviceError, match=words):
                LoadedConvolution(opened, handle, CALL._replace(**wrong))
        library.fail(EXACT)
        with pytest.raises(DeviceError, match=r"cuDNN 9\.28\.1 has no engine for images"):
            LoadedConvolution(opened, handle, CALL._replace(transforms=False))
        assert library.live == 1  # the handle
        LoadedConvolution(opened, handle, CALL).close()  # by an engine with transforms
        LoadedConvolution(opened, handle, CALL._replace(mantissa_bits=10)).close()  # by another engine
        opened.call("Destroy", handle)
    assert library.live == 0


def test_smoke_of_a_device_convolves_by_it(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    [d] = [d for d in devices() if d.id == "cuda:0"]
    monkeypatch.setattr(gpu_smoke, "GPU_SIDE", 8 * 16)
    some = [step for step in gpu_smoke.steps(d) if "by cudnn" in step.name]
    assert len(some) == 3
    monkeypatch.setattr(gpu_smoke, "steps", lambda d: some)
    assert gpu_smoke.smoke([d]) == 0
    output = capsys.readouterr().out
    assert output.count("ok") == 3 == output.count("by cudnn, in a graph: error")
    assert {*library.convolutions} == {(FORWARD, EXACT), (FORWARD, 2)}
