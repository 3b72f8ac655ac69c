"""Classes of users' own in files of Keras, which hold names and configs, but no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.config import Named
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network


def is_own(layer: Layer) -> bool:
    """Whether a layer is of a class of users' own. A functional model is as good as one of ours."""
    ours = type(layer).__module__.startswith("ztorch.")
    return not ours and (not isinstance(layer, Network) or layer.own_call is not None)


def registered_name(kind: type) -> str:
    """The name of a user's class in files of Keras.

    >>> class Twice(Layer):
    ...     pass
    >>> registered_name(Twice)
    'Twice'
    """
    return vars(kind).get("registered_as") or kind.__name__


def own_class(family: type[Named], spec: Mapping[str, Any]) -> Any:
    """The class of users' own that Keras describes, None where there is none.

    Args:
        family: The base of all such classes.
        spec: The description.
    """
    registered, plain = spec.get("registered_name"), spec.get("class_name")
    by_name = {registered_name(kind): kind for kind in family.known.values()} | family.known
    for name in filter(None, (registered, plain)):
        kind = by_name.get(name)
        if kind is not None and not (kind.__module__.startswith("ztorch.")
                                     and name in (kind.__name__, *kind.names)):
            return kind
    return None
