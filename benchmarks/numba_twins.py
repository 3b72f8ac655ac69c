"""Kernels of the gallery compiled by numba from the same source: for several threads, loops whose
iterations run at once are `numba.prange`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import peers


def twin(kernel: Any, arrays: Sequence[np.ndarray], options: dict[str, Any], threads: int,
         summed: Sequence[str]) -> Callable[..., Any] | None:
    """The kernel by numba; None where numba is missing, or does not take it.

    Args:
        kernel: A kernel of the gallery.
        arrays: What it is called with.
        options: Likewise.
        threads: How many threads share its loops.
        summed: Arrays whose elements several turns add to, which numba's threads may not: loops
            that write them keep to one thread.
    """
    numba = peers.module("numba")
    if not numba:
        return None
    module = importlib.import_module(kernel.__module__)
    tree = ast.parse(inspect.getsource(module))
    at_once = {int(n) for n in re.findall(r"^line (\d+):.*iterations at once$",
                                          kernel.explain(*arrays, **options), re.MULTILINE)}
    if threads > 1:
        numba.set_num_threads(threads)
    tree = ast.fix_missing_locations(_Loops(at_once if threads > 1 else set(), summed).visit(tree))
    names: dict[str, Any] = {"numba": numba, "jitted": numba.njit(
        fastmath=True, parallel=threads > 1), "__name__": module.__name__,
        "__package__": "models.kernels"}
    try:
        exec(compile(tree, module.__file__ or "", "exec"), names)
        function: Callable[..., Any] = names[kernel.__name__]
        function(*arrays, **options)
    except Exception as error:
        print(f"  without numba in {kernel.__name__}: {type(error).__name__}", flush=True)
        return None
    return function


class _Loops(ast.NodeTransformer):
    """Loops in numba's words."""

    def __init__(self, at_once: set[int], summed: Sequence[str]):
        self.at_once, self.summed = at_once, summed
        self.inside = False  # of a loop that threads share

    def visit_FunctionDef(self, f: ast.FunctionDef) -> Any:
        f.decorator_list = [ast.parse("jitted", mode="eval").body]
        return self.generic_visit(f)

    def visit_For(self, s: ast.For) -> Any:
        call = s.iter
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tuple":
            call = s.iter = call.args[0]  # written out by us, a plain loop for numba
        if not isinstance(call, ast.Call):
            return self.generic_visit(s)
        shared = (s.lineno in self.at_once and not self.inside and not any(
            isinstance(n, ast.Name) and n.id in self.summed for n in ast.walk(s)))
        around, self.inside = self.inside, self.inside or shared
        self.generic_visit(s)
        self.inside = around
        if ast.unparse(call.func) == "zt.grid":
            return self._grid(s, call, shared)
        if shared:
            call.func = _expression("numba.prange")
        return s

    def _grid(self, s: ast.For, call: ast.Call, shared: bool) -> ast.For:
        """A loop over a grid as one in another, the outer one shared by threads."""
        [*extents] = call.args
        if isinstance(s.target, ast.Name) and len(extents) == 1 and not isinstance(
                extents[0], ast.Starred):
            call.func = _expression("numba.prange" if shared else "range")
            return s
        if not isinstance(s.target, ast.Tuple):
            call.func = _expression("np.ndindex")
            return s
        if isinstance(extents[0], ast.Starred):
            shape = ast.unparse(extents[0].value)
            extents = [_expression(f"{shape}[{k}]") for k in range(len(s.target.elts))]
        loop = s
        for k in reversed(range(len(extents))):
            word = _expression("numba.prange" if shared and k == 0 else "range")
            body = s.body if loop is s else [loop]
            loop = ast.For(s.target.elts[k], ast.Call(word, [extents[k]], []), [*body], [])
        return loop


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
