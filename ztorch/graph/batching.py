"""Vectorization: a graph for one example becomes one for many, along a new first axis.

Values that do not depend on the examples stay as they are, and are broadcast where they meet those
that do. How an op computes many examples at once is a field of its row. An op without that field is
wrapped in one that shifts the index of its body; its gradient is its own gradient, vectorized.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Op, Value, layer_scope, topological

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Examples:
    """The arguments of an op for many examples."""

    count: int  # number of examples
    args: tuple[Value, ...]  # those that `batched` names have the examples as their first axis
    batched: tuple[bool, ...]  # which arguments differ between examples

    def spread(self) -> tuple[Value, ...]:
        """All arguments with the examples as their first axis."""
        return tuple(a if own else repeated(a, self.count)
                     for a, own in zip(self.args, self.batched, strict=True))


def repeated(v: Value, count: int) -> Value:
    """A value that all examples share, with the examples as its first axis."""
    shape = (count, *v.shape)
    if v.op.name == "full":  # filling the whole shape needs no broadcast
        return OPS.full(shape, v.attrs["value"], v.dtype)
    return OPS.broadcast_to(v, shape)


def vectorized(roots: Iterable[Value], examples: Mapping[Value, Value], count: int,
               shared: Collection[Value] = ()) -> dict[Value, Value]:
    """The values of many examples, for the values of one that depend on the example.

    Args:
        roots: Values of one example.
        examples: For each value that differs between examples, one with a new first axis.
        count: Size of that axis.
        shared: Values that all examples share; the batching does not look behind them. Default:
            `()`.

    Returns:
        For each value that depends on the example, its value for all. Roots that do not depend on
        it are missing: they are unchanged.

    Raises:
        Unsupported: An op cannot be vectorized.

    Examples:
        >>> from ztorch import ops
        >>> x, w = leaf("input", "x", (3,), "float32"), leaf("state", "w", (3, 2), "float32")
        >>> y = ops.matmul(x, w)
        >>> vectorized([y], {x: leaf("input", "xs", (5, 3), "float32")}, 5)[y].shape
        (5, 2)
    """
    batched_values = dict(examples)
    for v in topological(roots, {*examples, *shared}):
        if v in batched_values or v in shared:
            continue
        if v.op.batch is refused:
            raise Unsupported(f"zt.vmap does not support op {v.op.name}: all examples would share "
                              "its numbers; compute it outside and pass the result as an argument")
        batched = tuple(a in batched_values for a in v.args)
        if any(batched):
            with layer_scope(v.layer):
                batched_values[v] = _many(v, Examples(
                    count, tuple(batched_values.get(a, a) for a in v.args), batched))
            if v.op.kind not in ("loop", "threads"):  # which are not tensors by themselves
                assert batched_values[v].shape == (count, *v.shape), (v, batched_values[v])
                assert batched_values[v].dtype == v.dtype, (v, batched_values[v])
    return batched_values


def _many(one: Value, many: Examples) -> Value:
    """The value of many examples."""
    op = one.op
    if many.count == 0 and one.op.kind != "loop":
        return OPS.full((0, *one.shape), 0, one.dtype)
    if op.batch is not None:
        return op.batch(one, many, **one.attrs)
    if op.kind == "map":
        return (pointwise if op.opcode else per_example)(one, many, **one.attrs)
    return (_reduced if op.kind == "reduce" else _product)(one, many, **one.attrs)


# -- rules that many ops share ---------------------------------------------------------------------


def pointwise(one: Value, many: Examples, **attrs: Any) -> Value:
    """The rule of ops that compute an element from those at the same place of the arguments."""
    return one.op(*many.spread(), **attrs)


def refused(one: Value, many: Examples, **attrs: Any) -> Value:
    """The rule of ops that cannot be vectorized."""
    raise Unsupported(f"zt.vmap does not support op {one.op.name}")


def with_first(axis: int, rank: int) -> Shape:
    """The order of axes that brings one of them to the front.

    >>> with_first(2, 4)
    (2, 0, 1, 3)
    """
    return (axis, *(k for k in range(rank) if k != axis))


def _reduced(one: Value, many: Examples, axes: Shape) -> Value:
    return one.op(many.args[0], axes=tuple(a + 1 for a in axes))


def _product(one: Value, many: Examples, **attrs: Any) -> Value:
    a, b = many.args
    if many.batched == (True, False) and b.rank == 2:  # one large product, not many small ones
        rows = OPS.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return OPS.reshape(one.op(rows, b, **attrs), (*a.shape[:-1], b.shape[-1]))
    return one.op(*many.spread(), **attrs)


# -- any op with a body ----------------------------------------------------------------------------


def per_example(one: Value, many: Examples, **attrs: Any) -> Value:
    """The rule of any op with a body: the op on each example by itself."""
    if one.op.body is None:
        raise Unsupported(f"zt.vmap does not support op {one.op.name}, which has no body")
    return _for_each(one.op)(*many.spread(), **attrs)


class _Example:
    """The arguments as a body sees them: those of one example."""

    def __init__(self, all_examples: Any, index: Any):
        self._all = all_examples
        self._index = index  # of the example

    def shape(self, k: int) -> Shape:
        shape: Shape = self._all.shape(k)[1:]
        return shape

    def read(self, k: int, index: Any, where: Any = None) -> Any:
        return self._all.read(k, (self._index, *index), where=where)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)


def _one_of(v: Value) -> Value:
    """A leaf that represents one example of v."""
    return leaf("input", "example", v.shape[1:], v.dtype)


@functools.cache
def _for_each(op: Op) -> Op:
    """The op that applies another one to each example."""

    def infer(*args: Value, **attrs: Any) -> tuple[Shape, DType]:
        shape, d = op.infer(*map(_one_of, args), **attrs)
        return (args[0].shape[0], *shape), d

    def numpy(*arrays: Any, **attrs: Any) -> Any:
        return np.stack([op.numpy(*example, **attrs) for example in zip(*arrays, strict=True)])

    def body(e: Any, index: Any, **attrs: Any) -> Any:
        assert op.body is not None
        return op.body(_Example(e, index[0]), index[1:], **attrs)

    def grad(o: Any, g: Value, y: Value, *args: Value, **attrs: Any) -> tuple:
        assert op.grad is not None
        count = g.shape[0]
        leaves = {_one_of(v): v for v in (g, y, *args)}
        slopes = op.grad(o, *leaves, **attrs)
        batched = vectorized([s for s in slopes if s is not None], leaves, count)
        return tuple(None if s is None else batched[s] if s in batched else repeated(s, count)
                     for s in slopes)

    return Op(f"each_{op.name}", op.kind, infer, numpy, grad if op.grad else None, body, op.cost,
              op.movement, op.alias, op.written)
