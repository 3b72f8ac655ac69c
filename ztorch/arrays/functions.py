"""`zt.compiled`: compiles a function of tensors into one native call."""

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
from ztorch.arrays.known_arguments import KnownArguments, computed_tensors, number_node
from ztorch.arrays.memory import memory, place_of
from ztorch.arrays.node import TensorNode, computed, keeps_operands
from ztorch.arrays.out_arrays import OutArrays, takes_out
from ztorch.arrays.placement import code_for, device_of_block
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
from ztorch.arrays.specs import Spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.weight_cells import NodesOfNow
from ztorch.errors import ConfigError
from ztorch.graph.trees import flatten, map_tree, unflatten
from ztorch.locks import new_lock

CAPACITY = 256  # cached versions of a function


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors into one native call: a decorator.

    The function is called once for each set of shapes and dtypes, with tensors that have no values
    yet. The ops that it calls are compiled, and later calls run the compiled code. Python floats
    are inputs too; integers, strings and similar arguments are compiled in.

    Args:
        function: Takes and returns tensors, or dicts and lists of tensors.

    Returns:
        A function that takes and returns tensors; if all arguments are NumPy arrays, it returns
        arrays. It then takes `out=`, too, unless `function` does: an array for the result, or a
        tree of them. They may overlap with arguments.

    Raises:
        ConfigError: `function` is not callable, or `out=` does not fit the results.

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
    natives = natives_of_function()
    versions = _Versions(function, natives)
    own_out = takes_out(function)

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        if named and not own_out and (out := named.pop("out", None)) is not None:
            return versions.write(args, named, out)
        if is_tracing() or keeps_operands():
            return function(*args, **named)  # inside another traced function
        if not named and device_of_block() is None:
            results = natives.run(args)
            if results is NotImplemented and (ready := computed_tensors(args)) is not None:
                args = ready
                results = natives.run(args)
            if results is not NotImplemented:
                return results
        return versions.run(args, named)

    return run


