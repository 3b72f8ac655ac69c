"""Ops on symbolic tensors: `zt.ops.relu(x)`, `x / 2.0`, `x[:, 0]`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch import dispatch, ops
from ztorch.errors import ConfigError
from ztorch.graph.op import ALIASES, REGISTRY, shape_error
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import as_symbol, leaves
from ztorch.layers.weight import Weight

MOST_TENSORS = 1 << 16  # operands of an op
_LOGITS = ("softmax", "sigmoid")  # a loss prefers their argument to their result


class Operation(Layer):
    """A function of `zt.ops` with fixed arguments, as a layer: the result of calling it on an
    Input.

    Args:
        op: Name of the op.
        arguments: Its positional arguments, with `{"tensor": k}` for tensor k. `None` means only
            the tensor. Default: `None`.
        keywords: Its keyword arguments, in the same form. `None` means no keywords. Default:
            `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the op accepts. Axis 0 is the batch.

    Output shape:
        That of the result of the op.

    Examples:
        >>> from ztorch import Model, ops
        >>> from ztorch.layers import Input
        >>> x = Input((4, 6))
        >>> Model(x, ops.mean(ops.relu(x - 1.0), axis=1)).output_shape
        (None, 6)
        >>> Operation("mean", [{"tensor": 0}], {"axis": 2})(x).shape
        (None, 4)
    """

    takes_many = True

    def __init__(self, op: str, arguments: Sequence[Any] | None = None,
                 keywords: dict[str, Any] | None = None, **common: Any):
        super().__init__(**common)
        if not isinstance(op, str) or (op not in REGISTRY and op not in ALIASES):
            raise ConfigError(f"Operation(op={op!r}): no such op in zt.ops")
        if not isinstance(arguments, (list, tuple, type(None))) or not isinstance(
                keywords, (dict, type(None))):
            raise ConfigError("Operation(arguments=..., keywords=...) takes a list and a dict, not "
                              f"{arguments!r} and {keywords!r}")
        self.op = op
        self.arguments = [{"tensor": 0}] if arguments is None else list(arguments)
        self.keywords = dict(keywords or {})
        for a in (*self.arguments, *self.keywords.values()):
            _need_written(a, op)
        if self.given_name is None:
            self.name = op

    @classmethod
    def of(cls, op: str, args: tuple[Any, ...], attrs: dict[str, Any],
           name: str | None = None) -> Any:
        """The result of an op whose arguments contain symbolic tensors. `name` is the layer's."""
        tensors: list[Any] = []

        def described(x: Any) -> Any:
            symbol = as_symbol(x)
            if symbol is not None:
                if not any(symbol is t for t in tensors):
                    tensors.append(symbol)
                return {"tensor": next(k for k, t in enumerate(tensors) if t is symbol)}
            if isinstance(x, (list, tuple)):
                return {"tuple": [described(item) for item in x]}
            if isinstance(x, slice):
                return {"slice": [described(end) for end in (x.start, x.stop, x.step)]}
            if x is Ellipsis:
                return {"ellipsis": True}
            if dispatch.is_tensor(x):
                x = dispatch.constant(x)
            if isinstance(x, (np.ndarray, np.generic)):
                return {"array": x.tolist(), "dtype": x.dtype.name}
            if x is None or isinstance(x, (bool, int, float, str)):
                return x
            if isinstance(x, Weight):
                x = dispatch.constant(x.tensor)
            raise ConfigError(f"zt.ops.{op} on tensors of a model takes numbers and arrays besides "
                              f"them, not {x!r}; use a Lambda")

        if op == "reshape" and len(args) == 2 and not attrs:
            args = (args[0], _with_open_batch(as_symbol(args[0]), args[1]))
        layer = cls(op, [described(x) for x in args], {k: described(x) for k, x in attrs.items()},
                    name=name)
        return layer(tensors)

    def call(self, x: Any, context: Context) -> Any:
        tensors = leaves(x)

        def actual(a: Any) -> Any:
            if not isinstance(a, dict):
                return a
            [(kind, value), *more] = a.items()
            if kind == "tensor":
                if value >= len(tensors):
                    raise shape_error(f"takes tensor {value}, but there are {len(tensors)}",
                                      fix="tensors are counted from 0")
                return tensors[value]
            if kind == "array":
                return np.asarray(value, more[0][1])
            if kind == "ellipsis":
                return Ellipsis
            items = [actual(item) for item in value]
            return slice(*items) if kind == "slice" else tuple(items)

        def compute(*args: Any) -> Any:
            return getattr(ops, self.op)(
                *args, **{k: actual(a) for k, a in self.keywords.items()})

        y = traced(compute, f"layer {self.path!r}", *map(actual, self.arguments))
        for v in leaves(y):
            if not isinstance(v, Value) or v.shape[:1] != tensors[0].shape[:1]:
                raise shape_error(f"zt.ops.{self.op} changes the batch axis of", tensors[0].shape,
                                  fix="axis 0 is the batch and must stay; reduce and move only "
                                      "later axes")
        if self.op in _LOGITS and len(self.arguments) == 1 and not self.keywords:
            context.remember_logits(y, self.op, tensors[0])
        return y


def _with_open_batch(x: Any, shape: Any) -> Any:
    """A shape that begins with the rows that Inputs declare, with -1 in their place."""
    if x is None or x.batch is None or not isinstance(shape, (list, tuple)) or (
            shape[:1] != type(shape)([x.batch])):
        return shape
    product = math.prod(n for n in shape[1:] if n != -1)
    return (-1, *(math.prod(x.row_shape) // product if n == -1 else n for n in shape[1:]))


def _need_written(x: Any, op: str) -> None:
    """Raises an error unless arguments have the form that `Operation.of` writes."""
    if isinstance(x, dict):
        kind = next(iter(x), "")
        part = x.get(kind)
        if kind == "tensor" and isinstance(part, int) and 0 <= part < MOST_TENSORS:
            return
        if (kind == "array" and isinstance(x.get("dtype"), str)) or x == {"ellipsis": True}:
            return
        if (kind == "tuple" or (kind == "slice" and len(part or ()) == 3)) and isinstance(
                part, (list, tuple)):
            for item in part:
                _need_written(item, op)
            return
    elif x is None or isinstance(x, (bool, int, float, str)):
        return
    raise ConfigError(f"Operation({op!r}): {x!r} is not an argument of an op; use numbers, "
                      "{'tensor': 0} for the tensor, and {'tuple': [1, 2]} for a tuple")
