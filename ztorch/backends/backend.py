"""The interface of backends: which devices a driver has on this machine, or why it has none.

A backend is one file in `drivers/` with a subclass of `Device`, a subclass of `Backend`, and an
instance of the latter called BACKEND.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo


class Backend(ABC):
    """A driver. Creating an instance loads nothing and never fails."""

    name: ClassVar[str]
    # The kernel languages that a third party's driver accepts; the first is the one we generate.
    languages: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def refusal(self) -> str:
        """The reason why no device is available; empty if one is.

        Returns a text if the driver is not installed. If it is installed but broken, this raises
        an exception, of which `registry.usable_devices` warns.
        """

    @abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """The devices in the driver's order; empty if `refusal` gives a reason."""

    @abstractmethod
    def open(self, ordinal: int = 0) -> Device:
        """Opens a device by its number in the driver's order."""
