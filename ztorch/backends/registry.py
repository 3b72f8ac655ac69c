"""Which backends there are, and the devices that are open: one object for each in a process."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import pkgutil
import threading
import warnings

from ztorch.backends import drivers
from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError, nearest, unknown
from ztorch.host.choices import Choices, choices

_opened: dict[tuple[str, int], Device] = {}
_lock = threading.Lock()


@functools.cache
def names() -> tuple[str, ...]:
    """All backends that ztorch has, whether they work here or not.

    >>> "opencl" in names()
    True
    """
    return tuple(sorted(m.name for m in pkgutil.iter_modules(drivers.__path__)))


def backend(name: str) -> Backend:
    """The backend of a name."""
    if name not in names():
        raise unknown("backend", name, names())
    driver: Backend = importlib.import_module(f"{drivers.__name__}.{name}").BACKEND
    return driver


def seen(name: str) -> tuple[list[DeviceInfo], str]:
    """The devices of a backend that may be used here, and the reason if there are none. An absent
    driver is silent; one that fails when it is asked gives a warning."""
    chosen = choices()
    _warn_of_unknown(chosen)
    if chosen.enabled is not None and name not in chosen.enabled:
        return [], "not among the enabled backends of the configuration"
    driver = backend(name)
    try:
        if why := driver.refusal():
            return [], why
        devices = driver.devices()
    except Exception as error:  # whatever one driver does, the others still work
        kind, why = type(error).__name__, str(error)
        warnings.warn(f"backend {name} is broken: {kind}{why and ': '}{why}", stacklevel=2)
        return [], f"its driver broke: {why or kind}"
    numbers, platforms = chosen.devices.get(name), chosen.platforms.get(name)
    kept = [d for d in devices if (numbers is None or d.ordinal in numbers) and (
        platforms is None or any(p.lower() in d.driver.lower() for p in platforms))]
    return kept, "" if kept else "the configuration leaves none of its devices"


def _warn_of_unknown(chosen: Choices) -> None:
    """A misspelled name in the configuration would silently hide devices."""
    known = {*names(), "cpu", "c"}
    for name in sorted({*(chosen.enabled or ()), *chosen.devices, *chosen.platforms} - known):
        warnings.warn(f"the configuration (its file or ZTORCH_BACKENDS) names a backend {name!r}, "
                      f"which there is none of{nearest(name, known)}", stacklevel=3)


def opened(name: str, ordinal: int | None = None) -> Device:
    """A device, opened when first asked for and shared from then on. Without a number it is the
    first one that may be used."""
    with _lock:
        devices, why = seen(name)
        if not devices:
            raise DeviceError(f"there is no {name} device here: {why}")
        ordinal = devices[0].ordinal if ordinal is None else ordinal
        if ordinal not in [d.ordinal for d in devices]:
            known = ", ".join(f"{name}:{d.ordinal}" for d in devices)
            raise DeviceError(f"there is no device {name}:{ordinal} here; there is {known}")
        device = _opened.get((name, ordinal))
        if device is not None:
            device.need_own_process()
        if device is None or device.closed:
            device = _opened[name, ordinal] = backend(name).open(ordinal)
        return device


@atexit.register
def _close_all() -> None:
    for device in _opened.values():
        device.close()


def _unlock_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_after_fork)
