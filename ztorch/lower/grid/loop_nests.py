"""The loop nests of grids, by the kind of region. Preferred ones come first."""

from __future__ import annotations

from ztorch.lower import thread_blocks
from ztorch.lower.grid import (
    attention,
    attention_gradient,
    attention_gradient_blocks,
    attention_gradient_matrix,
    attention_gradient_tiles,
    attention_matrix,
    attention_role_tiles,
    attention_roles,
    attention_tiles,
    contract,
    elements,
    library_convolution,
    library_product,
    recurring,
    role_tiles,
    roles,
    rows,
    stream_k,
    stream_tiles,
    tiles,
    transpose,
    window_parts,
    window_tiles,
    winograd,
)
from ztorch.lower.grid.parts import IN_PARTS
from ztorch.lower.loop_nest import LoopNest

_WINDOWS = LoopNest("grid_windows", window_tiles.propose, window_tiles.refusal, window_parts.emit)

LOOP_NESTS: dict[str, tuple[LoopNest, ...]] = {
    "map": (
        LoopNest("grid_transpose", transpose.propose, transpose.refusal, transpose.emit),
        LoopNest("grid_elements", elements.propose, elements.refusal, elements.emit)),
    "reduce": (
        LoopNest("grid_rows", rows.propose, rows.refusal, rows.emit),),
    "attention": (
        LoopNest("grid_attention_roles", attention_role_tiles.propose,
                 attention_role_tiles.refusal, attention_roles.emit),
        LoopNest("grid_attention_matrix", attention_tiles.propose, attention_tiles.refusal,
                 attention_matrix.emit),
        LoopNest("grid_attention", attention.propose, attention.refusal, attention.emit)),
    "attention_gradient": (
        LoopNest("grid_attention_gradient", attention_gradient_tiles.propose,
                 attention_gradient_tiles.refusal, attention_gradient.emit),
        LoopNest("grid_attention_gradient_matrix", attention_gradient_blocks.propose,
                 attention_gradient_blocks.refusal, attention_gradient_matrix.emit)),
    "contract": (
        LoopNest("grid_roles", role_tiles.propose, role_tiles.refusal, roles.emit),
        LoopNest("grid_stream", stream_tiles.propose, stream_tiles.refusal, stream_k.emit,
                 stream_tiles.gains),
        _WINDOWS,
        LoopNest("grid_async", tiles.propose_async, tiles.refusal_async, contract.emit_async),
        LoopNest("grid_matrix", tiles.propose_matrix, tiles.refusal_matrix, contract.emit_matrix),
        LoopNest("grid_product", tiles.propose, tiles.refusal, contract.emit),
        LoopNest("cublaslt", library_product.propose, library_product.refusal,
                 library_product.emit),
        LoopNest("cudnn", library_convolution.propose, library_convolution.refusal,
                 library_convolution.emit)),
    IN_PARTS.name: (_WINDOWS,),
    "winograd": (
        LoopNest("grid_winograd", winograd.propose, winograd.refusal, winograd.emit),),
    "recurrence": (
        LoopNest("grid_recurrence", recurring.propose, recurring.refusal, recurring.emit),),
    "threads": (
        LoopNest("threads", thread_blocks.propose, thread_blocks.refusal, thread_blocks.emit),),
}
