"""`zt.vmap`: vectorizes a function of one example.

The function runs once, on tensors of one example, which have no values. The ops that it records
become one call, whose graph is vectorized.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Build, Call
from ztorch.arrays.cells import tracing
from ztorch.arrays.elements import operand_of
from ztorch.arrays.node import TensorNode, placeholder
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.structure import NUMBER, Pending, dependents, number_dtypes, rebuild, walk
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.batching import repeated, vectorized, with_first
from ztorch.graph.op import OPS, leaf
from ztorch.graph.tracing import NotTraced, traced
from ztorch.graph.trees import flatten, unflatten
from ztorch.graph.value import Value

Axes = Any  # an axis, None, or a tree of them


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """Vectorizes a function: from one example to many at once.

    Values that do not depend on the example are computed once. The function cannot branch on the
    values of its tensors.

    Args:
        function: Takes and returns tensors, or dicts and lists of tensors.
        in_axes: The axis of the examples: an integer for all arguments, or a tuple with an entry
            for each argument. An entry is an axis, a tree of axes for an argument that is a tree,
            or `None` if all examples share the argument. Default: `0`.
        out_axes: The axis of the examples in the results, in the same form; `None` for results that
            are the same for all examples. Default: `0`.

    Returns:
        A function of tensors with an additional axis of examples.

    Raises:
        ConfigError: `function` is not callable.

    Examples:
        >>> import ztorch as zt
        >>> zt.vmap(lambda x, w: (x * w).sum(), in_axes=(0, None))(zt.tensor([[1, 2], [3, 4]]),
        ...                                                        zt.tensor([10, 1]))
        tensor([12, 34], dtype=int64, device='cpu')

        Gradients for each example separately:

        >>> loss = lambda w, x: (w * x).sum() ** 2.0
        >>> slopes = zt.vmap(zt.grad(loss), in_axes=(None, 0))
        >>> slopes(zt.tensor([1.0, 1.0]), zt.tensor([[1.0, 0.0], [2.0, 1.0]])).tolist()
        [[2.0, 0.0], [12.0, 6.0]]
    """
    if not callable(function):
        raise ConfigError(f"vmap takes a function of tensors, not {function!r}")
    name = getattr(function, "__name__", "function")

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        arguments = _Arguments(name, args, named, in_axes)
        with tracing() as trace:
            result = traced(lambda tree: function(*tree[0], **tree[1]), name, arguments.tree)
        leaves, tree = flatten(result)
        for y in leaves:
            if not isinstance(y, Tensor):
                raise NotTraced(f"{name} must give a tensor, or a tree of tensors, not {y!r}")
        axes = _axes(f"{name}: out_axes", out_axes, result)
        ys = [y.node for y in leaves]
        sources = [*arguments.inside, *trace.read.values()]
        roots = [*ys, *trace.written.values()]
        pending = walk(roots, sources, within=dependents(roots, sources))
        operands = (*arguments.outside, *(cell.get() for cell in trace.read),
                    *pending.leaves[len(sources):], *pending.numbers)
        plan = _Plan(name, arguments.count, tuple(arguments.axes), tuple(_from_end(
            name, axis, y.spec) for axis, y in zip(axes, ys, strict=True)))
        slots = tuple(pending.slots[n] for n in roots)
        results = record(_call(plan, pending, slots, operands), operands)
        for cell, node in zip(trace.written, results[len(ys):], strict=True):
            cell.set(node)
        return unflatten(tree, map(tensor_of, results))

    return run


class _Arguments:
    """The arguments of a vectorized function, as tensors of all examples and of one."""

    def __init__(self, name: str, args: tuple[Any, ...], named: dict[str, Any], in_axes: Axes):
        if isinstance(in_axes, list):
            in_axes = tuple(in_axes)
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ShapeError(f"{name}: in_axes has {len(in_axes)} entries for {len(args)} "
                             "arguments; give an axis or None for each")
        axes = [*_axes(f"{name}: in_axes", in_axes, args), *(0 for _ in flatten(named)[0])]
        leaves, shape = flatten((args, named))
        labels = [f"argument {k}" for k in range(len(leaves))]
        place = common_memory(name, labels, leaves)
        self.outside: list[TensorNode] = []  # arguments that differ between examples
        self.inside: list[TensorNode] = []  # a placeholder of one example for each of them
        self.axes: list[int] = []  # the axis of the examples in each of them
        sizes: dict[str, int] = {}
        for k, (label, axis) in enumerate(zip(labels, axes, strict=True)):
            if axis is None:
                continue
            node = operand_of(f"{name}: {label}", leaves[k], place, copy=True)
            full = node.spec.shape
            if not -len(full) <= axis < len(full):
                raise ShapeError(f"{name}: {label} of shape {full} has no axis {axis} of examples; "
                                 "use in_axes=None for arguments that all examples share")
            axis %= len(full)
            sizes[label] = full[axis]
            one = spec((*full[:axis], *full[axis + 1:]), node.spec.dtype, node.spec.memory)
            self.outside.append(node)
            self.inside.append(placeholder(one))
            self.axes.append(axis)
            leaves[k] = tensor_of(self.inside[-1])
        if len(set(sizes.values())) != 1:
            counts = ", ".join(f"{size} in {label}" for label, size in sizes.items())
            raise ShapeError(f"{name}: all arguments must have the same number of examples, not "
                             f"{counts}" if sizes else f"{name}: no argument has an axis of "
                             "examples; in_axes must give one")
        self.count = next(iter(sizes.values()))  # number of examples
        self.tree = unflatten(shape, iter(leaves))  # the arguments for one example


def _axes(label: str, axes: Axes, tree: Any) -> list[int | None]:
    """An axis, or None, for each leaf of a tree."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * len(flatten(tree)[0])
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        pairs = [(axes[k], tree[k]) for k in sorted(tree)]
    elif isinstance(axes, (list, tuple)) and isinstance(tree, (list, tuple)) and (
            len(axes) == len(tree)):
        pairs = list(zip(axes, tree, strict=True))
    else:
        raise ShapeError(f"{label} must be an axis, None, or a tree of these with the structure "
                         f"of the tensors, not {axes!r}")
    return [axis for part, branch in pairs for axis in _axes(label, part, branch)]


