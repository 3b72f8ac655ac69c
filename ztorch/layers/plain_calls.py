"""Layers written as in Keras: `call(self, x, training=False)`, without a context.

While such a call is traced, weights act as tensors, and the layers it calls use its context.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ztorch.arguments import parameter_names
from ztorch.dtypes import dtype
from ztorch.errors import ConfigError, Unsupported
from ztorch.layers.naming import checked_name, unused
from ztorch.layers.symbol import leaves
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight, tensors_of

# Attributes of every layer that hold layers but are not attributes of the user's class.
NOT_ATTRIBUTES = ("adopted", "adopter", "_traced_of")


# Attributes of all layers here besides those of Keras, and their types.
_KEPT = {"calls": list, "adopted": list, "own_weights": list, "rules": dict}


def need_free(layer: Any, name: str, value: Any) -> None:
    """Raises where an attribute would hide one of all layers, which layers here have besides those
    of Keras."""
    if name in _KEPT and not isinstance(value, _KEPT[name]):
        raise ConfigError(f"{type(layer).__name__}.{name} is an attribute of all layers and models "
                          f"here; give yours another name, such as self.own_{name}")
    owner: Any = next((c for c in type(layer).__mro__ if name in vars(c)), None)
    member = vars(owner)[name] if owner and owner.__module__.startswith("ztorch.") else None
    if callable(member) or (isinstance(member, property) and not member.fset):
        kind = "method" if callable(member) else "property"
        raise ConfigError(f"{type(layer).__name__}.{name} is a {kind} of every layer and model "
                          f"here; give the attribute another name, such as self.own_{name}")


def is_plain(call: Callable[..., Any]) -> bool:
    """Whether a method `call` takes no context after the tensor."""
    if parameter_names(call)[2:3] == ["context"]:
        return False
    parameters = [*inspect.signature(call).parameters.values()][1:]
    return all(p.kind is not p.VAR_POSITIONAL for p in parameters[:2])


def default_training(call: Callable[..., Any]) -> bool | None:
    """The default of the argument `training` of a method `call`; None if it has none.

    >>> default_training(lambda self, x, training=True: x)
    True
    """
    parameter = inspect.signature(call).parameters.get("training")
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def with_context(call: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a context argument to a `call` without one."""
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    takes_training = "training" in signature.parameters
    if "context" in signature.parameters:
        raise ConfigError(f"{call.__qualname__} takes context after other arguments; it must come "
                          "right after the tensor: call(self, x, context, ...)")

    @functools.wraps(call)
    def called(self: Any, x: Any, context: Any, *more: Any, **keywords: Any) -> Any:
        if takes_training:
            keywords.setdefault("training", context.training)
        return tensors_of(call(self, x, *more, **keywords))

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    called.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:2], context, *parameters[2:]])
    return called


def adopt_attributes(layer: Any) -> None:
    """Adopts the layers and variables in attributes of a layer written as in Keras, including
    lists, and names unnamed weights after their attributes."""
    for name, x in list(vars(layer).items()) if layer.is_plain else ():
        for item in leaves(x) if name not in NOT_ATTRIBUTES else ():
            if isinstance(item, LayerNode) and not any(item is other for other in layer.adopted):
                layer.adopt(item, attribute=name)
            if isinstance(item, Weight) and item.is_alone:
                _take(layer, item, name)
        names = {w.name for w in layer.own_weights}
        if isinstance(x, Weight) and not x.has_own_name and name not in names:
            x.name, x.has_own_name = checked_name(name, "weight"), True


def _take(layer: Any, variable: Weight, attribute: str) -> None:
    """Makes a variable a weight of the layer that has it as an attribute."""
    names = {w.name for w in layer.own_weights}
    name = variable.name if variable.has_own_name else checked_name(attribute, "variable")
    variable.layer, variable.name, variable.has_own_name = layer, unused(name, names), True
    variable.is_alone = False
    layer.own_weights.append(variable)


def need_floats(of: str, kind: Any) -> None:
    """Raises Unsupported for weights of a dtype that is not one of floats."""
    if kind is not None and not dtype(kind).is_float:
        raise Unsupported(f"{of}: a weight of dtype {dtype(kind).long}: weights are floats; use "
                          "dtype='float32', which counts exactly to 2**24")


def weight_arguments(layer: Any, name: Any, shape: Any, initializer: Any,
                     kind: Any) -> tuple[str, tuple[int, ...], Any, set[str]]:
    """The arguments of `add_weight` without a name, and the names already taken. `kind` is the
    dtype that the layer asks for.

    An unnamed weight is called "weight" until the attribute that holds it is known.
    """
    need_floats(f"layer {layer.name!r}", kind)
    if not isinstance(name, str | None):  # (shape, initializer), as in Keras
        left_out = isinstance(shape, tuple) and not shape
        name, shape, initializer = None, name, initializer if left_out else shape
    shape = (shape,) if isinstance(shape, int) else tuple(shape or ())
    names = {w.name for w in layer.own_weights}
    if name is None:
        name = unused("weight", names)
    return name, shape, "glorot_uniform" if initializer is None else initializer, names
