"""The OpenCL backend, through pyopencl: SPIR-V if the driver accepts it, otherwise OpenCL C."""

from __future__ import annotations

import functools
import math
import re
import warnings
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN, CACHE_LINE, align_up
from ztorch.backends import spirv
from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch, wrong_count
from ztorch.errors import DeviceError, OutOfMemory, Unsupported
from ztorch.host.memory import aligned
from ztorch.host.settings import current

SPIRV = "spirv"  # the chip name of SPIR-V code
MAX_GROUPS = (1 << 31) - 1  # workgroups of a launch, which drivers count in 32 bits
FLOAT64 = 10  # the SPIR-V capability Float64, the only optional one that our modules use


@functools.cache
def _cl() -> Any:
    import pyopencl

    return pyopencl


class OpenCL(Backend):
    """All devices of all platforms, in the loader's order."""

    name = "opencl"

    def refusal(self) -> str:
        try:
            cl = _cl()
        except ModuleNotFoundError:
            return "pyopencl is not installed; pip install 'ztorch[opencl]'"
        try:
            devices = _devices()
        except cl.Error as error:
            if error.code != cl.status_code.PLATFORM_NOT_FOUND_KHR:
                raise
            return f"the OpenCL loader finds no platform ({error})"
        return "" if devices else "no platform has a device"

    def devices(self) -> list[DeviceInfo]:
        return [] if self.refusal() else [_describe(k, d) for k, d in enumerate(_devices())]

    def open(self, ordinal: int = 0) -> Device:
        return OpenCLDevice(self.devices()[ordinal], _devices()[ordinal])


def _devices() -> list[Any]:
    return [d for platform in _cl().get_platforms() for d in platform.get_devices()]