class _Versions:
    """The compiled versions of a function, by the arguments that they are for."""

    def __init__(self, function: Callable[..., Any], natives: Any):
        self._function, self._natives = function, natives
        self._name = getattr(function, "__name__", "function")
        self._known: Recent[Any, _Version] = Recent(CAPACITY)
        self._of_specs: Recent[Any, _Version] = Recent(CAPACITY)  # for calls with only tensors
        self._lock = new_lock()

    def write(self, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> Any:
        """Writes the results of a call with arrays to arrays of the caller, and returns these."""
        leaves, shape = flatten((args, named))
        if is_tracing() or any(isinstance(x, Tensor) for x in leaves):
            raise ConfigError(f"{self._name}(out=...) is for NumPy arrays: a tensor never changes. "
                              "Leave it out, and use the result")
        if any(map(is_complex, leaves)):
            leaves, shape = flatten(map_tree(in_parts, (args, named)))
        version, nodes = self._version(leaves, shape)
        count = len(version.results) - len(version.written)
        arrays = OutArrays(self._name, out, version.tree, version.results[:count])
        arrays.take(version.run([n for n in nodes if isinstance(n, TensorNode)], arrays))
        return out

    def run(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The results of a call. Its version is traced if there is none."""
        known = None if named else KnownArguments(args)
        specs = tuple(known.kinds) if known is not None and known.are_all else None
        version = None if specs is None else self._of_specs.find(specs)
        if known is not None and version is not None:
            results = version.run(known.nodes)
            if not known.has_arrays and device_of_block() is None and (
                    native := version.native(args)):
                self._natives[:] = [native, *self._natives[:MOST_NATIVES - 1]]
            finish = array_of if known.of_numpy else tensor_of
            return unflatten(version.tree, iter(list(map(finish, results))))
        leaves, shape = flatten((args, named))
        of_numpy = bool(leaves) and not any(isinstance(x, Tensor) for x in leaves)
        if any(map(is_complex, leaves)):
            leaves, shape = flatten(map_tree(in_parts, (args, named)))
        version, nodes = self._version(leaves, shape)
        if specs is not None:
            self._of_specs.put(specs, version)
        results = version.run([n for n in nodes if isinstance(n, TensorNode)])
        finish = array_of if of_numpy else tensor_of
        return unflatten(version.tree, iter([finish(r) for r in results]))

    def _version(self, leaves: list[Any], shape: Any) -> tuple[_Version, list[Any]]:
        """The version for arguments in a tree of a shape, and their nodes."""
        name = self._name
        place = common_memory(name, [f"argument {k}" for k in range(len(leaves))], leaves)
        nodes = [_argument(f"{name}: argument {k}", x, place) for k, x in enumerate(leaves)]
        key = (shape, code_for(place), *(n.spec if isinstance(n, TensorNode) else (type(n), n)
                                         for n in nodes))
        version = self._known.get(key)
        if version is None:
            with self._lock:
                version = self._known.get(key)
                if version is None:
                    version = _trace(self._function, name, nodes, shape, place)
                    self._known.put(key, version)
        return version, nodes


def _remade(native: Native, tree: Any) -> Native:
    """A native function that returns the branches of the original tree instead of tuples."""
    def run(*args: Any) -> Any:
        results = native(*args)
        return results if results is NotImplemented else unflatten(tree, iter(flatten(results)[0]))

    return run


def _argument(label: str, x: Any, place: str) -> Any:
    """An argument as a node, or unchanged if it is compiled in."""
    if isinstance(x, float) and not isinstance(x, np.generic):
        return number_node(x, place)
    if isinstance(x, (bool, int, str)) or callable(x):
        return x
    return operand_of(label, x, place, copy=False)


@dataclass(slots=True, eq=False)
class _Version:
    """A function compiled for arguments of certain shapes and dtypes."""

    program: ArrayProgram
    numbers: list[Any]  # Python numbers that it was compiled for
    tree: Any  # structure of the results
    results: list[Spec]  # of the leaves of the results, then of the cells that change
    captured: list[TensorNode]  # computed tensors that the function reads from its closure
    read: list[Cell]  # cells that it reads
    written: list[Cell]  # cells that it changes
    place: str  # memory of all its tensors
    learned: bool = False  # whether its native function was requested

    def run(self, arguments: Sequence[TensorNode], out: OutArrays | None = None
            ) -> list[TensorNode]:
        """The leaves of its results, in new memory, or where the arrays of `out` have them."""
        leaves = arguments
        if self.read or self.captured:
            leaves = [*arguments, *[cell.node for cell in self.read], *self.captured]
        blocks, places = [], []  # `blocks` keeps them alive, against other threads
        for leaf in leaves:
            block = leaf.block
            if block is None:
                realize(leaves)
                block = leaf.block
                assert block is not None
            blocks.append(block)
            places.append(place_of(block))
        pool = memory(self.place)
        memories = [] if out is None else out.blocks(pool, leaves)
        memories += [pool.alloc(s.nbytes) for s in self.results[len(memories):]]
        self.program.run(pool, leaves, places, self.numbers, [b.place for b in memories])
        nodes = [computed(s, b) for s, b in zip(self.results, memories, strict=True)]
        count = len(nodes) - len(self.written)
        for cell, node in zip(self.written, nodes[count:], strict=True):
            cell.node = node
        return nodes[:count]

    def native(self, args: tuple[Any, ...]) -> tuple[Native, NodesOfNow | None] | None:
        """A native function for arguments like these, with tensors in trees, and the cells whose
        nodes it takes after them. None if there is none, or if it was requested before."""
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
        return (_remade(native, self.tree) if has_branches(self.tree) else native,
                NodesOfNow(live) if live else None)


def _trace(function: Callable[..., Any], name: str, arguments: Sequence[Any], shape: Any,
           place: str) -> _Version:
    """Compiles the ops that a function calls for tensors like these."""
    trace = function_trace(function, name, arguments, shape)
    pending, cells = trace.pending, trace.cells
    slots = tuple(pending.slots[n] for n in trace.nodes)
    program = ArrayProgram(tuple(pending.key), slots, code_for(place), name)
    return _Version(program, pending.numbers, trace.tree, [n.spec for n in trace.nodes],
                    trace.captured, list(cells.read), list(cells.written), place)
