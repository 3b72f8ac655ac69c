"""The methods that each driver implements; `Device` checks arguments and then calls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ztorch.backends.handles import DeviceModule, KernelEntry, Launch


class DriverCalls(ABC):
    """All methods but `_finish` and `_unpin` are called with the device's lock held."""

    @property
    def lost(self) -> bool:
        """Whether an error made the device unusable until it is opened again."""
        return False

    overlaps = False  # whether `_submit` returns before its work is done

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        """Copies in, replays and copies out, or only submits these steps. Returns the ticket that
        `_finish` gets."""
        if data_in.nbytes:
            self._write(inputs, 0, data_in)
        self._run(recording)
        if data_out.nbytes:
            self._read(outputs, 0, data_out)
        else:
            self._synchronize()

    def _finish(self, ticket: Any) -> None:  # noqa: B027
        """Waits for a ticket. Called without the lock, so other threads can use the device."""

    def _adopt(self, block: np.ndarray) -> Any:
        """A handle that shares the memory of an array, which must stay alive; None if this device
        cannot use it."""
        return None

    def _host_view(self, handle: Any) -> np.ndarray | None:
        """The memory of a handle as an array, once all work is done; None if the device has
        separate memory. The array stays valid after the handle is freed."""
        return None

    def _pin(self, block: np.ndarray) -> None:  # noqa: B027
        """Pins host memory for copies. Does nothing by default."""

    def _unpin(self, block: np.ndarray) -> None:  # noqa: B027
        """Unpins it at the next wait. Does nothing by default."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _alloc(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _free(self, handle: Any) -> None: ...

    @abstractmethod
    def _write(self, handle: Any, at: int, data: np.ndarray) -> None: ...

    @abstractmethod
    def _read(self, handle: Any, at: int, out: np.ndarray) -> None: ...

    @abstractmethod
    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None: ...

    @abstractmethod
    def _memory(self) -> tuple[int, int]: ...

    @abstractmethod
    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any: ...

    @abstractmethod
    def _unload(self, handle: Any) -> None: ...

    @abstractmethod
    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any: ...

    @abstractmethod
    def _drop(self, handle: Any) -> None: ...

    @abstractmethod
    def _run(self, handle: Any) -> None: ...

    @abstractmethod
    def _synchronize(self) -> None: ...
