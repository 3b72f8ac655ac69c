"""Translates calls in threads: functions of threads, of numbers, and of users."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np

from ztorch.dtypes import boolean, i32
from ztorch.graph.rewrite import filled
from ztorch.graph.thread_program import (
    SUBGROUP,
    AtomicUpdate,
    Barrier,
    CountedLoop,
    Exchange,
    StoreElement,
)
from ztorch.graph.value import Value
from ztorch.kernels import subgroup_functions as subgroups
from ztorch.kernels import thread_functions as threads
from ztorch.kernels.creating import dtype_from
from ztorch.kernels.known_functions import FUNCTIONS
from ztorch.kernels.library_ops import check_numbers, library_op
from ztorch.kernels.thread_numbers import ThreadNumbers
from ztorch.kernels.tile_functions import BadCall
from ztorch.kernels.tiles import LoopTensor

ARRAY_MAKERS = (np.zeros, np.ones, np.full, np.empty, np.zeros_like, np.ones_like, np.empty_like)
UPDATES = {threads.atomic_add: "add", threads.atomic_min: "min", threads.atomic_max: "max",
           threads.atomic_exchange: "exchange", threads.atomic_cas: "cas"}
REDUCTIONS = {subgroups.subgroup_sum: "add", subgroups.subgroup_max: "maximum",
              subgroups.subgroup_min: "minimum"}


class ThreadCalls(ThreadNumbers):
    """Evaluates calls."""

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        known = function if callable(function) else None
        try:
            if known in UPDATES:
                return self._update(node, UPDATES[known])
            if known in REDUCTIONS:
                return self._reduction(node, REDUCTIONS[known])
            if known in ARRAY_MAKERS:
                return self._thread_array(node, known)
            if known in (threads.shared, threads.barrier, subgroups.lane, subgroups.shuffle,
                         subgroups.shuffle_xor):
                args = [self.value(n) for n in node.args]
                named = self.named(node.keywords)
                rule = getattr(self, f"_{known.__name__}")
                return rule(node, *args, **named)
        except TypeError as error:
            problem = str(error)
            if known is not None and known in threads.THREAD_FUNCTIONS:
                names = ", ".join(inspect.signature(known).parameters)
                problem = f"its arguments are ({names})" if names else "it takes no arguments"
            raise self.source.error(node, f"{ast.unparse(node.func)}: {problem}") from None
        if known is threads.threads:
            raise self.source.error(node, "a loop over threads is inside another one",
                                    "for several axes write zt.threads((4, 4), (8, 8))")
        for n in node.args:
            x = self.value(n) if isinstance(n, (ast.Name, ast.Attribute)) else None
            if isinstance(x, LoopTensor) and x.shape and known is not len and not hasattr(
                    function, "__code__"):
                self.number(n, x)
        result = super()._call(node)
        op = library_op(function)
        if op:
            check_numbers(op, result)
        return result

    def _update(self, node: ast.Call, reduction: str) -> LoopTensor:
        if node.keywords or len(node.args) != (4 if reduction == "cas" else 3):
            names = "array, index, expected, x" if reduction == "cas" else "array, index, x"
            raise self.source.error(node, f"zt.atomic_{reduction} takes ({names})",
                                    "the index is a number, or a tuple of one for each axis")
        array, place = self.target(node, node.args[0], self.value(node.args[1]))
        d = array.dtype
        if d.bits < 32 or d is boolean:
            raise self.source.error(node.args[0], f"zt.atomic_{reduction} takes arrays of 32 or 64 "
                                    f"bits, not {d}", "use np.int32, np.float32 or the like")
        xs = tuple(self.arithmetic.cast(self.number(n, self.value(n)), d).value
                   for n in node.args[2:])
        result = self.memory.leaf(d)
        update = AtomicUpdate(result, reduction, self.memory.name_of(array.value), place, xs)
        self.memory.lines[update] = self.source, node
        self.statements.append(update)
        return LoopTensor(result)

    def _shared(self, node: ast.Call, shape: Any, dtype: Any = np.float64) -> LoopTensor:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(n, int) and n > 0 for n in sizes):
            raise BadCall("the shape of shared memory must be known while compiling, and not 0")
        return self.memory.share(sizes, dtype_from(dtype))

    def _thread_array(self, node: ast.Call, function: Any) -> LoopTensor:
        """A separate array for each thread, such as `np.zeros(4)`, filled in a loop."""
        args = [self.value(n) for n in node.args]
        named = self.named(node.keywords)
        array = FUNCTIONS[function](self.arithmetic, *args, **named)
        if 0 in array.shape or not array.shape:
            raise BadCall("an array of a thread has one element or more")
        own = self.memory.share(array.shape, array.dtype, own=True)
        if function not in (np.empty, np.empty_like):
            x = array.value.attrs["value"] if filled(array.value) else self.number(node, args[1])
            number, end = (self.arithmetic.cast(n, d).value
                           for n, d in ((x, array.dtype), (array.value.size, i32)))
            counter = self.memory.leaf(i32)
            fill = StoreElement(self.memory.name_of(own.value),
                                self.memory.striped(self.arithmetic, LoopTensor(counter)), number)
            self.statements.append(CountedLoop(counter, self.arithmetic.tile(0).value, end, 1, (),
                                               None, (fill,)))
        return own

    def _barrier(self, node: ast.Call) -> None:
        self.memory.places.met()
        self.memory.lines[barrier := Barrier()] = self.source, node
        self.statements.append(barrier)

    def _lane(self, node: ast.Call, thread: Any) -> Any:
        return self.arithmetic.binary(ast.Mod(), thread, SUBGROUP)

    def _shuffle(self, node: ast.Call, x: Any, lane: Any) -> LoopTensor:
        at = self.number(node, lane)
        if not at.dtype.is_int:
            raise BadCall(f"zt.shuffle takes the number of a thread, not {at.dtype}")
        return self._exchanged(node, self.number(node, x), self.arithmetic.cast(at, i32).value)

    def _shuffle_xor(self, node: ast.Call, x: Any, mask: Any) -> LoopTensor:
        if isinstance(mask, LoopTensor):
            lane = self.arithmetic.binary(ast.Mod(), LoopTensor(self.memory.thread), SUBGROUP)
            return self._shuffle(node, x, self.arithmetic.binary(ast.BitXor(), lane, mask))
        if not isinstance(mask, int) or not 0 < mask < SUBGROUP:
            raise BadCall(f"the mask of zt.shuffle_xor is from 1 to {SUBGROUP - 1}, not {mask}")
        return self._exchanged(node, self.number(node, x), mask)

    def _exchanged(self, node: ast.Call, x: LoopTensor, lane: Value | int) -> LoopTensor:
        result = self.memory.leaf(x.dtype)
        self.memory.places.met()
        self.memory.lines[exchange := Exchange(result, x.value, lane)] = self.source, node
        self.statements.append(exchange)
        return LoopTensor(result, (), x.weak)

    def _reduction(self, node: ast.Call, reduction: str) -> LoopTensor:
        if node.keywords or len(node.args) != 1:
            raise self.source.error(node, f"{ast.unparse(node.func)} takes one number")
        x = self.number(node, self.value(node.args[0]))
        mask = SUBGROUP // 2
        while mask:
            x = self.arithmetic.apply(reduction, x, self._exchanged(node, x, mask))
            mask //= 2
        return x
