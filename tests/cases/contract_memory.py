"""The contract of every backend for its devices and their memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ztorch.ops  # noqa: F401  (registers them)
from tests.cases.available import device, fresh
from tests.cases.doubled import every
from ztorch.backends import registry
from ztorch.backends.handles import KernelEntry
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host.memory import aligned

# -- life ------------------------------------------------------------------------------------------


@every
def test_opening_and_closing_twice_is_harmless(name: str) -> None:
    one, other = fresh(name), fresh(name)
    one.close()
    one.close()
    assert one.closed and not other.closed
    buffer = other.alloc(64)  # another's end is not ours
    other.write(buffer, np.arange(16, dtype=np.int32))
    other.close()


@every
def test_one_device_is_shared_until_it_is_closed(name: str) -> None:
    device(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_opened", {})
        first = registry.open_device(name)
        assert registry.open_device(name) is first and registry.open_device(name, first.info.ordinal) is first
        first.close()
        with registry.open_device(name) as again:
            assert again is not first and registry.open_device(name) is again
            again.free(again.alloc(64))


@every
def test_nothing_works_after_closing(name: str) -> None:
    d = fresh(name)
    buffer = d.alloc(64)
    d.close()
    for use in (lambda: d.alloc(64), lambda: d.free(buffer), lambda: d.synchronize(),
                lambda: d.write(buffer, np.zeros(4)), lambda: d.read(buffer, np.zeros(4)),
                lambda: d.load(b"x", [KernelEntry("x", 0, 1, (1, 1, 1))]), lambda: d.memory()):
        with pytest.raises(DeviceError, match=f"{name}:0 is closed"):
            use()


@every
def test_a_freed_buffer_is_gone(name: str) -> None:
    with fresh(name) as d:
        buffer = d.alloc(64)
        d.free(buffer)
        for use in (lambda: d.free(buffer), lambda: d.write(buffer, np.zeros(4)),
                    lambda: d.read(buffer, np.zeros(4))):
            with pytest.raises(DeviceError, match="64 bytes was freed"):
                use()


@every
def test_a_buffer_of_another_device_is_refused(name: str) -> None:
    with fresh(name) as d, fresh(name) as other:
        buffer = d.alloc(64)
        with pytest.raises(DeviceError, match="belongs to"):
            other.read(buffer, np.zeros(4))


# -- memory ----------------------------------------------------------------------------------------


@every
def test_bytes_come_back(name: str) -> None:
    rng = np.random.default_rng(0)
    d = device(name)
    buffer = d.alloc(100_000)
    whole = rng.integers(0, 256, 100_000).astype(np.uint8)
    d.write(buffer, whole)
    for at, size in ((0, 100_000), (0, 4), (4, 64), (65_532, 20), (99_996, 4)):
        part = rng.integers(0, 256, size).astype(np.uint8)
        whole[at:at + size] = part
        d.write(buffer, part, at)
        out = np.empty(100_000, np.uint8)
        d.read(buffer, out)
        np.testing.assert_array_equal(out, whole)
        out = np.empty(size, np.uint8)
        d.read(buffer, out, at)
        np.testing.assert_array_equal(out, part)
    d.free(buffer)


@every
def test_copies_on_the_device(name: str) -> None:
    d = device(name)
    source, target = d.alloc(1024), d.alloc(1024)
    numbers = np.arange(256, dtype=np.int32)
    d.write(source, numbers)
    d.write(target, np.zeros(256, np.int32))
    d.copy(source, target, 256, source_at=512, target_at=256)
    out = np.empty(256, np.int32)
    d.read(target, out)
    want = np.zeros(256, np.int32)
    want[64:128] = numbers[128:192]
    np.testing.assert_array_equal(out, want)
    d.copy(source, source, 256, 0, 512)
    d.read(source, out)
    np.testing.assert_array_equal(out[128:192], numbers[:64])
    d.copy(source, source, 256, 256, 512)  # the two ranges touch
    d.read(source, out)
    np.testing.assert_array_equal(out[128:192], numbers[64:128])
    with pytest.raises(DeviceError, match="ranges overlap"):
        d.copy(source, source, 256, 0, 128)
    d.free(source)
    d.free(target)


@every
def test_memory_that_is_shared_with_the_host(name: str) -> None:
    """A device that has separate memory gives None."""
    d, block = device(name), aligned(1 << 16)
    block[:] = np.random.default_rng(0).integers(0, 256, block.size)
    kept, adopted = block.copy(), d.adopt(block)
    assert d.adopt(block[1:]) is None and d.adopt(block[:0]) is None
    buffer = adopted or d.alloc(block.size)
    if adopted is None:
        d.write(buffer, block)
    out = np.empty(1000, np.uint8)
    d.read(buffer, out, 100)
    np.testing.assert_array_equal(out, kept[100:1100])
    seen = d.host_view(buffer, 1000)
    assert seen is not None or adopted is None
    if seen is not None:
        np.testing.assert_array_equal(seen, kept[:1000])
        assert np.shares_memory(seen, block) == (adopted is not None)
    d.free(buffer)
    np.testing.assert_array_equal(block, kept)
    if seen is not None:  # it stays
        np.testing.assert_array_equal(seen, kept[:1000])
    with pytest.raises(DeviceError, match="was freed"):
        d.host_view(buffer, 10)


@every
def test_bytes_outside_a_buffer_are_refused(name: str) -> None:
    d = device(name)
    buffer = d.alloc(64)
    for at, size in ((-4, 8), (60, 8), (64, 4), (0, 128)):
        for use in (d.write, d.read):
            with pytest.raises(DeviceError, match="outside a buffer of 64"):
                use(buffer, np.zeros(size, np.uint8), at)
    d.free(buffer)


@every
def test_a_buffer_has_bytes(name: str) -> None:
    for nbytes in (0, -1):
        with pytest.raises(DeviceError, match="at least one"):
            device(name).alloc(nbytes)


@every
def test_out_of_memory_is_an_error_and_no_more(name: str) -> None:
    d = device(name)
    with pytest.raises(OutOfMemory, match=name):
        d.alloc(1 << 45)
    buffer = d.alloc(64)
    d.write(buffer, np.arange(16, dtype=np.int32))
    d.free(buffer)


@every
def test_nothing_leaks(name: str) -> None:
    d = device(name)
    gc.collect()
    before, lost = d.allocated, []
    for _ in range(5):  # a leak loses 200 MiB every time; free memory also moves with others' work
        free = d.memory()[0]
        for _ in range(50):
            buffers = [d.alloc(1 << 20) for _ in range(4)]
            assert d.allocated == before + (4 << 20)
            for b in buffers:
                d.free(b)
        assert d.allocated == before
        lost.append(free - d.memory()[0])
        if lost[-1] <= 64 << 20:
            return
    raise AssertionError(f"free memory fell every time, in bytes: {lost}")
