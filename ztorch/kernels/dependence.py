"""Finds the loops of a kernel that can run all iterations at once, and why others cannot.

The iterations of a loop are independent if each sets its own elements and variables. A variable or
an element that all iterations change in the same way, such as a sum, is a reduction. Any other loop
runs its iterations in order.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ztorch.kernels.patterns import element_update, flag, same, selection, variable_update
from ztorch.kernels.tiles import Affine, LoopVar
from ztorch.kernels.uses import (
    assigned,
    definitions,
    element_targets,
    first_use,
    linear,
    names_in,
    parts,
    reads_of,
    simple_statements,
)

PLACES_COMPARED = 1 << 16  # positions along an axis that are compared one by one, in milliseconds


class Conflict(NamedTuple):
    """Why iterations cannot all run at once."""

    node: ast.AST
    reason: str
    fix: str = "use range(...) for iterations in order"


def written(statements: Sequence[ast.stmt]) -> dict[str, list[tuple[ast.Subscript, str | None]]]:
    """The arrays of which statements write elements: each target, and its reduction."""
    out: dict[str, list[tuple[ast.Subscript, str | None]]] = {}
    for s in simple_statements(statements):
        for target in element_targets(s):
            update = element_update(s)
            name = target.value.id  # type: ignore[attr-defined]
            out.setdefault(name, []).append((target, update.reduction if update else None))
    return out


def written_from_before(statements: Sequence[ast.stmt]) -> set[str]:
    """The arrays of which statements write elements, without those that they make themselves."""
    out: set[str] = set()
    own: set[str] = set()
    for s in statements:
        out.update(n for n in written([s]) if n not in own)
        if isinstance(s, ast.Assign):
            own.update(t.id for t in s.targets if isinstance(t, ast.Name) and t.id not in out)
    return out


@dataclass(frozen=True)
class Counters:
    """The properties of a loop that are known before its body is translated."""

    values: Mapping[str, Affine]  # values of its counters
    known: Mapping[str, Affine | int]  # values of its counters and of names that are set before it
    ordered: bool  # whether iterations have an order, so that the last of several writes counts
    ragged: bool = False  # whether the number of iterations depends on other loops
    # Counters of inner loops whose bounds are data. Their writes are unknown while compiling: the
    # iterations of a loop without order are assumed to write different elements.
    unseen: frozenset[str] = frozenset()


def conflict(loop: ast.For, outside: set[str], counters: Counters) -> Conflict | None:
    """Why the iterations of a loop cannot all run at once; None if they can.

    Args:
        loop: The loop.
        outside: Names of variables and arrays that were set before it.
        counters: The ranges of the loop counters.
    """
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for name, node in assigned(loop.body).items():
        if name in targets:
            return Conflict(node, f"{name}, which counts them, is set here", "use another name")
        private = first_use(loop.body, name) == "set" and not counters.ragged
        if name in outside and not private and not _is_reduction(loop.body, name):
            return Conflict(node, f"{name} in one iteration depends on the iteration before")
    for name, writes in written(loop.body).items():
        if name in outside and (problem := _array_conflict(
                loop, name, writes, targets, definitions(loop.body, outside), counters)):
            return problem
    return None


def _array_conflict(loop: ast.For, name: str, writes: list[tuple[ast.Subscript, str | None]],
                    targets: set[str], replaced: dict[str, ast.expr], counters: Counters
                    ) -> Conflict | None:
    updated = _updated_reads(loop.body)
    reads = [r for r in reads_of(loop.body, name) if id(r) not in updated]
    places = [parts(w.slice, replaced) for w, _ in writes]
    read_places = [parts(r.slice, replaced) if isinstance(r, ast.Subscript) else [] for r in reads]
    reductions = {reduction for _, reduction in writes}
    used = [*places, *read_places]
    if all(any(names_in(part) & counters.unseen for part in p) for p in used):
        return None
    for target in sorted(targets):
        if _has_own_parts(used, target, loop, counters):
            continue
        if reads:
            others = [r for r in reads if not same(r, writes[0][0])]
            return Conflict((others or reads)[0], f"{name} is read here and written in another "
                            f"iteration of {target}")
        if len(reductions) == 1 and None not in reductions:
            continue
        depends = all(any(target in names_in(part) for part in p) for p in places)
        if not (counters.ordered and depends and len(writes) == 1):
            is_data = any(isinstance(n, ast.Subscript) for p in places for part in p
                          for n in ast.walk(part))
            return Conflict(writes[0][0], f"several iterations of {target} {'may ' * is_data}write "
                            f"the same element of {name}{': its place is data' * is_data}")
    return None


def _updated_reads(statements: Sequence[ast.stmt]) -> set[int]:
    """The ids of the elements that updates such as `a[i] = max(a[i], x)` read to change them."""
    return {id(n) for s in simple_statements(statements) if element_update(s)
            for target in element_targets(s) for n in ast.walk(s.value)  # type: ignore[attr-defined]
            if isinstance(n, ast.Subscript) and same(n, target)}


def own_elements(loop: ast.For, name: str, outside: set[str], counters: Counters) -> bool:
    """Whether each iteration reads and writes elements of an array that no other iteration
    touches."""
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    known = definitions(loop.body, outside)
    used = [parts(w.slice, known) for w, _ in written(loop.body)[name]]
    used += [parts(r.slice, known) if isinstance(r, ast.Subscript) else []
             for r in reads_of(loop.body, name)]
    return all(_has_own_parts(used, target, loop, counters) for target in targets)


def _has_own_parts(places: list[list[ast.expr]], target: str, loop: ast.For, counters: Counters
                   ) -> bool:
    """Whether the iterations of a counter use different places along some axis."""
    return any(_own_parts([p[k] for p in places], target, loop, counters)
               for k in range(min(map(len, places))))


def _own_parts(places: list[ast.expr], target: str, loop: ast.For, counters: Counters) -> bool:
    """Whether each iteration uses its own part of an axis: all places are sums with the counter,
    and no two of them are ever equal in different iterations."""
    if not in_a_sum(places[0], target):
        return False
    variables, inner = _set_inside(loop)
    sums = [None if names_in(p) & variables else _reached(p, counters.known) for p in places]
    for p, total in zip(places, sums, strict=True):
        unknown = isinstance(p, ast.Slice) or names_in(p) & (variables | inner)
        if unknown if total is None else _overlaps(total):
            return False
    if all(same(p, places[0]) for p in places):
        return True
    counter = counters.values.get(target)
    if counter is None or len(counter.terms) != 1:
        return False
    [var] = counter.terms
    if any(total is None or var not in total.terms for total in sums):
        return False
    known = [total for total in sums if total is not None]
    return all(_apart(a, b, var) for k, a in enumerate(known) for b in known[:k])


def _set_inside(loop: ast.For) -> tuple[set[str], set[str]]:
    """The variables that a loop sets, and the counters inside it."""
    inner = {x.id for n in ast.walk(loop) if isinstance(n, (ast.For, ast.comprehension))
             and n is not loop for x in ast.walk(n.target) if isinstance(x, ast.Name)}
    simple = simple_statements(loop.body)
    return {name for s in simple for name in assigned([s])} - inner, inner


def _reached(place: ast.expr, known: Mapping[str, Affine | int]) -> Affine | None:
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


def _overlaps(place: Affine) -> bool:
    """Whether iterations of several counters may reach one place: 4 * h + d for d in range(8)."""
    reach = 0
    for v, c in sorted(place.terms.items(), key=lambda term: abs(term[1])):
        if v.extent > 1 and abs(c) <= reach:
            return True
        reach += abs(c) * (v.extent - 1)
    return False


def _apart(a: Affine, b: Affine, var: LoopVar) -> bool:
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


def in_a_sum(node: ast.expr, name: str) -> bool:
    """Whether an expression consists of sums and products, and contains the name."""
    if isinstance(node, ast.Slice):
        return node.lower is not None and in_a_sum(node.lower, name)
    if name not in names_in(node):
        return False
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.USub,
             ast.expr_context)
    return all(isinstance(n, plain) for n in ast.walk(node))


def _is_reduction(statements: Sequence[ast.stmt], name: str) -> bool:
    """Whether statements only use a variable to update it, always by the same reduction."""
    reductions: set[object] = set()
    return _only_updates(statements, name, reductions) and len(reductions) == 1


def _only_updates(statements: Sequence[ast.stmt], name: str, reductions: set[object]) -> bool:
    for s in statements:
        update = variable_update(s, name)
        chosen = selection(s)
        if update is not None:
            reductions.add(update.reduction)
        elif chosen is not None and name in (chosen.best, *chosen.others):
            reductions.add(id(s))
        elif isinstance(s, ast.If):
            flags = {n for part in (s.body, s.orelse) for n in _set_to_constant(part, name)}
            if flags and name not in names_in(s.test):
                reductions |= flags
                if not _only_flags([*s.body, *s.orelse], name):
                    return False
            elif name in names_in(s.test) or not _only_updates(s.body, name, reductions) or (
                    not _only_updates(s.orelse, name, reductions)):
                return False
        elif isinstance(s, ast.For):
            if name in names_in(s.iter) or not _only_updates(s.body, name, reductions):
                return False
        elif name in names_in(s) or name in assigned([s]):
            return False
    return True


def _set_to_constant(statements: Sequence[ast.stmt], name: str) -> set[bool]:
    return {truth for s in statements if (truth := flag(s, name)) is not None}


def _only_flags(statements: Sequence[ast.stmt], name: str) -> bool:
    return all(flag(s, name) is not None or (name not in names_in(s) and name not in assigned([s]))
               for s in statements)
