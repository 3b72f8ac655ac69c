"""Whether places in an array, which are sums of loop counters, are shared by iterations."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

import numpy as np

from ztorch.kernels.tiles import Affine, LoopVar
from ztorch.kernels.uses import linear, names_in

PLACES_COMPARED = 1 << 16  # positions along an axis that are compared one by one, in milliseconds


def reached(place: ast.expr, known: Mapping[str, Affine | int]) -> Affine | None:
    """All places that an index reaches, as a sum of counters; None if that is not known. A slice
    ends at a known distance: `i:i + 8`, or `i:min(i + 8, n)`."""
    if not isinstance(place, ast.Slice):
        return linear(place, known)
    if place.lower is None or place.upper is None or place.step is not None:
        return None
    start, end = linear(place.lower, known), place.upper
    is_least = isinstance(end, ast.Call) and isinstance(end.func, ast.Name) and (
        end.func.id == "min")
    for x in end.args if is_least and isinstance(end, ast.Call) else [end]:
        stop = linear(x, known)
        length = None if start is None or stop is None else stop.plus(start, -1)
        if start is not None and length is not None and not length.terms:
            return start.plus(Affine({LoopVar("slice", max(length.const, 1)): 1}))
    return None


def overlaps(place: Affine) -> bool:
    """Whether iterations of several counters may reach one place: 4 * h + d for d in range(8)."""
    reach = 0
    for v, c in sorted(place.terms.items(), key=lambda term: abs(term[1])):
        if v.extent > 1 and abs(c) <= reach:
            return True
        reach += abs(c) * (v.extent - 1)
    return False


def apart(a: Affine, b: Affine, var: LoopVar) -> bool:
    """Whether two places are the same sum, or differ in any two iterations of a counter."""
    if {*a.terms} == {*b.terms} == {var}:
        return disjoint((a.terms[var], a.const), (b.terms[var], b.const), var.extent)
    if a == b:
        return True
    values = [np.zeros((), np.int64) + place.const for place in (a, b)]
    for k, place in enumerate((a, b)):
        if math.prod(v.extent for v in place.terms) > PLACES_COMPARED:
            return False
        for v, c in place.terms.items():
            values[k] = values[k][..., None] + c * np.arange(v.extent)
    return not np.intersect1d(values[0], values[1]).size


def disjoint(a: tuple[int, int], b: tuple[int, int], count: int) -> bool:
    """Whether two places, as (step, start), are equal in each iteration, or differ in any two
    iterations."""
    (step, first), (other_step, second) = a, b
    if a == b:
        return True
    if abs(step) == abs(other_step) and (first - second) % step:
        return True
    ranges = [sorted((start, start + s * (count - 1))) for s, start in (a, b)]
    return ranges[0][1] < ranges[1][0] or ranges[1][1] < ranges[0][0]


def slope(place: ast.expr, name: str, known: Mapping[str, Affine | int]) -> int | None:
    """How far an index, or the start of a slice, moves as a counter grows by one. None if that is
    not the same everywhere, or not known."""
    if name not in names_in(place):
        return 0
    if isinstance(place, ast.Slice):
        return None if place.lower is None else slope(place.lower, name, known)
    if isinstance(place, ast.Name):
        return 1
    if isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub):
        inner = slope(place.operand, name, known)
        return None if inner is None else -inner
    if not isinstance(place, ast.BinOp):
        return None
    left, right = slope(place.left, name, known), slope(place.right, name, known)
    if left is None or right is None:
        return None
    if isinstance(place.op, (ast.Add, ast.Sub)):
        return left + right if isinstance(place.op, ast.Add) else left - right
    factor = linear(place.left if left == 0 else place.right, known)
    if not isinstance(place.op, ast.Mult) or factor is None or factor.terms:
        return None
    return (left or right) * factor.const
