"""Backends of third parties: packages with an entry point in the group `ztorch.backends`.

The entry point's name is that of the backend. It names a module with

- BACKEND, an instance of a subclass of `ztorch.backends.backend.Backend`;
- TARGETS, rows of `ztorch.codegen.targets.Target`, of which one has the backend's name.
"""

from __future__ import annotations

import functools
import re
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ztorch.backends"


@functools.cache
def installed() -> dict[str, EntryPoint]:
    """The entry points of third parties by the names of their backends.

    >>> "no_such_backend" in installed()
    False
    """
    from importlib import metadata  # importing it takes a fifth of the time of a first tensor

    known: dict[str, EntryPoint] = {}
    for point in metadata.entry_points(group=GROUP):
        if re.fullmatch("[a-z]+", point.name) is None:
            warnings.warn(f"the entry point {point.name!r} of {GROUP} ({point.value}) is passed "
                          "over: the name of a backend has small letters only", stacklevel=2)
        else:
            known[point.name] = point
    return known


@functools.cache
def module(backend: str) -> ModuleType | None:
    """The module of a third party's backend; None if there is none of that name.

    Raises:
        Exception: Whatever importing it raises.
    """
    point = installed().get(backend)
    if point is None:
        return None
    loaded: ModuleType = point.load()
    return loaded
