"""Python's operators on tensors: the quickest way to record an op.

The call of an operator is found by the specs of its operands, or the types of numbers. A call that
was not recorded before, or that needs checks, goes the way of all ops.
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

# An op, its arguments -> results.
Compute = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]

EQUALITY = {"eq": "equal", "ne": "not_equal"}


def set_operators(tensor: type[Handle], compute: Compute) -> None:
    """Gives tensors their operators.

    Args:
        tensor: The class of tensors.
        compute: The way of all ops.
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
        result.node = node = TensorNode()  # as `record_quick` does: calling it takes as long
        node.spec = call.result
        node.block = node.siblings = None
        node.call = call
        node.operands = x, y
        node.index = 0
        node.depth = depth + 1
        return result

    return operator


def _unless_none(compute: Compute) -> Compute:
    """The same, but a comparison with None records nothing: None may be beside tensors in a
    list."""
    return lambda op, args, attrs: NotImplemented if args[1] is None else compute(op, args, attrs)


def _wrapping(compute: Compute) -> Compute:
    """The same, but unsigned integers have a negative, modulo their range."""
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
    """The method `reshape`, by the shortest way where it was recorded before.

    Args:
        tensor: The class of tensors.
        general: The method as it is for all that has operators.
    """
    find, new = recorded.find, object.__new__

    def reshape(self: Handle, *shape: Any) -> Any:
        x = self.node
        sizes = shape[0] if len(shape) == 1 and type(shape[0]) is tuple else shape
        try:
            call = find(("reshape", x.spec, (tuple, sizes)))
        except TypeError:  # a list, which cannot be hashed
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
    """Makes a method of an op. Without arguments, as in `x.sum()`, it takes the shortest way.

    Args:
        tensor: The class of tensors.
        general: Makes a method that goes the way of all ops.
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
    """A function that gives the results of an op, from its name and its arguments, if it was
    applied to such tensors before; else None. Up to three arguments, the first a tensor, take the
    shortest way.

    Args:
        tensor: The class of tensors.
        tensor_of: Makes one of a node.
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
            args = tuple(args[0])  # a list of tensors stands for all of them
            count = len(args)
        if 0 < count < 4 and type(args[0]) is tensor:
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
                key += tuple([(label, type(value), value) for label, value in attrs.items()])
            try:
                call = find(key)
            except TypeError:  # a list, which cannot be hashed
                return None
            if call is not None and call.quick and depth < MAX_DEPTH and not eager:
                result = new(tensor)
                result.node = node = TensorNode()  # as `record_quick` does
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
