"""The backends and devices that the user selects, in a config file or in environment variables.

The file holds a JSON object. All keys are optional:

- `enabled`: a list of the backends to use;
- `devices`: for a backend, the numbers of the devices to use;
- `platforms`: for a backend, a list of texts; a device's driver must contain one of them;
- `default`: the device that "auto" stands for.

Its path is in ZTORCH_CONFIG, by default ~/.config/ztorch/config.json. ZTORCH_BACKENDS and
ZTORCH_DEVICE override the file.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.errors import ConfigError, nearest
from ztorch.host.settings import current

MOST_BYTES = 1 << 20  # the largest config file that is read


class Choices(NamedTuple):
    """The user's selection, from the file and the environment."""

    enabled: tuple[str, ...] | None = None  # backends to use; None: all
    devices: dict[str, tuple[int, ...]] = {}  # device numbers by backend; none named: all
    platforms: dict[str, tuple[str, ...]] = {}  # texts by backend, one must be in the driver's name
    default: str | None = None  # the device that "auto" stands for


def choices() -> Choices:
    """The current choices.

    >>> choices().default is None or isinstance(choices().default, str)
    True
    """
    settings = current()
    chosen = _read(Path(settings.config)) if settings.config else _standard()
    if settings.backends:
        chosen = chosen._replace(enabled=settings.backends)
    return chosen._replace(default=settings.device) if settings.device else chosen


def _standard() -> Choices:
    path = Path.home() / ".config" / "ztorch" / "config.json"
    return _read(path) if path.exists() else Choices()


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
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the config file {path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"the config file {path} must hold an object, such as "
                          '{"default": "cpu"}')
    for key in data.keys() - set(Choices._fields):
        near = nearest(key, Choices._fields) or f"; known keys are {', '.join(Choices._fields)}"
        warnings.warn(f"{path}: unknown key {key!r}{near}", stacklevel=3)
    return Choices(_names(path, data, "enabled"), _table(path, data, "devices", int),
                   _table(path, data, "platforms", str), _text(path, data, "default"))


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


def _table(path: Path, data: dict[str, Any], key: str, of: type) -> dict[str, Any]:
    value = data.get(key, {})
    example = '{"opencl": [0]}' if of is int else '{"opencl": ["Intel"]}'
    if not isinstance(value, dict) or not all(
            isinstance(v, list) and all(type(x) is of for x in v) for v in value.values()):
        raise ConfigError(f"{path}: {key!r} must be lists by backend, such as {example}")
    return {k: tuple(v) for k, v in value.items()}
