"""The WebGPU backend, through wgpu."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import numpy as np

from ztorch.abi import PORT_ALIGN
from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch, wrong_count
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host.settings import default_environment

KINDS = {"DiscreteGPU": "gpu", "IntegratedGPU": "integrated", "CPU": "cpu"}  # by adapter type
# Limits to request at the device's maximum. By default WebGPU grants only its own minimum.
LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size",
          "max-storage-buffers-per-shader-stage", "max-compute-workgroup-storage-size",
          "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x",
          "min-storage-buffer-offset-alignment")
# The bindings that a kernel declares in WGSL, and those among them that it only reads.
BINDING = re.compile(r"@binding\(\s*(\d+)")
ONLY_READ = re.compile(r"@binding\(\s*(\d+)\s*\)[^;<]*<\s*storage\s*(?:,\s*read\s*)?>")


@functools.cache
def _adapters() -> list[Any]:
    import wgpu

    # A layer of Mesa asks Wayland which device draws the desktop. It prints a warning to standard
    # error if XDG_RUNTIME_DIR is unset, but not if it names a folder that does not exist.
    with default_environment(XDG_RUNTIME_DIR="/nonexistent"):
        return list(wgpu.gpu.enumerate_adapters_sync())


@functools.cache
def _release_in_this_process_only() -> None:
    """Stops a forked child from releasing wgpu's objects.

    In the child, the release would wait for threads that exist only in the parent.
    """
    import wgpu

    # Objects may outlive this module's globals at the end of the process.
    getpid, process, release = os.getpid, os.getpid(), wgpu.GPUObjectBase.__del__

    def release_in_parent(gpu_object: Any) -> None:
        if getpid() == process:
            release(gpu_object)

    wgpu.GPUObjectBase.__del__ = release_in_parent


class WebGPU(Backend):
    """All adapters of wgpu but those of OpenGL."""

    name = "webgpu"

    def refusal(self) -> str:
        try:
            adapters = _usable()
        except ModuleNotFoundError:
            return "wgpu is not installed; pip install 'ztorch[webgpu]'"
        except RuntimeError as error:
            return f"wgpu finds no driver ({error})"
        return "" if adapters else "wgpu finds no adapter; it needs Vulkan, Metal or Direct3D 12"

    def devices(self) -> list[DeviceInfo]:
        return [] if self.refusal() else [_describe(k, a) for k, a in enumerate(_usable())]

    def open(self, ordinal: int = 0) -> Device:
        return WebGPUDevice(self.devices()[ordinal], _usable()[ordinal])


def _usable() -> list[Any]:
    return [a for a in _adapters() if a.info["backend_type"] not in ("OpenGL", "OpenGLES")]


def _describe(ordinal: int, adapter: Any) -> DeviceInfo:
    maximum, info = adapter.limits, adapter.info
    limits = {
        "threads": min(maximum["max-compute-invocations-per-workgroup"],
                       maximum["max-compute-workgroup-size-x"]),
        "shared_bytes": maximum["max-compute-workgroup-storage-size"],
        "max_groups": maximum["max-compute-workgroups-per-dimension"],
        "max_buffers": maximum["max-storage-buffers-per-shader-stage"],
        "max_buffer_bytes": min(maximum["max-storage-buffer-binding-size"], (1 << 31) - 4),
        "buffer_align": max(PORT_ALIGN, maximum["min-storage-buffer-offset-alignment"]),
    }
    if info["adapter_type"] == "CPU":
        limits["skips_branches"] = False  # Mesa's llvmpipe runs all, without effect
    return DeviceInfo(
        ordinal, info["device"], KINDS.get(info["adapter_type"], "virtual"),
        int(maximum["max-buffer-size"]), "", tuple((k, int(v)) for k, v in limits.items()),
        f"{info['backend_type']}, {info['description']}".strip(", "))


class WebGPUDevice(Device):
    """A device with its queue. WebGPU copies only multiples of four bytes."""

    def __init__(self, info: DeviceInfo, adapter: Any):
        super().__init__("webgpu", info)
        _release_in_this_process_only()
        limits = {name: adapter.limits[name] for name in LIMITS if name in adapter.limits}
        self._device = self._try("requestDevice", adapter.request_device_sync,
                                 required_limits=limits)
        self._max_buffer_bytes = int(adapter.limits["max-buffer-size"])
        self._layouts: dict[tuple[str, ...], Any] = {}  # by the types of the bindings

    def _try(self, call: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        import wgpu

        try:
            return function(*args, **kwargs)
        except wgpu.GPUOutOfMemoryError as error:
            raise OutOfMemory(f"{self.id}: {call}: {error}") from None
        except (wgpu.GPUError, RuntimeError, ValueError) as error:
            raise DeviceError(f"{self.id}: {call}: {error}") from None

    def _close(self) -> None:
        self._synchronize()
        self._layouts.clear()
        self._device.destroy()

    def _alloc(self, nbytes: int) -> Any:
        import wgpu

        if nbytes > self._max_buffer_bytes:
            raise OutOfMemory(f"{self.id}: {nbytes:,} bytes were requested, and a buffer may have "
                              f"{self._max_buffer_bytes:,}")
        use = wgpu.BufferUsage
        return self._try("createBuffer", self._device.create_buffer, size=_fours(nbytes),
                         usage=use.STORAGE | use.COPY_SRC | use.COPY_DST)

    def _free(self, handle: Any) -> None:
        self._try("destroy", handle.destroy)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        first, size = at // 4 * 4, _fours(at + data.size) - at // 4 * 4
        if (first, size) != (at, data.size):  # preserve the other bytes of the first and last word
            words = np.empty(size, np.uint8)
            self._read(handle, first, words)
            words[at - first:at - first + data.size] = data
            at, data = first, words
        self._try("writeBuffer", self._device.queue.write_buffer, handle, at, data)

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        first = at // 4 * 4
        size = _fours(at + out.size) - first
        raw = self._try("readBuffer", self._device.queue.read_buffer, handle, first, size)
        out[...] = np.frombuffer(raw, np.uint8)[at - first:at - first + out.size]

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        if source is target or source_at % 4 or target_at % 4 or nbytes % 4:
            part = np.empty(nbytes, np.uint8)
            self._read(source, source_at, part)
            self._write(target, target_at, part)
            return
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, source_at, target, target_at, nbytes)
        self._try("submit", self._device.queue.submit, [encoder.finish()])

    def _memory(self) -> tuple[int, int]:
        total = self.info.memory_bytes
        return total - self.allocated, total

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        """The pipeline of each kernel, and the types of its bindings."""
        return [self._pipeline(code[e.at:e.at + e.size].decode(errors="replace"), e)
                for e in entries]

    def _pipeline(self, text: str, entry: KernelEntry) -> tuple[Any, tuple[str, ...]]:
        count = 1 + max(map(int, BINDING.findall(text)), default=-1)
        read = {int(k) for k in ONLY_READ.findall(text)}
        kinds = tuple("read-only-storage" if k in read else "storage" for k in range(count))
        module = self._try("createShaderModule", self._device.create_shader_module, code=text)
        layout = self._try("createPipelineLayout", self._device.create_pipeline_layout,
                           bind_group_layouts=[self._layout(kinds)])
        pipeline = self._try("createComputePipeline", self._device.create_compute_pipeline,
                             layout=layout,
                             compute={"module": module, "entry_point": entry.name})
        return pipeline, kinds

    def _layout(self, kinds: tuple[str, ...]) -> Any:
        import wgpu

        if kinds not in self._layouts:
            rows = [{"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                    for k, kind in enumerate(kinds)]
            self._layouts[kinds] = self._try("createBindGroupLayout",
                                             self._device.create_bind_group_layout, entries=rows)
        return self._layouts[kinds]

    def _unload(self, handles: Any) -> None:
        handles.clear()

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        ready = []
        for launch in launches:
            pipeline, kinds = module.handle[launch.entry]
            if len(kinds) != len(launch.bindings):
                raise DeviceError(wrong_count(self.id, module.entries[launch.entry].name,
                                              len(kinds), len(launch.bindings)))
            rows = [{"binding": k, "resource": {"buffer": b.buffer.handle, "offset": b.at,
                                                "size": _fours(b.nbytes)}}
                    for k, b in enumerate(launch.bindings)]
            group = self._try("createBindGroup", self._device.create_bind_group,
                              layout=self._layout(kinds), entries=rows)
            ready.append((pipeline, group, launch.grid))
        return ready

    def _drop(self, handle: Any) -> None:
        handle.clear()

    def _run(self, handle: Any) -> None:
        """Submits one pass. WebGPU itself orders the dispatches of a pass."""
        encoder = self._device.create_command_encoder()
        work = encoder.begin_compute_pass()
        for pipeline, group, grid in handle:
            work.set_pipeline(pipeline)
            work.set_bind_group(0, group)
            work.dispatch_workgroups(*grid)
        work.end()
        self._try("submit", self._device.queue.submit, [self._try("finish", encoder.finish)])

    def _synchronize(self) -> None:
        """Waits by reading four bytes, the only way that works in all versions of wgpu."""
        probe = self._alloc(4)
        self._try("readBuffer", self._device.queue.read_buffer, probe, 0, 4)
        probe.destroy()


def _fours(nbytes: int) -> int:
    """`nbytes`, rounded up to a multiple of four."""
    return -(-nbytes // 4) * 4


BACKEND = WebGPU()
