"""Translates sums over loops. A sum of products whose factors depend on different loops is a
contraction, such as a matrix product, which is never unrolled."""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.patterns import Update
from ztorch.kernels.tiles import LETTERS, Affine, Axes, LoopTensor, LoopVar, full, union
from ztorch.kernels.writing import reduce_iterations

UNROLLED_ITERATIONS = 16  # sums of at most this many terms are unrolled unless contractions
# Extremes of at most this many adjacent elements are unrolled: on Zen 4, rows of 4 take 0.53 of the
# time of a reduction, rows of 8 take 1.4.
MAX_ADJACENT = 4


def sum_over(e: ExpressionRules, update: Update, masks: int, over: Axes, old: Any) -> LoopTensor:
    """The sum of a term over all iterations of some loops.

    Args:
        e: The evaluator of expressions.
        update: The statement: `old += term`, or `old -= term`.
        masks: Number of the first condition that iterations must fulfil.
        over: The loops.
        old: The value that the sum is added to. Its dtype and that of the term give the dtype.
    """
    a = e.arithmetic
    e.reads.clear()
    factors = [e.value(n) for n in _factors(update.term)]
    direct = all(isinstance(n, ast.Subscript) for n in _factors(update.term))
    condition = e.unless_zero(masks) if direct else e.condition(masks)
    numbers = [x for x in factors if isinstance(x, (Affine, *NUMBERS))]
    tiles = [x for x in factors if isinstance(x, LoopTensor)]
    contraction = _contraction(a, tiles, condition, over) or (
        _depthwise(a, tiles, over) if condition is True else None)
    if contraction is None:
        if condition is True and 1 < _size(over) <= UNROLLED_ITERATIONS and not any(
                t.shape for t in tiles):
            return _unrolled(a, factors, over, update.negative)
        term = _product(a, factors)
        total = reduce_iterations(a, a.tile(term), condition, over, "add", a.common([old, term]),
                                  e.contiguous())
    else:
        total = contraction
        for x in numbers:
            total = a.binary(ast.Mult(), total, x)
    return a.apply("neg", total) if update.negative else total


def _product(a: Any, factors: list[Any]) -> Any:
    product = factors[0]
    for x in factors[1:]:
        product = a.binary(ast.Mult(), product, x)
    return product


def _unrolled(a: Any, factors: list[Any], over: Axes, negative: bool) -> Any:
    """The sum over a few iterations, such as the positions of a small window: a chain of additions,
    which fuses with the computation around it."""
    total = _chain(a, factors, over, lambda x, y: a.binary(ast.Add(), x, y))
    return a.apply("neg", total) if negative else total


def extreme_over(e: ExpressionRules, term: LoopTensor, condition: Any, over: Axes, reduction: str,
                 d: DType) -> LoopTensor:
    """The largest or smallest value over loops, or another reduction. A few iterations are
    unrolled, as for sums, except for long runs of adjacent operands.

    Args:
        e: The evaluator of expressions.
        term: The term of each iteration.
        condition: Which iterations count.
        over: The loops.
        reduction: A key of `COMBINE`.
        d: Dtype of the result.
    """
    a = e.arithmetic
    adjacent = math.prod(v.extent for v in {*over} & {*e.contiguous()})
    is_short = adjacent <= MAX_ADJACENT and not term.shape and {*over} < {*term.axes}
    if condition is True and is_short and reduction in ("maximum", "minimum") and (
            1 < _size(over) <= UNROLLED_ITERATIONS):
        return _chain(a, [a.cast(term, d)], over, lambda x, y: a.apply(reduction, x, y))
    return reduce_iterations(a, term, condition, over, reduction, d)


def _chain(a: Any, factors: list[Any], over: Axes, combine: Callable[[Any, Any], Any]) -> Any:
    """The products of factors in each iteration, combined one after the other."""
    tensors = [a.tile(x) if isinstance(x, Affine) else x for x in factors]
    total: Any = None
    for numbers in itertools.product(*(range(v.extent) for v in over)):
        place = dict(zip(over, numbers, strict=True))
        term = _product(a, [_in_iteration(x, place) for x in tensors])
        total = term if total is None else combine(total, term)
    return total


def _in_iteration(x: Any, place: dict[LoopVar, int]) -> Any:
    """A value in one iteration of some loops."""
    if not isinstance(x, LoopTensor):
        return x
    axes = tuple(v for v in x.axes if v not in place)
    key = tuple(place.get(v, slice(None)) for v in x.axes)
    return LoopTensor(_part(x.value, key, {}), axes, x.weak) if len(axes) < len(key) else x


