"""The known backends, and the open devices: one object per device in a process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import pkgutil
import warnings

from ztorch.backends import drivers
from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError, UnknownName, nearest, unknown
from ztorch.host import plugins
from ztorch.host.choices import Choices, choices
from ztorch.locks import new_lock
from ztorch.machines.backends import languages_of

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
    """The names of all backends, whether they work on this machine or not, third parties' last.

    >>> names()[:3]
    ('cuda', 'dummy', 'metal')
    """
    return (*own_names(), *sorted(plugins.installed().keys() - {*own_names(), "cpu", "c"}))


def known(name: str) -> bool:
    """Whether there is a backend of that name. Third parties are looked for only where it is not
    one of our own.

    >>> known("opencl"), known("cpu")
    (True, False)
    """
    return name in own_names() or (name not in ("cpu", "c") and name in names())


def backend(name: str) -> Backend:
    """The backend called `name`."""
    if not known(name):
        raise unknown("backend", name, names())
    driver: Backend
    if name in own_names():
        driver = importlib.import_module(f"{drivers.__name__}.{name}").BACKEND
    else:
        driver = getattr(plugins.module(name), "BACKEND")  # noqa: B009
    return driver


def languages(name: str) -> tuple[str, ...]:
    """The languages that a backend, or the CPU, takes kernels in; text is taken for the first.

    >>> languages("opencl")
    ('opencl', 'spirv')
    """
    own = name in own_names() or name == "cpu"
    return languages_of(name) if own else backend(name).languages


def seen(name: str) -> tuple[list[DeviceInfo], str]:
    """The usable devices of a backend; if there are none, also the reason.

    A missing driver is not reported; a driver that raises an error gives a warning.
    """
    chosen = choices()
    _warn_of_unknown(chosen)
    if not chosen.uses(name):
        return [], "not among the enabled backends of the configuration"
    try:
        driver = backend(name)
        if why := driver.refusal():
            return [], why
        devices = driver.devices()
    except UnknownName:
        raise
    except Exception as error:  # a broken driver must not stop the others
        kind, why = type(error).__name__, str(error)
        warnings.warn(f"backend {name} is broken: {kind}{why and ': '}{why}", stacklevel=2)
        return [], f"its driver broke: {why or kind}"
    numbers, platforms = chosen.devices.get(name), chosen.platforms.get(name)
    usable = [d for d in devices if (numbers is None or d.ordinal in numbers) and (
        platforms is None or any(p.lower() in d.driver.lower() for p in platforms))]
    return usable, "" if usable else "the configuration leaves none of its devices"


def _warn_of_unknown(chosen: Choices) -> None:
    """Warns of unknown names: a misspelled one would silently hide devices."""
    named = {*(chosen.enabled or ()), *chosen.sections, *chosen.devices, *chosen.platforms}
    for name in sorted(n for n in named - {"cpu", "c"} if not known(n)):
        near = nearest(name, [*names(), "cpu", "c"])
        warnings.warn(f"the configuration (its file or the environment) names a backend {name!r}, "
                      f"which there is none of{near}", stacklevel=3)


def opened(name: str, ordinal: int | None = None) -> Device:
    """A device, opened at its first use and then shared. The default is the first usable one."""
    with _lock:
        devices, why = seen(name)
        if not devices:
            raise DeviceError(f"there is no {name} device here: {why}")
        ordinal = devices[0].ordinal if ordinal is None else ordinal
        if ordinal not in [d.ordinal for d in devices]:
            others = ", ".join(f"{name}:{d.ordinal}" for d in devices)
            raise DeviceError(f"there is no device {name}:{ordinal} here; there is {others}")
        device = _opened.get((name, ordinal))
        if device is not None:
            device.need_own_process()
        if device is not None and device.lost:
            with contextlib.suppress(DeviceError):  # it gives back as much as it can
                device.close()
        if device is None or device.closed or device.lost:
            device = _opened[name, ordinal] = backend(name).open(ordinal)
        return device


@atexit.register
def _close_all() -> None:
    for device in _opened.values():
        with contextlib.suppress(DeviceError):  # the others are closed all the same
            device.close()
