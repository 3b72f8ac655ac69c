"""Names in the modules of layers, losses and other families: their members, whose files load on
first use, and those that all share, as in Keras: `serialize` and `deserialize`."""

from __future__ import annotations

from importlib.util import find_spec
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


def need_public(module: str, name: str) -> None:
    """Raises an error without advice for names that Python itself asks for: those with an
    underscore, and of files, before `from ztorch.layers import core` imports one."""
    if name.startswith("_") or find_spec(f"{module}.{name}") is not None:
        raise AttributeError(name)


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
    need_public(family.__module__.rpartition(".")[0], name)
    if name in SHARED:
        return shared(name)
    if name not in family.known:
        raise AttributeError(str(unknown(family.family, name, family.known)))
    return family.known.ours(name)
