"""Declares models: calls of layers on symbolic tensors, each traced at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ztorch import dispatch
from ztorch.errors import ShapeError
from ztorch.graph.op import leaf
from ztorch.graph.operators import Operators
from ztorch.graph.value import StandIn, Value, layer_scope
from ztorch.initializers import Shape
from ztorch.layers.axes import TRACED, OpenSize
from ztorch.layers.context import Context, Producers, States
from ztorch.layers.symbol import (
    LayerCall,
    SymbolicTensor,
    as_symbol,
    leaves,
    nested,
    symbols,
    upstream,
)
from ztorch.layers.tree import LayerNode


def declare(layer: LayerNode, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Calls a layer on symbolic tensors.

    The call is traced at once, for one example, so that the traceback of a mistake shows its line.
    """
    call = LayerCall(layer, *(nested(_argument, arguments) for arguments in (args, keywords)))
    try:
        y, context = _traced(call)
    except ShapeError:
        if not (_retraced(call.inputs, _long_axes) or _retraced(call.inputs, _whole_batch)):
            raise
        y, context = _traced(call)
    batch = next((s.batch for s in call.inputs if s.batch), None)
    call.result = nested(lambda value: SymbolicTensor(
        value, layer, call, context.producers, context.mask_of(value), batch), y)
    layer.calls.append(call)
    return call.result


def _argument(x: Any) -> Any:
    """An argument of a call: Inputs as symbolic tensors, tensors with numbers as arrays."""
    if isinstance(x, Operators) and not isinstance(x, (Value, StandIn)):
        return dispatch.constant(x)
    return x if as_symbol(x) is None else as_symbol(x)


def _traced(call: LayerCall) -> tuple[Any, Context]:
    """The result of a call, for the values of its tensors."""
    context = Context(states=States(data=False), producers=_together(call.inputs),
                      masks={s.value: s.mask for s in call.inputs if s.mask is not None})
    args, keywords = (nested(lambda x: x.value if isinstance(x, SymbolicTensor) else x, arguments)
                      for arguments in (call.args, call.keywords))
    return call.layer(*args, context=context, **keywords), context


def _long_axes(s: SymbolicTensor) -> Shape:
    """The shape of an Input with long open axes, for windows."""
    sizes = [OpenSize(n.name, TRACED[1]) if isinstance(n, OpenSize) else n for n in s.row_shape]
    return (s.value.shape[0], *sizes)


def _whole_batch(s: SymbolicTensor) -> Shape:
    """The shape of an Input with all rows of a declared batch, such as the nodes of a graph, which
    an adjacency matrix multiplies."""
    return (s.batch or 1, *s.value.shape[1:])


def _retraced(tensors: list[SymbolicTensor], shape_of: Callable[[SymbolicTensor], Shape]) -> bool:
    """Repeats the trace up to these tensors with Inputs of other shapes. Returns whether that was
    possible and changes them."""
    sources, calls = upstream(tensors)
    before = [(s, s.value, s.mask, s.producers)
              for s in [*sources, *(s for call in calls for s in symbols(call.result))]]
    for s in sources:
        shape = shape_of(s)
        if list(map(int, shape)) != list(map(int, s.value.shape)):
            with layer_scope(s.layer.name):
                s.value, s.producers = leaf("input", s.layer.name, shape, s.dtype), {}
    if all(s.value is value for s, value, _, _ in before):
        return False
    try:
        for call in calls:
            y, context = _traced(call)
            for s, value in zip(symbols(call.result), leaves(y), strict=True):
                s.value, s.mask, s.producers = value, context.mask_of(value), context.producers
    except ShapeError:  # a table is too short
        for s, value, mask, producers in before:
            s.value, s.mask, s.producers = value, mask, producers
        return False
    return True


def _together(inputs: Iterable[SymbolicTensor]) -> Producers:
    """The producers of all these tensors, in one dict."""
    producers, *others = {id(s.producers): s.producers for s in inputs}.values()
    for other in others:
        producers.update(other)
    return producers
