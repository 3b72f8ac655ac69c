"""The backends and devices that the user selects, in a config file or in environment variables.

The file holds a JSON object or, if its name ends in .toml, the same as TOML. All keys are optional:

- `enabled`: a list of the backends to use;
- `devices`: for a backend, the numbers of the devices to use;
- `platforms`: for a backend, a list of texts; a device's driver must contain one of them;
- `backends`: for a backend, a section with `enabled` (true or false), `device_ids` (as in
  `devices`) and `platforms`;
- `default`: the device that "auto" selects;
- `autotune`: whether compiling a model measures schedules that are not known yet.

Its path is in ZTORCH_CONFIG; by default it is `ztorch/config.json` or `ztorch/config.toml` in
XDG_CONFIG_HOME, or in ~/.config. ZTORCH_BACKENDS, ZTORCH_DEVICE_IDS, ZTORCH_DEVICE and
ZTORCH_AUTOTUNE override the file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.errors import ConfigError, nearest
from ztorch.host.settings import Settings, current

MOST_BYTES = 1 << 20  # the largest config file that is read
NAMES = ("config.json", "config.toml")  # of the file in its usual folder
SECTION = ("enabled", "device_ids", "platforms")  # keys of a backend's section


class Choices(NamedTuple):
    """The user's selection, from the file and the environment."""

    enabled: tuple[str, ...] | None = None  # backends to use; None: all
    devices: dict[str, tuple[int, ...]] = {}  # device numbers by backend; none named: all
    platforms: dict[str, tuple[str, ...]] = {}  # texts by backend, one must be in the driver's name
    default: str | None = None  # the device that "auto" selects
    disabled: tuple[str, ...] = ()  # backends whose section says so
    autotune: bool = False  # whether compiling a model measures schedules
    sections: tuple[str, ...] = ()  # backends that have one in the file

    def uses(self, backend: str) -> bool:
        """Whether a backend may be used.

        >>> Choices(disabled=("cuda",)).uses("cuda"), Choices().uses("cuda")
        (False, True)
        """
        return backend not in self.disabled and (self.enabled is None or backend in self.enabled)


FILE_KEYS = ("enabled", "devices", "platforms", "backends", "default", "autotune")


def choices() -> Choices:
    """The current choices.

    >>> choices().default is None or isinstance(choices().default, str)
    True
    """
    settings = current()
    path = Path(settings.config) if settings.config else _usual_file(settings)
    chosen = Choices() if path is None else _read(path)
    if settings.backends:
        chosen = chosen._replace(enabled=settings.backends, disabled=())
    if settings.device_ids:
        chosen = chosen._replace(devices=_numbers(settings.device_ids))
    if settings.autotune is not None:
        chosen = chosen._replace(autotune=settings.autotune)
    return chosen._replace(default=settings.device) if settings.device else chosen


def _usual_file(settings: Settings) -> Path | None:
    base = Path(settings.config_home) if settings.config_home else Path.home() / ".config"
    there = [path for name in NAMES if (path := base / "ztorch" / name).exists()]
    if len(there) > 1:
        raise ConfigError(f"there are two config files, {there[0]} and {there[1]}; delete one, or "
                          "name one in ZTORCH_CONFIG")
    return there[0] if there else None


def _numbers(ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, tuple[int, ...]] = {}
    for name in ids:
        backend, _, ordinal = name.partition(":")
        if not (backend and ordinal.isdecimal()):
            raise ConfigError(f"ZTORCH_DEVICE_IDS names {name!r}; it takes devices such as cuda:0, "
                              "with commas between them")
        numbers[backend] = (*numbers.get(backend, ()), int(ordinal))
    return numbers


def _read(path: Path) -> Choices:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}; set "
                          "ZTORCH_CONFIG to a readable file") from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"the config file {path} has more than {MOST_BYTES:,} bytes; "
                          "is it the right file?")
    data = _parsed(path, content)
    if not isinstance(data, dict):
        raise ConfigError(f"the config file {path} must hold an object, such as "
                          '{"default": "cpu"}')
    _warn_of_unknown_keys(path, data, FILE_KEYS)
    sections = _sections(path, data)
    devices = _table(path, data, "devices", int)
    platforms = _table(path, data, "platforms", str)
    for backend, section in sections.items():
        label = f"backends.{backend}"
        _warn_of_unknown_keys(path, section, SECTION, f"{label}.")
        for key, of, table in (("device_ids", int, devices), ("platforms", str, platforms)):
            if key in section:
                table[backend] = _list(path, section[key], f"{label}.{key}", of)
    switches = {name: _flag(path, section["enabled"], f"backends.{name}.enabled")
                for name, section in sections.items() if "enabled" in section}
    enabled = _names(path, data, "enabled")
    if enabled is not None:
        enabled = (*enabled, *(n for n, on in switches.items() if on and n not in enabled))
    return Choices(enabled, devices, platforms, _text(path, data, "default"),
                   tuple(name for name, on in switches.items() if not on),
                   _flag(path, data.get("autotune", False), "autotune"), tuple(sections))


def _parsed(path: Path, content: bytes) -> Any:
    if path.suffix == ".toml":
        return _toml(path, content)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the config file {path} is not JSON: {error}") from None


def _toml(path: Path, content: bytes) -> Any:
    for name in ("tomllib", "tomli"):  # Python's own is there from 3.11 on
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(name)
            break
    else:
        raise ConfigError(f"{path} is TOML, which Python reads from 3.11 on; pip install tomli, or "
                          "write it as JSON")
    try:
        return module.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the config file {path} is not TOML: {error}") from None


_warned: set[Any] = set()  # given warnings; files are read repeatedly


def _warn_once(key: Any, message: str) -> None:
    if key not in _warned:
        _warned.add(key)
        warnings.warn(message, stacklevel=4)


def _warn_of_unknown_keys(path: Path, data: dict[str, Any], known: tuple[str, ...],
                          prefix: str = "") -> None:
    for key in sorted(data.keys() - set(known)):
        near = nearest(key, known) or f"; known keys are {', '.join(known)}"
        _warn_once((path, prefix + key), f"{path}: unknown key {prefix + key!r}{near}")


def _sections(path: Path, data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    sections = data.get("backends", {})
    if not isinstance(sections, dict) or not all(isinstance(s, dict) for s in sections.values()):
        raise ConfigError(f"{path}: 'backends' must hold a section for each backend, such as "
                          '{"cuda": {"device_ids": [0]}}')
    return sections


def _names(path: Path, data: dict[str, Any], key: str) -> tuple[str, ...] | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(n, str) for n in value):
        raise ConfigError(f'{path}: {key!r} must be a list of names, such as ["cpu", "cuda"]')
    return tuple(value)


def _text(path: Path, data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f'{path}: {key!r} must be a device, such as "cuda:0"')
    return value


def _flag(path: Path, value: Any, label: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{path}: {label!r} must be true or false")
    return value


def _list(path: Path, value: Any, label: str, of: type) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(type(x) is of for x in value):
        raise ConfigError(f"{path}: {label!r} must be a list of "
                          f"{'numbers' if of is int else 'texts'}")
    return tuple(value)


def _table(path: Path, data: dict[str, Any], key: str, of: type) -> dict[str, Any]:
    value = data.get(key, {})
    example = '{"opencl": [0]}' if of is int else '{"opencl": ["Intel"]}'
    if not isinstance(value, dict) or not all(
            isinstance(v, list) and all(type(x) is of for x in v) for v in value.values()):
        raise ConfigError(f"{path}: {key!r} must be lists by backend, such as {example}")
    return {k: tuple(v) for k, v in value.items()}