def _part(v: Value, key: tuple[Any, ...], known: dict[Value, Value]) -> Value:
    """Some elements of a value. Elementwise ops are only computed for these, so that their result
    need not be stored; broadcast values are sliced before the broadcast."""
    if v not in known:
        if v.op.opcode and v.op.kind == "map" and v.args:
            args = tuple(_part(a, key, known) for a in v.args)
            known[v] = v.op(*args, **v.attrs)
        elif v.op.name == "broadcast_to":
            [x] = v.args
            own = [0 if n == 1 and isinstance(k, int) else k
                   for n, k in zip(x.shape, key[len(key) - x.rank:], strict=True)]
            shape = tuple(n for n, k in zip(v.shape, key, strict=True) if not isinstance(k, int))
            known[v] = OPS.broadcast_to(_part(x, tuple(own), known), shape)
        else:
            known[v] = OPS.slice_by(v, key)
    return known[v]


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _contraction(a: Any, tiles: list[LoopTensor], condition: Any, over: Axes) -> LoopTensor | None:
    """The sum of a product of numbers as a contraction, if that is less work than multiplying
    first: no factor depends on all loops. Otherwise None."""
    if len(tiles) < 2 or any(t.shape for t in tiles):
        return None
    d = a.common(tiles)
    axes = union(t.axes for t in tiles)
    reduced_axes = [v for v in over if v in axes]
    if not d.is_float or len(reduced_axes) < len(over) or len(axes) > len(LETTERS):
        return None
    groups = _grouped(a, tiles)
    if len(groups) < 2 or _size(axes) <= max(_size(t.axes) for t in groups):
        return None
    if condition is not True:
        place = next((k for k, t in enumerate(groups) if {*condition.axes} <= {*t.axes}), None)
        if place is None:
            return None
        groups[place] = a.choose(condition, groups[place], 0)
    letter = dict(zip(axes, LETTERS, strict=False))
    result_axes = tuple(v for v in axes if v not in over)
    inputs = ",".join("".join(letter[v] for v in t.axes) for t in groups)
    value = OPS.einsum(f"{inputs}->{''.join(letter[v] for v in result_axes)}",
                       *(a.cast(t, d).value for t in groups))
    return LoopTensor(value, result_axes)


def _depthwise(a: Any, tiles: list[LoopTensor], over: Axes) -> LoopTensor | None:
    """The sum over a window with a weight for each position and each element of the innermost outer
    loop, such as channels. Its axes are in the order of a depthwise convolution, which has its own
    loop nest. None if the factors do not have this form."""
    if any(t.shape for t in tiles) or not a.common(tiles).is_float or not any(
            _has_windows(t.value) for t in tiles):
        return None
    d, axes = a.common(tiles), union(t.axes for t in tiles)
    result_axes = tuple(v for v in axes if v not in over)
    if len(result_axes) < 2 or not any(
            {*over, result_axes[-1]} <= {*t.axes} and len(t.axes) < len(axes) for t in tiles):
        return None
    order = (*result_axes[:-1], *over, result_axes[-1])
    moved = tuple(map(axes.index, order))
    product = functools.reduce(OPS.mul, [
        OPS.transpose(full(a.cast(t, d), axes), moved) for t in tiles])
    return LoopTensor(OPS.sum(product, tuple(map(order.index, over))), result_axes)


def _has_windows(v: Value) -> bool:
    """Whether a value is a view of overlapping windows."""
    while (len(v.args) == 1 or v.op.alias) and not v.op.opcode and v.op.name != "pick":
        v = v.args[0]
    return v.op.name == "pick"


def _grouped(a: Any, tiles: list[LoopTensor]) -> list[LoopTensor]:
    """The factors. Each one whose loops are among those of another is multiplied with it."""
    groups: list[LoopTensor] = []
    for t in sorted(tiles, key=lambda t: -_size(t.axes)):
        group = next((k for k, g in enumerate(groups) if {*t.axes} <= {*g.axes}), None)
        if group is None:
            groups.append(t)
        else:
            groups[group] = a.apply("mul", groups[group], t)
    return groups


def _size(axes: tuple[LoopVar, ...]) -> int:
    return math.prod(v.extent for v in axes)
