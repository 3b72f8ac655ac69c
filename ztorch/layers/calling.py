"""Checks of how a layer is called. Each error names the layer and shows the right call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value, current_layer
from ztorch.layers.context import Context
from ztorch.layers.symbol import leaves, symbols
from ztorch.layers.tree import LayerNode


def check_call(layer: LayerNode, inputs: Sequence[Any], keywords: dict[str, Any],
               context: Context | None) -> None:
    """Raises a ShapeError unless the layer accepts these arguments."""
    for x in leaves(inputs):
        symbolic = context is None and symbols(x)
        if not isinstance(x, Value) and x is not None and not symbolic:
            raise _not_a_tensor(layer, x)
    if leaves(inputs[:1]) in ([], [None]):
        raise _not_a_tensor(layer, None)
    count = len(leaves(inputs[0]))
    if isinstance(inputs[0], (list, tuple, dict)) and not (
            layer.takes_many or layer.is_plain):
        takes_one = len(inspect.signature(layer.call).parameters) < 3  # x, context
        raise shape_error(f"takes one tensor, not a list of {count}", fix=(
            "join them first, such as Concatenate()([a, b])" if takes_one else
            f"pass them one by one: {layer.name}(a, b)"))
    try:
        signature, arguments = _signature(layer)
        if "training" in signature.parameters:  # which the context tells
            keywords = {**keywords, "training": None}
        signature.bind(*arguments, inputs[0], context, *inputs[1:], **keywords)
    except TypeError as error:
        raise _wrong_arguments(layer, error) from None


def _signature(layer: LayerNode) -> tuple[inspect.Signature, list[Any]]:
    """The signature of a layer's `call`, and the arguments that it begins with."""
    if getattr(layer.call, "__func__", None) is type(layer).call:
        return _of_method(type(layer).call), [layer]
    return inspect.signature(layer.call), []


@functools.lru_cache(maxsize=256)
def _of_method(call: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(call)


def without_call(layer: type) -> ConfigError:
    """The error for a class of layers that defines no `call`."""
    fix = "rename its method forward to call" if hasattr(layer, "forward") else "define it"
    return ConfigError(f"{layer.__name__} has no method call(self, x); {fix}")


def model_without_call(model: type) -> ConfigError:
    """The error for a model without inputs and outputs whose class defines no `call`."""
    if hasattr(model, "forward"):
        return without_call(model)
    return ConfigError(f"{model.__name__} takes inputs and outputs, such as x = Input((4,)), then "
                       "Model(x, Dense(3)(x)); or define a class with layers as attributes and "
                       "call(self, x, training=False)")


def _not_a_tensor(layer: LayerNode, x: Any) -> Exception:
    """The error for an argument that is not a tensor."""
    fix = "declare with x = Input(shape) and call the layer on x, or on an array of numbers"
    if x is None:
        return shape_error("called without a tensor", fix=fix)
    if hasattr(x, "own_weights"):  # a layer
        return shape_error(f"called on the {type(x).__name__} {x!r}, not on a tensor",
                           fix=f"call that layer first: {layer.name}({x.name}(x))")
    return shape_error(f"called on a {type(x).__name__}, not on a tensor", fix=fix)


def _wrong_arguments(layer: LayerNode, error: TypeError) -> Exception:
    """The error for arguments that `call` does not accept."""
    others = [*inspect.signature(layer.call).parameters][2:]
    fix = (f"besides a tensor it takes {', '.join(others)}" if others else
           "it takes one tensor; layers that merge several take a list, such as Add()([a, b])")
    return shape_error(f"wrong arguments: {error}", fix=fix)


def need_adopted(layer: LayerNode, context: Context | None, passed: bool) -> None:
    """Raises a ConfigError if a layer calls another layer without adopting it or without passing
    its context: weights would belong to no model, or be read twice. Layers without weights need no
    adoption. `passed` tells whether it passed the context."""
    needs_none = not (layer.makes_weights or layer.is_plain or vars(layer)["adopted"])
    if layer.adopter is None and layer is not getattr(context, "stepped", None) and not needs_none:
        caller = f"layer {current_layer()!r}" if current_layer() else "the call of a model"
        construction = f"{type(layer).__name__}(...)"
        construction = f"self.adopt({construction})" if passed else construction
        raise ConfigError(f"{caller} calls layer {layer.name!r} without adopting it; write "
                          f"self.{layer.name} = {construction} in its __init__, so that its "
                          "weights belong to the model")
    if context is None:
        raise ConfigError(f"layer {current_layer()!r} calls layer {layer.name!r} without its "
                          f"context; write {layer.name}(x, context)")


def need_floats(layer: LayerNode, x: Any) -> None:
    """Raises a ShapeError if inputs are integers, such as the bytes of images."""
    for v in leaves(x):
        if not v.dtype.is_float:
            raise shape_error(f"{type(layer).__name__} takes floats, not {v.dtype}",
                              fix="before it, cast them with Rescaling(1.0), or look ids up with "
                                  "an Embedding")
