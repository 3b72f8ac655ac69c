"""Backends of third parties: packages with an entry point in the group `ztorch.backends`.

The entry point has the name of the backend. It refers to a module with

- BACKEND, an instance of a subclass of `ztorch.backends.backend.Backend`;
- TARGETS, a list of `ztorch.codegen.targets.Target`; one of them has the backend's name.
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
    """The entry points of third parties by backend.

    >>> "no_such_backend" in installed()
    False
    """
    from importlib import metadata  # slow to import

    points: dict[str, EntryPoint] = {}
    for point in metadata.entry_points(group=GROUP):
        if re.fullmatch("[a-z]+", point.name) is None:
            warnings.warn(f"the entry point {point.name!r} of {GROUP} ({point.value}) is ignored: "
                          "the name of a backend has lower-case letters only", stacklevel=2)
        else:
            points[point.name] = point
    return points


@functools.cache
def module(backend: str) -> ModuleType | None:
    """The module of a third party's backend; None if there is no such backend.

    Raises:
        Exception: Any exception that the import raises.
    """
    point = installed().get(backend)
    if point is None:
        return None
    loaded: ModuleType = point.load()
    return loaded
