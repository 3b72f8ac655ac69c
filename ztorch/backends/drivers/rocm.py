"""The ROCm backend for AMD's GPUs, through HIP."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from ztorch.backends import hip
from ztorch.backends.device import Device
from ztorch.backends.gpu import GpuDevice
from ztorch.backends.gpu_backend import GpuBackend
from ztorch.backends.gpu_graphs import Transfer
from ztorch.backends.handles import DeviceInfo, DeviceModule, Launch
from ztorch.errors import DeviceError
from ztorch.machines.chips import runnable

PROPERTIES_BYTES = 16 * 1024  # more than hipDeviceProp_t has in any version
TEXT = "hip"  # the chip name of HIP C++, which is compiled when a program is loaded


class Rocm(GpuBackend):
    """All devices of HIP, in its order."""

    name = "rocm"
    no_device_codes = ("hipErrorNoDevice", "hipErrorInvalidDevice")

    def _missing(self) -> str:
        if hip.library() is None:
            return f"ROCm is not installed (no {hip.LIBRARIES[0]} or older)"
        return ""

    def _start(self) -> str:
        hip.call_driver(self.name, "hipInit", 0)
        return ""

    def _count(self) -> int:
        return int(hip.call_driver(self.name, "hipGetDeviceCount"))

    def _describe(self, ordinal: int) -> DeviceInfo:
        return _describe(ordinal)

    def open(self, ordinal: int = 0) -> Device:
        return RocmDevice(self.devices()[ordinal])


def _describe(ordinal: int) -> DeviceInfo:
    where = f"rocm:{ordinal}"

    def attribute(number: int) -> int:
        return int(hip.call_driver(where, "hipDeviceGetAttribute", number, ordinal))

    limits = {"threads": attribute(hip.MAX_THREADS), "shared_bytes": attribute(hip.SHARED_BYTES),
              "subgroup": attribute(hip.WAVE_SIZE), "compute_units": attribute(hip.COMPUTE_UNITS)}
    name = ctypes.create_string_buffer(256)
    hip.call_driver(where, "hipDeviceGetName", name, len(name), ordinal)
    version = hip.call_driver(where, "hipRuntimeGetVersion")
    chip = _chip(where, ordinal)
    return DeviceInfo(ordinal, name.value.decode(errors="replace").strip(),
                      "integrated" if attribute(hip.INTEGRATED) else "gpu",
                      int(hip.call_driver(where, "hipDeviceTotalMem", ordinal)),
                      (*runnable(Rocm.name, chip), TEXT)[0], tuple(limits.items()),
                      f"HIP {version // 10_000_000}.{version // 100_000 % 100}, {chip}", (TEXT,))


def _chip(where: str, ordinal: int) -> str:
    """The architecture of a device, such as gfx942.

    It is one of the properties, at an offset that differs between versions of HIP. The name of the
    device comes first; nothing after it but the architecture matches the pattern.
    """
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    newer = "hipGetDevicePropertiesR0600"
    call = newer if hasattr(hip.library(), newer) else "hipGetDeviceProperties"
    hip.call_driver(where, call, properties, ordinal)
    match = re.search(rb"gfx[0-9a-f]{3,5}", properties.raw[256:])
    return match[0].decode() if match else ""


class RocmDevice(GpuDevice):
    """A device with two streams of our own: one for all work, one for copies that overlap it."""

    prefix = "hip"
    call_driver = staticmethod(hip.call_driver)
    other_names = {"MemAlloc": "hipMalloc", "MemFree": "hipFree",
                   "MemHostRegister": "hipHostRegister", "MemHostUnregister": "hipHostUnregister",
                   "GraphInstantiate": "hipGraphInstantiateWithFlags",
                   "EventCreate": "hipEventCreateWithFlags"}
    fatal_codes = frozenset(f"hipError{name}" for name in (
        "IllegalAddress", "LaunchFailure", "LaunchTimeOut", "Assert", "ECCNotCorrectable",
        "ContextIsDestroyed"))
    fatal_advice = "start a new process"

    def __init__(self, info: DeviceInfo):
        super().__init__(Rocm.name, info)
        with self._current():
            self._queue, self._copies = (
                self._call("StreamCreateWithFlags", hip.NON_BLOCKING) for _ in range(2))

    def _push_current(self) -> None:
        self._call("SetDevice", self.info.ordinal)

    def _close(self) -> None:
        self._unpinned.extend(self._pinned.values())
        self._release("EventDestroy", *self._events)
        self._release("StreamDestroy", self._queue, self._copies)

    def _copy_async(self, target: int, source: int, nbytes: int, kind: str, queue: Any) -> None:
        self._call("MemcpyAsync", target, source, nbytes, hip.COPY_KINDS[kind], queue)

    # -- code --------------------------------------------------------------------------------------

    def _load_image(self, image: bytes) -> Any:
        """Loads a code object. HIP C++ is first compiled, for the architecture of this device."""
        if not image.startswith(b"\x7fELF"):
            image = hip.compile_code(self.id, image, _chip(self.id, self.info.ordinal))
        if not hip.is_complete(image):
            raise DeviceError(f"{self.id}: the code object is damaged ({len(image)} bytes)")
        return self._call("ModuleLoadData", image)

    def _node(self, module: DeviceModule, launch: Launch) -> tuple[Any, Any]:
        entry, count = module.entries[launch.entry], len(launch.bindings)
        values = (ctypes.c_void_p * count)(*(b.buffer.handle + b.at for b in launch.bindings))
        size, start = ctypes.sizeof(ctypes.c_void_p), ctypes.addressof(values)
        arguments = (ctypes.c_void_p * count)(*(start + size * k for k in range(count)))
        node = hip.KernelNode(hip.Dim3(*entry.workgroup), None,
                              self._function(module, launch.entry), hip.Dim3(*launch.grid),
                              ctypes.addressof(arguments))
        return ctypes.byref(node), (values, arguments)

    def _copy_node(self, graph: Any, before: list[Any], copy: Transfer) -> Any:
        return self._call("GraphAddMemcpyNode1D", graph, before, len(before), copy.target,
                          copy.source, copy.nbytes, hip.COPY_KINDS[copy.kind])


BACKEND = Rocm()
