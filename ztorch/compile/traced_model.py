"""The input of the compiler: the functions of one program, as graphs."""

from __future__ import annotations

from typing import NamedTuple

from ztorch.graph.value import Graph
from ztorch.runtime.snapshot import Metadata


class TracedModel(NamedTuple):
    """The graphs of one program, and the program's metadata about its model.

    function   inputs        outputs                         changes
    predict    x             y                               memories of stateful layers
    evaluate   x, y, w, real loss and metrics                the same
    train      x, y, w, real loss and metrics                these, weights, slots, counters
    results    totals        metrics that are not means       nothing
    prefill    x, length     positions to go on from         the caches of layers
    generate   x, position.. the numbers that follow         the caches of layers
    beams      x, position.. likewise, of several beams      the caches of layers

    Evaluate and train return sums/METRIC/SUM for metrics that are computed from sums over all
    batches; results takes their totals. Generation starts with prefill, which reads whole rows; the
    other two continue from there in a loop. w holds the weight of each row, and real is 1 for real
    rows and 0 for those that pad the last batch. A model with several inputs or outputs has x/NAME
    and y/NAME instead of x and y.
    """

    functions: dict[str, Graph]  # by name
    metadata: Metadata  # artifacts store it
