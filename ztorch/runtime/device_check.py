"""Checks whether a device can run the code of a program."""

from __future__ import annotations

from ztorch.backends.device import Device
from ztorch.errors import DeviceError
from ztorch.runtime.spec import ProgramSpec


def check_device(spec: ProgramSpec, device: Device) -> None:
    """Raises an error if the code needs a feature that this device lacks."""
    if spec.backend != device.backend:
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}, not for {device.id}")
    if spec.arch and spec.arch not in (device.info.chip, *device.info.runs):
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}:{spec.arch}; {device.id} "
                          f"({device.info.name}) runs code for "
                          f"{device.info.chip or 'another chip'}. Compile it again for this device")
    limits = dict(device.info.limits)
    for name, needed in spec.limits:
        limit = limits.get(name, needed)
        if limit < needed or (name == "subgroup" and needed and limit != needed):
            raise DeviceError(f"{spec.name} was compiled for {name}={needed}; {device.id} "
                              f"({device.info.name}) has {limit}. Compile it again for this device")
