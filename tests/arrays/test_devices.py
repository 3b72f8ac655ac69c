"""Tensors on every device: their memory, computation, copies, and the choice of the device."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device as available
from ztorch import ops, optimizers
from ztorch.arrays import memory, programs, random
from ztorch.arrays.elements import LENT_BYTES
from ztorch.arrays.memory import DevicePool
from ztorch.backends import registry
from ztorch.backends.device import Device
from ztorch.errors import ConfigError, DeviceError
from ztorch.host.memory import aligned
from ztorch.runtime.remote import MAX_RECORDINGS

A = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)


@pytest.fixture(scope="module", params=["opencl:0", "vulkan:0", "webgpu:0"])
def device(request: pytest.FixtureRequest) -> str:
    """A device with separate memory."""
    name: str = request.param
    available(name.partition(":")[0])
    return name


# -- devices with separate memory ----------------------------------------------------------------


def test_dlpack_finds_memory_that_the_host_sees_on_the_cpu(device: str) -> None:
    for n in (10, 100_000):
        x = zt.tensor(np.arange(n, dtype=np.float32), device=device) + 1
        try:
            where = x.__dlpack_device__()
        except DeviceError as error:
            assert "lends no memory of" in str(error) and not device.startswith("opencl")
        else:
            assert where == (1, 0) and not device.startswith("webgpu")
            array = np.from_dlpack(x, copy=False)
            assert np.shares_memory(array, x.numpy()) and not array.flags.writeable
            assert not np.shares_memory(np.from_dlpack(x), x.numpy())
            np.testing.assert_array_equal(array, np.arange(1, n + 1))
        np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), np.arange(1, n + 1))


def test_round_trips(device: str) -> None:
    for dtype in ("float32", "int32", "bool"):
        a = A.astype(dtype)
        x = zt.tensor(a, device=device)
        assert x.device == device and x.dtype.long == dtype
        np.testing.assert_array_equal(x.numpy(), a, strict=True)
        assert not x.numpy().flags.writeable
    x = zt.tensor(A, device=device)
    assert x.to(device) is x and x.to(device, copy=True) is not x
    there = zt.tensor(A).to(device)
    assert there.device == device and there.to("cpu").device == "cpu"
    np.testing.assert_array_equal(there.to("cpu").numpy(), A)
    assert f"device='{device}'" in repr(x) and x[0, 1].item() == -2.0 and np.asarray(x).sum() == A.sum()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.device == device
        np.testing.assert_array_equal(y.numpy(), A)
    assert zt.tensor(np.zeros((0, 3), np.float32), device=device).numpy().shape == (0, 3)


def test_ops_stay_on_the_device(device: str, builds: list[str]) -> None:
    x = zt.tensor(A, device=device)
    for k in (1.0, 2.0, 3.0, 2.0):
        y = ops.maximum(x * k + A, 0.0) - 0.5  # an array beside it goes there
        assert y.device == device
        total = y.sum(axis=1)
        want = np.maximum(A * k + A, 0.0) - 0.5
        np.testing.assert_allclose(total.numpy(), want.sum(1), rtol=1e-6)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)
    assert len(builds) == 2


def test_many_realizations_keep_their_order(device: str) -> None:
    """Numbers, inputs and results of calls that are under way must not be overwritten."""
    x = zt.tensor(np.zeros(64, np.float32), device=device)
    kept = []
    for k in range(60):
        x = (x + float(k)).realize()
        kept.append(x)
    np.testing.assert_array_equal([t[0].item() for t in kept[:10]], np.cumsum(range(60))[:10])
    np.testing.assert_array_equal(x.numpy(), np.full(64, sum(range(60)), np.float32))


def test_functions_gradients_and_steps(device: str) -> None:
    w, x = zt.tensor([1.0, -1.0, 2.0], device=device), zt.tensor(A, device=device)
    optimizer = optimizers.SGD(0.5, momentum=0.9)

    @zt.compiled
    def step(w: Any, x: Any, k: Any) -> Any:
        value, slope = zt.value_and_grad(lambda w: ((x @ w) ** 2.0).mean() * k)(w)
        return optimizer.update(w, slope), value

    want, velocity = np.array([1.0, -1.0, 2.0]), np.zeros(3)
    for k in (0.1, 0.2, 0.01):
        w, value = step(w, x, k)
        assert w.device == value.device == device
        np.testing.assert_allclose(value.item(), ((A @ want) ** 2).mean() * k, rtol=1e-5)
        velocity = velocity * 0.9 - 0.5 * k * A.T @ (A @ want)
        want = want + velocity
        np.testing.assert_allclose(w.numpy(), want, rtol=1e-4)


@zt.kernel
def doubled(x):
    return x * 2.0


def test_a_kernel_on_a_device_takes_tensors_of_that_device(device: str) -> None:
    """It ran where the tensors were."""
    there = zt.tensor(A, device=device)
    assert doubled.on(device)(there).device == device
    with pytest.raises(DeviceError, match=f"kernel doubled: it is on cpu and x on {device}"):
        doubled.on("cpu")(there)
    with zt.allow_transfers():
        assert doubled.on("cpu")(there).device == "cpu"


def test_devices_do_not_mix_unless_allowed(device: str) -> None:
    here, there = zt.tensor(A), zt.tensor(A, device=device)
    for wrong, words in ((lambda: here + there, f"zt.ops.add: a is on cpu and b on {device}"),
                         (lambda: ops.concat([there, here]), rf"xs\[0\] is on {device}"),
                         (lambda: zt.compiled(lambda a, b: a + b)(here, there), "argument 0 is on cpu")):
        with pytest.raises(DeviceError, match=words) as caught:
            wrong()
        assert ".to(" in str(caught.value) and "allow_transfers" in str(caught.value)
    with zt.allow_transfers():
        assert (here + there).device == "cpu" and (there + here).device == device
        np.testing.assert_array_equal((there + here).numpy(), A + A)
    with pytest.raises(DeviceError):
        here + there
    with pytest.raises(DeviceError, match="update takes parameters and gradients on one device"):
        optimizers.SGD().update([here, there], [here, there])
    with pytest.raises(DeviceError, match="update takes parameters and gradients on one device"):
        optimizers.SGD().update([here], [there])


def test_a_device_block_sets_the_device_of_new_tensors(device: str) -> None:
    with zt.device(device):
        x = zt.tensor(A)
        assert x.device == zt.zeros(2).device == zt.full((), 2.5).device == zt.asarray(A).device == device
        assert (zt.tensor(A, device="cpu") * 2.0).device == "cpu"
        with zt.device("cpu"):
            assert zt.tensor(A).device == "cpu" and (x * 1.0).device == device
        assert zt.tensor(A).device == device
        assert isinstance(ops.exp(A), np.ndarray)
        np.testing.assert_allclose(ops.exp(A), np.exp(A), rtol=1e-5)
    assert zt.tensor(A).device == "cpu" and (x * 1.0).device == device


def test_kernels_read_and_write_the_tensors_own_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (zt.tensor(A + k, device=device) for k in range(2))
    copied: list[int] = []
    recorded: list[int] = []
    for name, calls in (("copy", copied), ("record", recorded)):
        real = getattr(Device, name)
        monkeypatch.setattr(Device, name, lambda self, *args, real=real, calls=calls: (
            calls.append(1), real(self, *args))[1])
    for _ in range(20):
        z = (x * y).realize()
    np.testing.assert_array_equal(z.numpy(), A * (A + 1))
    assert not copied and 1 <= len(recorded) <= 4  # the pool gives the same few blocks again
    kept = [(x - y * float(k % 2)).realize() for k in range(50)]  # more blocks than recordings
    for k, z in enumerate(kept):
        np.testing.assert_array_equal(z.numpy(), A - (A + 1) * (k % 2))
    here = x.node.block.memory.device
    live = len(here._recordings)
    programs.forget()
    gc.collect()
    assert live - len(here._recordings) >= MAX_RECORDINGS and len(here._recordings) <= live


@pytest.fixture
def sharing(device: str) -> str:
    """A device that works in the host's memory: an integrated GPU, or an imitation of one."""
    if device == "webgpu:0":
        pytest.skip("WebGPU shares no memory")
    return device


