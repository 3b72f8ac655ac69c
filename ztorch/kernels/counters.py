"""What is known of the counters of loops before their bodies are translated."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ztorch.errors import KernelError
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.known_functions import grid
from ztorch.kernels.scope import Scope
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar
from ztorch.kernels.uses import assigned, linear, names_in, simple_statements


def known_numbers(t: Scope, s: ast.For) -> dict[str, Affine | int]:
    """The variables that a loop does not change, and that are known while compiling."""
    own = assigned([s])
    return {n: v.value for n, v in t.env.items()
            if n not in own and (isinstance(v.value, Affine) or type(v.value) is int)}


def inner_counters(t: ExpressionRules, s: ast.For) -> dict[str, Affine]:
    """Counters of loops inside a loop whose ends are known while compiling."""
    known, counters = known_numbers(t, s), dict[str, Affine]()
    loops = [n for n in ast.walk(s) if isinstance(n, ast.For) and n is not s]
    others = {*t.env, *(name for x in simple_statements(s.body) for name in assigned([x])),
              *_twice(x.id for n in loops for x in ast.walk(n.target)
                      if isinstance(x, ast.Name))}
    for n in loops:
        function = _function(t, n.iter.func) if isinstance(n.iter, ast.Call) else None
        if function not in (range, grid) or not isinstance(n.iter, ast.Call):
            continue
        ends = [linear(x, known) for x in n.iter.args]
        numbers = [e.const for e in ends if e is not None and not e.terms]
        names = [x.id for x in ast.walk(n.target) if isinstance(x, ast.Name)]
        if len(numbers) != len(ends) or (function is range and numbers[2:] == [0]):
            continue
        spans = [range(*numbers)] if function is range else [*map(range, numbers)]
        if len(names) == len(spans):
            counters |= {name: Affine({LoopVar(name, len(span)): span.step}, span.start)
                         for name, span in zip(names, spans, strict=True) if name not in others}
    return counters


def _function(t: ExpressionRules, node: ast.expr) -> Any:
    try:
        return t.value(node)
    except KernelError:
        return None


def _twice(names: Iterable[str]) -> set[str]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def unseen_counters(t: ExpressionRules, s: ast.For) -> dict[str, bool]:
    """Counters of loops inside a loop whose bounds are elements of arrays, and whether that holds
    for the first bound."""
    arrays = {n for n, v in t.env.items() if isinstance(v.value, LoopTensor) and v.value.shape}
    data: set[str] = set()
    for n in ast.walk(s):  # outer statements first: assigned names are known when used
        if isinstance(n, ast.Assign) and _is_data(n.value, arrays, data):
            data |= {*assigned([n])}
    bounds: dict[str, list[list[bool]]] = {}
    for n in ast.walk(s):
        if isinstance(n, ast.For) and isinstance(n.iter, ast.Call) and n is not s and (
                _function(t, n.iter.func) not in (enumerate, zip)):
            ends = [_is_data(x, arrays, data) for x in n.iter.args]
            for name in assigned([n.target]):
                bounds.setdefault(name, []).append(ends)
    return {name: all(len(ends) > 1 and ends[0] for ends in loops)
            for name, loops in bounds.items() if all(map(any, loops))}


def _is_data(node: ast.expr, arrays: set[str], data: set[str]) -> bool:
    return any(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
               and n.value.id in arrays for n in ast.walk(node)) or bool(names_in(node) & data)
