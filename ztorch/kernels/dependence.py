"""Which loops of a kernel can run all turns at once, and why others cannot.

The turns of a loop are independent if each sets its own elements and variables. A variable or an
element that all turns change in the same way, such as a sum, is a reduction. All else needs the
turns one after the other.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ztorch.kernels.tiles import Affine
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

_SUMS = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul", ast.BitOr: "logical_or",
         ast.BitAnd: "logical_and"}
_EXTREMES = {"min": "minimum", "minimum": "minimum", "fmin": "minimum",
             "max": "maximum", "maximum": "maximum", "fmax": "maximum"}


class Update(NamedTuple):
    """A statement such as `total += x` or `best = max(best, x)`."""

    how: str  # a key of `writing.COMBINE`
    term: ast.expr  # what each turn adds
    negative: bool = False  # whether it is subtracted


class Selection(NamedTuple):
    """A statement such as `if x > best: best, at = x, i`."""

    best: str  # the variable that holds the extreme
    largest: bool  # whether it is the largest
    last: bool  # whether the last of equal ones counts
    term: ast.expr  # what each turn compares
    others: dict[str, ast.expr]  # variables that are set with it


class Conflict(NamedTuple):
    """Why turns cannot run all at once."""

    node: ast.AST
    reason: str


def written(statements: Sequence[ast.stmt]) -> dict[str, list[tuple[ast.Subscript, str | None]]]:
    """The arrays that statements write elements of: each place, and how it is combined."""
    out: dict[str, list[tuple[ast.Subscript, str | None]]] = {}
    for s in simple_statements(statements):
        for target in element_targets(s):
            update = element_update(s)
            name = target.value.id  # type: ignore[attr-defined]
            out.setdefault(name, []).append((target, update.how if update else None))
    return out


def variable_update(s: ast.stmt, name: str) -> Update | None:
    """How a statement changes a variable by a term that does not depend on it, if it does."""
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id == name:
        how = _SUMS.get(type(s.op))
        if how is None or name in names_in(s.value):
            return None
        return Update(how, s.value, isinstance(s.op, ast.Sub))
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Name) and s.targets[0].id == name:
        return _update_of(s.value, ast.Name(name, ast.Load()))
    return None


def element_update(s: ast.stmt) -> Update | None:
    """The same for an element of an array."""
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Subscript):
        how = _SUMS.get(type(s.op))
        return how and Update(how, s.value, isinstance(s.op, ast.Sub))  # type: ignore[return-value]
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Subscript):
        return _update_of(s.value, s.targets[0])
    return None


def _update_of(value: ast.expr, own: ast.expr) -> Update | None:
    """`own op term`, with `own` nowhere else."""
    pair: Sequence[ast.expr]
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult, ast.Sub)):
        how, pair = _SUMS[type(value.op)], (value.left, value.right)
        if isinstance(value.op, ast.Sub) and not same(value.left, own):
            return None
    elif isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        word = value.func.id if isinstance(value.func, ast.Name) else value.func.attr if isinstance(
            value.func, ast.Attribute) else ""
        if word not in _EXTREMES:
            return None
        how, pair = _EXTREMES[word], value.args
    elif isinstance(value, ast.BoolOp) and len(value.values) == 2:
        how = "logical_or" if isinstance(value.op, ast.Or) else "logical_and"
        pair = value.values
    else:
        return None
    own_first = same(pair[0], own)
    if not own_first and not same(pair[1], own):
        return None
    term = pair[1] if own_first else pair[0]
    if any(same(n, own) for n in ast.walk(term) if isinstance(n, ast.expr)):
        return None
    negative = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)
    return Update(how, term, negative)


def selection(s: ast.stmt) -> Selection | None:
    """What a statement selects, if it is of that form."""
    if not isinstance(s, ast.If) or s.orelse or not isinstance(s.test, ast.Compare) or len(
            s.test.ops) != 1:
        return None
    settings: dict[str, ast.expr] = {}
    for inner in s.body:
        if not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
            return None
        target, value = inner.targets[0], inner.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(
                target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for t, v in pairs:
            if not isinstance(t, ast.Name) or t.id in settings:
                return None
            settings[t.id] = v
    left, op, right = s.test.left, s.test.ops[0], s.test.comparators[0]
    for term, best, swapped in ((left, right, False), (right, left, True)):
        if isinstance(best, ast.Name) and best.id in settings and same(
                settings[best.id], term) and isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            others = {n: v for n, v in settings.items() if n != best.id}
            if any(names_in(v) & {*settings} for v in (term, *others.values())):
                return None
            larger = isinstance(op, (ast.Gt, ast.GtE)) != swapped
            return Selection(best.id, larger, isinstance(op, (ast.LtE, ast.GtE)), term, others)
    return None


def same(a: ast.AST, b: ast.AST) -> bool:
    """Whether two expressions are written the same way."""
    return _text(a) == _text(b)


def _text(node: ast.AST) -> str:
    return ast.dump(node).replace("Store()", "Load()")


@dataclass(frozen=True)
class Counters:
    """What is known of a loop before its body is translated."""

    values: Mapping[str, Affine]  # of its counters
    known: Mapping[str, Affine | int]  # of names that are set before it, and of the counters
    ordered: bool  # whether turns have an order, so that of several writes the last one counts
    ragged: bool = False  # whether the number of turns depends on other loops


def conflict(loop: ast.For, outside: set[str], counters: Counters) -> Conflict | None:
    """Why the turns of a loop cannot run all at once; None if they can.

    Args:
        loop: The loop.
        outside: Names of variables and arrays that were set before it.
        counters: What is known of it.
    """
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for name, node in assigned(loop.body).items():
        if name in targets:
            return Conflict(node, f"{name} is the counter of the loop")
        private = first_use(loop.body, name) == "set" and not counters.ragged
        if name in outside and not private and not _is_reduction(loop.body, name):
            return Conflict(node, f"{name} in one turn depends on the turn before")
    for name, writes in written(loop.body).items():
        if name in outside and (problem := _array_conflict(
                loop, name, writes, targets, definitions(loop.body, outside), counters)):
            return problem
    return None


def _array_conflict(loop: ast.For, name: str, writes: list[tuple[ast.Subscript, str | None]],
                    targets: set[str], replaced: dict[str, ast.expr], counters: Counters
                    ) -> Conflict | None:
    reads = list(reads_of(loop.body, name))
    places = [parts(w.slice, replaced) for w, _ in writes]
    apart = [parts(r.slice, replaced) if isinstance(r, ast.Subscript) else [] for r in reads]
    hows = {how for _, how in writes}
    for target in sorted(targets):
        used = [*places, *apart]
        if any(_each_its_own([p[k] for p in used], target, counters)
               for k in range(min(len(p) for p in used))):
            continue
        if reads:
            return Conflict(reads[0], f"{name} is read here and written in another turn of "
                            f"{target}")
        if len(hows) == 1 and None not in hows:
            continue
        depends = all(any(target in names_in(part) for part in p) for p in places)
        if not (counters.ordered and depends and len(writes) == 1):
            return Conflict(writes[0][0], f"several turns of {target} write the same element of "
                            f"{name}")
    return None


def _each_its_own(places: list[ast.expr], target: str, counters: Counters) -> bool:
    """Whether each turn stays in its own part of an axis: all places are sums with the counter,
    and no two of them ever meet."""
    if not in_a_sum(places[0], target):
        return False
    if all(same(p, places[0]) for p in places):
        return True
    sums = [linear(p, counters.known) for p in places]
    counter = counters.values.get(target)
    if counter is None or len(counter.terms) != 1:
        return False
    [var] = counter.terms
    lines: list[tuple[int, int]] = []
    for total in sums:
        if total is None or {*total.terms} != {var}:
            return False
        lines.append((total.terms[var], total.const))
    return all(_apart(a, b, var.extent) for k, a in enumerate(lines) for b in lines[:k])


def _apart(a: tuple[int, int], b: tuple[int, int], count: int) -> bool:
    """Whether two places are the same in each turn, or never meet in any two turns."""
    (step, first), (other_step, second) = a, b
    if a == b:
        return True
    if abs(step) == abs(other_step) and (first - second) % step:
        return True
    ranges = [sorted((start, start + s * (count - 1))) for s, start in (a, b)]
    return ranges[0][1] < ranges[1][0] or ranges[1][1] < ranges[0][0]


def in_a_sum(node: ast.expr, name: str) -> bool:
    """Whether an expression is made of sums and products, with the name among them."""
    if isinstance(node, ast.Slice):
        return node.lower is not None and in_a_sum(node.lower, name)
    if name not in names_in(node):
        return False
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.USub,
             ast.expr_context)
    return all(isinstance(n, plain) for n in ast.walk(node))


def _is_reduction(statements: Sequence[ast.stmt], name: str) -> bool:
    """Whether all that statements do with a variable is to change it in one way."""
    hows: set[object] = set()
    return _only_updates(statements, name, hows) and len(hows) == 1


def _only_updates(statements: Sequence[ast.stmt], name: str, hows: set[object]) -> bool:
    for s in statements:
        update = variable_update(s, name)
        chosen = selection(s)
        if update is not None:
            hows.add(update.how)
        elif chosen is not None and name in (chosen.best, *chosen.others):
            hows.add(id(s))
        elif isinstance(s, ast.If):
            flags = {n for part in (s.body, s.orelse) for n in _set_to_constant(part, name)}
            if flags and name not in names_in(s.test):
                hows |= flags
                if not _only_flags([*s.body, *s.orelse], name):
                    return False
            elif name in names_in(s.test) or not _only_updates(s.body, name, hows) or (
                    not _only_updates(s.orelse, name, hows)):
                return False
        elif isinstance(s, ast.For):
            if name in names_in(s.iter) or not _only_updates(s.body, name, hows):
                return False
        elif name in names_in(s) or name in assigned([s]):
            return False
    return True


def flag(s: ast.stmt, name: str) -> bool | None:
    """The truth that a statement sets a variable to, if it is `name = True` or `name = False`."""
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Name) and s.targets[0].id == name and isinstance(
            s.value, ast.Constant) and isinstance(s.value.value, bool):
        return s.value.value
    return None


def _set_to_constant(statements: Sequence[ast.stmt], name: str) -> set[bool]:
    return {truth for s in statements if (truth := flag(s, name)) is not None}


def _only_flags(statements: Sequence[ast.stmt], name: str) -> bool:
    return all(flag(s, name) is not None or (name not in names_in(s) and name not in assigned([s]))
               for s in statements)
