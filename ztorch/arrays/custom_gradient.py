"""`zt.custom_gradient`: functions with a gradient that the user defines.

The function runs on arguments that block gradients, and `backward` runs once on tensors without
values. The ops that `backward` records are the gradient. They may use anything that the function
computed, and can be differentiated again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call
from ztorch.arrays.cells import tracing
from ztorch.arrays.elements import operand_of
from ztorch.arrays.node import TensorNode, operands_kept, placeholder
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.structure import dependents, number_dtypes, rebuild, walk
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.custom import check_slope, need_floats, rule_of, with_gradient
from ztorch.graph.op import OPS, leaf
from ztorch.graph.tracing import traced
from ztorch.graph.trees import flatten, unflatten
from ztorch.graph.value import Value


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Defines the gradient of a function: a decorator, as in TensorFlow and Keras.

    Tensors that the function reads without taking them as arguments keep their usual gradient.

    Args:
        function: Takes tensors, or dicts and lists of tensors. Returns `(result, backward)`.
            `backward(upstream)` takes the gradient of the result, or one gradient for each of
            several results. It returns the gradient of each argument that holds tensors: a tensor
            of the same shape, a tree for a tree, or None. It may use values that the function
            computed.

    Returns:
        A function that returns the result.

    Raises:
        ConfigError: `function` is not callable.

    Examples:
        >>> import ztorch as zt
        >>> @zt.custom_gradient
        ... def clipped(x):
        ...     def backward(upstream):
        ...         return zt.ops.clip(upstream, -1.0, 1.0)
        ...     return x * 1.0, backward
        >>> zt.grad(lambda x: (clipped(x) ** 2.0).sum())(zt.tensor([0.25, 4.0])).tolist()
        [0.5, 1.0]
    """
    if not callable(function):
        raise ConfigError(f"custom_gradient takes a function of tensors, not {function!r}")

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        custom = _Custom(function, args, named)
        if any(isinstance(x, Value) for x in flatten((args, named))[0]):
            return custom.on_values()
        return custom.on_tensors()

    return run


