"""`zt.compiled`: a function of tensors as one native call."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.arrays.applying import common_memory
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.elements import array_of, operand_of
from ztorch.arrays.function_trace import function_trace
from ztorch.arrays.memory import memory, place_of
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.placement import code_for, default_device
from ztorch.arrays.programs import ArrayProgram
from ztorch.arrays.realize import keeps_operands, realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import f32, f64
from ztorch.errors import ConfigError
from ztorch.graph.trees import LEAF, flatten, unflatten

CAPACITY = 256  # versions of a function that are kept


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of tensors one native call: a decorator.

    The function is called once for each set of shapes and dtypes, with tensors that have no values
    yet. What it does with them is compiled, and runs from then on. Python's floats are inputs too;
    integers, strings and the like are compiled in.

    Args:
        function: Takes tensors, or dicts and lists of them, and returns such.

    Returns:
        A function that takes and returns tensors; given arrays of NumPy alone, it returns such.

    Raises:
        ConfigError: `function` is not callable.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> @zt.compiled
        ... def distance(a, b):
        ...     return zt.ops.norm(a - b, axis=-1)
        >>> distance(np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]]))
        array([5.])
    """
    if not callable(function):
        raise ConfigError(f"compiled takes a function of tensors, not {function!r}; zt.ops compute "
                          "arrays by themselves")
    name = getattr(function, "__name__", "function")
    versions: Recent[Any, _Version] = Recent(CAPACITY)
    of_specs: Recent[Any, _Version] = Recent(CAPACITY)  # for calls with tensors alone: a short way
    lock = threading.Lock()

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        if is_tracing() or keeps_operands():
            return function(*args, **named)  # a part of another function
        nodes: list[Any] = []
        specs: list[Any] = [default_device()]
        for x in args:
            if type(x) is Tensor:
                nodes.append(x.node)
                specs.append(x.node.spec)
        plain = len(nodes) == len(args) and not named
        version = of_specs.find(tuple(specs)) if plain else None
        if version is not None:
            results = version.run(nodes)
            if version.tree is LEAF:
                return tensor_of(results[0])
            return unflatten(version.tree, iter([tensor_of(r) for r in results]))
        leaves, shape = flatten((args, named))
        place = common_memory(name, [f"argument {k}" for k in range(len(leaves))], leaves)
        nodes = [_argument(f"{name}: argument {k}", x, place) for k, x in enumerate(leaves)]
        key = (shape, code_for(place), *(n.spec if isinstance(n, TensorNode) else (type(n), n)
                                         for n in nodes))
        version = versions.get(key)
        if version is None:
            with lock:
                version = versions.get(key)
                if version is None:
                    version = _trace(function, name, nodes, shape, place)
                    versions.put(key, version)
        if plain and all(x.node is n for x, n in zip(args, nodes, strict=True)):
            of_specs.put(tuple(specs), version)
        results = version.run([n for n in nodes if isinstance(n, TensorNode)])
        of_numpy = leaves and not any(isinstance(x, Tensor) for x in leaves)
        finish = array_of if of_numpy else tensor_of
        return unflatten(version.tree, iter([finish(r) for r in results]))

    return run


def _argument(label: str, x: Any, place: str) -> Any:
    """An argument as a node, or as it is if it is compiled in."""
    if isinstance(x, float) and not isinstance(x, np.generic):
        kind = f64 if place == "cpu" else f32
        block = memory(place).upload(kind.numpy.type(x))
        return computed(spec((), kind, place, number=True), block)
    if isinstance(x, (bool, int, str)) or callable(x):
        return x
    return operand_of(label, x, place, copy=False)


class _Version(NamedTuple):
    """A function for arguments of certain shapes and dtypes."""

    program: ArrayProgram
    numbers: list[Any]  # Python's numbers, which it was compiled for
    tree: Any  # shape of the tree of results
    results: list[Spec]  # of the leaves of that tree, then of the cells that change
    captured: list[TensorNode]  # computed tensors that the function refers to
    read: list[Cell]  # cells that it reads
    written: list[Cell]  # cells that it changes
    place: str  # the memory that all of it lies in

    def run(self, arguments: Sequence[TensorNode]) -> list[TensorNode]:
        """The leaves of its results."""
        leaves = arguments
        if self.read or self.captured:
            leaves = [*arguments, *[cell.node for cell in self.read], *self.captured]
        blocks, places = [], []  # blocks: so that no other thread frees one
        for leaf in leaves:
            if leaf.block is None:
                realize(leaves)
            block = leaf.block
            assert block is not None
            blocks.append(block)
            places.append(place_of(block))
        pool = memory(self.place)
        nodes, outputs = [], []
        for s in self.results:
            block = pool.alloc(s.nbytes)
            nodes.append(computed(s, block))
            outputs.append(block.place)
        self.program.run(pool, leaves, places, self.numbers, outputs)
        if not self.written:
            return nodes
        count = len(nodes) - len(self.written)
        for cell, node in zip(self.written, nodes[count:], strict=True):
            cell.node = node
        return nodes[:count]


def _trace(function: Callable[..., Any], name: str, arguments: Sequence[Any], shape: Any,
           place: str) -> _Version:
    """Compiles what a function does with tensors like these."""
    trace = function_trace(function, name, arguments, shape)
    pending, cells = trace.pending, trace.cells
    slots = tuple(pending.slots[n] for n in trace.nodes)
    program = ArrayProgram(tuple(pending.key), slots, code_for(place), name)
    return _Version(program, pending.numbers, trace.tree, [n.spec for n in trace.nodes],
                    trace.captured, list(cells.read), list(cells.written), place)
