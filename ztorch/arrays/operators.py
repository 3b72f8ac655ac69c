"""Python's operators on tensors: the fastest way to record an op.

The call of an operator is found by the specs of its operands, or the types of numbers. A call that
was not recorded before, or that needs checks, takes the general path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ztorch.arrays.applying import apply_again, recorded
from ztorch.arrays.calls import tensor_places
from ztorch.arrays.memory import is_own
from ztorch.arrays.node import Handle, TensorNode, computed, keeps_operands
from ztorch.arrays.recording import MAX_DEPTH, eager, record, record_quick
from ztorch.graph.operators import BINARY, COMPARISONS, UNARY

# Applies an op to arguments.
Compute = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]

EQUALITY = {"eq": "equal", "ne": "not_equal"}


def set_operators(tensor: type[Handle], compute: Compute) -> None:
    """Defines the operators of tensors.

    Args:
        tensor: The class of tensors.
        compute: The general path for all ops.
    """
    for python, op in UNARY.items():
        setattr(tensor, f"__{python}__", _unary(tensor, op, _wrapping(compute)))
    for python, op in (BINARY | COMPARISONS).items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, compute))
    tensor.__round__ = lambda x, n=None: compute(  # type: ignore[attr-defined]
        "round", (x,) if n is None else (x, n), {})
    for python, op in EQUALITY.items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, _unless_none(compute)))
    for python, op in BINARY.items():
        setattr(tensor, f"__r{python}__", _reflected(tensor, op, compute))


def _unary(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle) -> Any:
        x = a.node
        call = find((op, x.spec))
        if call is None or not call.quick:
            return compute(op, (a,), {})
        result = new(tensor)
        result.node = record_quick(call, (x,), x.depth)
        return result

    return operator


def _binary(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle, b: Any) -> Any:
        x = a.node
        depth = x.depth
        if type(b) is tensor:
            y = b.node
            if y.depth > depth:
                depth = y.depth
            call = find((op, x.spec, y.spec))
        else:
            y = b
            call = find((op, x.spec, type(b)))
        if call is None:
            return compute(op, (a, b), {})
        result = new(tensor)
        if not call.quick or depth >= MAX_DEPTH or eager:
            result.node, = record(call, (x, y))
            return result
        result.node = node = TensorNode()  # `record_quick`, inlined: a call takes as long
        node.spec = call.result
        node.block = node.siblings = None
        node.call = call
        node.operands = x, y
        node.index = 0
        node.depth = depth + 1
        return result

    return operator


def _unless_none(compute: Compute) -> Compute:
    """The same function, but a comparison with None records nothing: a list may hold both tensors
    and None."""
    return lambda op, args, attrs: NotImplemented if args[1] is None else compute(op, args, attrs)


def _wrapping(compute: Compute) -> Compute:
    """The same function, but unsigned integers have a negative, modulo their range."""
    return lambda op, args, attrs: (
        compute("sub", (0, *args), attrs) if op == "neg" and args[0].dtype.kind == "u" else
        compute(op, args, attrs))


def _reflected(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle, b: Any) -> Any:
        x = a.node
        call = find((op, type(b), x.spec))
        if call is None:
            return compute(op, (b, a), {})
        result = new(tensor)
        result.node = (record_quick(call, (b, x), x.depth) if call.quick else
                       record(call, (b, x))[0])
        return result

    return operator


def reshaping(tensor: type[Handle], general: Callable[..., Any]) -> Callable[..., Any]:
    """The method `reshape`, with a fast path for reshapes that were recorded before.

    Args:
        tensor: The class of tensors.
        general: The general method.
    """
    find, new = recorded.find, object.__new__

    def reshape(self: Handle, *shape: Any) -> Any:
        x = self.node
        sizes = shape[0] if len(shape) == 1 and type(shape[0]) is tuple else shape
        try:
            call = find(("reshape", x.spec, (tuple, sizes)))
        except TypeError:  # a list is not hashable
            call = None
        if call is None or not call.quick:
            return general(self, *shape)
        result = new(tensor)
        block = x.block
        if block is None or not call.reshapes or keeps_operands() or not is_own(block):
            result.node = record_quick(call, (x,), x.depth)
        else:  # there is nothing to compute
            result.node = computed(call.result, block)
        return result

    return functools.wraps(general)(reshape)


def method_of_ops(tensor: type[Handle], general: Callable[[str], FunctionType]
                  ) -> Callable[[str], FunctionType]:
    """Creates a method that calls an op. Without arguments, as in `x.sum()`, it takes a fast path.

    Args:
        tensor: The class of tensors.
        general: Creates a method that takes the general path.
    """
    def method_of(name: str) -> FunctionType:
        way = general(name)
        alone = _unary(tensor, name, lambda op, args, attrs: way(*args))

        def method(self: Handle, *args: Any, **attrs: Any) -> Any:
            return way(self, *args, **attrs) if args or attrs else alone(self)

        method.__name__ = method.__qualname__ = name
        assert isinstance(method, FunctionType)
        return method

    return method_of


def way_of_ops(tensor: type[Handle], tensor_of: Callable[[TensorNode], Any]) -> Compute:
    """A function that returns the results of an op, if it was applied to tensors of the same specs
    before; else None. Calls whose first argument is a tensor, or a list of tensors, take a fast
    path.

    Args:
        tensor: The class of tensors.
        tensor_of: Creates a tensor from a node.
    """
    find, new = recorded.find, object.__new__

    def several(name: str, args: tuple[Any, ...]) -> tuple[Any, Any, int]:
        places, rest, _ = tensor_places(name)
        key: list[Any] = [name]
        operands: list[Any] = []
        depth = 0
        for k, a in enumerate(args):
            if type(a) is tensor:
                node = a.node
                key.append(node.spec)
                operands.append(node)
                if node.depth > depth:
                    depth = node.depth
            elif k in places or k >= rest:
                key.append(type(a))
                operands.append(a)
            else:
                key.append((type(a), a))
        return tuple(key), tuple(operands), depth

    def again(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        count = len(args)
        if count == 1 and type(args[0]) in (list, tuple) and tensor_places(name).rest == 0:
            args = tuple(args[0])  # a single list of tensors is unpacked
            count = len(args)
        if count and type(args[0]) is tensor:
            x = args[0].node
            depth = x.depth
            key: tuple[Any, ...]
            operands: tuple[Any, ...]
            if count == 1:
                key = name, x.spec
                operands = x,
            elif count == 2 and type(args[1]) is tensor:
                y = args[1].node
                if y.depth > depth:
                    depth = y.depth
                key = name, x.spec, y.spec
                operands = x, y
            elif count == 3 and type(args[1]) is type(args[2]) is tensor:
                y, z = args[1].node, args[2].node
                depth = max(depth, y.depth, z.depth)
                key = name, x.spec, y.spec, z.spec
                operands = x, y, z
            else:
                key, operands, depth = several(name, args)
            if attrs:
                for label, value in attrs.items():  # a comprehension would be one more call
                    key += (label, type(value), value),
            try:
                call = find(key)
            except TypeError:  # a list is not hashable
                return None
            if call is not None and call.quick and depth < MAX_DEPTH and not eager:
                result = new(tensor)
                result.node = node = TensorNode()  # like `record_quick`, inlined
                node.spec = call.result
                node.block = node.siblings = None
                node.call = call
                node.operands = operands
                node.index = 0
                node.depth = depth + 1
                return result
        results = apply_again(name, args, attrs)
        if type(results) is list:
            return tuple(map(tensor_of, results))
        return None if results is None else tensor_of(results)

    return again
