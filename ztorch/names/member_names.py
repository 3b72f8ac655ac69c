"""Names in the modules of layers, losses and other families: their members, whose files load on
first use, and those that all share, as in Keras: `serialize` and `deserialize`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ztorch import dispatch
from ztorch.config import Named
from ztorch.errors import unknown

SHARED = ("deserialize", "serialize")


def shared(name: str) -> Any:
    """The function `serialize` or `deserialize`; None for other names.

    >>> shared("relu") is None
    True
    """
    return getattr(dispatch, name) if name in SHARED else None


def file_named(module: str, name: str) -> ModuleType | None:
    """The file of a room, as in `from ztorch.layers import core`; None if there is none. An error
    without advice for names with an underscore, which Python itself asks for.

    >>> file_named("ztorch.layers", "core").__name__, file_named("ztorch.layers", "Dense")
    ('ztorch.layers.core', None)
    """
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"{module}.{name}") if _is_file(module, name) else None


@cache
def _is_file(module: str, name: str) -> bool:
    return find_spec(f"{module}.{name}") is not None


def class_named(family: type[Named], name: str) -> Any:
    """The class of the package with this name; None if there is none, as for short names.

    >>> from ztorch.losses import Loss
    >>> class_named(Loss, "Huber"), class_named(Loss, "huber")
    (<class 'ztorch.losses.regression.Huber'>, None)
    """
    kind = family.known.ours(name) if name in family.known else None
    return kind if kind is not None and kind.__name__ == name else None


def member(family: type[Named], name: str) -> Any:
    """The member of a family with this name, of a class or short.

    Raises:
        AttributeError: There is no such member; the message lists similar names.
    """
    if (file := file_named(family.__module__.rpartition(".")[0], name)) is not None:
        return file
    if name in SHARED:
        return shared(name)
    if name not in family.known:
        raise AttributeError(str(unknown(family.family, name, family.known)))
    return family.known.ours(name)
