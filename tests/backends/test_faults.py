"""A driver's refusal is an error with backend, call and reason, and the device stays usable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cases.available import device, fresh
from tests.cases.doubled import N, loaded
from ztorch.backends.device import Device
from ztorch.errors import DeviceError, OutOfMemory


class Fault(NamedTuple):
    """Where a driver's function is, what stands in for it (given the real one), what then fails
    (alloc, write, read, record or run), and what the error says."""

    backend: str
    where: Callable[[Device], tuple[Any, str]]
    instead: Callable[[Any], Callable[..., Any]]
    use: str
    error: type[DeviceError]
    says: str


def raising(name: str, package: str, *args: Any) -> Callable[[Any], Callable[..., Any]]:
    """A function that fails as the driver's package says failures."""

    def instead(_: Any) -> Callable[..., Any]:
        def function(*_args: Any, **_more: Any) -> Any:
            raise getattr(__import__(package), name)(*args)

        return function

    return instead


def opencl(function: str) -> Callable[[Device], tuple[Any, str]]:
    return lambda d: (__import__("pyopencl"), function)


def vulkan(function: str) -> Callable[[Device], tuple[Any, str]]:
    return lambda d: (__import__("vulkan"), function)


def queue(function: str) -> Callable[[Device], tuple[Any, str]]:
    return lambda d: (type(d._device.queue), function)  # type: ignore[attr-defined]


def gpu(function: str) -> Callable[[Device], tuple[Any, str]]:
    return lambda d: (type(d._device), function)  # type: ignore[attr-defined]


FAULTS = [
    # The OpenCL driver itself rejects the changed text.
    Fault("opencl", opencl("enqueue_nd_range_kernel"),
          lambda real: lambda q, k, size, group: real(q, k, size, (7, 1, 1)),
          "run", DeviceError, "clEnqueueNDRangeKernel: .*INVALID_WORK_GROUP_SIZE"),
    Fault("opencl", opencl("enqueue_copy"),
          lambda real: lambda q, to, source, **more: real(q, to, source, **{
              k: 1 << 40 if k.endswith("offset") else v for k, v in more.items()}),
          "write", DeviceError, "clEnqueueWriteBuffer: .*INVALID_VALUE"),
    Fault("opencl", opencl("enqueue_copy"),
          lambda real: lambda q, to, source, **more: real(q, to, source, **{
              k: 1 << 40 if k.endswith("offset") else v for k, v in more.items()}),
          "read", DeviceError, "clEnqueueReadBuffer: .*INVALID_VALUE"),
    Fault("opencl", opencl("Buffer"), lambda real: lambda context, flags, *size, **more: real(
        context, flags, 0), "alloc", DeviceError, "clCreateBuffer: .*INVALID"),
    Fault("opencl", opencl("Buffer"), raising("MemoryError", "pyopencl", "none left"),
          "alloc", OutOfMemory, "clCreateBuffer: none left"),
    Fault("vulkan", vulkan("vkAllocateMemory"), raising("VkErrorOutOfDeviceMemory", "vulkan"),
          "alloc", OutOfMemory, "vkAllocateMemory: VkErrorOutOfDeviceMemory"),
    Fault("vulkan", vulkan("vkAllocateDescriptorSets"),
          raising("VkErrorOutOfPoolMemory", "vulkan"),
          "record", OutOfMemory, "vkAllocateDescriptorSets: VkErrorOutOfPoolMemory"),
    Fault("vulkan", vulkan("vkQueueSubmit"), raising("VkErrorDeviceLost", "vulkan"),
          "run", DeviceError, "vkQueueSubmit: VkErrorDeviceLost"),
    Fault("webgpu", gpu("create_buffer"), raising("GPUOutOfMemoryError", "wgpu", "none left"),
          "alloc", OutOfMemory, "createBuffer: .*none left"),
    Fault("webgpu", queue("write_buffer"),
          lambda real: lambda q, buffer, at, data: real(q, buffer, 4 * N - 4, data),
          "write", DeviceError, "writeBuffer: "),
    Fault("webgpu", queue("submit"), raising("GPUValidationError", "wgpu", "refused"),
          "run", DeviceError, "submit: .*refused"),
    Fault("webgpu", gpu("create_bind_group"), raising("GPUInternalError", "wgpu", "refused"),
          "record", DeviceError, "createBindGroup: .*refused"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.backend}-{f.use}-{f.says.split(':')[0]}")
def test_a_refusal(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    device(fault.backend)
    with fresh(fault.backend) as d:
        module, launches, buffers = loaded(d)
        recording = d.record(module, launches)
        x, out = np.arange(N, dtype=np.float32), np.empty(N, np.float32)
        uses: dict[str, Callable[[], Any]] = {
            "alloc": lambda: d.alloc(4096), "write": lambda: d.write(buffers["inputs"], x),
            "read": lambda: d.read(buffers["outputs"], out), "run": lambda: d.run(recording),
            "record": lambda: d.record(module, launches)}
        held = d.allocated
        owner, name = fault.where(d)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fault.instead(getattr(owner, name)))
            with pytest.raises(fault.error, match=f"{d.id}: {fault.says}"):
                uses[fault.use]()
        assert d.allocated == held
        d.write(buffers["inputs"], x)  # and now all of it, on the same device
        d.run(recording)
        d.read(buffers["outputs"], out)
        np.testing.assert_array_equal(out, 2 * x)
        d.free(d.alloc(4096))
        d.drop(d.record(module, launches))
