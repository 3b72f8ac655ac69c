"""Translates expressions of a thread: numbers, and elements of arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ztorch.dtypes import i32
from ztorch.graph.thread_program import (
    Branch,
    GetVariable,
    LoadElement,
    SetVariable,
    StoreElement,
    ThreadStatement,
)
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.calls import CallRules
from ztorch.kernels.expressions import known_object
from ztorch.kernels.reading import BadIndex, outside
from ztorch.kernels.thread_memory import ThreadMemory
from ztorch.kernels.tiles import Affine, LoopTensor


class OwnVariable:
    """A variable that each thread has, as the value of a name."""

    def __init__(self, key: str):
        self.key = key


class ThreadNumbers(CallRules):
    """Evaluates expressions; their reads and changes become statements."""

    memory: ThreadMemory
    statements: list[ThreadStatement]
    outer_names: frozenset[str] = frozenset()  # that were set before the loop
    passed_arrays: dict[Value, str]  # arrays of a kernel that its threads hand to this function
    subject, loop = "a thread", "zt.threads"  # in errors
    nested = 0  # number of loops, branches and choices around the line

    def number(self, node: ast.AST, x: Any) -> LoopTensor:
        """x as a number of the thread."""
        if isinstance(x, LoopTensor) and x.shape:
            raise self.source.error(node, f"{self.subject} works on numbers, and this is an array "
                                    f"of shape {list(x.shape)}", "take an element: x[i]")
        if not isinstance(x, (LoopTensor, Affine, *NUMBERS)):
            raise self.source.error(node, f"{x!r} is not a number")
        return self.arithmetic.tile(x)

    def _operand(self, node: ast.expr) -> Any:
        x = super()._operand(node)
        if isinstance(x, LoopTensor):
            self.number(node, x)
        return x

    def _name(self, node: ast.Name) -> Any:
        x = super()._name(node)
        if node.id in self.outer_names and isinstance(x, LoopTensor) and not x.shape:
            return LoopTensor(self.memory.scalar(x.value), (), x.weak)
        if not isinstance(x, OwnVariable):
            return x
        d, weak = self.memory.kinds[x.key]
        result = self.memory.leaf(d)
        self.statements.append(GetVariable(result, self.memory.variable(x.key, d, weak)))
        return LoopTensor(result, (), weak)

    def set(self, key: str, x: Any) -> None:
        """Sets a variable, whose dtype can hold all values that it is set to."""
        a = self.arithmetic
        new, known = a.tile(x), self.memory.kinds.get(key)
        d, weak = new.dtype, new.weak
        if known is not None:
            old = LoopTensor(self.memory.leaf(known[0]), (), known[1])
            d, weak = a.common([old, new]), known[1] and weak
        self.statements.append(SetVariable(self.memory.variable(key, d, weak), a.cast(x, d).value))

    # -- elements --------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Any:
        of = self.value(node.value)
        key = self.value(node.slice)
        if isinstance(of, tuple) and isinstance(key, LoopTensor):
            of = self._table(node, of)
        if not isinstance(of, LoopTensor):
            try:
                return known_object(of[key])
            except (TypeError, IndexError, KeyError) as error:
                raise self.source.error(node, str(error)) from None
        array = self._current(node.value, of)
        result = self.memory.leaf(of.dtype)
        place = self._place(node, of, key)
        self.memory.places.read[result] = place
        if not self.nested and array not in self.memory.own:
            self.memory.places.check_order(self.source, node, self.memory.name_of(array), place)
        self.statements.append(LoadElement(result, self.memory.name_of(array), place))
        return LoopTensor(result)

    def _current(self, node: ast.expr, array: LoopTensor) -> Value:
        if not array.shape:
            raise self.source.error(node, "a number has no elements")
        return array.value

    def _place(self, node: ast.AST, array: LoopTensor, key: Any) -> Value:
        """The place of an element in the flat array."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) != len(array.shape):
            raise self.source.error(node, f"{len(keys)} {'index' if len(keys) == 1 else 'indices'} "
                                    "for an array of "
                                    f"{len(array.shape)} axes, {list(array.shape)}",
                                    f"{self.subject} takes one element")
        flat: Any = None
        for k, n in zip(keys, array.shape, strict=True):
            if isinstance(k, LoopTensor) and not k.shape and k.dtype.is_int:
                place: Any = k
                reach = None if self.nested else self.memory.places.reach(k.value)
                if reach is not None and not 0 <= reach[0] <= reach[1] < n:
                    raise BadIndex(outside(*reach, n))
            elif isinstance(k, int) and not isinstance(k, bool):
                place = k + n if -n <= k < 0 else k
                if not 0 <= place < n:
                    raise BadIndex(outside(k, k, n).partition(";")[0])
            else:
                raise self.source.error(node, f"an index must be an integer, not {k.dtype}" if (
                    isinstance(k, LoopTensor)) else f"{self.subject} takes one element, no slice",
                    "loop over the elements")
            place = self.along(place, n)
            flat = place if flat is None else self.arithmetic.binary(
                ast.Add(), self.arithmetic.binary(ast.Mult(), flat, n), place)
        if array.value in self.memory.own:
            return self.memory.striped(self.arithmetic, flat)
        return self.arithmetic.cast(flat, i32).value

    def along(self, place: Any, n: int) -> Any:
        """The place along an axis of n elements."""
        return place

    def put(self, target: ast.Subscript, x: Any) -> None:
        """Writes an element."""
        array, place = self.target(target, target.value, self.value(target.slice))
        new = self.arithmetic.cast(self.number(target, x), array.dtype)
        name, places = self.memory.name_of(array.value), self.memory.places
        if not self.nested and array.value not in self.memory.own:
            if places.collide(self.memory.thread, place, new.value):
                raise self.source.error(
                    target, f"all threads of a block write {ast.unparse(target)}, each its own "
                    "value", "use an atomic update, or a condition such as `if thread == 0`")
            places.check_order(self.source, target, name, place, writes=True)
        self.statements.append(StoreElement(name, place, new.value))

    def target(self, node: ast.expr, array: ast.expr, key: Any) -> tuple[LoopTensor, Value]:
        """An array that may be written, and the place of an element."""
        of = self.value(array)
        if not isinstance(of, LoopTensor) or not of.shape:
            raise self.source.error(array, "only elements of arrays can be set")
        if of.value not in self.memory.shared:
            variable = self.env.get(array.id) if isinstance(array, ast.Name) else None
            name = self.writable().get(of.value)
            if variable is None or name is None:
                why = variable.fixed if variable and variable.fixed else (
                    "it is not an array of this function")
                raise self.source.error(
                    array, f"{ast.unparse(array)} cannot be written: {why}", "write to an array "
                    f"that the kernel makes before {self.loop}, such as np.zeros(n)")
            self.memory.written[name] = of.value
        return of, self._place(node, of, key)

    def writable(self) -> dict[Value, str]:
        """The arrays from outside that may be written, and their names in the kernel."""
        own = {v.value.value: n for n, v in self.env.items() if n in self.outer_names
               and not v.fixed and isinstance(v.value, LoopTensor) and v.value.shape}
        return {**self.passed_arrays, **own}

    # -- conditional reads ------------------------------------------------------------------------

    def chosen(self, test: LoopTensor, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """The value of `yes` where a condition holds, else that of `no`, each read only then."""
        key, around = f"<choice {next(self.memory.scopes)}>", self.statements
        outcomes: list[Any] = []
        blocks: list[list[ThreadStatement]] = []
        self.nested += 1
        for part in (yes, no):
            self.statements = []
            outcomes.append(part())
            blocks.append(self.statements)
        self.nested -= 1
        self.statements = around
        if not any(blocks):
            return self.arithmetic.choose(test, *outcomes)
        tiles = [self.arithmetic.tile(x) for x in outcomes]
        d, weak = self.arithmetic.common(tiles), all(t.weak for t in tiles)
        variable = self.memory.variable(key, d, weak)
        for x, block in zip(tiles, blocks, strict=True):
            block.append(SetVariable(variable, self.arithmetic.cast(x, d).value))
        self.statements.append(Branch(test.value, tuple(blocks[0]), tuple(blocks[1])))
        result = self.memory.leaf(d)
        self.statements.append(GetVariable(result, variable))
        return LoopTensor(result, (), weak)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.arithmetic.truth(self.value(node.test))
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        return self.chosen(test, lambda: self.number(node.body, self.value(node.body)),
                           lambda: self.number(node.orelse, self.value(node.orelse)))

    def _boolop(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        return self._all_of(node.values, is_and)

    def _all_of(self, nodes: list[ast.expr], is_and: bool) -> Any:
        """The operand of `and` or `or` that decides. Later ones are only evaluated if needed."""
        first, *rest = nodes
        x = self.value(first)
        if not isinstance(x, (LoopTensor, Affine)):
            return self._all_of(rest, is_and) if rest and bool(x) == is_and else x
        if not rest:
            return x
        test = self.arithmetic.truth(x)
        own = not is_and if test is x else x

        def later() -> Any:
            return self._all_of(rest, is_and)

        return self.chosen(test, later, lambda: own) if is_and else self.chosen(
            test, lambda: own, later)
