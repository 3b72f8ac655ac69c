"""Scan, Loop and If: loops and branches whose counts and shapes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import numbers_now, variables
from ztorch.interchange.onnx.node import (
    NeedsNumbers,
    Node,
    Result,
    Tensor,
    node,
)
from ztorch.ops.control import cond, scan

MOST_TURNS = 1 << 24  # of a Loop; exporters write the largest integer where they know none
MOST_UNROLLED = 1024  # iterations of a Loop whose shapes follow from the number of the iteration


@node("Scan")
def _scan(n: Node) -> Result:
    if n.opset < 9:
        n.unsupported("Scan of opset 8, which has a batch; convert the file to opset 9 or later")
    count, values = n.attr("num_scan_inputs"), n.values()
    states, sequences = values[:len(values) - count], values[len(values) - count:]
    keeps = len(n.spec.outputs) - len(states)
    forwards = [not d for d in n.ints("scan_input_directions") or (0,) * count]
    kept_forwards = [not d for d in n.ints("scan_output_directions") or (0,) * keeps]
    axes = n.ints("scan_input_axes") or (0,) * count
    reverse = not any((*forwards, *kept_forwards))  # the loop itself runs from the end
    rows = [_turned(_first(x, axis), forward or reverse)
            for x, axis, forward in zip(sequences, axes, forwards, strict=True)]

    def turn(state: Sequence[Value], row: Sequence[Value]) -> Any:
        results = [n.as_value(x) for x in n.inside("body", *state, *row)]
        return tuple(results[:len(states)]), tuple(results[len(states):])

    last, stacks = scan(turn, tuple(states), tuple(rows), reverse=reverse)
    axes = n.ints("scan_output_axes") or (0,) * keeps
    return (*last, *(_placed(_turned(y, forward or reverse), axis)
                     for y, axis, forward in zip(stacks, axes, kept_forwards, strict=True)))


def _turned(x: Value, forward: bool) -> Value:
    return x if forward else OPS.flip(x, 0)


def _first(x: Value, axis: int) -> Value:
    """x with this axis first."""
    axis %= x.rank
    return OPS.transpose(x, (axis, *(k for k in range(x.rank) if k != axis))) if axis else x


def _placed(x: Value, axis: int) -> Value:
    """x with its first axis at another place."""
    axis %= x.rank
    order = [*range(1, x.rank)]
    order.insert(axis, 0)
    return OPS.transpose(x, tuple(order)) if axis else x


@node("Loop", but="a constant count; no outputs of every iteration where a condition may end it")
def _loop(n: Node) -> Result:
    states = [n.value(k) for k in range(2, len(n.inputs))]
    begins: Tensor = n.input(1) if n.has(1) else np.array(True)
    turns = n.number(0) if n.has(0) else MOST_TURNS + 1
    goes_on, *results = n.inside("body", np.array(0), begins, *states)
    counted = all(isinstance(x, np.ndarray) and x.all() for x in (begins, goes_on))
    if turns > MOST_TURNS:
        n.unsupported("a loop without a bound: its count must be a constant")
    if not counted and len(results) > len(states):
        n.unsupported("a loop that a condition ends, and that keeps outputs of every iteration")

    def turn(carried: Any, k: Value) -> Any:
        go, state = carried
        still, *results = (n.as_value(x) for x in n.inside("body", k, go if go is not None else
                                                           np.array(True), *state))
        new = results[:len(states)]
        if go is None:
            return (None, tuple(new)), tuple(results[len(states):])
        new = [OPS.where(go, v, old) for v, old in zip(new, state, strict=True)]
        return (OPS.logical_and(go, OPS.reshape(still, ())), tuple(new)), ()

    first = None if counted else OPS.reshape(n.as_value(begins), ())
    try:
        (_, last), stacks = scan(turn, (first, tuple(states)),
                                 constant(np.arange(max(turns, 0)), "int64"))
    except Unsupported as error:
        if not counted or not 0 < turns <= MOST_UNROLLED:
            raise
        try:
            return _unrolled(n, int(turns))
        except Unsupported:
            raise error from None
    return (*last, *stacks)


def _unrolled(n: Node, turns: int) -> Result:
    """One iteration after another, each with its number known: such as bags of an embedding, which
    are slices from one known place to the next."""
    states, rows = [n.input(k) for k in range(2, len(n.inputs))], []
    for k in range(turns):
        _, *results = n.inside("body", np.array(k), np.array(True), *states)
        states, row = results[:len(states)], results[len(states):]
        rows.append([n.as_value(x) for x in row])
    return (*states, *(OPS.stack(list(column)) for column in zip(*rows, strict=True)))


@node("Optional", "OptionalGetElement", but="of tensors that are there")
def _optional(n: Node) -> Result:
    return n.input(0)


@node("OptionalHasElement")
def _has_element(n: Node) -> Result:
    return np.array(n.has(0))


@node("If", but="branches of the same shapes, unless the condition is a constant")
def _if(n: Node) -> Result:
    pred, _, _ = n.input(0), n.attr("then_branch"), n.attr("else_branch")
    if isinstance(pred, np.ndarray):
        return tuple(n.inside("then_branch" if pred.all() else "else_branch"))
    known = numbers_now(pred) if isinstance(pred, Value) else None
    if known is not None:
        return tuple(n.inside("then_branch" if known.all() else "else_branch"))
    branches = [lambda name=name: tuple(n.as_value(x) for x in n.inside(name))
                for name in ("then_branch", "else_branch")]
    kinds = [[(v.shape, v.dtype) for v in branch()] for branch in branches]
    if kinds[0] != kinds[1]:
        raise NeedsNumbers("a condition that depends on the data, and branches of different shapes",
                           tuple(v.attrs["name"] for v in variables(n.as_value(pred))))
    results: tuple[Value, ...] = cond(OPS.reshape(n.as_value(pred), ()), *branches)
    return results
