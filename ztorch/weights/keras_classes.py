"""User-defined classes in Keras files, which hold their names and configs, but no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.config import Named
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.names.class_names import is_ours


def is_user_defined(layer: Layer) -> bool:
    """Whether a layer is of a user-defined class. A functional model is not, whatever its class."""
    functional = isinstance(layer, Network) and layer.own_call is None
    return not is_ours(type(layer)) and not functional


def registered_name(kind: type) -> str:
    """The name of a user-defined class in Keras files.

    >>> class Twice(Layer):
    ...     pass
    >>> registered_name(Twice)
    'Twice'
    """
    return vars(kind).get("registered_as") or kind.__name__


def user_class(family: type[Named], spec: Mapping[str, Any]) -> Any:
    """The user-defined class that a Keras config names; None if there is none.

    Args:
        family: The base class.
        spec: The config.
    """
    registered, plain = spec.get("registered_name"), spec.get("class_name")
    own = [kind for kind in family.known.loaded.values() if not is_ours(kind)]
    by_name = {**family.known.loaded, **{registered_name(kind): kind for kind in own}}
    for name in filter(None, (registered, plain)):
        kind = by_name.get(name)
        if kind is not None and not (is_ours(kind) and name in (kind.__name__, *kind.names)):
            return kind
    return None
