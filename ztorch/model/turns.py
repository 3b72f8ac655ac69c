"""The loops of generation: their carried values, and when they end."""

from __future__ import annotations

from collections.abc import Callable

from ztorch.graph.body import Body, carry_leaf, is_number
from ztorch.graph.loop import repeat
from ztorch.graph.narrow import converts
from ztorch.graph.op import OPS
from ztorch.graph.value import Value

TURNS = 32  # maximum numbers per row and call
NOTHING = -1  # marks a missing number

Carried = dict[str, Value]  # the values that a loop carries, by name


def loop(turns: int, first: Carried, turn: Callable[[Carried], Carried]) -> Carried:
    """The values after a loop that continues while its value "go" is true. When it is false, an
    iteration must change nothing, because devices run all iterations."""
    names = list(first)
    carries = {name: carry_leaf(v, k) for k, (name, v) in enumerate(first.items())}
    news = turn(carries)
    body = Body(turns, False, tuple(carries.values()), (), (), tuple(news[n] for n in names), (),
                names.index("go"))
    # 16-bit weights are widened where they are used: the loop may run a single iteration.
    last, _ = repeat(body, list(first.values()), [], lambda v: is_number(v) or converts(v))
    return dict(zip(names, last, strict=True))


def goes_on(before: Value | None, made: Value, count: Value, live: Value) -> Value:
    """Whether the loop runs another iteration: `made` of `count` are done, and some rows are
    `live`."""
    condition = OPS.logical_and(OPS.reshape(OPS.less(made, count), ()), OPS.any(live))
    return condition if before is None else OPS.logical_and(before, condition)


def written(numbers: Value, made: Value, table: Value, where: Value) -> Value:
    """A table (rows, iterations) with a number per row in the column of this iteration, in the rows
    selected by `where`."""
    column = OPS.equal(OPS.iota((1, table.shape[1]), 1), OPS.reshape(made, (1, 1)))
    mask = OPS.logical_and(column, OPS.reshape(where, (-1, 1)))
    return OPS.where(mask, OPS.reshape(numbers, (-1, 1)), table)
