"""`zt.backends.get`: the one object for each device."""

from __future__ import annotations

import os
from typing import Any

from ztorch.library.elementwise import Elementwise
from ztorch.library.networks import Networks
from ztorch.library.own_code import OwnCode
from ztorch.library.products import Products
from ztorch.library.programs import Options
from ztorch.library.reductions import Reductions
from ztorch.library.updates import Updates


class DeviceLibrary(Products, Elementwise, Reductions, Networks, Updates, OwnCode):
    """A device for authors of libraries: memory, streams, and routines on raw buffers.

    Routines are compiled at their first call for the sizes, dtypes and strides of their operands,
    and kept. Work on a device may go on after a call returns; `download` and `synchronize` wait.
    Several threads may use one object.

    Examples:
        >>> import ztorch as zt
        >>> cpu = zt.backends.get("cpu")
        >>> cpu.name, cpu.is_available
        ('cpu', True)
    """

    def __repr__(self) -> str:
        return f"<backend {self.name}{'' if self.is_available else ', not available'}>"


_libraries: dict[str, DeviceLibrary] = {}


def get(name: str) -> DeviceLibrary:
    """The object of a device: always the same one for a name.

    Args:
        name: The device, such as "cpu", "cuda:0" or "vulkan:0"; "auto" is the best one.

    Returns:
        The object. Where the device is not here, `is_available` is False and `reason` says why.

    Raises:
        UnknownName: There is no such backend.

    Examples:
        >>> import ztorch as zt
        >>> zt.backends.get("cpu") is zt.backends.get("cpu")
        True
    """
    known = _libraries.get(name)
    if known is None or not known.is_available:
        known = _libraries[name] = DeviceLibrary(Options(name))
    return known


def public(name: str) -> Any:
    """What `zt.backends` calls by a name."""
    return {"get": get}[name]


if hasattr(os, "register_at_fork"):  # locks of other threads would never be released
    os.register_at_fork(after_in_child=_libraries.clear)
