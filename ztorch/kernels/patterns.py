"""Statements of a form that all iterations of a loop can run at once: updates, selections and
flags."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from ztorch.kernels.uses import names_in

_SUMS = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul"}
_EXTREMES = {"min": "minimum", "minimum": "minimum", "fmin": "minimum",
             "max": "maximum", "maximum": "maximum", "fmax": "maximum"}


class Update(NamedTuple):
    """A statement such as `total += x` or `best = max(best, x)`."""

    reduction: str  # a key of `writing.COMBINE`
    term: ast.expr  # that each iteration adds
    negative: bool = False  # whether it is subtracted


class Selection(NamedTuple):
    """A statement such as `if x > best: best, at = x, i`."""

    best: str  # the variable that holds the extreme
    largest: bool  # whether it is the largest
    last: bool  # whether the last of equal ones counts
    term: ast.expr  # that each iteration compares
    others: dict[str, ast.expr]  # variables that are set with it


def variable_update(s: ast.stmt, name: str) -> Update | None:
    """How a statement changes a variable by a term that does not depend on it, if it does."""
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id == name:
        reduction = _SUMS.get(type(s.op))
        if reduction is None or name in names_in(s.value):
            return None
        return Update(reduction, s.value, isinstance(s.op, ast.Sub))
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Name) and s.targets[0].id == name:
        return _update_of(s.value, ast.Name(name, ast.Load()))
    return None


def element_update(s: ast.stmt) -> Update | None:
    """The same for an element of an array."""
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Subscript):
        reduction = _SUMS.get(type(s.op))
        if reduction is None or _reads(s.value, s.target):
            return None
        return Update(reduction, s.value, isinstance(s.op, ast.Sub))
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Subscript):
        return _update_of(s.value, s.targets[0])
    return None


def _update_of(value: ast.expr, own: ast.expr) -> Update | None:
    """`own op term`, with `own` nowhere else."""
    pair: Sequence[ast.expr]
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult, ast.Sub)):
        reduction, pair = _SUMS[type(value.op)], (value.left, value.right)
        if isinstance(value.op, ast.Sub) and not same(value.left, own):
            return None
    elif isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        name = value.func.id if isinstance(value.func, ast.Name) else value.func.attr if isinstance(
            value.func, ast.Attribute) else ""
        if name not in _EXTREMES:
            return None
        reduction, pair = _EXTREMES[name], value.args
    elif isinstance(value, ast.BoolOp) and len(value.values) == 2:
        reduction = "logical_or" if isinstance(value.op, ast.Or) else "logical_and"
        pair = value.values
    else:
        return None
    own_first = same(pair[0], own)
    if not own_first and not same(pair[1], own):
        return None
    term = pair[1] if own_first else pair[0]
    if _reads(term, own):
        return None
    negative = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)
    return Update(reduction, term, negative)


def _reads(term: ast.expr, own: ast.expr) -> bool:
    return any(same(n, own) for n in ast.walk(term) if isinstance(n, ast.expr))


def selection(s: ast.stmt) -> Selection | None:
    """The selection that a statement makes, if it is of that form."""
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


def flag(s: ast.stmt, name: str) -> bool | None:
    """The truth that a statement sets a variable to, if it is `name = True` or `name = False`."""
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Name) and s.targets[0].id == name and isinstance(
            s.value, ast.Constant) and isinstance(s.value.value, bool):
        return s.value.value
    return None