def _from_end(name: str, axis: int | None, one: Spec) -> int | None:
    """An axis of examples in a result, counted from 0."""
    rank = len(one.shape) + 1
    if axis is not None and not -rank <= axis < rank:
        raise ShapeError(f"{name}: out_axes {axis} is out of range for a result of {one!r} for "
                         f"each example; use {-rank} to {rank - 1}")
    return None if axis is None else axis % rank


class _Plan(NamedTuple):
    """How a function is vectorized."""

    name: str  # of the function
    examples: int  # number of examples
    axes: tuple[int, ...]  # the axis of examples in each argument that has one
    out_axes: tuple[int | None, ...]  # the axis of examples in each result


_mapped: Recent[Any, Call] = Recent(1024)  # calls by plan and structure


def _call(plan: _Plan, pending: Pending, slots: tuple[int, ...],
          operands: Sequence[Any]) -> Call:
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    key = plan, tuple(pending.key), slots, kinds
    call = _mapped.get(key)
    if call is None:
        tensors = [o.spec for o in operands if isinstance(o, TensorNode)]
        dtypes = [*(s.dtype for s in tensors), *number_dtypes(pending.key)]
        call = Call("vmap", kinds, dtypes, _builder(plan, pending, slots), tensors[0].memory)
        _mapped.put(key, call)
    return call


def _builder(plan: _Plan, pending: Pending, slots: tuple[int, ...]) -> Build:
    key, first = tuple(pending.key), len(pending.leaves)
    inside = pending.leaves[:len(plan.axes)]
    ones = [n.spec for n in inside]

    def build(values: Sequence[Value]) -> list[Value]:
        leaves = [leaf("input", "example", s.shape, s.dtype) for s in ones]
        many = {one: OPS.transpose(v, with_first(axis, v.rank))
                for one, v, axis in zip(leaves, values, plan.axes, strict=False)}
        assert key.count(NUMBER) == len(values) - first
        nodes = rebuild(key, [*leaves, *values[len(leaves):first]], values[first:])
        roots = [nodes[s] for s in slots]
        batched = vectorized(roots, many, plan.examples, shared=frozenset(values))
        results = [_result(plan, root, batched.get(root), axis)
                   for root, axis in zip(roots, plan.out_axes, strict=False)]
        for root in roots[len(results):]:
            if root in batched:
                raise Unsupported(f"{plan.name} changes a state, such as an optimizer's, "
                                  "differently for each example; change it outside of vmap")
        return results + roots[len(results):]

    return build


def _result(plan: _Plan, one: Value, many: Value | None, axis: int | None) -> Value:
    if axis is None:
        if many is not None:
            raise ShapeError(f"{plan.name}: a result differs between examples, so its entry of "
                             "out_axes must be an axis, not None")
        return one
    moved = list(range(1, one.rank + 1))
    moved.insert(axis, 0)
    return OPS.transpose(repeated(one, plan.examples) if many is None else many, tuple(moved))
