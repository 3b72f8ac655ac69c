"""Ops on complex numbers that follow a rule: ops that move or add elements apply to each part, and
products of tensors are sums of products of their parts."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.dtypes import ComplexDType
from ztorch.graph.op import OPS, REGISTRY
from ztorch.graph.value import Value
from ztorch.ops.complex_values import ComplexValue, complex_rule

# Ops applied to each part. Positions and conditions stay real.
_PARTWISE = frozenset(re.findall(r"\w+", """
    add append broadcast_arrays broadcast_to concat crop cumsum diag diagflat diagonal diff dsplit
    dstack expand_dims extract_sequences fftshift flip fliplr flipud hsplit hstack ifftshift
    matrix_transpose mean meshgrid moveaxis neg positive ravel rearrange repeat reshape roll rot90
    round scatter scatter_add segment_sum slice slice_by slice_update split squeeze stack
    stop_gradient sub sum swapaxes take take_along_axis tile trace transpose tril triu unstack
    vsplit vstack where zeros_like"""))
_REAL = frozenset(("c", "indices", "segment_ids", "start", "start_indices"))

# Products, which are linear in every operand.
_PRODUCTS = frozenset(("cross", "dot", "einsum", "inner", "kron", "matmul", "mul", "outer",
                       "tensordot"))


@complex_rule
def partwise(name: str) -> Callable[..., Any] | None:
    """An op of both parts."""
    if name not in _PARTWISE:
        return None
    real_op = REGISTRY[name].call
    signature = _signature(real_op)

    def call(*args: Any, **attrs: Any) -> Any:
        bound = signature.bind(*args, **attrs).arguments
        results = []
        for part in ("real", "imag"):
            arguments = {k: _part(x, part) for k, x in bound.items()}
            real_call = inspect.BoundArguments(signature, arguments)
            results.append(real_op(*real_call.args, **real_call.kwargs))
        if isinstance(results[0], Value):
            return ComplexValue(*results)
        return tuple(map(ComplexValue, *results))

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _part(x: Any, part: str) -> Any:
    """The argument of a real op for a complex one: a part, or a tuple of parts."""
    if isinstance(x, ComplexValue):
        return getattr(x, part)
    if isinstance(x, tuple) and x and all(isinstance(y, ComplexValue) for y in x):
        return tuple(_part(y, part) for y in x)
    return x.part if isinstance(x, ComplexDType) else x


@complex_rule
def product(name: str) -> Callable[..., Any] | None:
    """An op that is linear in each operand: the sum over all choices of one part per operand."""
    if name not in _PRODUCTS:
        return None
    real_op = REGISTRY[name].call
    signature = _signature(real_op)

    def call(*args: Any, **attrs: Any) -> ComplexValue:
        operands = [x for x in args if isinstance(x, ComplexValue)]
        totals: dict[int, list[Value]] = {0: [], 1: []}
        for choice in itertools.product((0, 1), repeat=len(operands)):
            chosen = iter([(x.real, x.imag)[k] for x, k in zip(operands, choice, strict=True)])
            term = real_op(*(next(chosen) if isinstance(x, ComplexValue) else x for x in args),
                           **attrs)
            turns = sum(choice)  # the power of i
            totals[turns % 2].append(-term if turns % 4 > 1 else term)
        return ComplexValue(_total(totals[0]), _total(totals[1]))

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _total(terms: Sequence[Value]) -> Value:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a real op with complex parameters."""
    signature = inspect.signature(function)
    return signature.replace(parameters=[
        p.replace(annotation=str(p.annotation).replace("Value", "ComplexValue"))
        if "Value" in str(p.annotation) and p.name not in _REAL else p
        for p in signature.parameters.values()], return_annotation="ComplexValue")


def number(x: Value, value: complex) -> ComplexValue:
    """A complex constant for each element of a tensor."""
    return ComplexValue(OPS.full(x.shape, value.real, x.dtype),
                        OPS.full(x.shape, value.imag, x.dtype))
