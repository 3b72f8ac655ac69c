"""The loop nests of a processor, by the kind of region. Preferred ones come first."""

from __future__ import annotations

from ztorch.lower import thread_blocks
from ztorch.lower.cpu import (
    contract,
    correlation,
    elements,
    library_convolution,
    library_nest,
    recurring,
    rows,
    scatter_add,
    sliding_windows,
    transpose,
    winograd_nest,
)
from ztorch.lower.loop_nest import LoopNest

LOOP_NESTS: dict[str, tuple[LoopNest, ...]] = {
    "map": (
        LoopNest("transpose", transpose.propose, transpose.refusal, transpose.emit),
        LoopNest("elements", elements.propose, elements.refusal, elements.emit)),
    "reduce": (
        LoopNest("correlation", correlation.propose, correlation.refusal, correlation.emit),
        LoopNest("sliding", sliding_windows.propose, sliding_windows.refusal,
                 sliding_windows.emit),
        LoopNest("rows", rows.propose, rows.refusal, rows.emit)),
    "contract": (
        LoopNest("product", contract.propose, contract.refusal, contract.emit),
        *library_nest.LOOP_NESTS),
    "convolution": library_convolution.LOOP_NESTS,
    "winograd": (
        LoopNest("winograd", winograd_nest.propose, winograd_nest.refusal, winograd_nest.emit),),
    "scatter": (
        LoopNest("scatter", scatter_add.propose, scatter_add.refusal, scatter_add.emit),),
    "recurrence": (
        LoopNest("recurrence", recurring.propose, recurring.refusal, recurring.emit),),
    "threads": (
        LoopNest("threads", thread_blocks.propose, thread_blocks.refusal, thread_blocks.emit),),
}
