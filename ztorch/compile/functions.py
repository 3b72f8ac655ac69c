"""What the compiler takes: the functions of one program as graphs."""

from __future__ import annotations

from dataclasses import dataclass

from ztorch.graph.value import Graph
from ztorch.runtime.snapshot import Metadata


@dataclass(frozen=True)
class Functions:
    """The graphs of a program, and what is known about its model.

    predict   x -> y
    train     x, y, w -> loss and metrics; updates weights, slots and counters
    evaluate  x, y, w -> loss and metrics; changes nothing
    decode    x, position -> logits of one position; changes caches
    w weighs rows; a row of weight 0 counts for nothing, which fills up the last batch. Where there
    are several, inputs are x/NAME, outputs and their targets y/NAME.
    """

    functions: dict[str, Graph]
    metadata: Metadata
