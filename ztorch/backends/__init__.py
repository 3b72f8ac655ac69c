"""Drivers, one file each; and `get`, which gives authors of libraries the object of a device."""

from __future__ import annotations

from ztorch import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PUBLIC = ("BackendBuilder", "get")  # for users; the rest of this package is for drivers


def get(name: str) -> Any:
    """The object of a device: memory, streams, and routines on raw buffers.

    Args:
        name: The device, such as "cpu", "cuda:0" or "vulkan:0"; "auto" is the best one.

    Returns:
        A `DeviceLibrary`, always the same one for a name. Where the device is not here,
        `is_available` is False and `reason` says why.

    Raises:
        UnknownName: There is no such backend.

    Examples:
        >>> import ztorch as zt
        >>> zt.backends.get("cpu").is_available
        True
    """
    return dispatch.from_library("get")(name)


def __getattr__(name: str) -> Any:
    if name in PUBLIC:  # they need the compiler, which loads at first use
        return dispatch.from_library(name)
    raise AttributeError(f"module 'ztorch.backends' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(PUBLIC)
