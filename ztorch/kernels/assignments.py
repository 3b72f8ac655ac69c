"""Assignments of a kernel: to variables, to elements, and sums over loops."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.kernels.calls import CallRules
from ztorch.kernels.patterns import Update, element_update, flag, variable_update
from ztorch.kernels.reading import BadIndex, ElementIndex, check_inside, index_of
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.sums import extreme_over, sum_over
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar
from ztorch.kernels.writing import COMBINE, combined_first, reduce_iterations, write


class AssignmentRules(CallRules):
    """Runs assignments."""

    def _run_annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self._assign(s, s.target, self.value(s.value))

    def _run_assign(self, s: ast.Assign) -> None:
        if len(s.targets) == 1 and self._run_update(s, s.targets[0]):
            return
        x = self.value(s.value)
        if len(s.targets) > 1 and isinstance(x, LoopTensor) and x.shape:
            raise self.source.error(s, "one array would have two names", "make an array for each")
        for target in s.targets:
            self._assign(s, target, x, s.value)

    def _run_augassign(self, s: ast.AugAssign) -> None:
        if self._run_update(s, s.target):
            return
        known = self.env.get(s.target.id) if isinstance(s.target, ast.Name) else None
        if isinstance(s.target, ast.Name) and known and known.fixed and isinstance(
                known.value, LoopTensor) and known.value.shape:
            name, new = s.target.id, ast.unparse(ast.BinOp(s.target, s.op, s.value))
            raise self.source.error(s, f"{name} cannot be changed in place: {known.fixed}",
                                    f"write {name} = {new}")
        target = ast.copy_location(ast.parse(ast.unparse(s.target), mode="eval").body, s.target)
        for n in ast.walk(target):
            ast.copy_location(n, s.target)
        old = self.value(target)
        if isinstance(s.op, ast.MatMult):
            raise self.source.error(s, "@= is not supported in kernels", "write x = x @ y")
        term = self.value(s.value)
        if isinstance(old, tuple) and isinstance(term, tuple) and isinstance(s.op, ast.Add):
            self._assign(s, s.target, old + term)
        else:
            self._assign(s, s.target, self.arithmetic.binary(s.op, old, term))

    def _assign(self, s: ast.stmt, target: ast.expr, x: Any, source: ast.expr | None = None
                ) -> None:
        if isinstance(target, ast.Name):
            view = isinstance(source, (ast.Subscript, ast.Name, ast.Attribute))
            if isinstance(x, tuple) and source is not None:
                self._check_tuple(s, source)
            if view and isinstance(x, LoopTensor) and x.shape and source is not None:
                self.bind(target.id, x, f"{target.id} is {ast.unparse(source)} by another name",
                          self._array_of(source))
            else:
                self.bind(target.id, x)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(x, (tuple, range)) or len(x) != len(target.elts):
                if isinstance(x, LoopTensor) and x.shape:
                    raise self.source.error(target, "an array is not taken apart into variables",
                                            "take its elements: a, b = x[0], x[1]")
                count = len(x) if isinstance(x, (tuple, range)) else 1
                of = "" if source is None else f": {ast.unparse(source)}"
                names = f"{len(target.elts)} variable{'s' * (len(target.elts) != 1)}"
                raise self.source.error(target, f"{names} for {count} "
                                        f"{'value' if count == 1 else 'values'}{of}")
            for t, part in zip(target.elts, x, strict=True):
                self._assign(s, t, part)
        elif isinstance(target, ast.Subscript):
            self._store(target, self.arithmetic.tile(x), None)
        else:
            raise self.source.error(target, "only variables and elements of arrays can be set")

    def _array_of(self, source: ast.expr) -> str:
        """The name of the array that an expression is a part of; empty if there is none."""
        while isinstance(source, (ast.Subscript, ast.Attribute)):
            source = source.value
        if not isinstance(source, ast.Name) or source.id not in self.env:
            return ""
        return self.env[source.id].of or source.id

    def _check_tuple(self, s: ast.stmt, source: ast.expr) -> None:
        """Raises an error for a tuple that holds arrays: it would not see later writes to them."""
        for n in source.elts if isinstance(source, (ast.Tuple, ast.List)) else ():
            if not isinstance(n, ast.Name) or n.id not in self.env:
                continue
            known = self.env[n.id]
            if isinstance(known.value, LoopTensor) and known.value.shape and not known.fixed:
                raise self.source.error(s, f"the tuple would hold {n.id} as it is now, without "
                                        "later writes", f"use {n.id} by its name, or put "
                                        f"{n.id}.copy() into the tuple")

    def bind(self, name: str, x: Any, fixed: str = "", of: str = "") -> None:
        """Gives a variable a value."""
        self.env = {n: replace(v, of="") if v.of == name else v for n, v in self.env.items()}
        old = self.env.get(name)
        now = len(self.loops)
        depth = now if old is None or self.parallel(old.depth) else old.depth
        changes = now if old is None else max(old.changes, depth)
        self.env[name] = KernelVariable(x, depth, changes, len(self.masks), fixed, of)
        if self.assigned:
            self.assigned[-1].add(name)

    # -- elements and reductions -----------------------------------------------------------------

    def _run_update(self, s: ast.stmt, target: ast.expr) -> bool:
        """Runs a statement that changes a variable or an element in all iterations of parallel
        loops. False if it is not such a statement."""
        if isinstance(target, ast.Subscript):
            update = element_update(s)
            if update is None:
                return False
            new = self._term(update)
            over = self._repeated(target, new)
            if over:
                array = self.env[target.value.id]  # type: ignore[attr-defined]
                new = self.arithmetic.tile(self._over_iterations(s, update, array, True, over))
            self._store(target, new, update.reduction, over)
            return True
        if not isinstance(target, ast.Name) or target.id not in self.env:
            return False
        name, old = target.id, self.env[target.id]
        inner = self.parallel(old.depth)
        truth, update = flag(s, name), variable_update(s, name)
        if not inner or (update is None and truth is None):
            return False
        condition = self.condition(old.masks)
        if update is None:
            reduction = "logical_or" if truth else "logical_and"
            total = reduce_iterations(self.arithmetic, self.arithmetic.tile(truth), condition,
                                      inner, reduction, boolean)
            x = self.arithmetic.apply(reduction, old.value, total, dtype=boolean)
        else:
            x = self._combined(s, update, old, condition, inner)
        self.env[name] = replace(old, value=x)
        return True

    def _combined(self, s: ast.stmt, update: Update, old: KernelVariable, condition: Any,
                  inner: tuple[LoopVar, ...]) -> LoopTensor:
        total = self._over_iterations(s, update, old, condition, inner)
        return self.arithmetic.apply(COMBINE[update.reduction][0], old.value, total)

    def _over_iterations(self, s: ast.stmt, update: Update, old: KernelVariable, condition: Any,
                         over: tuple[LoopVar, ...]) -> LoopTensor:
        """What the iterations of some loops combine with a variable or an element."""
        a = self.arithmetic
        if update.reduction == "add":
            return sum_over(self, update, old.masks, over, old.value)
        self.reads.clear()
        term = a.tile(self.value(update.term))
        d = a.common([old.value, term])
        if update.reduction.startswith("logical") and d is not boolean:
            raise self.source.error(s, "`and` and `or` combine the bools of all iterations, "
                                    f"not {d}")
        return extreme_over(self, term, condition, over, update.reduction, d)

    def _repeated(self, target: ast.Subscript, term: LoopTensor) -> tuple[LoopVar, ...]:
        """The loops whose iterations all change the same element, so that what they add can be
        computed before, such as a product of matrices."""
        old = self.env.get(target.value.id) if isinstance(target.value, ast.Name) else None
        if old is None or not isinstance(old.value, LoopTensor) or old.fixed or (
                self.condition(old.masks) is not True or term.shape):
            return ()
        if term.dtype.is_float and not old.value.dtype.is_float:
            return ()  # each term loses its fraction
        index = index_of(self.value(target.slice), old.value.shape)
        if index.shape or not all(isinstance(p, Affine) for p in index.places):
            return ()
        return tuple(v for v in self.parallel(old.depth) if v not in index.vars)

    def _term(self, update: Update) -> LoopTensor:
        x = self.arithmetic.tile(self.value(update.term))
        return self.arithmetic.apply("neg", x) if update.negative else x

    def _store(self, target: ast.Subscript, new: LoopTensor, reduction: str | None,
               done: tuple[LoopVar, ...] = ()) -> None:
        """Writes an element; `done` are the loops whose iterations are combined already."""
        if not isinstance(target.value, ast.Name) or target.value.id not in self.env:
            raise self.source.error(target, *self._no_place(target))
        name = target.value.id
        old = self.env[name]
        if old.fixed or not isinstance(old.value, LoopTensor) or not old.value.shape:
            raise self.source.error(
                target, f"{name} cannot be written: {old.fixed or 'it is not an array'}",
                "write to an array that the function makes, such as np.empty_like(x)")
        if reduction is not None:
            self.check_written(target, old.value)
        index = index_of(self.value(target.slice), old.value.shape)
        self.mark_parts([name])
        inner = tuple(v for v in self.parallel(old.depth) if v not in done)
        condition = self.condition(old.masks)
        try:
            if condition is True:
                check_inside(index, old.value.shape)
            self.store(name, index, new, condition, inner, reduction)
        except BadIndex as error:
            raise self.source.error(target, str(error)) from None

    def _no_place(self, target: ast.Subscript) -> tuple[str, str]:
        """Why an element cannot be set, and what to write."""
        of = target.value
        if isinstance(of, ast.Subscript):
            indices = f"{ast.unparse(of.slice)}, {ast.unparse(target.slice)}"
            return ("an element of a slice cannot be set",
                    f"write all indices at once: {ast.unparse(of.value)}[{indices}]")
        if isinstance(of, ast.Name) and not isinstance(self.source.names.get(of.id), np.ndarray):
            return (f"{of.id} is not defined",
                    f"make it before the loop, such as {of.id} = np.empty_like(x)")
        return (f"{ast.unparse(of)} is not an array of this function",
                "write to an array that it makes, such as np.empty_like(x)")

    def store(self, name: str, index: ElementIndex, new: LoopTensor, condition: Any,
              inner: tuple[LoopVar, ...], reduction: str | None) -> None:
        """Writes elements of an array, now or after the innermost loop in order."""
        old = self.env[name]
        around = self.ordered_around(name)
        if around and name in around[-1].deferred:
            if reduction is not None:  # so that fewer elements are kept of each iteration
                condition, inner, new = combined_first(self.arithmetic, old.value.dtype, index, new,
                                                       condition, inner, reduction)
            around[-1].defer_write(name, index, new, condition, inner, reduction)
            return
        index = replace(index, places=tuple(
            self.arithmetic.tile(p) if isinstance(p, Affine) and any(
                v.iteration is not None for v in p.terms) else p for p in index.places))
        x = write(self.arithmetic, old.value, index, new, condition, inner, reduction)
        self.env[name] = replace(old, value=x)
