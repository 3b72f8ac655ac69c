"""Scan, Loop and If: loops and branches whose counts and shapes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.known import constant_numbers, variables
from ztorch.interchange.onnx.node import (
    NeedsNumbers,
    Node,
    Result,
    Tensor,
    node,
)
from ztorch.ops.control import cond, scan

MOST_ITERATIONS = 1 << 24  # of a Loop; exporters write the largest integer for an unknown count
MOST_UNROLLED = 1024  # iterations of a Loop whose shapes depend on the iteration


@node("Scan")
def _scan(n: Node) -> Result:
    if n.opset < 9:
        n.unsupported("Scan of opset 8, which has a batch; convert the file to opset 9 or later")
    count, values = n.attr("num_scan_inputs"), n.values()
    states, sequences = values[:len(values) - count], values[len(values) - count:]
    stack_count = len(n.spec.outputs) - len(states)
    forwards = [not d for d in n.ints("scan_input_directions") or (0,) * count]
    stacks_forward = [not d for d in n.ints("scan_output_directions") or (0,) * stack_count]
    axes = n.ints("scan_input_axes") or (0,) * count
    reverse = not any((*forwards, *stacks_forward))  # all flipped: the loop runs from the end
    rows = [_flipped(_axis_first(x, axis), forward or reverse)
            for x, axis, forward in zip(sequences, axes, forwards, strict=True)]

    def step(state: Sequence[Value], row: Sequence[Value]) -> Any:
        results = [n.as_value(x) for x in n.inside("body", *state, *row)]
        return tuple(results[:len(states)]), tuple(results[len(states):])

    last, stacks = scan(step, tuple(states), tuple(rows), reverse=reverse)
    axes = n.ints("scan_output_axes") or (0,) * stack_count
    return (*last, *(_axis_moved(_flipped(y, forward or reverse), axis)
                     for y, axis, forward in zip(stacks, axes, stacks_forward, strict=True)))


def _flipped(x: Value, forward: bool) -> Value:
    return x if forward else OPS.flip(x, 0)


def _axis_first(x: Value, axis: int) -> Value:
    """x with this axis first."""
    axis %= x.rank
    return OPS.transpose(x, (axis, *(k for k in range(x.rank) if k != axis))) if axis else x


def _axis_moved(x: Value, axis: int) -> Value:
    """x with its first axis moved to this position."""
    axis %= x.rank
    order = [*range(1, x.rank)]
    order.insert(axis, 0)
    return OPS.transpose(x, tuple(order)) if axis else x


@node("Loop", but="a constant count; no outputs of each iteration if a condition may end the loop")
def _loop(n: Node) -> Result:
    states = [n.value(k) for k in range(2, len(n.inputs))]
    start: Tensor = n.input(1) if n.has(1) else np.array(True)
    count = n.number(0) if n.has(0) else MOST_ITERATIONS + 1
    after_first, *results = n.inside("body", np.array(0), start, *states)
    has_count = all(isinstance(x, np.ndarray) and x.all() for x in (start, after_first))
    if count > MOST_ITERATIONS:
        n.unsupported("a loop without a bound; its count must be a constant")
    if not has_count and len(results) > len(states):
        n.unsupported("a loop that a condition ends and that collects outputs of its iterations")

    def step(carried: Any, k: Value) -> Any:
        continues, state = carried
        before = np.array(True) if continues is None else continues
        condition, *results = (n.as_value(x) for x in n.inside("body", k, before, *state))
        new = results[:len(states)]
        if continues is None:
            return (None, tuple(new)), tuple(results[len(states):])
        new = [OPS.where(continues, v, old) for v, old in zip(new, state, strict=True)]
        return (OPS.logical_and(continues, OPS.reshape(condition, ())), tuple(new)), ()

    carried_start = None if has_count else OPS.reshape(n.as_value(start), ())
    try:
        (_, last), stacks = scan(step, (carried_start, tuple(states)),
                                 constant(np.arange(max(count, 0)), "int64"))
    except Unsupported as error:
        if not has_count or not 0 < count <= MOST_UNROLLED:
            raise
        try:
            return _unrolled(n, int(count))
        except Unsupported:
            raise error from None
    return (*last, *stacks)


def _unrolled(n: Node, count: int) -> Result:
    """The iterations one after another, each with a constant number, so that shapes may depend on
    it: the bags of an EmbeddingBag are slices from one offset to the next."""
    states, rows = [n.input(k) for k in range(2, len(n.inputs))], []
    for k in range(count):
        _, *results = n.inside("body", np.array(k), np.array(True), *states)
        states, row = results[:len(states)], results[len(states):]
        rows.append([n.as_value(x) for x in row])
    return (*states, *(OPS.stack(list(column)) for column in zip(*rows, strict=True)))


@node("Optional", "OptionalGetElement", but="of tensors that are present")
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
    condition = constant_numbers(pred) if isinstance(pred, Value) else None
    if condition is not None:
        return tuple(n.inside("then_branch" if condition.all() else "else_branch"))
    branches = [lambda name=name: tuple(n.as_value(x) for x in n.inside(name))
                for name in ("then_branch", "else_branch")]
    kinds = [[(v.shape, v.dtype) for v in branch()] for branch in branches]
    if kinds[0] != kinds[1]:
        raise NeedsNumbers("a condition that depends on the data, and branches of different shapes",
                           tuple(v.attrs["name"] for v in variables(n.as_value(pred))))
    results: tuple[Value, ...] = cond(OPS.reshape(n.as_value(pred), ()), *branches)
    return results
