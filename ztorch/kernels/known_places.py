"""Indices that are known while compiling without being sums of loop variables, such as
`max(i - 1, 0)`. Where they are a few runs of neighbors, reading there is movement, which fuses and
vectorizes, instead of a lookup."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels.reading import ElementIndex
from ztorch.kernels.tiles import Affine, LoopTensor

RUNS_MAX = 3  # such as those of a loop that is clamped at both ends
VALUES_MAX = 16  # of which such an index is computed


def with_known_places(source: LoopTensor, index: ElementIndex
                      ) -> tuple[LoopTensor, ElementIndex]:
    """An array and an index with the same elements, in which such indices are loop variables.

    Args:
        source: The array, for each iteration of the loops that it belongs to.
        index: Where it is read.
    """
    value, places = source.value, list(index.places)
    used = {v for p in places if isinstance(p, Affine) for v in p.terms} | {*source.axes}
    for k, place in enumerate(places):
        axis = len(source.axes) + k
        if not isinstance(place, LoopTensor) or len(place.axes) != 1 or place.shape or (
                place.axes[0] in used) or (runs := _runs(place.value, value.shape[axis])) is None:
            continue
        used.add(place.axes[0])
        parts = [OPS.slice_by(value, (*[slice(None)] * axis, slice(a, b))) for a, b in runs]
        value = OPS.concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
        places[k] = Affine({place.axes[0]: 1})
    return replace(source, value=value), replace(index, places=tuple(places))


def _runs(index: Value, n: int) -> list[tuple[int, int]] | None:
    """The runs of neighbors, each with its end, of an index into n elements; None if it is data or
    has too many. Numbers outside count as the ends, as in any lookup."""
    pending, seen = [index], {index}
    while pending:
        v = pending.pop()
        if (v.op.kind == "leaf" and v.attrs.get("role") != "constant" and v.op.name not in (
                "full", "iota")) or len(seen) > VALUES_MAX:
            return None
        new = {*v.args} - seen
        seen |= new
        pending += new
    at = np.clip(evaluate([index], {})[0], 0, n - 1).tolist()
    starts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(at)) if b != a + 1)]
    if not at or len(starts) > RUNS_MAX:
        return None
    return [(at[a], at[b - 1] + 1) for a, b in pairwise([*starts, len(at)])]
