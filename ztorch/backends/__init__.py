"""Drivers of devices, and `get`, by which other libraries use a device directly."""

from __future__ import annotations

from ztorch import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PUBLIC = ("BackendBuilder", "get")  # names for users; the rest of this package is for drivers


def get(name: str) -> Any:
    """A device as an object, with its memory, its streams, and routines on raw buffers.

    Args:
        name: The device, such as "cpu", "cuda:0" or "vulkan:0"; "auto" is the best one.

    Returns:
        A `DeviceLibrary`, always the same one for a name. If the device is not available,
        its `is_available` is False and its `reason` says why.

    Raises:
        UnknownName: There is no such backend.

    Examples:
        >>> import ztorch as zt
        >>> zt.backends.get("cpu").is_available
        True
    """
    return dispatch.from_library("get")(name)


def __getattr__(name: str) -> Any:
    if name in PUBLIC:  # these need the compiler, which is imported at first use
        return dispatch.from_library(name)
    raise AttributeError(f"module 'ztorch.backends' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(PUBLIC)
