"""Where ops move axes: which axis of the result each axis of an argument becomes.

The padding of open axes and the rows of a batch are followed through a graph by these movements.
Both may temporarily be part of a larger axis: a product of (batch, time, features) is one of
(batch * time, features). So they are identified by their place in the order of elements: the
product of the sizes of the axes before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ztorch.graph.batching import pointwise
from ztorch.graph.value import Value


class Movement(NamedTuple):
    """The effect of an op on the axes of one argument."""

    axis_of: Callable[[int], int]  # the axis of the result, for an axis of the argument
    summed: frozenset[int] = frozenset()  # axes of the argument that the op reduces
    changed: frozenset[int] = frozenset()  # axes whose positions it chooses, shifts or joins


def movement(v: Value, k: int) -> Movement | None:
    """The movement of argument k of an op; None if the table has none for the op.

    >>> from ztorch.graph.op import OPS, leaf
    >>> x = leaf("input", "x", (4, 3, 2), "float32")
    >>> movement(OPS.transpose(x, (2, 0, 1)), 0).axis_of(0)
    1
    """
    rule = _MOVEMENTS.get(v.op.kind) or _MOVEMENTS.get(v.op.name)
    return None if rule is None else rule(v, k)


def keeps_places(v: Value) -> bool:
    """Whether an op that the table lacks computes each element from those at the same place."""
    return bool(v.op.opcode) or v.op.batch is pointwise


def place(v: Value, before: int, size: int) -> tuple[int, int]:
    """The axis that contains an axis of this size, and the product of the sizes before it."""
    for axis, n in enumerate(v.shape):
        outer = math.prod(v.shape[:axis])
        if outer <= before < outer * n and outer * n % (before * size) == 0:
            return axis, before // outer
    raise AssertionError((v, before, size))


def moved_place(v: Value, x: Value, before: int, size: int, axis_of: Callable[[int], int]) -> int:
    """The place in v of an axis of x, where axis k of x is axis `axis_of(k)` of v."""
    axis, inner = place(x, before, size)
    return math.prod(v.shape[:axis_of(axis)]) * inner


def _stays(changed: Iterable[int] = (), summed: Iterable[int] = ()) -> Movement:
    return Movement(lambda axis: axis, frozenset(summed), frozenset(changed))


def _broadcast(v: Value, k: int) -> Movement:
    new = v.rank - v.args[k].rank
    return Movement(lambda axis: axis + new)


def _transpose(v: Value, k: int) -> Movement:
    return Movement(v.attrs["axes"].index)


def _slice(v: Value, k: int) -> Movement:
    return _stays(axis for axis, (n, size, step) in enumerate(zip(
        v.shape, v.args[k].shape, v.attrs["step"], strict=True)) if n != size or step != 1)


def _pad(v: Value, k: int) -> Movement:
    return _stays(axis for axis, n in enumerate(v.shape) if n != v.args[k].shape[axis])


def _concat(v: Value, k: int) -> Movement:
    return _stays([v.attrs["axis"] % v.rank])


def _take(v: Value, k: int) -> Movement:
    """The axes of the indices replace one axis of the table."""
    table, indices = v.args
    at = v.attrs["axis"] % table.rank
    if k == 1:
        return Movement(lambda axis: axis + at)
    return Movement(lambda axis: axis if axis < at else axis + indices.rank - 1,
                    changed=frozenset([at]))


def _reduce(v: Value, k: int) -> Movement:
    reduced = frozenset(v.attrs["axes"])
    return Movement(lambda axis: axis - sum(r < axis for r in reduced), reduced)


def _contract(v: Value, k: int) -> Movement:
    """Operands have as many axes as the product."""
    return _stays(summed=[v.args[k].rank - (1 if k == 0 else 2)])


# Rules by the kind or the name of an op.
_MOVEMENTS: dict[str, Callable[[Value, int], Movement]] = {
    "broadcast_to": _broadcast, "transpose": _transpose, "slice": _slice, "pad": _pad,
    "concat": _concat, "take": _take, "reduce": _reduce, "contract": _contract}
