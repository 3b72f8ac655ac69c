"""The base class of the backends of CUDA and HIP, whose drivers must be initialized."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import ClassVar

from ztorch.backends.backend import Backend
from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError


class GpuBackend(Backend):
    """A driver that must be initialized, and that a forked child of the process cannot use."""

    no_device_codes: ClassVar[tuple[str, ...]]  # errors of a working driver without devices

    def __init__(self) -> None:
        self._process: int | None = None  # id of the process that initialized the driver

    @abstractmethod
    def _missing(self) -> str:
        """The message for a missing package; empty if none is missing. Does not call the
        driver."""

    @abstractmethod
    def _start(self) -> str:
        """Initializes the driver; returns an error message, or an empty string."""

    @abstractmethod
    def _count(self) -> int:
        """The number of devices."""

    @abstractmethod
    def _describe(self, ordinal: int) -> DeviceInfo:
        """Describes a device."""

    def refusal(self) -> str:
        if missing := self._missing():
            return missing
        if self._process not in (None, os.getpid()):
            return (f"this process was forked from one that used {self.name}, which a forked child "
                    "cannot use; start processes with multiprocessing.get_context('spawn')")
        try:
            if missing := self._start():
                return missing
            self._process = os.getpid()
            return "" if self._count() else "the driver has no device"
        except DeviceError as error:
            if any(code in str(error) for code in self.no_device_codes):
                return str(error)
            raise

    def devices(self) -> list[DeviceInfo]:
        return [] if self.refusal() else [self._describe(k) for k in range(self._count())]
