"""Loops over the items of arrays, `enumerate` and `zip`, as loops over a counter."""

from __future__ import annotations

import ast
import copy
from typing import Any

from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.thread_folds import range_call
from ztorch.kernels.tiles import LoopTensor

FIX = "loop over range(len(x)) and read x[i]"


def known_items(t: ExpressionRules, s: ast.For) -> list[Any] | None:
    """The items of a loop over tuples that are known; None where it goes over anything else."""
    function, nodes = _parts(t, s)
    items = [t.value(node) for node in nodes]
    if not all(isinstance(x, tuple) for x in items):
        return None
    return list(function(*items) if function else items[0])


def over_numbers(t: ExpressionRules, s: ast.For) -> ast.For | None:
    """A loop over the items of arrays as one over their numbers, `for k in range(n)`, which begins
    with `v = x[k]`; None where it goes over anything else."""
    function, nodes = _parts(t, s)
    shapes = [x.shape if isinstance(x, LoopTensor) else () for x in map(t.value, nodes)]
    if not all(shapes):
        return None
    targets = [s.target]
    if function is not None:
        count = len(nodes) + (function is enumerate)
        if not isinstance(s.target, ast.Tuple) or len(s.target.elts) != count:
            raise t.source.error(s.target, f"{function.__name__} gives {count} values per "
                                 "iteration", "give each of them a name")
        targets = s.target.elts
    name = f"<item {s.lineno}:{s.col_offset}>"  # no name that a user can write
    if function is enumerate:
        counter, *targets = targets
        if not isinstance(counter, ast.Name):
            raise t.source.error(counter, "enumerate gives one number per iteration")
        name = counter.id
    loop = copy.copy(s)  # with the flag of a break
    loop.target, loop.iter = ast.Name(name, ast.Store()), range_call(min(n for n, *_ in shapes))
    reads = [ast.Assign([target], ast.Subscript(copy.deepcopy(node), ast.Name(name, ast.Load()),
                                                ast.Load()))
             for target, node in zip(targets, nodes, strict=True)]
    loop.body = [*reads, *s.body]
    for made in (loop.target, loop.iter, *reads):
        for part in ast.walk(made):
            if not hasattr(part, "lineno"):
                ast.copy_location(part, s.iter)
    return loop


def _parts(t: ExpressionRules, s: ast.For) -> tuple[Any, list[ast.expr]]:
    """`enumerate` or `zip`, or None, and what the loop goes over."""
    call = s.iter
    function = t.value(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or (function is not enumerate and function is not zip):
        return None, [call]
    if call.keywords or not call.args or (len(call.args) > 1 and function is enumerate):
        raise t.source.error(call, f"{function.__name__} takes only arrays in a kernel", FIX)
    return function, call.args
