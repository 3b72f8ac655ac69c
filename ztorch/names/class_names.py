"""The names of classes in configs. A name of the package means the package's class, even where a
user's class has it, too."""

from __future__ import annotations

from typing import Any

OWN_CLASS = "Custom>"  # before the name of a user's class, if the package has one of that name


def is_ours(kind: Any) -> bool:
    """Whether a class or function belongs to the package.

    >>> from ztorch.layers import Dense
    >>> is_ours(Dense), is_ours(int)
    (True, False)
    """
    return (kind.__module__ or "").startswith("ztorch.")


def register(kind: Any) -> None:
    """Makes a class known to its family, in `kind.known`, by its short names and its `config_name`:
    that of the class, or `Custom>NAME` where the package has a class of that name."""
    name, known = kind.config_name, kind.known
    known.update(dict.fromkeys(kind.names, kind))
    before = known.get(name, kind)
    if is_ours(before) == is_ours(kind):
        known[name] = kind
        return
    own, ours = (kind, before) if is_ours(before) else (before, kind)
    own.config_name = OWN_CLASS + name
    known.update({name: ours, own.config_name: own})
