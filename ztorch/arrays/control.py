"""Loops and branches on tensors: `zt.ops.scan`, `while_loop` and `cond`.

The user's functions run once, on tensors without values. The ops that they record become one call
with the loop in its graph, so a loop is one program, whatever the number of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch import ops
from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call
from ztorch.arrays.cells import tracing
from ztorch.arrays.elements import array_of, node_from
from ztorch.arrays.node import TensorNode, placeholder
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.structure import dependents, number_dtypes, rebuild, walk
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.errors import Unsupported
from ztorch.graph.tracing import traced
from ztorch.graph.trees import Shape, flatten, unflatten
from ztorch.graph.value import Value

CAPACITY = 1024  # cached loops


def on_loop(kind: str, *arguments: Any) -> Any:
    """The result of a loop or a branch whose arguments are tensors or arrays.

    Args:
        kind: `"scan"`, `"while_loop"`, `"cond"` or `"checkpoint"`.
        *arguments: The checked arguments of the op.
    """
    return _KINDS[kind](*arguments)


def _scan(f: Callable[..., Any], init: Any, xs: Any, turns: int, reverse: bool,
          checkpoint: int | None) -> Any:
    loop = _Loop("scan", (init, xs), (turns, reverse, checkpoint))
    state, row = loop.inside(init), loop.inside(xs, rows=True)
    turn = loop.function(f, (state, row))
    return loop.run(lambda values, call: ops.scan(
        lambda s, x: call(turn, (s, x)), values[0], values[1], length=turns, reverse=reverse,
        checkpoint=checkpoint))


def _while_loop(cond: Callable[..., Any], body: Callable[..., Any], init: Any, turns: int) -> Any:
    loop = _Loop("while_loop", (init,), (turns,))
    test = loop.function(cond, (loop.inside(init),))
    turn = loop.function(body, (loop.inside(init),))
    return loop.run(lambda values, call: ops.while_loop(
        lambda s: call(test, (s,)), lambda s: call(turn, (s,)), values[0], max_steps=turns))


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
          operands: tuple[Any, ...]) -> Any:
    loop = _Loop("cond", (pred, operands), ())
    branches = [loop.function(f, tuple(loop.inside(x) for x in operands))
                for f in (true_fn, false_fn)]
    return loop.run(lambda values, call: ops.cond(
        values[0], *(lambda *xs, f=f: call(f, xs) for f in branches), *values[1]))


def _checkpoint(f: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    loop = _Loop("checkpoint", operands, ())
    block = loop.function(f, tuple(loop.inside(x) for x in operands))
    return loop.run(lambda values, call: ops.checkpoint(lambda *xs: call(block, xs), *values))


class _Function(NamedTuple):
    """The recorded ops of a user's function."""

    key: tuple[Any, ...]  # the structure, from the arguments and the other tensors that it reads
    sources: int  # number of leaves in its arguments
    slots: tuple[int, ...]  # of the results, in the structure
    tree: Shape  # of the results
    first: int  # index of the loop operand that is the first of the other tensors
    leaves: int  # number of tensors that it reads
    numbers: int  # number of numbers that it reads; they follow the tensors


class _Loop:
    """A loop that is being recorded."""

    def __init__(self, name: str, arguments: tuple[Any, ...], options: tuple[Any, ...]):
        self.name = f"zt.ops.{name}"
        self.options = options
        leaves, self.tree = flatten(arguments)
        labels = [f"argument {k}" for k in range(len(leaves))]
        self.memory = common_memory(self.name, labels, leaves)
        self.of_tensors = any(isinstance(x, Tensor) for x in leaves)
        self.operands: list[Any] = [node_from(x, None, self.memory, copy=True) for x in leaves]
        self.dtypes = [n.spec.dtype for n in self.operands]
        self.arguments = len(self.operands)
        self._nodes = {id(x): n for x, n in zip(leaves, self.operands, strict=True)}
        self._leaves = leaves  # keeps the leaves alive, so that their ids stay valid
        self.functions: list[_Function] = []

    def inside(self, tree: Any, rows: bool = False) -> Any:
        """Tensors without values in place of arguments, or of single rows of sequences."""
        leaves, shape = flatten(tree)
        specs = [self._nodes[id(x)].spec for x in leaves]
        return unflatten(shape, iter([tensor_of(placeholder(spec(
            s.shape[1:] if rows else s.shape, s.dtype, s.memory))) for s in specs]))

    def function(self, f: Callable[..., Any], arguments: tuple[Any, ...]) -> _Function:
        """Calls a user's function and keeps the nodes that it recorded."""
        with tracing() as trace:
            results, tree = flatten(traced(f, self.name, *arguments))
        if trace.written:
            raise Unsupported(f"{self.name}: the function draws random numbers or changes a state "
                              "at each iteration; draw them before the loop, and pass them as xs")
        inside = [x.node for x in flatten(arguments)[0]]
        sources = [*inside, *trace.read.values()]
        roots = [node_from(y, None, self.memory, copy=True) for y in results]
        pending = walk(roots, sources, within=dependents(roots, sources))
        outside = [*(cell.get() for cell in trace.read), *pending.leaves[len(sources):]]
        self.of_tensors = self.of_tensors or bool(outside)
        new = _Function(tuple(pending.key), len(inside),
                        tuple(pending.slots[n] for n in roots), tree, len(self.operands),
                        len(outside), len(pending.numbers))
        self.operands += [*outside, *pending.numbers]
        self.dtypes += [*(n.spec.dtype for n in outside), *number_dtypes(pending.key)]
        self.functions.append(new)
        return new

    def run(self, build: Callable[..., Any]) -> Any:
        """The results: tensors, or arrays if no argument was a tensor.

        Args:
            build: `build(arguments, call)` creates the loop from graph values; `call(function,
                arguments)` returns the results of a recorded function.
        """
        kinds: tuple[Spec | type, ...] = tuple(
            o.spec if isinstance(o, TensorNode) else type(o) for o in self.operands)
        key = (self.name, self.options, self.tree, tuple(self.functions), kinds)
        call = _looped.get(key)
        if call is None:
            call = _LoopCall(self, build, kinds)
            _looped.put(key, call)
        nodes = record(call.call, tuple(self.operands))
        if not self.of_tensors:
            realize(nodes)
            return unflatten(call.tree, map(array_of, nodes))
        return unflatten(call.tree, map(tensor_of, nodes))


class _LoopCall:
    """The recorded call of a loop, and the structure of its results."""

    def __init__(self, loop: _Loop, build: Callable[..., Any], kinds: tuple[Spec | type, ...]):
        arguments, tree = loop.arguments, loop.tree
        self.tree: Shape = None

        def results(values: Sequence[Value]) -> list[Value]:
            def call(function: _Function, inputs: Any) -> Any:
                first, numbers = function.first, function.first + function.leaves
                nodes = rebuild(function.key, [*flatten(inputs)[0], *values[first:numbers]],
                                values[numbers:numbers + function.numbers])
                return unflatten(function.tree, iter([nodes[s] for s in function.slots]))

            leaves, self.tree = flatten(build(unflatten(tree, iter(values[:arguments])), call))
            return leaves

        self.call = Call(loop.name, kinds, loop.dtypes, results, loop.memory)


_KINDS: dict[str, Callable[..., Any]] = {"scan": _scan, "while_loop": _while_loop, "cond": _cond,
                                         "checkpoint": _checkpoint}
_looped: Recent[Any, _LoopCall] = Recent(CAPACITY)  # by structure
