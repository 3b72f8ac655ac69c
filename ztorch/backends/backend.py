"""The contract of backends: which devices a driver has here, and why there are none.

A backend is one file in `drivers/` with a subclass of `Backend`, an instance of it called BACKEND,
and a subclass of `Device`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo


class Backend(ABC):
    """A driver. Making an instance is free and never fails."""

    name: ClassVar[str]
    languages: ClassVar[tuple[str, ...]] = ()  # that a third party's takes kernels in; first: text

    @abstractmethod
    def refusal(self) -> str:
        """Why there is no device here; empty if there is one. A driver that is absent is an answer,
        a driver that is broken an exception, of which `registry.seen` warns."""

    @abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """The devices, in the driver's order; none where `refusal` says why."""

    @abstractmethod
    def open(self, ordinal: int = 0) -> Device:
        """Opens the device of that number."""
