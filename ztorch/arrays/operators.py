"""Python's operators on tensors: the quickest way to record an op.

The call of an operator is found by the specs of its operands, or the types of numbers. What was not
recorded before, or takes checks, goes the way of all ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.arrays.applying import recorded
from ztorch.arrays.node import Handle
from ztorch.arrays.recording import record_quick
from ztorch.graph.operators import BINARY, COMPARISONS, UNARY

Compute = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]  # an op, its arguments -> results


def set_operators(tensor: type[Handle], compute: Compute) -> None:
    """Gives tensors their operators.

    Args:
        tensor: The class of tensors.
        compute: The way of all ops.
    """
    for python, op in UNARY.items():
        setattr(tensor, f"__{python}__", _unary(tensor, op, compute))
    for python, op in (BINARY | COMPARISONS).items():
        setattr(tensor, f"__{python}__", _binary(tensor, op, compute))
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
        result.node = record_quick(call, (x,))
        return result

    return operator


def _binary(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle, b: Any) -> Any:
        x = a.node
        if type(b) is tensor:
            y = b.node
            call = find((op, x.spec, y.spec))
        else:
            y = b
            call = find((op, x.spec, type(b)))
        if call is None or not call.quick:
            return compute(op, (a, b), {})
        result = new(tensor)
        result.node = record_quick(call, (x, y))
        return result

    return operator


def _reflected(tensor: type[Handle], op: str, compute: Compute) -> Callable[[Handle, Any], Any]:
    find, new = recorded.find, object.__new__

    def operator(a: Handle, b: Any) -> Any:
        x = a.node
        call = find((op, type(b), x.spec))
        if call is None or not call.quick:
            return compute(op, (b, a), {})
        result = new(tensor)
        result.node = record_quick(call, (b, x))
        return result

    return operator
