"""The calls of each driver of a device with separate memory; `Device` offers them to all
others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ztorch.backends.handles import DeviceModule, KernelEntry, Launch


class DriverCalls(ABC):
    """Called with the guard of the device held and arguments checked."""

    @property
    def lost(self) -> bool:
        """Whether an error has made the device useless until it is opened again."""
        return False

    overlaps = False  # whether `_submit` returns before all is done

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        """Copies in, replays and copies out, or submits all of that; then passes the result to
        `_finish`, which waits."""
        if data_in.nbytes:
            self._write(inputs, 0, data_in)
        self._run(recording)
        if data_out.nbytes:
            self._read(outputs, 0, data_out)
        else:
            self._synchronise()

    def _finish(self, ticket: Any) -> None:  # noqa: B027
        """Called without the guard: others go on meanwhile."""

    def _adopt(self, block: np.ndarray) -> Any:
        """A handle of the bytes of an array in place, which must stay; None if this device
        cannot work there."""
        return None

    def _seen(self, handle: Any) -> np.ndarray | None:
        """The bytes of a handle in place in the host's memory, once all work is done. They
        stay after the handle was freed. None if the host must copy them."""
        return None

    def _pin(self, block: np.ndarray) -> None:  # noqa: B027
        """A driver that has no use for it does nothing."""

    def _unpin(self, block: np.ndarray) -> None:  # noqa: B027
        """The same."""

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
    def _synchronise(self) -> None: ...
