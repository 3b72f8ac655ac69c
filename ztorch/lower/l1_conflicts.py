"""Left operands whose row stride is a multiple of the page size. The lines of their rows map to the
same few sets of the L1 cache, so those of one tile cause conflict misses. Longer rows avoid that.

    attention of 1,024 positions: weights of 64 x 1024 are stored in rows of 1,040 numbers
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Value
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import INSET
from ztorch.lower.left_operand import access_pattern
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.tuning import L2_SHARE, PAGE_BYTES, ROW_PADDING_BYTES
from ztorch.machines.processors import Processor


def has_page_stride(v: Value) -> bool:
    """Whether the row stride of a matrix that a tile reads is a multiple of the page size."""
    period = _rows_together(v)
    again, row = Var("again", v.shape[-2] // period), Var("row", period)
    rows = Index.of(again) * period + Index.of(row)
    base = view_of(v, (*(Index() for _ in v.shape[:-2]), rows, Index()))
    distance = base[1].factor(row) * v.dtype.bytes if base else 0
    return distance > 0 and distance % PAGE_BYTES == 0


def l2_capacity(v: Value, cpu: Processor) -> float:
    """The size in bytes up to which the L2 cache holds such a matrix, so that no copy pays. It is
    larger for sequences, whose iterations are contiguous."""
    return cpu.l2_bytes * (L2_SHARE if _rows_together(v) == v.shape[-2] else 1.0)


def _rows_together(v: Value) -> int:
    """The number of rows with one stride: all rows, or those of one iteration of a sequence."""
    access = access_pattern(v)
    return v.shape[-2] if access is None else access.period


def padded_rows(v: Value, padded: dict[Value, Value]) -> Value:
    """The operand with padded rows, if a kernel stores it in any case.

    Args:
        v: A left operand.
        padded: Values with padded rows, by the original value; new ones are added.
    """
    if v.op.name == "transpose":
        [x] = v.args
        source = padded_rows(x, padded)
        return v if source is x else rebuilt(v, (source,))
    if is_view(v) or v.op is COPY or v.op.kind not in ("map", "reduce", "contract") or (
            v.op.partial or v.rank < 2 or v.shape[-1] * v.dtype.bytes % PAGE_BYTES):
        return v
    if v not in padded:
        shape = (*v.shape[:-1], v.shape[-1] + ROW_PADDING_BYTES // v.dtype.bytes)
        origin = (0,) * v.rank
        whole = INSET(v, shape=shape, low=origin)
        padded[v] = OPS.slice(whole, origin, (1,) * v.rank, v.shape)
    return padded[v]


def padded_copy(v: Value) -> Value:
    """A copy whose row stride is not a multiple of the page size."""
    if v.shape[-1] * v.dtype.bytes % PAGE_BYTES:
        return COPY(v)
    origin = (0,) * v.rank
    whole = COPY(OPS.pad(v, origin, (*origin[:-1], ROW_PADDING_BYTES // v.dtype.bytes)))
    return OPS.slice(whole, origin, (1,) * v.rank, v.shape)
