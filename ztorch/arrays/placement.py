"""The default device: the device of new tensors, and the SIMD level of CPU code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ztorch.dtypes import ALL
from ztorch.errors import ConfigError, DeviceError
from ztorch.runtime import devices
from ztorch.runtime.devices import (
    chosen_device,
    configured_device,
    device_of_process,
    resolve,
)

_DTYPES = frozenset(name for d in ALL for name in (d.name, d.long))
device_of_block = devices.device_of_block.get  # of the enclosing `with zt.device(...)`, or None

when_default_changes: list[Callable[[], None]] = []  # called after the default device changes


def set_default_device(device: str) -> None:
    """Sets the default device of new tensors and of `compile("auto")`, in all threads.

    Args:
        device: The device, such as "cpu" or "vulkan:0"; "auto" takes the setting back.

    Raises:
        DeviceError: There is no such device here.

    Examples:
        >>> import ztorch as zt
        >>> zt.set_default_device("cpu")
        >>> zt.tensor([1.0, 2.0]).device
        'cpu'
    """
    memory_of(device)
    device_of_process[:] = [] if device == "auto" else [device]
    for call in when_default_changes:
        call()


def device(name: str) -> AbstractContextManager[None]:
    """Creates tensors on a device, and has `compile("auto")` choose it, inside a `with` block.

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
    return _in_block(_configured() if name == "auto" else name)


@contextmanager
def _in_block(name: str) -> Iterator[None]:
    token = devices.device_of_block.set(name)
    try:
        yield
    finally:
        devices.device_of_block.reset(token)


def default_device() -> str:
    """The device of the enclosing `with zt.device(...)`; else the one from `set_default_device`;
    else that of "auto": ZTORCH_DEVICE, the configuration file, or the best device of this
    machine."""
    return chosen_device() or _configured()


@functools.cache  # asked once: it reads files and looks for drivers
def _configured() -> str:
    if chosen_device() is None:
        resolve("auto")  # its error names the setting
    return configured_device()


def memory_of(device: str) -> str:
    """The memory of a device's tensors: "cpu" for all SIMD levels of the CPU.

    >>> memory_of("cpu:scalar")
    'cpu'
    """
    if not isinstance(device, str):
        raise ConfigError(f"a device is a string such as 'cpu' or 'cuda:0', not {device!r}; "
                          "x.astype(...) takes a dtype")
    return _memory_of(default_device() if device == "auto" else device)


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
