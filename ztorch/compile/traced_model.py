"""The input of the compiler: the functions of one program, as graphs."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.graph.value import Graph
from ztorch.runtime.snapshot import Metadata


@dataclass(frozen=True)
class TracedModel:
    """The graphs of one program, and the facts that the program keeps of its model.

    function   inputs        outputs                         changes
    predict    x             y                               memories of stateful layers
    evaluate   x, y, w, real loss and metrics                the same
    train      x, y, w, real loss and metrics                these, weights, slots, counters
    results    totals        metrics that are not means       nothing
    prefill    x, length     positions to go on from         the caches of layers
    generate   x, position.. the numbers that follow         the caches of layers
    beams      x, position.. likewise, of several beams      the caches of layers

    Evaluate and train give sums/METRIC/SUM for metrics that are computed from sums over all
    batches; results takes their totals. Generating begins with prefill, which reads whole rows; the
    other two go on from them by a loop.
    w holds the weight of each row, and real 1 for those that count, 0 for those that fill up the
    last batch. A model with several inputs or outputs has x/NAME and y/NAME in place of x and y.
    """

    functions: dict[str, Graph]  # by name
    metadata: Metadata  # artifacts store it
