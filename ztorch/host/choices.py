"""The user's configuration of backends and devices, from a config file and the environment.

The file contains a JSON object, or TOML if its name ends in .toml. All keys are optional:

- `enabled`: the list of backends to use;
- `devices`: the numbers of the devices to use, by backend;
- `platforms`: a list of texts by backend; the name of a device's driver must contain one of them;
- `backends`: a section by backend, with `enabled` (true or false), `device_ids` (as in `devices`)
  and `platforms`;
- `default`: the device that "auto" selects;
- `autotune`: whether compiling a model measures schedules that were not measured yet.

ZTORCH_CONFIG is its path. The default is `ztorch/config.json` or `ztorch/config.toml` in
XDG_CONFIG_HOME or ~/.config. ZTORCH_BACKENDS, ZTORCH_DEVICE_IDS, ZTORCH_DEVICE and
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

MAX_FILE_BYTES = 1 << 20  # a larger file is an error
NAMES = ("config.json", "config.toml")  # names of the file in its default folder
SECTION_KEYS = ("enabled", "device_ids", "platforms")  # keys of a backend's section


class Choices(NamedTuple):
    """The configuration."""

    enabled: tuple[str, ...] | None = None  # backends to use; None: all
    devices: dict[str, tuple[int, ...]] = {}  # device numbers by backend; all of other backends
    platforms: dict[str, tuple[str, ...]] = {}  # possible parts of drivers' names, by backend
    default: str | None = None  # the device that "auto" selects
    disabled: tuple[str, ...] = ()  # backends that their section disables
    autotune: bool = False  # whether compiling a model measures schedules
    sections: tuple[str, ...] = ()  # backends with a section in the file

    def uses(self, backend: str) -> bool:
        """Whether a backend may be used.

        >>> Choices(disabled=("cuda",)).uses("cuda"), Choices().uses("cuda")
        (False, True)
        """
        return backend not in self.disabled and (self.enabled is None or backend in self.enabled)


FILE_KEYS = ("enabled", "devices", "platforms", "backends", "default", "autotune")


def choices() -> Choices:
    """The current configuration.

    >>> choices().default is None or isinstance(choices().default, str)
    True
    """
    settings = current()
    path = Path(settings.config) if settings.config else _default_file(settings)
    selection = Choices() if path is None else _read(path)
    if settings.backends:
        selection = selection._replace(enabled=settings.backends, disabled=())
    if settings.device_ids:
        selection = selection._replace(devices=_numbers(settings.device_ids))
    if settings.autotune is not None:
        selection = selection._replace(autotune=settings.autotune)
    return selection._replace(default=settings.device) if settings.device else selection


def _default_file(settings: Settings) -> Path | None:
    base = Path(settings.config_home) if settings.config_home else Path.home() / ".config"
    paths = [path for name in NAMES if (path := base / "ztorch" / name).exists()]
    if len(paths) > 1:
        raise ConfigError(f"there are two config files, {paths[0]} and {paths[1]}; delete one, or "
                          "name one in ZTORCH_CONFIG")
    return paths[0] if paths else None


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
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}; set "
                          "ZTORCH_CONFIG to a readable file") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"the config file {path} has more than {MAX_FILE_BYTES:,} bytes; "
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
        _warn_of_unknown_keys(path, section, SECTION_KEYS, f"{label}.")
        for key, kind, table in (("device_ids", int, devices), ("platforms", str, platforms)):
            if key in section:
                table[backend] = _list(path, section[key], f"{label}.{key}", kind)
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
    for name in ("tomllib", "tomli"):  # tomllib is part of Python since 3.11
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


_warned: set[Any] = set()  # keys of issued warnings, since the file is read repeatedly


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


def _list(path: Path, value: Any, label: str, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(type(x) is kind for x in value):
        raise ConfigError(f"{path}: {label!r} must be a list of "
                          f"{'numbers' if kind is int else 'texts'}")
    return tuple(value)


def _table(path: Path, data: dict[str, Any], key: str, kind: type) -> dict[str, Any]:
    value = data.get(key, {})
    example = '{"opencl": [0]}' if kind is int else '{"opencl": ["Intel"]}'
    if not isinstance(value, dict) or not all(
            isinstance(v, list) and all(type(x) is kind for x in v) for v in value.values()):
        raise ConfigError(f"{path}: {key!r} must be lists by backend, such as {example}")
    return {k: tuple(v) for k, v in value.items()}
