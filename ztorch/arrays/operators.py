"""Python's operators on tensors: the quickest way to record an op.

The call of an operator is found by the specs of its operands, or the types of numbers. What was not
recorded before, or takes checks, goes the way of all ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.arrays.applying import recorded
from ztorch.arrays.node import Handle
from ztorch.arrays.recording import record, record_quick
from ztorch.graph.operators import BINARY, COMPARISONS, UNARY

Compute = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]  # an op, its arguments -> results

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
    for python, op in EQUALITY.items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, _unless_none(compute)))
    for python, op in BINARY.items():
        setattr(tensor, f"__r{python}__", _reflected(tensor, op, compute))


def _unary(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle) -> Any:
        x = a.node
        call = find((op, x.spec))
        if call is None:
            return compute(op, (a,), {})
        result = new(tensor)
        result.node = (record_quick(call, (x,), x.depth) if call.quick else
                       record(call, (x,))[0])
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
        result.node = (record_quick(call, (x, y), depth) if call.quick else
                       record(call, (x, y))[0])
        return result

    return operator


def _unless_none(compute: Compute) -> Compute:
    """The same, but nothing is compared with None, which may lie beside tensors in a list."""
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
