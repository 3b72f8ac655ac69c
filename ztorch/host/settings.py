"""Every ZTORCH_* environment variable, in one table; the only file that reads the environment, or
sets it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ztorch.errors import ConfigError, nearest

STAGES = ("graph", "ir", "text", "plan", "time")


class Settings(NamedTuple):
    """What the environment may change. Each field `x` is read from `ZTORCH_X`, but `cc` from CC,
    as every program that runs a C compiler does."""

    debug: tuple[str, ...] = ()  # stages to print while compiling
    dump: str | None = None  # folder that receives every stage, and the library for perf
    threads: int = 0  # worker threads; 0 means one for each usable core
    data: str | None = None  # folder of data sets that do not ship with the package
    # Turns a waiting worker spins before it sleeps: some hundred microseconds, more than what a
    # Python loop does between two steps, as waking up costs tens of them.
    spin: int = 20_000
    config: str | None = None  # the file that says which devices may be used
    backends: tuple[str, ...] = ()  # the only ones to look at, if any
    device: str | None = None  # what "auto" means
    cc: str | None = None  # the C compiler, as a command
    opencl_options: tuple[str, ...] = ()  # more of them for the driver's compiler of OpenCL C
    opencl_il: bool = True  # SPIR-V where an OpenCL driver takes it, not OpenCL C
    # Folder that keeps assembled code for later processes; None keeps nothing (ZTORCH_CACHE=0).
    # Unset, it is `ztorch` in XDG_CACHE_HOME, or in ~/.cache.
    cache: str | None = None
    cubin: bool = False  # assemble CUDA code here, for one chip, instead of in the driver


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
        backends=tuple(s.strip() for s in env.get("ZTORCH_BACKENDS", "").split(",") if s.strip()),
        device=env.get("ZTORCH_DEVICE") or None,
        cc=env.get("CC") or None,
        opencl_options=tuple(env.get("ZTORCH_OPENCL_OPTIONS", "").split()),
        opencl_il=bool(_whole("ZTORCH_OPENCL_IL", 1)),
        cache=_cache(),
        cubin=bool(_whole("ZTORCH_CUBIN", 0)),
    )


def _cache() -> str | None:
    """ZTORCH_CACHE: a folder, or 0 to keep nothing; else `ztorch` where users' caches lie."""
    chosen = os.environ.get("ZTORCH_CACHE", "")
    if chosen:
        return None if chosen == "0" else chosen
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as the standard says: relative ones count as none
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "ztorch") if os.path.isabs(base) else None


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise ConfigError(f"{name}={text!r} must be a whole number, zero or more")
    return int(text)


@contextmanager
def where_unset(**variables: str) -> Iterator[None]:
    """Variables that a library reads, set for a block unless users set them.

    >>> with where_unset(ZTORCH_NO_SUCH="1"):
    ...     os.environ["ZTORCH_NO_SUCH"]
    '1'
    >>> "ZTORCH_NO_SUCH" in os.environ
    False
    """
    mine = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


_override: list[Settings] = []


def current() -> Settings:
    """The settings in force: an enclosing `settings.using(...)`, else the environment."""
    return _override[-1] if _override else _read()


@contextmanager
def using(**changes: object) -> Iterator[Settings]:
    """Settings changed for a block.

    >>> with using(threads=1) as s:
    ...     s.threads
    1
    """
    _override.append(current()._replace(**changes))  # type: ignore[arg-type]
    try:
        yield _override[-1]
    finally:
        _override.pop()
