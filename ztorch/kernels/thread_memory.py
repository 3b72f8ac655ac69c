"""The arrays and variables of the threads of a loop, while it is translated."""

from __future__ import annotations

import ast
import itertools
from typing import Any

from ztorch.dtypes import DType, i32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import filled
from ztorch.graph.thread_bounds import Bounds
from ztorch.graph.thread_program import (
    LoadElement,
    ThreadArray,
    ThreadStatement,
    ThreadVariable,
)
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.source import Source
from ztorch.kernels.thread_places import ThreadPlaces
from ztorch.kernels.tiles import LoopTensor


class ThreadMemory:
    """The arrays and variables of the threads of one loop."""

    def __init__(self, kinds: dict[str, tuple[DType, bool]], size: int):
        self.size = size  # threads per block
        self.arrays: dict[Value, str] = {}  # names of the kernel's arrays
        self.scalars: dict[Value, LoadElement] = {}  # reads of the kernel's numbers
        self.written: dict[str, Value] = {}  # arrays that threads change, by name
        self.shared: dict[Value, ThreadArray] = {}  # by the value that represents them
        self.own: set[Value] = set()  # the arrays with separate elements for each thread
        self.kinds = kinds  # dtype of each variable, and whether it is a Python number
        self.widened = False  # whether a variable was used before its last kind was known
        self.variables: dict[str, ThreadVariable] = {}
        self.leaves = itertools.count()
        self.scopes = itertools.count()  # of variables: the same in every translation
        self.block, self.thread = self.leaf(i32), self.leaf(i32)  # numbers of a thread
        self.bounds: dict[Value, Bounds] = {}  # of numbers, as far as they are known
        self.places = ThreadPlaces()
        self.lines: dict[ThreadStatement, tuple[Source, ast.AST]] = {}  # the user's, for errors

    def leaf(self, d: DType) -> Value:
        """A value that represents the result of a statement."""
        return leaf("thread", f"t{next(self.leaves)}", (), d)

    def share(self, shape: tuple[int, ...], d: DType, own: bool = False) -> LoopTensor:
        """A new array of the block, or of each of its threads if `own`."""
        name = f"s{len(self.shared)}"
        array = leaf("thread", name, shape, d)
        size = array.size * (self.size if own else 1)
        self.shared[array] = ThreadArray(name, d, size, True, True)
        if own:
            self.own.add(array)
        return LoopTensor(array)

    def striped(self, a: TileArithmetic, place: Any) -> Value:
        """The index in an array that holds the elements of all threads, interleaved."""
        if self.size == 1:
            return a.cast(a.tile(place), i32).value
        return a.cast(a.binary(ast.Add(), a.binary(ast.Mult(), place, self.size),
                               LoopTensor(self.thread, (), weak=True)), i32).value

    def scalar(self, x: Value) -> Value:
        """A number that is computed before the loop, which threads read at their start."""
        if filled(x):
            return x
        if x not in self.scalars:
            array, zero = OPS.reshape(x, (1,)), OPS.full((), 0, i32)
            self.scalars[x] = LoadElement(self.leaf(x.dtype), self.name_of(array), zero)
        return self.scalars[x].result

    def name_of(self, array: Value) -> str:
        """The name of an array of the kernel, or of a shared one."""
        if array in self.shared:
            return self.shared[array].name
        return self.arrays.setdefault(array, f"a{len(self.arrays)}")

    def variable(self, key: str, d: DType, weak: bool) -> ThreadVariable:
        """The variable of a name. Its dtype may change in the next translation."""
        self.widened |= self.kinds.setdefault(key, (d, weak)) != (d, weak)
        self.kinds[key] = d, weak
        variable = self.variables.get(key)
        if variable is None or variable.dtype is not d:
            number = variable.number if variable else len(self.variables)
            self.variables[key] = ThreadVariable(number, d)
        return self.variables[key]