class _Custom:
    """One call of a function with a custom gradient."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]):
        self.name = getattr(function, "__name__", "function")
        self._function = function
        self._args = args
        self._named = named
        self._leaves, self._tree = flatten(args)
        self._places = [k for k, x in enumerate(self._leaves)  # leaves that are tensors
                        if isinstance(x, (Value, Tensor, np.ndarray))]

    def on_values(self) -> Any:
        """The result as graph values."""
        args = [x if isinstance(x, Value) else OPS.cast(x, x.dtype)
                for x in (self._leaves[k] for k in self._places)]
        inside = [OPS.stop_gradient(x) for x in args]
        ys, tree, backward = self._run(inside, Value)
        upstreams = [leaf("input", "upstream", y.shape, y.dtype) for y in ys]
        slopes = self._slopes(backward, upstreams, Value, args)
        rule, shared = rule_of(slopes, upstreams, inside)
        return unflatten(tree, iter(with_gradient(ys, args, shared, rule)))

    def on_tensors(self) -> Any:
        """The result as tensors."""
        labels = [f"argument {k}" for k in range(len(self._leaves))]
        place = common_memory(self.name, labels, self._leaves)
        args = [operand_of(f"{self.name}: {labels[k]}", self._leaves[k], place, copy=True)
                for k in self._places]
        inside = [compute("stop_gradient", (tensor_of(x),), {}) for x in args]
        with operands_kept():  # so that the second derivative sees them
            ys, tree, backward = self._run(inside, Tensor)
        upstreams = [placeholder(y.node.spec) for y in ys]
        with tracing(fixes_weights=True) as trace:
            slopes = traced(lambda ups: self._slopes(backward, ups, Tensor, inside),
                            f"backward of {self.name}", list(map(tensor_of, upstreams)))
        if trace.read or trace.written:
            raise Unsupported(f"backward of {self.name} uses random numbers or a state; use them "
                              "in the function, and their results in backward")
        nodes = _attached([y.node for y in ys], args, [x.node for x in inside], upstreams,
                          [None if s is None else s.node for s in slopes])
        return unflatten(tree, map(tensor_of, nodes))

    def _run(self, inside: Sequence[Any], kind: type) -> tuple[list[Any], Any, Callable[..., Any]]:
        """The leaves of the function's result, their structure, and `backward`."""
        leaves = list(self._leaves)
        for k, x in zip(self._places, inside, strict=True):
            leaves[k] = x
        pair = self._function(*unflatten(self._tree, iter(leaves)), **self._named)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
            raise ConfigError(f"{self.name} must return (result, backward), where backward is a "
                              f"function of the result's gradient, not {type(pair).__name__}")
        ys, tree = flatten(pair[0])
        if not ys or not all(isinstance(y, kind) for y in ys):
            raise ConfigError(f"the result of {self.name} must be a tensor, or a tree of tensors")
        need_floats(self.name, [y.dtype for y in ys])
        return ys, tree, pair[1]

    def _slopes(self, backward: Callable[..., Any], upstreams: Sequence[Any], kind: type,
                args: Sequence[Any]) -> list[Any]:
        """The gradient that `backward` returns for each tensor, or None."""
        results = backward(*upstreams)
        holds = [any(isinstance(x, (Value, Tensor, np.ndarray)) for x in flatten(a)[0])
                 for a in self._args]
        alone = self._args[0] if len(self._args) == 1 else None
        if not isinstance(results, (tuple, list)) or (
                isinstance(alone, (tuple, list)) and len(results) == len(alone)):
            results = (results,)
        if len(results) == len(self._args):
            results = [x for x, tensors in zip(results, holds, strict=True) if tensors]
        if len(results) != sum(holds):
            raise ShapeError(f"backward of {self.name} gives {len(results)} gradients for "
                             f"{sum(holds)} arguments that hold tensors")
        slopes: list[Any] = []
        parts = iter(results)
        for argument, tensors in zip(self._args, holds, strict=True):
            if tensors:
                slopes += self._slopes_of(argument, next(parts))
        for k, (slope, x) in enumerate(zip(slopes, args, strict=True)):
            if slope is not None and not isinstance(slope, kind):
                raise ConfigError(f"backward of {self.name} must give tensors, not "
                                  f"{type(slope).__name__}; compute with zt.ops")
            if slope is not None:
                check_slope(self.name, k, x.shape, x.dtype, slope)
        return slopes

    def _slopes_of(self, argument: Any, slope: Any) -> list[Any]:
        """The gradient of each tensor in an argument."""
        if isinstance(argument, dict):
            if slope is not None and (not isinstance(slope, dict) or
                                      slope.keys() != argument.keys()):
                raise ShapeError(f"backward of {self.name} must give a dict of gradients with the "
                                 f"keys {sorted(argument)}")
            return [s for k in sorted(argument)
                    for s in self._slopes_of(argument[k], None if slope is None else slope[k])]
        if isinstance(argument, (list, tuple)):
            if slope is not None and (not isinstance(slope, (list, tuple)) or
                                      len(slope) != len(argument)):
                raise ShapeError(f"backward of {self.name} must give a list of {len(argument)} "
                                 "gradients for a list of tensors")
            parts = [None] * len(argument) if slope is None else slope
            return [s for part, x in zip(parts, argument, strict=True)
                    for s in self._slopes_of(x, part)]
        return [slope] if isinstance(argument, (Value, Tensor, np.ndarray)) else []


_calls: Recent[Any, Call] = Recent(1024)  # by the gradient's structure and the specs of operands


def _attached(ys: Sequence[TensorNode], args: Sequence[TensorNode], inside: Sequence[TensorNode],
              upstreams: Sequence[TensorNode],
              slopes: Sequence[TensorNode | None]) -> list[TensorNode]:
    """The results, with the given gradients attached."""
    roots = [s for s in slopes if s is not None]
    sources = [*upstreams, *inside]
    pending = walk(roots, sources, within=dependents(roots, sources))
    shared = pending.leaves[len(sources):]
    operands = (*ys, *args, *shared, *pending.numbers)
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    slots = tuple(None if s is None else pending.slots[s] for s in slopes)
    key = tuple(pending.key)
    name = key, slots, len(ys), kinds
    call = _calls.get(name)
    if call is None:
        numbers = number_dtypes(key)
        results, first, rest = len(ys), len(ys) + len(args), len(shared)

        def rule(ups: Sequence[Value], xs: Sequence[Value],
                 others: Sequence[Value]) -> list[Value | None]:
            nodes = rebuild(key, [*ups, *xs, *others[:rest]], others[rest:])
            return [None if s is None else nodes[s] for s in slots]

        def build(values: Sequence[Value]) -> list[Value]:
            return with_gradient(values[:results], values[results:first], values[first:], rule)

        dtypes = [*(o.spec.dtype for o in (*ys, *args, *shared)), *numbers]
        call = Call("custom_gradient", kinds, dtypes, build, ys[0].spec.memory)
        _calls.put(name, call)
    return record(call, operands)
