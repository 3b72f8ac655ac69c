"""Finds the loops of a kernel that can run all iterations at once, and why others cannot.

The iterations of a loop are independent if each sets its own elements and variables. A variable or
an element that all iterations change in the same way, such as a sum, is a reduction. Any other loop
runs its iterations in order.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ztorch.kernels.control_flow import END_FLAG
from ztorch.kernels.overlap import apart, overlaps, reached, slope
from ztorch.kernels.patterns import element_update, flag, same, selection, variable_update
from ztorch.kernels.tiles import Affine
from ztorch.kernels.uses import (
    assigned,
    definitions,
    element_targets,
    first_use,
    names_in,
    parts,
    reads_of,
    simple_statements,
)


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
    # Counters of inner loops whose bounds are data, and whether the first one is. Their writes are
    # unknown while compiling: the iterations of a loop without order are assumed to write different
    # elements.
    unseen: Mapping[str, bool] = field(default_factory=dict)

    def may_differ(self, place: Sequence[ast.expr], targets: set[str]) -> bool:
        """Whether iterations are assumed to reach different places, which depend on data."""
        names = names_in(ast.Tuple([*place]))
        return any(n in names and (first_is_data or targets <= names)
                   for n, first_is_data in self.unseen.items())


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
                loop, name, writes, targets, outside, counters)):
            return problem
    return None


def _array_conflict(loop: ast.For, name: str, writes: list[tuple[ast.Subscript, str | None]],
                    targets: set[str], outside: set[str], counters: Counters) -> Conflict | None:
    replaced = definitions(loop.body, outside)
    updated = _updated_reads(loop.body)
    reads = [r for r in reads_of(loop.body, name) if id(r) not in updated]
    places = [parts(w.slice, replaced) for w, _ in writes]
    read_places = [parts(r.slice, replaced) if isinstance(r, ast.Subscript) else [] for r in reads]
    reductions = {reduction for _, reduction in writes}
    used = [*places, *read_places]
    if all(counters.may_differ(p, targets) for p in used):
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
        if not (counters.ordered and depends and len(writes) == 1 and _in_one_pass(
                loop, writes[0][0], outside, counters)):
            is_data = any(isinstance(n, ast.Subscript) or (
                isinstance(n, ast.Name) and n.id in outside and n.id not in counters.known)
                for p in places for part in p for n in ast.walk(part))
            return Conflict(writes[0][0], f"several iterations of {target} {'may ' * is_data}write "
                            f"the same element of {name}{': its place is data' * is_data}")
    return None


def _in_one_pass(loop: ast.For, write: ast.Subscript, outside: set[str], counters: Counters
                 ) -> bool:
    """Whether a write of all iterations is one operation, in which the last iteration counts. A
    loop around it that runs in order would write once in each of its own iterations."""
    before = {*outside, *assigned(loop.body)}
    around = [n for n in ast.walk(loop) if isinstance(n, (ast.For, ast.While)) and n is not loop
              and write in ast.walk(n)]
    return not any(isinstance(n, ast.While) or hasattr(n, END_FLAG) or conflict(
        n, before, replace(counters, values={}, ordered=True)) for n in around)


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
    if not slope(places[0], target, counters.known):
        return False
    variables, inner = _set_inside(loop)
    sums = [None if names_in(p) & variables else reached(p, counters.known) for p in places]
    for p, total in zip(places, sums, strict=True):
        unknown = isinstance(p, ast.Slice) or names_in(p) & (variables | inner)
        if unknown if total is None else overlaps(total):
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
    return all(apart(a, b, var) for k, a in enumerate(known) for b in known[:k])


def _set_inside(loop: ast.For) -> tuple[set[str], set[str]]:
    """The variables that a loop sets, and the counters inside it."""
    inner = {x.id for n in ast.walk(loop) if isinstance(n, (ast.For, ast.comprehension))
             and n is not loop for x in ast.walk(n.target) if isinstance(x, ast.Name)}
    simple = simple_statements(loop.body)
    return {name for s in simple for name in assigned([s])} - inner, inner


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
