"""Calls of CUDA's driver API through the package cuda-bindings, and descriptions of its devices."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from typing import Any

from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.machines.chips import runnable

TEXT = "c"  # the chip name of PTX compiled from CUDA C++, which runs on every chip

EARLY_VERSION = 12030  # the first driver with edges of graphs by which launches start early


LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"  # of NVIDIA's driver


@functools.cache
def driver() -> Any:
    """The driver's functions; ModuleNotFoundError if the package is not installed, OSError if the
    driver is not."""
    if importlib.util.find_spec("cuda.bindings") is not None:  # else the import says so
        ctypes.CDLL(LIBRARY)  # where it is missing, the package takes 60 ms to find that out
    from cuda.bindings import driver

    return driver


def call_driver(where: str, call: str, *args: Any) -> Any:
    """Calls a function of the driver and returns its results without the status.

    Args:
        where: The device, for error messages.
        call: The function.
        *args: Its arguments.

    Raises:
        OutOfMemory: The device has no memory left.
        DeviceError: Any other failure, with the name of the call and the driver's code.
    """
    cuda = driver()
    answer = getattr(cuda, call)(*args)
    code = answer[0]
    if not code:  # CUDA_SUCCESS; to compare enumeration members takes as long as the call
        return answer[1] if len(answer) == 2 else answer[1:]
    _, text = cuda.cuGetErrorString(code)
    reason = text.decode(errors="replace") if text else "unknown to this driver"
    kind = OutOfMemory if code == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY else DeviceError
    raise kind(f"{where}: {call}: {code.name} ({reason})")


def describe(ordinal: int) -> DeviceInfo:
    """Describes a device; its chip is empty if the GPU is older than any that we generate for."""
    where, attributes = f"cuda:{ordinal}", driver().CUdevice_attribute
    device = call_driver(where, "cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        return int(call_driver(where, "cuDeviceGetAttribute",
                               getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    limits = {
        "threads": attribute("MAX_THREADS_PER_BLOCK"),
        "shared_bytes": attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        "static_shared_bytes": attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        "shared_unit_bytes": attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        "subgroup": attribute("WARP_SIZE"),
        "max_groups": attribute("MAX_GRID_DIM_X"),
        "compute_units": attribute("MULTIPROCESSOR_COUNT"),
    }
    capability = (10 * attribute("COMPUTE_CAPABILITY_MAJOR")
                  + attribute("COMPUTE_CAPABILITY_MINOR"))
    chips = runnable("cuda", generation=capability)
    version = call_driver(where, "cuDriverGetVersion")
    name = call_driver(where, "cuDeviceGetName", 256, device)
    return DeviceInfo(
        ordinal, name.split(b"\0")[0].decode(errors="replace").strip(),
        "integrated" if attribute("INTEGRATED") else "gpu",
        int(call_driver(where, "cuDeviceTotalMem", device)), chips[-1] if chips else "",
        tuple(limits.items()), f"CUDA {version // 1000}.{version % 1000 // 10}, compute "
        f"capability {capability // 10}.{capability % 10}", (TEXT, *chips) if chips else ())


def edges_call() -> str:
    """The name of the call that adds edges with their types to a graph; cuda-bindings 13 renamed
    it."""
    newer = "GraphAddDependencies_v2"
    return newer if hasattr(driver(), f"cu{newer}") else newer.removesuffix("_v2")


def waits(image: bytes) -> bool:
    """Whether all kernels of a PTX text wait for earlier launches, and so may start early.

    >>> waits(b".entry k() {griddepcontrol.wait; ret;}"), waits(b".entry k() {ret;}")
    (True, False)
    """
    _, *kernels = image.partition(b"\0")[0].split(b".entry ")
    return bool(kernels) and all(b"griddepcontrol.wait;" in kernel for kernel in kernels)


def meets(image: bytes) -> bool:
    """Whether the workgroups of a kernel of a PTX text wait for one another, so that all of them
    must run at once. Our barrier and our wait tell: in its own code, a user may count workgroups
    that do not wait, and may launch more of them than run at once.

    >>> meets(b".entry k() {mov.u32 %o, %nctaid.x; sub.s32 %o, -2147483647, %o;}")
    True
    >>> meets(b".entry k() {L1_signal: ld.acquire.gpu.global.u32 %n, [%a];}")
    True
    >>> meets(b".entry k() {atom.acq_rel.gpu.global.add.u32 %o, [%a], 1;}")
    False
    """
    text = image.partition(b"\0")[0]
    return any(word in text for word in (b"sub.s32 %o, -2147483647, %o;", b"_signal: ld.acquire."))
