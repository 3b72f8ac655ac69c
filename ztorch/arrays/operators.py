"""Python's operators on tensors: the fastest way to record an op.

A call that was recorded before, with operands of the same specs, is recorded by a native function.
One that was not, or that needs checks, takes the general path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ztorch.arrays.applying import recorded
from ztorch.arrays.memory import is_owned
from ztorch.arrays.node import Handle, TensorNode, keeps_operands
from ztorch.arrays.quick_recording import Recorder, recorder
from ztorch.arrays.recording import record, record_quick
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
        setattr(tensor, f"__{python}__", _unary(op, _wrapping(compute)))
    for python, op in (BINARY | COMPARISONS).items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, compute))
    tensor.__round__ = lambda x, n=None: compute(  # type: ignore[attr-defined]
        "round", (x,) if n is None else (x, n), {})
    for python, op in EQUALITY.items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, _unless_none(compute)))
    for python, op in BINARY.items():
        setattr(tensor, f"__r{python}__", _reflected(op, compute))


def _unary(op: str, compute: Compute) -> Callable[[Handle], Any]:
    quick: Recorder | None = None

    def operator(a: Handle) -> Any:
        nonlocal quick
        if quick is not None:
            result = quick(a)
            if result is not NotImplemented:
                return result
        quick = quick or recorder(op)
        return compute(op, (a,), {})

    return operator


def _binary(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    find, new = recorded.find, object.__new__
    quick: Recorder | None = None

    def operator(a: Handle, b: Any) -> Any:
        nonlocal quick
        if quick is not None:
            result = quick(a, b)
            if result is not NotImplemented:
                return result
        quick = quick or recorder(op)
        x, y = a.node, b.node if type(b) is tensor else b
        call = find((op, x.spec, y.spec if type(b) is tensor else type(b)))
        if call is None:
            return compute(op, (a, b), {})
        result = new(tensor)
        result.node, = record(call, (x, y))
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


def _reflected(op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    quick: Recorder | None = None

    def operator(a: Handle, b: Any) -> Any:
        nonlocal quick
        if quick is not None:
            result = quick(b, a)
            if result is not NotImplemented:
                return result
        quick = quick or recorder(op)
        return compute(op, (b, a), {})

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
        if block is None or not call.reshapes or keeps_operands() or not is_owned(block):
            result.node = record_quick(call, (x,), x.depth)
            return result
        result.node = node = TensorNode()  # as `computed` does: there is nothing to compute
        node.spec = call.result
        node.block = block
        node.call = node.siblings = None
        node.operands = ()
        node.index = node.depth = 0
        return result

    return functools.wraps(general)(reshape)


def method_of_ops(general: Callable[[str], FunctionType]) -> Callable[[str], FunctionType]:
    """Creates a method that calls an op, with a fast path for calls that were recorded before.

    Args:
        general: Creates a method that takes the general path.
    """
    def method_of(name: str) -> FunctionType:
        way = general(name)
        quick: Recorder | None = None

        def method(self: Handle, *args: Any, **attrs: Any) -> Any:
            nonlocal quick
            if quick is not None:
                result = quick(self, *args, **attrs)
                if result is not NotImplemented:
                    return result
            quick = quick or recorder(name)
            return way(self, *args, **attrs)

        method.__name__ = method.__qualname__ = name
        assert isinstance(method, FunctionType)
        return method

    return method_of
