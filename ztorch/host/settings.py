"""All ZTORCH_* environment variables, in one table.

No other file reads or sets the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ztorch.errors import ConfigError, nearest

STAGES = ("graph", "ir", "text", "plan", "time")


class Settings(NamedTuple):
    """Values that the environment can set.

    Field `x` is read from `ZTORCH_X`. Only `cc` is read from CC, the usual variable for a C
    compiler, and `config_home` from XDG_CONFIG_HOME.
    """

    debug: tuple[str, ...] = ()  # stages to print while compiling
    dump: str | None = None  # folder for the output of each stage, and for the library (perf)
    threads: int = 0  # worker threads; 0: one per usable core
    data: str | None = None  # folder of data sets that are not part of the package
    spin: int = 20_000  # iterations before an idle worker sleeps: about 100 us; waking takes ~10
    config: str | None = None  # path of the config file that selects devices
    config_home: str | None = None  # folder of all programs' config files; None: ~/.config
    device_ids: tuple[str, ...] = ()  # the only devices to use, such as cuda:0; empty: all
    autotune: bool | None = None  # whether compiling measures schedules; None: as the file says
    backends: tuple[str, ...] = ()  # the only backends to use; empty: all
    device: str | None = None  # the device that "auto" selects
    cc: str | None = None  # command of the C compiler
    opencl_options: tuple[str, ...] = ()  # extra options for the driver's OpenCL C compiler
    opencl_il: bool = True  # prefer SPIR-V to OpenCL C if the driver accepts it
    cache: str | None = None  # folder for assembled code; None (ZTORCH_CACHE=0): no cache
    lazy: bool = True  # ops on tensors are recorded, and computed together when a value is needed
    interpret: bool = False  # the interpreter of the IR plays the code for the CPU, and checks it
    cubin: bool = True  # assemble CUDA code here too where nvJitLink is, not in the driver alone
    early_launches: bool = True  # kernels of a GPU are put in place before those before them end
    tuned: bool = True  # schedules that `ztorch tune` found take the place of those of the rules


def _read() -> Settings:
    env = os.environ
    debug = tuple(s for s in env.get("ZTORCH_DEBUG", "").split(",") if s)
    for stage in debug:
        if stage not in STAGES:
            near = nearest(stage, STAGES) or "."
            raise ConfigError(f"ZTORCH_DEBUG={stage!r} is not a stage{near} Known: "
                              f"{', '.join(STAGES)}")
    return Settings(
        debug=debug,
        dump=env.get("ZTORCH_DUMP") or None,
        threads=_whole("ZTORCH_THREADS", 0),
        data=env.get("ZTORCH_DATA") or None,
        spin=_whole("ZTORCH_SPIN", 20_000),
        config=env.get("ZTORCH_CONFIG") or None,
        backends=_list("ZTORCH_BACKENDS"),
        config_home=_absolute("XDG_CONFIG_HOME"),
        device_ids=_list("ZTORCH_DEVICE_IDS"),
        autotune=bool(_whole("ZTORCH_AUTOTUNE", 0)) if env.get("ZTORCH_AUTOTUNE") else None,
        device=env.get("ZTORCH_DEVICE") or None,
        cc=env.get("CC") or None,
        opencl_options=tuple(env.get("ZTORCH_OPENCL_OPTIONS", "").split()),
        opencl_il=bool(_whole("ZTORCH_OPENCL_IL", 1)),
        cache=_cache(),
        lazy=bool(_whole("ZTORCH_LAZY", 1)),
        interpret=bool(_whole("ZTORCH_INTERPRET", 0)),
        cubin=bool(_whole("ZTORCH_CUBIN", 1)),
        early_launches=bool(_whole("ZTORCH_EARLY_LAUNCHES", 1)),
        tuned=bool(_whole("ZTORCH_TUNED", 1)),
    )


def _cache() -> str | None:
    """The folder in ZTORCH_CACHE; None if that is 0.

    If it is unset, `ztorch` in XDG_CACHE_HOME or in ~/.cache.
    """
    chosen = os.environ.get("ZTORCH_CACHE", "")
    if chosen:
        return None if chosen == "0" else chosen
    base = _absolute("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "ztorch") if os.path.isabs(base) else None


def _absolute(name: str) -> str | None:
    """The folder in a variable of the XDG standard, which ignores relative paths."""
    folder = os.environ.get(name, "")
    return folder if os.path.isabs(folder) else None


def _list(name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(name, "").split(",") if part.strip())


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise ConfigError(f"{name}={text!r} must be an integer of at least 0")
    return int(text)


@contextmanager
def where_unset(**variables: str) -> Iterator[None]:
    """Sets environment variables for a block, except those that the user has set.

    >>> with where_unset(ZTORCH_NO_SUCH="1"):
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
    """The current settings: of the enclosing `settings.using(...)`, or of the environment."""
    return _override[-1] if _override else _read()


@contextmanager
def using(**changes: object) -> Iterator[Settings]:
    """Changes settings for a block.

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
    """The environment of a child process: that of this one, with more variables.

    >>> child_environment(ZTORCH_EXAMPLE="1")["ZTORCH_EXAMPLE"]
    '1'
    """
    return {**os.environ, **variables}
