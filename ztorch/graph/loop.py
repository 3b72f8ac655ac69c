"""Loops as nodes of the graph, and their gradients.

A loop has several results, so it is two ops: `LOOP`, the node of the loop itself, and `RESULT`, one
of its results. The gradient of a loop is one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.errors import Unsupported
from ztorch.graph.batching import Examples, repeated, vectorized
from ztorch.graph.body import (
    Ahead,
    Body,
    arguments,
    carry_leaf,
    closed,
    dependents,
    is_number,
    iterations_of,
    results_of,
    slice_leaf,
    with_own_leaves,
)
from ztorch.graph.loop_gradient import Backward
from ztorch.graph.loop_segments import Segments, segment_size
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Op, Value, topological

Shape = tuple[int, ...]


def _loop_infer(*args: Value, body: Body) -> tuple[Shape, DType]:
    return (), boolean  # a loop by itself is not a tensor


def _loop_numpy(*args: Any, body: Body) -> Any:
    raise AssertionError("loops are evaluated by graph/evaluate.py")


def repeat(body: Body, inits: Sequence[Value], sequences: Sequence[Value],
           inside: Callable[[Value], bool] = is_number, ahead: bool = True
           ) -> tuple[list[Value], list[Value]]:
    """A loop as values of the graph.

    Args:
        body: The iterations; `shared` is empty, and outer values are read directly.
        inits: First values of the carries.
        sequences: A sequence for each slice: tensors whose first axis is the iteration.
        inside: Whether a value that does not depend on the iteration is computed in the body all
            the same. Default: `is_number`.
        ahead: Whether products of sequences that do not depend on carries are computed before the
            loop, for all iterations at once: faster, with more memory. Default: `True`.

    Returns:
        The last values of the carries, and the stacks of the values kept of every iteration.
    """
    sequences = list(sequences)
    if ahead and body.trip_count > 1:
        body, sequences = _products_first(body, sequences)
    body, shared = closed(body, inside)
    return results_of(LOOP(*inits, *sequences, *shared, body=body))


def looped(body: Body, inits: Sequence[Value], sequences: Sequence[Value], ahead: bool = True
           ) -> tuple[list[Value], list[Value]]:
    """The results of a loop; without iterations, its first values. With `ahead`, products of
    sequences alone are computed before it."""
    if body.trip_count == 0:
        return list(inits), [OPS.full((0, *v.shape), 0, v.dtype) for v in body.outs]
    return repeat(body, inits, sequences, ahead=ahead)


def looped_in_segments(body: Body, inits: Sequence[Value], sequences: Sequence[Value], size: int,
                       ahead: bool = True) -> tuple[list[Value], list[Value]]:
    """The results of a loop as those of a loop of loops, of `size` iterations each. Its gradient
    keeps only the states between segments, and runs each segment again."""
    count = body.trip_count // size
    main = count * size  # iterations in segments; the rest follows them

    def of_rest(states: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        rest = with_own_leaves(replace(body, trip_count=body.trip_count - main))
        rows = [iterations_of(x, main, body.trip_count) for x in sequences]
        return looped(rest, states, rows, ahead)

    states, others = of_rest(inits) if body.reverse else (list(inits), [])
    rows = [OPS.reshape(iterations_of(x, 0, main), (count, size, *x.shape[1:])) for x in sequences]
    carries = tuple(carry_leaf(v, k) for k, v in enumerate(inits))
    slices = tuple(slice_leaf(x, k) for k, x in enumerate(rows))
    segment = with_own_leaves(replace(body, trip_count=size))
    news, outs = looped(segment, carries, slices, ahead)
    segments = Body(count, body.reverse, carries, slices, (), tuple(news), tuple(outs),
                    recompute=True)
    states, stacks = looped(segments, states, rows, ahead=False)
    if not body.reverse:
        states, others = of_rest(states)
    return states, [OPS.concat(OPS.reshape(y, (main, *y.shape[2:])), z, axis=0)
                    for y, z in zip(stacks, others, strict=True)]


def _products_first(body: Body, sequences: list[Value]) -> tuple[Body, list[Value]]:
    """The body with products that depend only on sequences as separate slices."""
    ahead = dependents(body.roots, body.slices) - dependents(body.roots, body.carries)
    order = topological(body.roots, {*body.carries, *body.slices})
    heavy: set[Value] = set()  # products of sequences, and values made of them alone
    for v in order:
        if v in ahead and (v.op.kind == "contract" or any(a in heavy for a in v.args)):
            heavy.add(v)
    ends = [a for v in order if v not in heavy for a in v.args if a in heavy]
    ends = list(dict.fromkeys(_below_movement(v, heavy) for v in [
        *ends, *(r for r in body.roots if r in heavy)]))
    if not ends:
        return body, sequences
    examples = dict(zip(body.slices, sequences, strict=True))
    same = frozenset(v for v in order if v not in ahead)  # in every iteration, random or not
    try:
        batched = vectorized(ends, examples, body.trip_count, shared=same)
    except Unsupported:  # it draws random numbers at every iteration
        return body, sequences
    leaves = [slice_leaf(batched[v], len(sequences) + k) for k, v in enumerate(ends)]
    roots = substituted(body.roots, dict(zip(ends, leaves, strict=True)))
    used = set(topological(roots))
    sliced = [(s, x) for s, x in (*examples.items(), *((s, batched[v]) for s, v in zip(
        leaves, ends, strict=True))) if s in used]
    made = Ahead(dict(zip(leaves, ends, strict=True)),
                 {s: batched[v] for s, v in zip(leaves, ends, strict=True)}, examples, same)
    body = replace(body.with_roots(roots), slices=tuple(s for s, _ in sliced), ahead=made)
    return body, [x for _, x in sliced]


def _below_movement(v: Value, heavy: set[Value]) -> Value:
    """The source of a chain of movements: reading it costs nothing inside the loop."""
    while v.op.movement and len(v.args) == 1 and v.args[0] in heavy:
        v = v.args[0]
    return v


def _grad(o: Any, upstreams: Mapping[int, Value], loop: Value, *args: Value,
          body: Body) -> tuple[Value | None, ...]:
    """`upstreams`: gradients of results, by their index."""
    size = segment_size(body)
    backward = Backward(loop, upstreams, in_segments=size is not None)
    iteration, inits, sequences = backward.loop()
    if backward.again:
        assert size is not None
        return backward.slopes(*Segments(backward, iteration, repeat).results(inits, size))
    # Iterations that are computed again are many small products on purpose.
    return backward.slopes(*repeat(iteration, inits, sequences, backward.inside,
                                   ahead=not body.recompute))


def _batch(one: Value, many: Examples, body: Body) -> Value:
    """The loop of many examples. Each has its own state; which ones go on does not end it."""
    inits, sequences, shared = arguments(body, many.args)
    own = arguments(body, many.batched)
    inits = tuple(v if batched else repeated(v, many.count)
                  for v, batched in zip(inits, own[0], strict=True))
    sequences = tuple(OPS.transpose(v, (1, 0, *range(2, v.rank))) if batched else v
                      for v, batched in zip(sequences, own[1], strict=True))
    carries = tuple(carry_leaf(v, k) for k, v in enumerate(inits))
    slices = tuple(slice_leaf(v, k) for k, v in enumerate(sequences))
    new = dict(zip(body.leaves, (*carries, *slices, *shared), strict=True))
    examples = {old: leaf for old, leaf in new.items() if leaf.shape != old.shape}
    outside = {old: leaf for old, leaf in new.items() if old not in examples}
    known = vectorized(body.roots, examples, many.count, shared=frozenset(outside))
    roots = substituted([known[v] if v in known else repeated(v, many.count)
                         for v in body.roots], outside)
    iteration = replace(body, carries=carries, slices=slices, shared=(), proceed=None)
    iteration, outer = closed(iteration.with_roots(roots))
    return one.op(*inits, *sequences, *outer, body=iteration)


LOOP = Op("loop", "loop", _loop_infer, _loop_numpy, _grad, batch=_batch)
