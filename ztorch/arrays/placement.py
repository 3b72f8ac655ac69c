"""The default device: the device of new tensors, and the SIMD level of CPU code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from ztorch.dtypes import ALL
from ztorch.errors import ConfigError, DeviceError
from ztorch.runtime.devices import best_device, resolve

_DTYPES = frozenset(name for d in ALL for name in (d.name, d.long))
_chosen: ContextVar[str | None] = ContextVar("device", default=None)
device_of_block = _chosen.get  # device of the enclosing `with zt.device(...)`, or None
_process_wide: list[str] = []  # the last argument of set_default_device, if any

when_default_changes: list[Callable[[], None]] = []  # called after the default device changes


def set_default_device(device: str) -> None:
    """Sets the default device of new tensors, in all threads.

    Args:
        device: The device, such as "cpu" or "vulkan:0".

    Raises:
        DeviceError: There is no such device here.

    Examples:
        >>> import ztorch as zt
        >>> zt.set_default_device("cpu")
        >>> zt.tensor([1.0, 2.0]).device
        'cpu'
    """
    memory_of(device)
    _process_wide[:] = [device]
    for call in when_default_changes:
        call()


def device(name: str) -> AbstractContextManager[None]:
    """Creates tensors on a device, inside a `with` block.

    Args:
        name: The device, such as "cpu" or "vulkan:0". A SIMD level, such as "cpu:scalar", selects
            the code for tensors on the CPU.

    Raises:
        DeviceError: There is no such device here.

    Examples:
        >>> import ztorch as zt
        >>> with zt.device("cpu:scalar"):
        ...     print(zt.tensor([1.0, 2.0]) + 1)
        [2. 3.]
    """
    memory_of(name)
    return _chosen_device(name)


@contextmanager
def _chosen_device(name: str) -> Iterator[None]:
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def default_device() -> str:
    """The device of the enclosing `with zt.device(...)`; else the one from `set_default_device`;
    else that of "auto": ZTORCH_DEVICE, the configuration file, or the best device of this
    machine."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    return _process_wide[0] if _process_wide else _configured()


@functools.cache  # asked once: it reads files and looks for drivers
def _configured() -> str:
    resolve("auto")  # its error names the setting
    return best_device()


def memory_of(device: str) -> str:
    """The memory of a device's tensors: "cpu" for all SIMD levels of the CPU.

    >>> memory_of("cpu:scalar")
    'cpu'
    """
    if not isinstance(device, str):
        raise ConfigError(f"a device is a string such as 'cpu' or 'cuda:0', not {device!r}; "
                          "x.astype(...) takes a dtype")
    return _memory_of(device)


@functools.lru_cache
def _memory_of(device: str) -> str:
    if device in _DTYPES:
        raise ConfigError(f"{device} is a dtype, not a device; x.astype(...) takes it")
    place = resolve(device)
    if place.ordinal is None:
        raise DeviceError(f"{device} names a chip, which holds no tensors; name a device, such as "
                          f"{place.backend}:0")
    return "cpu" if place.backend == "cpu" else f"{place.backend}:{place.ordinal}"


def code_for(memory: str) -> str:
    """The device whose code computes on a memory: the default device if the memory belongs to
    it."""
    return _code_for(default_device(), memory)


@functools.lru_cache
def _code_for(default: str, memory: str) -> str:
    return default if memory_of(default) == memory else memory
