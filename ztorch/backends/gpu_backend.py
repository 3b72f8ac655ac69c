"""The base of the backends of CUDA and HIP: a driver that is started, and counts devices."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import ClassVar

from ztorch.backends.backend import Backend
from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError


class GpuBackend(Backend):
    """A driver that has to be started, and that no forked child of the process can use."""

    no_device_codes: ClassVar[tuple[str, ...]]  # answers of a driver that works but has no device

    def __init__(self) -> None:
        self._process: int | None = None  # the one that started the driver

    @abstractmethod
    def _missing(self) -> str:
        """The missing package; empty if none is missing. Does not call the driver."""

    @abstractmethod
    def _start(self) -> str:
        """Starts the driver if needed; returns an error message, or an empty string."""

    @abstractmethod
    def _count(self) -> int:
        """How many devices the driver has."""

    @abstractmethod
    def _describe(self, ordinal: int) -> DeviceInfo:
        """A device as the driver describes it."""

    def refusal(self) -> str:
        if missing := self._missing():
            return missing
        if self._process not in (None, os.getpid()):
            return (f"this process was forked from one that used {self.name}, and a forked child "
                    "cannot use it; start processes by multiprocessing's spawn")
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
