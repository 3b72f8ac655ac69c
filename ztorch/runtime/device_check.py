"""Whether a device can run the code of a program."""

from __future__ import annotations

from ztorch.backends.device import Device
from ztorch.errors import DeviceError
from ztorch.runtime.spec import ProgramSpec


def check_device(spec: ProgramSpec, device: Device) -> None:
    """An error, not wrong numbers, where the code needs a feature that this device lacks."""
    if spec.backend != device.backend:
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}, not for {device.id}")
    if spec.arch and spec.arch not in (device.info.chip, *device.info.runs):
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}:{spec.arch}; {device.id} "
                          f"({device.info.name}) is {device.info.chip or 'not'}. Compile it "
                          "again for this device")
    limits = dict(device.info.limits)
    for name, needed in spec.limits:
        here = limits.get(name, needed)
        if here < needed or (name == "subgroup" and needed and here != needed):
            raise DeviceError(f"{spec.name} was compiled for {name}={needed}; {device.id} "
                              f"({device.info.name}) has {here}. Compile it again for this device")
