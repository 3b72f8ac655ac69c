"""`zt.compiled`: a function of tensors as one native call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.arrays.applying import common_memory
from ztorch.arrays.cells import Cell, is_tracing
from ztorch.arrays.complex_tensor import in_parts, is_complex
from ztorch.arrays.elements import array_of, operand_of
from ztorch.arrays.function_trace import function_trace
from ztorch.arrays.memory import memory, place_of
from ztorch.arrays.node import TensorNode, computed, keeps_operands
from ztorch.arrays.placement import code_for, default_device, device_of_block
from ztorch.arrays.programs import ArrayProgram
from ztorch.arrays.quick_calls import Native, Output
from ztorch.arrays.quick_functions import (
    MOST_NATIVES,
    building_of,
    has_branches,
    matching_of,
    natives_of_function,
)
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import f32, f64
from ztorch.errors import ConfigError
from ztorch.graph.trees import TreeBranch, flatten, map_tree, unflatten
from ztorch.locks import new_lock

CAPACITY = 256  # versions of a function that are kept


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of tensors one native call: a decorator.

    The function is called once for each set of shapes and dtypes, with tensors that have no values
    yet. The ops that it calls are compiled, and run from then on. Python's floats are inputs too;
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
    natives = natives_of_function()
    of_specs: Recent[Any, _Version] = Recent(CAPACITY)  # for calls with tensors alone: a fast path
    find, lock = of_specs.find, new_lock()

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        if is_tracing() or keeps_operands():
            return function(*args, **named)  # a part of another function
        if not named and device_of_block() is None:
            for run_native, live in natives:
                results = (run_native(args, *[cell.node for cell in live]) if live else
                           run_native(args))
                if results is not NotImplemented:
                    return results
        nodes: list[Any] = []
        kinds: list[Any] = [default_device()]
        plain = not named and _sorted_out(args, nodes, kinds)
        specs = tuple(kinds)
        version = find(specs) if plain else None
        if version is not None:
            results = version.run(nodes)
            if device_of_block() is None and (native := version.native(args)):
                natives[:] = [native, *natives[:MOST_NATIVES - 1]]
            return unflatten(version.tree, iter(list(map(tensor_of, results))))
        leaves, shape = flatten((args, named))
        of_numpy = bool(leaves) and not any(isinstance(x, Tensor) for x in leaves)
        if any(map(is_complex, leaves)):
            leaves, shape = flatten(map_tree(in_parts, (args, named)))
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
        if plain:
            of_specs.put(specs, version)
        results = version.run([n for n in nodes if isinstance(n, TensorNode)])
        finish = array_of if of_numpy else tensor_of
        return unflatten(version.tree, iter([finish(r) for r in results]))

    return run


def _sorted_out(tree: Any, nodes: list[TensorNode], kinds: list[Any]) -> bool:
    """Appends the node of each tensor in a tree, in the order of `flatten`, and the kinds by which
    trees are told apart. Returns whether the tree holds tensors alone."""
    for x in tree:
        kind = type(x)
        if kind is Tensor:
            node = x.node
            nodes.append(node)
            kinds.append(node.spec)
        elif kind is list or kind is tuple:
            kinds += (kind, len(x))
            if not _sorted_out(x, nodes, kinds):
                return False
        elif kind is dict and all(type(k) is str for k in x):
            names = sorted(x)
            kinds += (kind, *names)
            if not _sorted_out([x[k] for k in names], nodes, kinds):
                return False
        elif issubclass(kind, TreeBranch):
            kinds.append(kind)
            if not _sorted_out([getattr(x, name) for name in kind._fields], nodes, kinds):
                return False
        else:
            return False
    return True


def _remade(native: Native, tree: Any) -> Native:
    """A native function, with the branches of its tree in place of the tuples that it makes."""
    def run(*args: Any) -> Any:
        results = native(*args)
        return results if results is NotImplemented else unflatten(tree, iter(flatten(results)[0]))

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


@dataclass(slots=True, eq=False)
class _Version:
    """A function for arguments of certain shapes and dtypes."""

    program: ArrayProgram
    numbers: list[Any]  # Python's numbers, which it was compiled for
    tree: Any  # shape of the tree of results
    results: list[Spec]  # of the leaves of that tree, then of the cells that change
    captured: list[TensorNode]  # computed tensors that the function refers to
    read: list[Cell]  # cells that it reads
    written: list[Cell]  # cells that it changes
    place: str  # the memory that all of it is in
    learned: bool = False  # whether it was asked for its native function

    def run(self, arguments: Sequence[TensorNode]) -> list[TensorNode]:
        """The leaves of its results."""
        leaves = arguments
        if self.read or self.captured:
            leaves = [*arguments, *[cell.node for cell in self.read], *self.captured]
        blocks, places = [], []  # blocks: so that no other thread frees one
        for leaf in leaves:
            block = leaf.block
            if block is None:
                realize(leaves)
                block = leaf.block
                assert block is not None
            blocks.append(block)
            places.append(place_of(block))
        pool = memory(self.place)
        made = [pool.alloc(s.nbytes) for s in self.results]
        self.program.run(pool, leaves, places, self.numbers, [b.place for b in made])
        nodes = [computed(s, b) for s, b in zip(self.results, made, strict=True)]
        count = len(nodes) - len(self.written)
        for cell, node in zip(self.written, nodes[count:], strict=True):
            cell.node = node
        return nodes[:count]

    def native(self, args: tuple[Any, ...]) -> tuple[Native, list[Cell]] | None:
        """A native function for arguments like these, tensors in trees, and the cells whose nodes
        it takes after them; None if there is none, or if this was asked before. It ran."""
        if self.learned:
            return None
        self.learned = True
        live = [cell for cell in self.read if type(cell) is not Cell]
        matching = matching_of(args, live, self.read, self.captured)
        building = building_of(self.tree)
        if matching is None or building is None or any(type(c) is not Cell for c in self.written):
            return None
        count = len(self.results) - len(self.written)
        cells = [*[None] * count, *self.written]
        native = self.program.native(self.numbers, matching, [
            Output(s, c) for s, c in zip(self.results, cells, strict=True)], Tensor, building)
        if native is None:
            return None
        return (_remade(native, self.tree) if has_branches(self.tree) else native), live


def _trace(function: Callable[..., Any], name: str, arguments: Sequence[Any], shape: Any,
           place: str) -> _Version:
    """Compiles what a function does with tensors like these."""
    trace = function_trace(function, name, arguments, shape)
    pending, cells = trace.pending, trace.cells
    slots = tuple(pending.slots[n] for n in trace.nodes)
    program = ArrayProgram(tuple(pending.key), slots, code_for(place), name)
    return _Version(program, pending.numbers, trace.tree, [n.spec for n in trace.nodes],
                    trace.captured, list(cells.read), list(cells.written), place)
