"""Which drivers there are, and the devices they have opened: one of each for the process."""

from __future__ import annotations

import atexit
import functools
import importlib
import pkgutil
import threading

from ztorch.backends import drivers
from ztorch.backends.device import Backend, Device
from ztorch.errors import DeviceError, unknown

_opened: dict[tuple[str, int], Device] = {}
_lock = threading.Lock()


@functools.cache
def names() -> tuple[str, ...]:
    """All drivers that ztorch has, whether they work here or not.

    >>> "opencl" in names()
    True
    """
    return tuple(sorted(m.name for m in pkgutil.iter_modules(drivers.__path__)))


def backend(name: str) -> Backend:
    """The driver of a name."""
    if name not in names():
        raise unknown("backend", name, names())
    found: Backend = importlib.import_module(f"{drivers.__name__}.{name}").BACKEND
    return found


def opened(name: str, ordinal: int = 0) -> Device:
    """A device, opened when first asked for and shared from then on."""
    with _lock:
        device = _opened.get((name, ordinal))
        if device is None or device.closed:
            driver = backend(name)
            if why := driver.refusal():
                raise DeviceError(f"there is no {name} device here: {why}")
            count = len(driver.found())
            if not 0 <= ordinal < count:
                raise DeviceError(f"there is no device {name}:{ordinal}; {name} has {count} here")
            device = _opened[name, ordinal] = driver.open(ordinal)
        return device


@atexit.register
def _close_all() -> None:
    for device in _opened.values():
        device.close()
