"""Names that the modules of layers, losses and other families share, as in Keras: `serialize`,
`deserialize`, and lower-case members, such as `l2`."""

from __future__ import annotations

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


def member(family: type[Named], name: str) -> Any:
    """The member of a family with this lower-case name, which the module itself lacks.

    Raises:
        AttributeError: There is no such member; the message lists similar names.
    """
    if name.startswith("_"):
        raise AttributeError(name)
    known = shared(name) or family.known.get(name)
    if known is None:
        raise AttributeError(str(unknown(family.family, name, family.known)))
    return known
