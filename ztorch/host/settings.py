"""The settings that environment variables control. No other file reads or sets the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ztorch.errors import ConfigError, nearest

STAGES = ("graph", "ir", "text", "plan", "time")  # stages that ZTORCH_DEBUG can print


class Settings(NamedTuple):
    """Values that the environment can set.

    Field `x` is read from `ZTORCH_X`, but `cc` from CC, and `config_home` from XDG_CONFIG_HOME.
    """

    debug: tuple[str, ...] = ()  # stages to print while compiling
    dump: str | None = None  # folder for the output of each stage, and for the library
    threads: int = 0  # worker threads; 0: one per usable core
    data: str | None = None  # folder of data sets that are not part of the package
    spin: int = 20_000  # iterations before an idle worker sleeps: 100 us; to wake it takes 10 us
    config: str | None = None  # path of the config file
    config_home: str | None = None  # folder of all programs' config files; None: ~/.config
    device_ids: tuple[str, ...] = ()  # devices to use, such as cuda:0; empty: all
    autotune: bool | None = None  # whether compiling measures schedules; None: see the config file
    backends: tuple[str, ...] = ()  # backends to use; empty: all
    device: str | None = None  # the device that "auto" selects
    cc: str | None = None  # command of the C compiler
    opencl_options: tuple[str, ...] = ()  # extra options for the driver's OpenCL C compiler
    opencl_il: bool = True  # whether to prefer SPIR-V to OpenCL C if the driver accepts it
    cache: str | None = None  # folder for assembled code; None (ZTORCH_CACHE=0): no cache
    lazy: bool = True  # whether ops on tensors run together, when a value is needed
    interpret: bool = False  # whether the IR interpreter runs the code for the CPU, with checks
    cubin: bool = True  # whether nvJitLink assembles CUDA code when it is compiled
    early_launches: bool = True  # whether kernels of a GPU start before those that they wait for
    tuned: bool = True  # whether to use schedules that `ztorch tune` found


def _read() -> Settings:
    env = os.environ
    debug = tuple(s for s in env.get("ZTORCH_DEBUG", "").split(",") if s)
    for stage in debug:
        if stage not in STAGES:
            near = nearest(stage, STAGES) or "."
            raise ConfigError(f"ZTORCH_DEBUG={stage!r} is not a stage{near} The stages are "
                              f"{', '.join(STAGES)}")
    return Settings(
        debug=debug,
        dump=env.get("ZTORCH_DUMP") or None,
        threads=_integer("ZTORCH_THREADS", 0),
        data=env.get("ZTORCH_DATA") or None,
        spin=_integer("ZTORCH_SPIN", 20_000),
        config=env.get("ZTORCH_CONFIG") or None,
        backends=_list("ZTORCH_BACKENDS"),
        config_home=_absolute("XDG_CONFIG_HOME"),
        device_ids=_list("ZTORCH_DEVICE_IDS"),
        autotune=bool(_integer("ZTORCH_AUTOTUNE", 0)) if env.get("ZTORCH_AUTOTUNE") else None,
        device=env.get("ZTORCH_DEVICE") or None,
        cc=env.get("CC") or None,
        opencl_options=tuple(env.get("ZTORCH_OPENCL_OPTIONS", "").split()),
        opencl_il=bool(_integer("ZTORCH_OPENCL_IL", 1)),
        cache=_cache(),
        lazy=bool(_integer("ZTORCH_LAZY", 1)),
        interpret=bool(_integer("ZTORCH_INTERPRET", 0)),
        cubin=bool(_integer("ZTORCH_CUBIN", 1)),
        early_launches=bool(_integer("ZTORCH_EARLY_LAUNCHES", 1)),
        tuned=bool(_integer("ZTORCH_TUNED", 1)),
    )


def _cache() -> str | None:
    """The folder in ZTORCH_CACHE, or None if that is 0. The default is `ztorch` in XDG_CACHE_HOME
    or ~/.cache."""
    setting = os.environ.get("ZTORCH_CACHE", "")
    if setting:
        return None if setting == "0" else setting
    base = _absolute("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "ztorch") if os.path.isabs(base) else None


def _absolute(name: str) -> str | None:
    """The folder in a variable of the XDG standard, which says to ignore relative paths."""
    folder = os.environ.get(name, "")
    return folder if os.path.isabs(folder) else None


def _list(name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(name, "").split(",") if part.strip())


def _integer(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(f"{name}={text!r} must be an integer of at least 0")
    return int(text)


@contextmanager
def default_environment(**variables: str) -> Iterator[None]:
    """Sets environment variables for a block, except those that the user has set.

    >>> with default_environment(ZTORCH_NO_SUCH="1"):
    ...     os.environ["ZTORCH_NO_SUCH"]
    '1'
    >>> "ZTORCH_NO_SUCH" in os.environ
    False
    """
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


_override: list[Settings] = []


def current() -> Settings:
    """The current settings: those of the enclosing `using(...)`, or of the environment."""
    return _override[-1] if _override else _read()


@contextmanager
def using(**changes: object) -> Iterator[Settings]:
    """A block with changed settings.

    >>> with using(threads=1) as s:
    ...     s.threads
    1
    """
    _override.append(current()._replace(**changes))  # type: ignore[arg-type]
    try:
        yield _override[-1]
    finally:
        _override.pop()


def child_environment(**variables: str) -> dict[str, str]:
    """The environment of this process with other variables added, for a child process.

    >>> child_environment(ZTORCH_EXAMPLE="1")["ZTORCH_EXAMPLE"]
    '1'
    """
    return {**os.environ, **variables}