def _line(n: int) -> np.ndarray:
    x = aligned(4 * n).view(np.float32)
    x[:] = np.arange(n)
    return x


def test_the_host_reads_results_in_shared_memory(
        sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = zt.tensor(_line(5000), device=sharing)
    y = (x * 2.0).realize()
    monkeypatch.setattr(DevicePool, "download", None)  # which would copy
    seen, again = y.numpy(), y.numpy()
    assert np.shares_memory(seen, again) and not seen.flags.writeable
    del y, again
    for k in range(4):  # its memory is not given out again
        (x * float(k)).realize()
    np.testing.assert_array_equal(seen, np.arange(5000) * 2)


def test_a_device_reads_an_array_in_place(sharing: str) -> None:
    a = _line(5000)
    x = zt.asarray(a, device=sharing, copy=False)
    assert np.shares_memory(x.numpy(), a) and (x + 1.0).sum().item() == 5000 * 5001 / 2
    a[0] = 7.0  # a tensor that shares memory sees the write
    assert x[0].item() == 7.0
    copies = zt.tensor(a, device=sharing), zt.asarray(a, device=sharing, copy=True)
    a[1] = 9.0
    assert [(y[1].item(), np.shares_memory(y.numpy(), a)) for y in copies] == [(1.0, False)] * 2
    del a, x
    gc.collect()
    torn = np.zeros(20_001, np.uint8)[1:].view(np.float32)
    for wrong in (torn, _line(5000)[1:], _line(5000).reshape(50, 100).T):
        with pytest.raises(ConfigError, match="cannot be shared"):
            zt.asarray(wrong, device=sharing, copy=False)
        np.testing.assert_array_equal(zt.asarray(wrong, device=sharing).numpy(), wrong)


def test_an_array_used_with_tensors_may_change_afterwards(sharing: str) -> None:
    a, x = _line(300_000), zt.ones((300_000,), device=sharing)
    double = zt.compiled(lambda x, y: x * y)
    for f, added in ((lambda: x + a, 1.0), (lambda: double(x, a), 0.0)):
        before = a.copy()
        y = f()
        a[:] = -1.0
        np.testing.assert_array_equal(y.numpy(), before + added)
        a[:] = before


def test_large_tensors_are_exchanged_without_copies(sharing: str) -> None:
    n = LENT_BYTES // 4
    here = (zt.ones(n, device="cpu") + 1.0).realize()
    there = here.to(sharing)
    back = (there * 3.0).to("cpu")
    assert np.shares_memory(here.numpy(), there.numpy())
    del here
    for _ in range(3):
        (zt.ones(n, device="cpu") * 5.0).realize()
    assert (there.numpy() == 2.0).all() and (back + 1.0).numpy()[-1] == 7.0
    assert not np.shares_memory(there.numpy(), there.to(sharing, copy=True).numpy())


def test_views_of_the_host_outlive_the_device(
        sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, table in ((registry, "_opened"), (memory, "_memories"), (random, "_counters")):
        monkeypatch.setattr(module, table, {})
    programs.forget()
    seen = (zt.tensor(_line(5000), device=sharing) * 2.0).numpy()
    backend, _, ordinal = sharing.partition(":")
    registry.open_device(backend, int(ordinal)).close()
    programs.forget()
    gc.collect()
    np.testing.assert_array_equal(seen, np.arange(5000) * 2)


def test_memory_of_a_device_is_reused(device: str) -> None:
    x = zt.tensor(np.ones(5000, np.float32), device=device)
    handles = {id((x * 2.0).realize().node.block.handle) for _ in range(10)}
    assert len(handles) <= 2 and x.sum().item() == 5000.0


def test_a_closed_device_is_opened_again(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, table in ((registry, "_opened"), (memory, "_memories"), (random, "_counters")):
        monkeypatch.setattr(module, table, {})  # so that no other test loses its device
    programs.forget()
    backend, _, ordinal = device.partition(":")
    double, old = zt.compiled(lambda x, k: x * k), zt.tensor(A, device=device)
    for turn in range(3):
        x = zt.tensor(A, device=device)
        for k in (2.0, 3.0):  # a number that varies is on the device
            np.testing.assert_array_equal((x * k).numpy(), A * k)
            np.testing.assert_array_equal(double(x, k).numpy(), A * k)
            with zt.device(device):
                assert 0 <= zt.rand(3).numpy().min() < 1
        if turn < 2:
            registry.open_device(backend, int(ordinal)).close()
            with pytest.raises(DeviceError, match=r"closed|belongs to"):
                (old + 1.0).numpy()
            with pytest.raises(DeviceError, match=r"closed|belongs to"):
                x.numpy()
    registry.open_device(backend, int(ordinal)).close()
    programs.forget()
