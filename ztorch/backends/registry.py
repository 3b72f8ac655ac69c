"""All backends by name, and the open devices: one object per device in a process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import pkgutil
import warnings
from typing import TYPE_CHECKING

from ztorch.backends import drivers
from ztorch.errors import DeviceError, UnknownName, nearest, unknown
from ztorch.host import plugins
from ztorch.host.choices import Choices, choices
from ztorch.locks import new_lock
from ztorch.machines.backends import languages_of

if TYPE_CHECKING:
    from ztorch.backends.backend import Backend
    from ztorch.backends.device import Device
    from ztorch.backends.handles import DeviceInfo

_opened: dict[tuple[str, int], Device] = {}
_lock = new_lock()


@functools.cache
def own_names() -> tuple[str, ...]:
    """The names of the backends of this package.

    >>> "opencl" in own_names()
    True
    """
    return tuple(sorted(m.name for m in pkgutil.iter_modules(drivers.__path__)))


def names() -> tuple[str, ...]:
    """The names of all backends, available on this machine or not; third parties' come last.

    >>> names()[:3]
    ('cuda', 'dummy', 'metal')
    """
    return (*own_names(), *sorted(plugins.installed().keys() - {*own_names(), "cpu", "c"}))


def is_known(name: str) -> bool:
    """Whether there is a backend of that name. Installed packages are searched only if it is not
    one of our own.

    >>> is_known("opencl"), is_known("cpu")
    (True, False)
    """
    return name in own_names() or (name not in ("cpu", "c") and name in names())


def backend(name: str) -> Backend:
    """The backend called `name`."""
    if not is_known(name):
        raise unknown("backend", name, names())
    driver: Backend
    if name in own_names():
        driver = importlib.import_module(f"{drivers.__name__}.{name}").BACKEND
    else:
        driver = getattr(plugins.module(name), "BACKEND")  # noqa: B009
    return driver


def languages(name: str) -> tuple[str, ...]:
    """The kernel languages that a backend, or the CPU, accepts. Kernels are given in the first
    unless another is named.

    >>> languages("opencl")
    ('opencl', 'spirv')
    """
    own = name in own_names() or name == "cpu"
    return languages_of(name) if own else backend(name).languages


def usable_devices(name: str) -> tuple[list[DeviceInfo], str]:
    """The usable devices of a backend, and if there are none the reason.

    Warns of a driver that raises an error, but not of one that is missing.
    """
    config = choices()
    _warn_of_unknown(config)
    if not config.uses(name):
        return [], "the configuration does not enable this backend"
    try:
        driver = backend(name)
        if reason := driver.refusal():
            return [], reason
        devices = driver.devices()
    except UnknownName:
        raise
    except Exception as error:  # a broken driver must not stop the others
        kind, reason = type(error).__name__, str(error)
        warnings.warn(f"backend {name} is broken: {kind}{reason and ': '}{reason}", stacklevel=2)
        return [], f"its driver is broken: {reason or kind}"
    numbers, platforms = config.devices.get(name), config.platforms.get(name)
    usable = [d for d in devices if (numbers is None or d.ordinal in numbers) and (
        platforms is None or any(p.lower() in d.driver.lower() for p in platforms))]
    return usable, "" if usable else "the configuration excludes all of its devices"


def _warn_of_unknown(config: Choices) -> None:
    """Warns of unknown names in the configuration: a misspelled one would silently hide devices."""
    named = {*(config.enabled or ()), *config.sections, *config.devices, *config.platforms}
    for name in sorted(n for n in named - {"cpu", "c"} if not is_known(n)):
        near = nearest(name, [*names(), "cpu", "c"])
        warnings.warn(f"the configuration (its file or the environment) names an unknown backend "
                      f"{name!r}{near}", stacklevel=3)


def open_device(name: str, ordinal: int | None = None) -> Device:
    """An open device. It is opened at its first use and then shared.

    Args:
        name: The backend.
        ordinal: The device's number in the driver's order. Default None: the first usable device.
    """
    with _lock:
        devices, reason = usable_devices(name)
        if not devices:
            raise DeviceError(f"there is no {name} device here: {reason}")
        ordinal = devices[0].ordinal if ordinal is None else ordinal
        if ordinal not in [d.ordinal for d in devices]:
            others = ", ".join(f"{name}:{d.ordinal}" for d in devices)
            raise DeviceError(f"there is no device {name}:{ordinal} here; there is {others}")
        device = _opened.get((name, ordinal))
        if device is not None:
            device.need_own_process()
        if device is not None and device.lost:
            with contextlib.suppress(DeviceError):  # it releases as much as it can
                device.close()
        if device is None or device.closed or device.lost:
            device = _opened[name, ordinal] = backend(name).open(ordinal)
        return device


@atexit.register
def _close_all() -> None:
    for device in _opened.values():
        with contextlib.suppress(DeviceError):  # the others must still be closed
            device.close()
