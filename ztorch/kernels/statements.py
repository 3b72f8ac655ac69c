"""What statements of a kernel do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ztorch.dtypes import boolean
from ztorch.errors import KernelError, ZtorchError
from ztorch.graph.op import OPS
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.dependence import (
    Counters,
    Update,
    conflict,
    element_update,
    flag,
    selection,
    variable_update,
)
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.plainer import ENDS, plainer
from ztorch.kernels.reading import BadIndex, ElementIndex, index_of
from ztorch.kernels.scope import Loop, Variable
from ztorch.kernels.selecting import selected
from ztorch.kernels.source import source_of
from ztorch.kernels.sums import total_of
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar
from ztorch.kernels.turns import in_order
from ztorch.kernels.words import grid
from ztorch.kernels.writing import COMBINE, reduced, write

UNROLLED_TURNS = 4  # turns up to which a loop that needs an order is written out


class StatementRules(ExpressionRules):
    """Runs statements."""

    max_steps: int | None = None  # the most turns of a `while` loop

    def function(self) -> Any:
        """Runs the function, and returns what it returns."""
        body = plainer(self.source, self.max_steps)
        last = body[-1]
        self.block(body[:-1] if isinstance(last, ast.Return) else body)
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.source.error(last, "the function returns nothing", "end it with `return` "
                                    "and the arrays that it fills")
        return self.value(last.value)

    def inline(self, node: ast.Call, function: Callable[..., Any], args: tuple[Any, ...],
               named: dict[str, Any]) -> Any:
        """The result of another function."""
        if function in self.calls:
            raise self.source.error(node, f"{function.__name__} calls itself, and kernels cannot",
                                    "write a loop")
        inner = StatementRules(source_of(function), self.arithmetic, (*self.calls, function))
        inner.loops, inner.masks, inner.max_steps = self.loops, self.masks, self.max_steps
        try:
            bound = inner.source.signature(function, args, named)
        except TypeError as error:
            raise self.source.error(node, str(error)) from None
        whole = dict(zip([id(a) for a in args], node.args, strict=False))
        for name, x in bound.items():
            place = whole.get(id(x))
            known = self.env.get(place.id) if isinstance(place, ast.Name) else None
            changes = known.changes if known else len(self.loops)
            inner.env[name] = Variable(x, len(self.loops), changes, len(self.masks),
                                       fixed=f"{name} is an argument")
        return inner.function()

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Runs statements in order."""
        for s in statements:
            rule = getattr(self, f"_run_{type(s).__name__.lower()}", None)
            if rule is None:
                raise self.source.error(s, f"{type(s).__name__.lower()} is not supported in "
                                        "kernels", "write loops, conditions and assignments")
            try:
                rule(s)
            except KernelError:
                raise
            except (BadIndex, ZtorchError) as error:
                raise self.source.error(s, str(error)) from None

    # -- simple statements -----------------------------------------------------------------------

    def _run_pass(self, s: ast.Pass) -> None:
        pass

    def _run_expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            raise self.source.error(s, "the value is not used", "assign it, or delete the line")

    def _run_assert(self, s: ast.Assert) -> None:
        test = self.value(s.test)
        if isinstance(test, (LoopTensor, Affine)):
            raise self.source.error(s, "assert can only test what is known while compiling")
        if not test:
            raise self.source.error(s, f"the assertion fails"
                                    f"{': ' + str(self.value(s.msg)) if s.msg else ''}")

    def _run_return(self, s: ast.Return) -> None:
        raise self.source.error(s, "return stands inside a loop or a branch",
                                "return once, at the end of the function")

    def _run_annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self._assign(s, s.target, self.value(s.value))

    def _run_assign(self, s: ast.Assign) -> None:
        if len(s.targets) == 1 and self._run_update(s, s.targets[0]):
            return
        x = self.value(s.value)
        for target in s.targets:
            self._assign(s, target, x, s.value)

    def _run_augassign(self, s: ast.AugAssign) -> None:
        if self._run_update(s, s.target):
            return
        target = ast.copy_location(ast.parse(ast.unparse(s.target), mode="eval").body, s.target)
        for n in ast.walk(target):
            ast.copy_location(n, s.target)
        old = self.value(target)
        if isinstance(s.op, ast.MatMult):
            raise self.source.error(s, "@= is not supported in kernels", "write x = x @ y")
        self._assign(s, s.target, self.arithmetic.binary(s.op, old, self.value(s.value)))

    def _assign(self, s: ast.stmt, target: ast.expr, x: Any, source: ast.expr | None = None
                ) -> None:
        if isinstance(target, ast.Name):
            view = isinstance(source, (ast.Subscript, ast.Name, ast.Attribute))
            fixed = ""
            if view and isinstance(x, LoopTensor) and x.shape and source is not None:
                fixed = f"{target.id} is {ast.unparse(source)} by another name"
            self.bind(target.id, x, fixed)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(x, (tuple, range)) or len(x) != len(target.elts):
                count = len(x) if isinstance(x, (tuple, range)) else 1
                raise self.source.error(target, f"{len(target.elts)} variables for {count} values")
            for t, part in zip(target.elts, x, strict=True):
                self._assign(s, t, part)
        elif isinstance(target, ast.Subscript):
            self._store(target, self.arithmetic.tile(x), None)
        else:
            raise self.source.error(target, "only variables and elements of arrays can be set")

    def bind(self, name: str, x: Any, fixed: str = "") -> None:
        """Gives a variable a value."""
        old = self.env.get(name)
        now = len(self.loops)
        depth = now if old is None or self.parallel(old.depth) else old.depth
        changes = now if old is None else max(old.changes, depth)
        self.env[name] = Variable(x, depth, changes, len(self.masks), fixed)
        if self.assigned:
            self.assigned[-1].add(name)

    # -- elements and reductions -----------------------------------------------------------------

    def _run_update(self, s: ast.stmt, target: ast.expr) -> bool:
        """Runs a statement that changes a variable or an element in all turns of parallel loops.
        False if it is no such statement."""
        if isinstance(target, ast.Subscript):
            update = element_update(s)
            if update is None or self._bits(update, target):
                return False
            self._store(target, self._term(update), update.how, update)
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
            how = "logical_or" if truth else "logical_and"
            total = reduced(self.arithmetic, self.arithmetic.tile(truth), condition, inner, how,
                            boolean)
            x = self.arithmetic.apply(how, old.value, total, dtype=boolean)
        else:
            x = self._combined(s, update, old, condition, inner)
        self.env[name] = replace(old, value=x)
        return True

    def _combined(self, s: ast.stmt, update: Update, old: Variable, condition: Any,
                  inner: tuple[LoopVar, ...]) -> LoopTensor:
        a = self.arithmetic
        if update.how == "add":
            total = total_of(self, update, condition, inner, old.value)
        else:
            term = a.tile(self.value(update.term))
            d = a.common([old.value, term])
            if update.how.startswith("logical") and d is not boolean:
                raise self.source.error(s, f"| and & combine the bools of all turns, not {d}")
            total = reduced(a, term, condition, inner, update.how, d)
        return a.apply(COMBINE[update.how][0], old.value, total)

    def _bits(self, update: Update, target: ast.Subscript) -> bool:
        """Whether an update combines the bits of integers, which loops do turn by turn."""
        of = self.env.get(target.value.id) if isinstance(target.value, ast.Name) else None
        return bool(of and update.how.startswith("logical") and isinstance(of.value, LoopTensor)
                    and of.value.dtype is not boolean)

    def _term(self, update: Update) -> LoopTensor:
        x = self.arithmetic.tile(self.value(update.term))
        return self.arithmetic.apply("neg", x) if update.negative else x

    def _store(self, target: ast.Subscript, new: LoopTensor, how: str | None,
               update: Update | None = None) -> None:
        if not isinstance(target.value, ast.Name) or target.value.id not in self.env:
            raise self.source.error(target, "only elements of arrays of this function can be set")
        name = target.value.id
        old = self.env[name]
        if old.fixed or not isinstance(old.value, LoopTensor) or not old.value.shape:
            raise self.source.error(
                target, f"{name} cannot be written: {old.fixed or 'it is no array'}",
                "write to an array that the function makes, such as np.empty_like(x)")
        index = index_of(self.value(target.slice), old.value.shape)
        late = next((loop for loop in self.loops[old.depth:] if loop.turns
                     and name in loop.turns.late), None)
        inner = self.parallel(old.depth)
        try:
            if late is not None and late.turns is not None:
                late.turns.put_off(name, index, new, self.condition(old.masks), inner, how)
                return
            self.store(name, index, new, self.condition(old.masks), inner, how)
        except BadIndex as error:
            raise self.source.error(target, str(error)) from None

    def store(self, name: str, index: ElementIndex, new: LoopTensor, condition: Any,
              inner: tuple[LoopVar, ...], how: str | None) -> None:
        """Writes elements of an array."""
        old = self.env[name]
        index = replace(index, places=tuple(
            self.arithmetic.tile(p) if isinstance(p, Affine) and any(
                v.turn is not None for v in p.terms) else p for p in index.places))
        x = write(self.arithmetic, old.value, index, new, condition, inner, how)
        self.env[name] = replace(old, value=x)

    # -- branches --------------------------------------------------------------------------------

    def _run_if(self, s: ast.If) -> None:
        chosen = selection(s)
        if chosen is not None and chosen.best in self.env and self.parallel(
                self.env[chosen.best].depth):
            selected(self, s, chosen)
            return
        test = self.arithmetic.truth(self.value(s.test))
        if isinstance(test, bool):
            self.block(s.body if test else s.orelse)
            return
        before = dict(self.env)
        yes = self._branch(test, s.body)
        outcomes = {n: self.env[n] for n in yes}
        for n in yes:
            if n in before:
                self.env[n] = before[n]
            else:
                del self.env[n]
        no = self._branch(self.arithmetic.opposite(test), s.orelse)
        for n in sorted(yes | no):
            a = outcomes.get(n, before.get(n))
            b = self.env.get(n) if n in no else before.get(n)
            variable = a or b
            assert variable is not None
            if a is not None and b is not None:
                x = self._merged(s, n, test, a.value, b.value)
                variable = replace(before.get(n, variable), value=x,
                                   masks=before[n].masks if n in before else len(self.masks),
                                   fixed=a.fixed or b.fixed)
            self.env[n] = variable
            if self.assigned:
                self.assigned[-1].add(n)

    def _branch(self, test: Any, statements: Sequence[ast.stmt]) -> set[str]:
        self.masks.append(test)
        self.assigned.append(set())
        self.block(statements)
        self.masks.pop()
        return self.assigned.pop()

    def _merged(self, s: ast.If, name: str, test: Any, a: Any, b: Any) -> Any:
        numeric = (LoopTensor, Affine, *NUMBERS)
        if isinstance(a, numeric) and isinstance(b, numeric):
            return self.arithmetic.choose(test, a, b)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self._merged(s, name, test, x, y) for x, y in zip(a, b, strict=True))
        if a is b:
            return a
        raise self.source.error(s, f"{name} is {a!r} in one branch and {b!r} in the other")

    # -- loops -----------------------------------------------------------------------------------

    def _run_for(self, s: ast.For) -> None:
        call = s.iter if isinstance(s.iter, ast.Call) else None
        function = self.value(call.func) if call is not None else None
        if call is not None and function is grid:
            self._run_grid(s, [x for n in call.args for x in self.spread(n)])
            return
        if call is not None and function is range:
            ends = [x for n in call.args for x in self.spread(n)]
            self._run_range(s, *self._span(s, ends))
            return
        items = self.value(s.iter)
        if not isinstance(items, tuple):
            raise self.source.error(s.iter, "a loop goes over range(...), zt.grid(...) or a tuple "
                                    "that is known", "loop over range(len(x)) and read x[i]")
        for item in items:  # written out
            self._assign(s, s.target, item)
            self.block(s.body)

    def _span(self, s: ast.For, ends: list[Any]) -> tuple[Affine, int, int, Any]:
        """(first, step, turns, last): turns from `last` on do not run; None: all of them do."""
        for x in ends:
            if not isinstance(x, (Affine, int)):
                raise self.source.error(
                    s.iter, "the number of turns must be known while compiling", "loop to the "
                    "largest number there can be, with `if k < count:` around the body")
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int) or step == 0:
            raise self.source.error(s.iter, "the step must be a known integer, and not 0")
        length = Affine.of(stop).plus(start, -1)
        longest = length.range[1] if step > 0 else length.range[0]
        turns = len(range(0, longest, step))
        return Affine.of(start), step, turns, Affine.of(stop) if length.terms else None

    def _run_range(self, s: ast.For, first: Affine, step: int, turns: int, last: Any) -> None:
        if not isinstance(s.target, ast.Name):
            raise self.source.error(s.target, "range gives one number a turn")
        if turns == 0:
            return
        name = s.target.id
        var = LoopVar(name, turns)
        counter = first.plus(Affine({var: step}))
        if not hasattr(s, ENDS) and conflict(s, {*self.env}, self._counters(
                {name: counter}, ordered=True, ragged=last is not None)) is None:
            past = None if last is None else (ast.Lt() if step > 0 else ast.Gt(), counter, last)
            self._at_once(s, [var], {name: (counter if turns > 1 else first).simple()}, past)
        elif turns <= UNROLLED_TURNS and last is None and not hasattr(s, ENDS):
            for k in range(turns):
                self.bind(name, first.plus(k * step).simple())
                self.block(s.body)
        else:
            in_order(self, s, name, first, step, turns, last)

    def _counters(self, values: dict[str, Affine], ordered: bool, ragged: bool = False) -> Counters:
        known = {n: v.value for n, v in self.env.items()
                 if isinstance(v.value, Affine) or type(v.value) is int}
        return Counters(values, {**known, **values}, ordered, ragged)

    def _run_grid(self, s: ast.For, extents: list[Any]) -> None:
        targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
        together = isinstance(s.target, ast.Name) and len(extents) > 1  # one tuple of counters
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or not (together or len(names) == len(extents)):
            raise self.source.error(s.target, f"{len(targets)} counters for {len(extents)} loops")
        if not all(isinstance(n, int) for n in extents):
            raise self.source.error(s.iter, "the extents of zt.grid must be known while compiling")
        if hasattr(s, ENDS):
            raise self.source.error(s, "a loop without an order has no first turn to break at",
                                    "use range(...)")
        loops = [LoopVar(names[0] if together else name, n)
                 for name, n in zip(names * (len(extents) if together else 1), extents,
                                    strict=True)]
        counters = [Affine({v: 1}) for v in loops]
        problem = conflict(s, {*self.env}, self._counters(
            {} if together else dict(zip(names, counters, strict=True)), ordered=False))
        if problem is not None:
            raise self.source.error(problem.node, f"the turns of zt.grid have no order, but "
                                    f"{problem.reason}", "use range(...) for turns in order")
        if 0 not in extents:
            plain = [c.simple() if v.extent > 1 else 0
                     for c, v in zip(counters, loops, strict=True)]
            values = {names[0]: tuple(plain)} if together else dict(zip(names, plain, strict=True))
            self._at_once(s, loops, values, None)

    def _at_once(self, s: ast.For, loops: list[LoopVar], counters: dict[str, Any],
                 past: tuple[ast.cmpop, Affine, Affine] | None) -> None:
        """Runs a loop with an axis for each counter. Turns where the comparison `past` does not
        hold do nothing."""
        before, outside = dict(self.env), len(self.loops)
        self.loops += [Loop(v) for v in loops]
        depth = len(self.loops)
        for name, counter in counters.items():
            self.env[name] = Variable(counter, depth, depth, len(self.masks), "it counts turns")
        if past is not None:
            self.masks.append(self.arithmetic.compare(*past))
        self.assigned.append(set())
        self.block(s.body)
        self.assigned.pop()
        if past is not None:
            self.masks.pop()
        del self.loops[outside:]
        after = self.env
        self.env = {n: v for n, v in after.items() if n in before and v.depth <= outside}
        for name in before:
            if name not in self.env and past is None and name in after:
                self.bind(name, _last_turn(after[name].value, loops))


def _last_turn(x: Any, loops: Sequence[LoopVar]) -> Any:
    """What a variable holds after some loops."""
    if isinstance(x, Affine):
        for v in loops:
            x = Affine({w: c for w, c in x.terms.items() if w is not v},
                       x.const + x.terms.get(v, 0) * (v.extent - 1))
        return x.simple()
    if isinstance(x, tuple):
        return tuple(_last_turn(part, loops) for part in x)
    if not isinstance(x, LoopTensor):
        return x
    key = tuple(v.extent - 1 if v in loops else slice(None) for v in x.axes)
    kept = tuple(v for v in x.axes if v not in loops)
    return LoopTensor(OPS.slice_by(x.value, key), kept, x.weak) if len(kept) < len(x.axes) else x


