"""Loops as nodes of the graph, and their gradients.

A loop has several results, so it is two ops: `LOOP`, the node of the loop itself, and `RESULT`, one
of its results. The gradient of a loop is one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.graph.batching import Examples, repeated, vectorized
from ztorch.graph.body import (
    Body,
    arguments,
    carry_leaf,
    closed,
    is_number,
    results_of,
    slice_leaf,
)
from ztorch.graph.loop_gradient import Backward
from ztorch.graph.loop_segments import Segments, segment_size
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Op, Value

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
    body, shared = closed(replace(body, ahead=ahead), inside)
    return results_of(LOOP(*inits, *sequences, *shared, body=body))


def looped(body: Body, inits: Sequence[Value], sequences: Sequence[Value], ahead: bool = True
           ) -> tuple[list[Value], list[Value]]:
    """The results of a loop; without iterations, its first values. With `ahead`, products of
    sequences alone are computed before it."""
    if body.trip_count == 0:
        return list(inits), [OPS.full((0, *v.shape), 0, v.dtype) for v in body.outs]
    return repeat(body, inits, sequences, ahead=ahead)


def _grad(o: Any, upstreams: Mapping[int, Value], loop: Value, *args: Value,
          body: Body) -> tuple[Value | None, ...]:
    """`upstreams`: gradients of results, by their index."""
    size = segment_size(body)
    backward = Backward(loop, upstreams, in_segments=size is not None)
    iteration, inits, sequences = backward.loop()
    if backward.again:
        assert size is not None
        return Segments(backward, iteration, repeat).slopes(inits, size)
    # Iterations that are computed again are many small products on purpose.
    last, stored = repeat(iteration, inits, sequences, backward.inside, ahead=not body.recompute)
    stacks = {**backward.slices, **dict(zip(iteration.outs, stored, strict=True))}
    return backward.slopes(last, stacks)


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