def _describe(ordinal: int, device: Any) -> DeviceInfo:
    kinds = _cl().device_type
    kind = "gpu" if device.type & kinds.GPU else "cpu" if device.type & kinds.CPU else "virtual"
    if kind == "gpu" and device.host_unified_memory:
        kind = "integrated"
    limits = {
        "threads": min(int(device.max_work_group_size), int(device.max_work_item_sizes[0])),
        "shared_bytes": int(device.local_mem_size),
        "buffer_align": max(BUFFER_ALIGN, int(device.mem_base_addr_align) // 8),
        "compute_units": int(device.max_compute_units),
        "max_buffer_bytes": int(device.max_mem_alloc_size),
        "implicit_simd": kind == "cpu" and device.native_vector_width_float > 1,
    }
    runs = (SPIRV,) if _takes_spirv(device) else ()
    return DeviceInfo(ordinal, device.name.strip(), kind, int(device.global_mem_size),
                      SPIRV if runs and current().opencl_il else "", tuple(limits.items()),
                      f"{device.platform.name}, {device.driver_version}", runs)


def _takes_spirv(device: Any) -> bool:
    """Whether clCreateProgramWithIL accepts our modules: SPIR-V 1.0 with 64-bit addresses.

    Before OpenCL 2.1 the function does not exist, and calling it would crash the process.
    """
    version = re.match(r"OpenCL (\d+)\.(\d+)", device.platform.version)
    if version is None or (int(version[1]), int(version[2])) < (2, 1) or device.address_bits != 64:
        return False
    try:
        return "SPIR-V_1." in (device.il_version or "")
    except (_cl().Error, AttributeError):  # the device supports an older version than its platform
        return False


class OpenCLDevice(Device):
    """A context and two in-order queues: one for copies to the device that may overlap other work,
    and one for that work."""

    overlaps = True

    def __init__(self, info: DeviceInfo, device: Any):
        super().__init__("opencl", info)
        cl = _cl()
        self._device = device
        self._context = self._try("clCreateContext", cl.Context, [device])
        self._queue, self._copies = (
            self._try("clCreateCommandQueue", cl.CommandQueue, self._context, device)
            for _ in range(2))

    def _try(self, call: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        cl = _cl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                return function(*args, **kwargs)
        except (cl.MemoryError, MemoryError) as error:
            raise OutOfMemory(f"{self.id}: {call}: {error}") from None
        except cl.Error as error:
            raise DeviceError(f"{self.id}: {call}: {error}") from None

    def _close(self) -> None:
        self._synchronize()
        self._queue = self._copies = self._context = None

    def _alloc(self, nbytes: int) -> Any:
        cl = _cl()
        if nbytes > self._device.max_mem_alloc_size:
            raise OutOfMemory(f"{self.id}: {nbytes:,} bytes were requested, and a buffer may have "
                              f"{self._device.max_mem_alloc_size:,}")
        if not self._device.host_unified_memory:
            return self._try("clCreateBuffer", cl.Buffer, self._context, cl.mem_flags.READ_WRITE,
                             nbytes)
        # Drivers of integrated GPUs use host memory in place only in whole cache lines.
        return self._adopt(aligned(align_up(nbytes, CACHE_LINE)))

    def _adopt(self, block: np.ndarray) -> Any:
        cl = _cl()
        if not self._device.host_unified_memory or block.nbytes > self._device.max_mem_alloc_size:
            return None
        flags = cl.mem_flags.USE_HOST_PTR | (
            cl.mem_flags.READ_WRITE if block.flags.writeable else cl.mem_flags.READ_ONLY)
        return self._try("clCreateBuffer", cl.Buffer, self._context, flags, hostbuf=block)

    def _host_view(self, handle: Any) -> np.ndarray | None:
        cl, block = _cl(), handle.hostbuf
        if block is None:
            return None
        mapped, _ = self._try("clEnqueueMapBuffer", cl.enqueue_map_buffer, self._queue, handle,
                              cl.map_flags.READ, 0, block.shape, block.dtype)  # this call waits
        self._try("clEnqueueUnmapMemObject", mapped.base.release, self._queue)
        return block

    def _free(self, handle: Any) -> None:
        self._synchronize()
        self._try("clReleaseMemObject", handle.release)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        self._try("clEnqueueWriteBuffer", _cl().enqueue_copy, self._queue, handle, data,
                  dst_offset=at, is_blocking=True)

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        self._try("clEnqueueReadBuffer", _cl().enqueue_copy, self._queue, out, handle,
                  src_offset=at, is_blocking=True)

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        self._try("clEnqueueCopyBuffer", _cl().enqueue_copy, self._queue, target, source,
                  byte_count=nbytes, src_offset=source_at, dst_offset=target_at)

    def _memory(self) -> tuple[int, int]:
        total = int(self._device.global_mem_size)
        return total - self.allocated, total

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        """The program of each kernel: in OpenCL C one for all kernels, in SPIR-V one for each."""
        programs: dict[tuple[int, int], Any] = {}
        for e in entries:
            part = code[e.at:e.at + e.size]
            is_module = part.startswith(spirv.MAGIC.to_bytes(4, "little"))
            if is_module:
                self._check(e, part)
            if (e.at, e.size) not in programs:
                programs[e.at, e.size] = self._build(part, is_module)
            self._try(f"clCreateKernel of {e.name!r}", _cl().Kernel, programs[e.at, e.size], e.name)
        return [programs[e.at, e.size] for e in entries]

    def _check(self, entry: KernelEntry, part: bytes) -> None:
        """Raises an error if a module is damaged, or needs a feature that this device lacks."""
        required = spirv.kernel_requirements(self.id, entry, part)
        if SPIRV not in self.info.runs:
            raise DeviceError(f"{self.id} ({self.info.name}) does not accept SPIR-V; compile for "
                              f"{self.backend}, which generates OpenCL C")
        extensions = self._device.extensions.split()
        if FLOAT64 in required.capabilities and "cl_khr_fp64" not in extensions:
            raise Unsupported(f"{self.id} ({self.info.name}) has no float64 (cl_khr_fp64), which "
                              f"kernel {entry.name} needs; compile with other dtypes, or for "
                              "another device")

    def _build(self, part: bytes, is_module: bool) -> Any:
        cl, extra = _cl(), current().opencl_options
        program = self._try("clCreateProgramWithIL" if is_module else "clCreateProgramWithSource",
                            cl.Program, self._context,
                            part if is_module else part.decode(errors="replace"))
        options = extra if is_module else ("-cl-std=CL1.2", *extra)
        return self._try("clBuildProgram", program.build, list(options), [self._device])

    def _unload(self, handles: Any) -> None:
        handles.clear()

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        """The kernels with their arguments set, ready to enqueue."""
        cl, ready = _cl(), []
        for launch in launches:
            entry = module.entries[launch.entry]
            kernel = self._try("clCreateKernel", cl.Kernel, module.handle[launch.entry],
                               entry.name)
            if kernel.num_args != len(launch.bindings):
                raise DeviceError(wrong_count(self.id, entry.name, kernel.num_args,
                                              len(launch.bindings)))
            if math.prod(launch.grid) > MAX_GROUPS:
                raise DeviceError(f"{self.id}: a grid of {launch.grid} workgroups exceeds the "
                                  f"limit of {MAX_GROUPS:,}")
            parts = [self._try("clCreateSubBuffer", b.buffer.handle.get_sub_region, b.at,
                               b.nbytes) for b in launch.bindings]
            self._try("clSetKernelArg", kernel.set_args, *parts)
            size = tuple(g * w for g, w in zip(launch.grid, entry.workgroup, strict=True))
            ready.append((kernel, size, entry.workgroup, parts))
        return ready

    def _drop(self, handle: Any) -> None:
        self._synchronize()
        handle.clear()

    def _run(self, handle: Any) -> None:
        enqueue, queue = _cl().enqueue_nd_range_kernel, self._queue
        for kernel, size, group, _ in handle:
            self._try("clEnqueueNDRangeKernel", enqueue, queue, kernel, size, group)
        self._try("clFlush", queue.flush)

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        """Returns the events of all submitted steps: pyopencl waits when the event of a copy is
        garbage-collected, so they live until `_finish`."""
        cl, events = _cl(), []
        if data_in.nbytes:
            events.append(self._try("clEnqueueWriteBuffer", cl.enqueue_copy, self._copies, inputs,
                                    data_in, is_blocking=False))
            self._try("clFlush", self._copies.flush)
            self._try("clEnqueueBarrierWithWaitList", cl.enqueue_barrier, self._queue,
                      wait_for=events[:])
        self._run(recording)
        if data_out.nbytes:
            events.append(self._try("clEnqueueReadBuffer", cl.enqueue_copy, self._queue, data_out,
                                    outputs, is_blocking=False))
        else:
            events.append(self._try("clEnqueueMarkerWithWaitList", cl.enqueue_marker, self._queue))
        self._try("clFlush", self._queue.flush)
        return events

    def _finish(self, ticket: Any) -> None:
        self._try("clWaitForEvents", ticket[-1].wait)

    def _synchronize(self) -> None:
        for queue in (self._copies, self._queue):
            self._try("clFinish", queue.finish)


BACKEND = OpenCL()
