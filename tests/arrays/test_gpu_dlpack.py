"""Memory of a GPU between libraries, by DLPack: on a pretended device, whose addresses can be
compared."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.pretended_cuda import close, install
from ztorch.arrays import dlpack as ours
from ztorch.arrays import placement
from ztorch.arrays.memory import memory
from ztorch.backends import dlpack
from ztorch.errors import ConfigError, DataError, DeviceError, Unsupported

A = np.arange(6, dtype=np.float32).reshape(2, 3)


class Theirs:
    """An array of another library on a GPU: it lends what a tensor of ours lends, itself unless
    it is old or `copy` is None."""

    def __init__(self, x: zt.Tensor, change: Callable[[Any], None] = lambda t: None,
                 old: bool = False, copy: bool | None = False):
        self.x, self.change, self.old, self.copy = x, change, old, copy
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        if self.old and more:
            raise TypeError("from before version 1")
        self.streams.append(stream)
        capsule = self.x.__dlpack__(stream=stream, copy=None if self.old else self.copy, **more)
        name = b"dltensor_versioned" if "versioned" in repr(capsule) else b"dltensor"
        self.change(dlpack._FORMS[name].from_address(dlpack._pointer(capsule, name)).tensor)
        return capsule


def owners() -> int:
    """How much is lent to somebody."""
    dlpack.free_unclaimed()
    gc.collect()
    return sum(isinstance(x, dlpack._Holder) for x in gc.get_objects())


def address(x: zt.Tensor) -> int:
    block: Any = x.realize().node.block
    handle: int = block.handle.handle
    return handle


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fake = install(monkeypatch)
    with zt.device("cpu"):  # "auto" is not asked while this GPU is here
        yield
    placement._memory_of.cache_clear()
    try:
        assert not owners(), "something was lent and never given back"
    finally:
        close(fake)  # the next test opens its own device


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", "bfloat16"])
def test_dlpack_in_both_directions_copies_nothing(dtype: str) -> None:
    x = zt.tensor(A, device="cuda:0").astype(dtype).realize()
    assert x.__dlpack_device__() == (2, 0)
    for old in (False, True):
        theirs = Theirs(x, old=old)
        back = zt.from_dlpack(theirs)
        assert (back.device, back.shape, str(back.dtype)) == ("cuda:0", (2, 3), str(x.dtype))
        assert (address(back) == address(x)) is not old and owners() == 1  # the old might write
        device: Any = memory("cuda:0")
        assert theirs.streams == [device.device.queue_address]
        np.testing.assert_array_equal(back.astype("float32").numpy(), x.astype("float32").numpy())
        del back
        assert not owners()


def test_exported_memory_outlives_its_tensor() -> None:
    x = zt.tensor(A, device="cuda:0")
    back = zt.asarray(Theirs(x), copy=False)
    del x
    gc.collect()
    others = [zt.zeros((2, 3), device="cuda:0").realize() for _ in range(3)]
    np.testing.assert_array_equal((back + 1.0).numpy(), A + 1)
    np.testing.assert_array_equal((others[0] + Theirs(back)).numpy(), A)
    copied = zt.tensor(Theirs(back))
    assert address(copied) != address(back) and copied.device == "cuda:0"
    np.testing.assert_array_equal(copied.numpy(), A)
    np.testing.assert_array_equal(zt.tensor(Theirs(back), device="cpu").numpy(), A)


def test_rules_of_streams_and_devices() -> None:
    x = zt.tensor(A, device="cuda:0")
    for stream in (0, -2, "default", 1.5):
        with pytest.raises(BufferError, match="not a stream of cuda"):
            x.__dlpack__(stream=stream)
    for stream in (None, -1, 1, 2, 77):
        assert '"dltensor"' in repr(x.__dlpack__(stream=stream))  # nobody takes it
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 2)))
    assert address(zt.from_dlpack(Theirs(x, copy=None))) != address(x)  # a copy is its own
    with pytest.raises(BufferError, match="not to DLPack's device"):
        x.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="copied to the CPU"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), A)  # a copy, asked for
    with pytest.raises(Exception, match="Unsupported device"):  # it drops the capsule
        np.from_dlpack(x)


def test_what_cannot_be_borrowed_is_named() -> None:
    x = zt.tensor(A, device="cuda:0")

    def turned(t: Any) -> None:
        t.strides[0], t.strides[1] = 1, 2

    def complex_numbers(t: Any) -> None:
        t.code, t.bits = 5, 64

    with pytest.raises(DataError, match="is on cuda:0, but not in C order"):
        zt.from_dlpack(Theirs(x, turned))
    with pytest.raises(Unsupported, match="DLPack's type 5 with 64 bits"):
        zt.from_dlpack(Theirs(x, complex_numbers))
    with pytest.raises(DataError, match=r"use .astype\('float64'\)"):
        zt.tensor(Theirs(x), dtype="float64")
    with pytest.raises(ConfigError, match="cannot be shared"):
        zt.asarray(Theirs(x), device="cpu", copy=False)
    with pytest.raises(DeviceError, match="DLPack lends no memory of vulkan:0"):
        ours.device_of("vulkan:0")
