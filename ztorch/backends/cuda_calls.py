"""Calls of CUDA's driver API, through the package cuda-bindings, and its devices."""

from __future__ import annotations

import functools
from typing import Any

from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.machines.chips import runnable

TEXT = "c"  # the chip of code that was CUDA C++ and is for all chips

EARLY_VERSION = 12030  # the first driver with edges of graphs by which launches start early


@functools.cache
def driver() -> Any:
    """The driver's functions; ModuleNotFoundError where the package is not."""
    from cuda.bindings import driver

    return driver


def ask(where: str, call: str, *args: Any) -> Any:
    """The results of a call besides its status; a failure is an error with the call and code."""
    cuda = driver()
    code, *answers = getattr(cuda, call)(*args)
    if not code:  # CUDA_SUCCESS; comparing members of an enumeration takes as long as the call
        return answers[0] if len(answers) == 1 else answers
    _, text = cuda.cuGetErrorString(code)
    why = text.decode(errors="replace") if text else "unknown to this driver"
    kind = OutOfMemory if code == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY else DeviceError
    raise kind(f"{where}: {call}: {code.name} ({why})")


def described(ordinal: int) -> DeviceInfo:
    """A device as the driver describes it; its chip is empty if it is too old."""
    where, attributes = f"cuda:{ordinal}", driver().CUdevice_attribute
    device = ask(where, "cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        return int(ask(where, "cuDeviceGetAttribute",
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
    able = runnable("cuda", generation=capability)
    version = ask(where, "cuDriverGetVersion")
    name = ask(where, "cuDeviceGetName", 256, device)
    return DeviceInfo(
        ordinal, name.split(b"\0")[0].decode(errors="replace").strip(),
        "integrated" if attribute("INTEGRATED") else "gpu",
        int(ask(where, "cuDeviceTotalMem", device)), able[-1] if able else "",
        tuple(limits.items()), f"CUDA {version // 1000}.{version % 1000 // 10}, compute "
        f"capability {capability // 10}.{capability % 10}", (TEXT, *able) if able else ())


def edges_call() -> str:
    """The call that adds edges with their kinds to a graph; cuda-bindings 13 dropped the older one
    of its name."""
    newer = "GraphAddDependencies_v2"
    return newer if hasattr(driver(), f"cu{newer}") else newer.removesuffix("_v2")


def waits(image: bytes) -> bool:
    """Whether all kernels of PTX wait for the launches before them, which then need not be over.

    >>> waits(b".entry k() {griddepcontrol.wait; ret;}"), waits(b".entry k() {ret;}")
    (True, False)
    """
    _, *kernels = image.partition(b"\0")[0].split(b".entry ")
    return bool(kernels) and all(b"griddepcontrol.wait;" in kernel for kernel in kernels)
