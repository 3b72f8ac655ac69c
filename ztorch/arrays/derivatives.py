"""Derivatives of recorded nodes; they are recorded as calls themselves.

A function runs on watched tensors. The ops from these to the results become one call, which
computes results and derivatives; it is compiled with all other pending ops when a value is needed.
The function runs as ordinary Python, so it may branch on values and call itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch.arrays.calls import Build, Call
from ztorch.arrays.elements import node_from
from ztorch.arrays.node import TensorNode, operands_kept, pending
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec
from ztorch.arrays.structure import NUMBER, Pending, dependents, number_dtypes, rebuild, walk
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import pointwise
from ztorch.graph.op import OPS
from ztorch.graph.trees import flatten, unflatten
from ztorch.graph.value import Op, Value

WATCHED = Op("watched", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
             grad=lambda o, g, y, x: (g,), body=lambda e, index: e.read(0, index), movement=True,
             alias=True, batch=pointwise)


class WatchedRun(NamedTuple):
    """A function that ran on watched tensors."""

    result: Any  # its return value
    watched: list[TensorNode]  # the tensors to differentiate with respect to
    trees: list[Any]  # the structures of their arguments


def run_watched(function: Callable[..., Any], args: Sequence[Any],
                argnums: Sequence[int]) -> WatchedRun:
    """Calls a function with some of its arguments watched."""
    watched: list[TensorNode] = []
    trees, replaced = [], list(args)
    for k in argnums:
        leaves, tree = flatten(args[k])
        nodes = [_watch(node_from(x, None, None, copy=True), k, len(watched) + at)
                 for at, x in enumerate(leaves)]
        replaced[k] = unflatten(tree, map(tensor_of, nodes))
        watched += nodes
        trees.append(tree)
    with operands_kept():
        return WatchedRun(function(*replaced), watched, trees)


def _watch(node: TensorNode, argument: int, number: int) -> TensorNode:
    if not node.spec.dtype.is_float:
        raise ShapeError(f"argument {argument} is a tensor of {node.spec.dtype}, which has no "
                         "derivatives; use .astype('float32'), or argnums= for other arguments")
    return pending(node.spec, _watch_call(node.spec, number), (node,), 0, node.depth + 1)


@functools.lru_cache(1024)
def _watch_call(s: Spec, number: int) -> Call:
    """The call for a spec and a number. Each watched tensor has its own, because one may be watched
    twice."""
    return Call("watched", (s,), (s.dtype,), lambda values: WATCHED(values[0]), s.memory)


class Recorded:
    """The ops from watched tensors to results."""

    def __init__(self, results: Sequence[TensorNode], watched: Sequence[TensorNode]):
        within = dependents(results, watched)
        self.pending: Pending = walk([*results, *watched], within=within)
        slots = self.pending.slots
        self.results = tuple(slots[n] for n in results)
        self.watched = tuple(slots[n] for n in watched)

    def derive(self, name: str, rule: Callable[..., Sequence[Value]],
               extra: Sequence[TensorNode] = ()) -> list[TensorNode]:
        """Records a call that computes the graph that a rule returns.

        Args:
            name: The name of the operation.
            rule: `rule(results, watched, extra)` takes graph values and returns those to compute.
            extra: More tensors for the rule. Default: `()`.
        """
        leaves, numbers = self.pending.leaves, self.pending.numbers
        operands = (*leaves, *numbers, *extra)
        kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
        key = (rule, tuple(self.pending.key), self.results, self.watched, kinds)
        call = _derived.get(key)
        if call is None:
            dtypes = [*(n.spec.dtype for n in leaves), *number_dtypes(self.pending.key),
                      *(n.spec.dtype for n in extra)]
            place = next(o.spec.memory for o in operands if isinstance(o, TensorNode))
            call = Call(name, kinds, dtypes, self._builder(rule), place)
            _derived.put(key, call)
        return record(call, operands)

    def _builder(self, rule: Callable[..., Sequence[Value]]) -> Build:
        key, results, watched = tuple(self.pending.key), self.results, self.watched
        first, last = len(self.pending.leaves), key.count(NUMBER)

        def build(values: Sequence[Value]) -> list[Value]:
            numbers = values[first:first + last]
            nodes = rebuild(key, values[:first], numbers)
            return list(rule([nodes[s] for s in results], [nodes[s] for s in watched],
                             values[first + last:]))

        return build


_derived: Recent[Any, Call] = Recent(1024)  # calls by rule and structure


def gradient_rule(results: Sequence[Value], watched: Sequence[Value],
                  extra: Sequence[Value]) -> list[Value]:
    """The results, and the gradients of the first one."""
    return [*results, *gradients(results[0], watched)]


def vjp_rule(results: Sequence[Value], watched: Sequence[Value],
             cotangents: Sequence[Value]) -> list[Value]:
    """For each watched tensor, the gradient of the sum of all results times their cotangents."""
    total: list[Value] | None = None
    for y, g in zip(results, cotangents, strict=True):
        part = gradients(y * g, watched)
        total = part if total is None else [a + b for a, b in zip(total, part, strict=True)]
    return total or []


def jvp_rule(results: Sequence[Value], watched: Sequence[Value],
             tangents: Sequence[Value]) -> list[Value]:
    """The results, and how each changes along the tangents. The Jacobian is transposed by
    differentiating the gradient with respect to the cotangent."""
    changes = []
    for y in results:
        cotangent = WATCHED(OPS.ones_like(y))
        back = gradients(y * cotangent, watched)
        along = [OPS.sum(g * t) for g, t in zip(back, tangents, strict=True)]
        total = functools.reduce(lambda a, b: a + b, along)
        changes += gradients(total, [cotangent])
    return [*results, *changes]


def tensors_of(label: str, tree: Any) -> tuple[list[TensorNode], Any]:
    """The nodes of a tree of tensors, and its structure."""
    leaves, shape = flatten(tree)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ShapeError(f"{label} must be tensors, not {x!r}")
    return [x.node for x in leaves], shape
