"""Left operands of products whose rows are whole pages apart. The first cache keeps only a few
lines of such rows, so those of a tile evict one another.

    attention of 1,024 positions: weights of 64 x 1024 are stored in rows of 1,040 numbers
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Value
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import INSET
from ztorch.lower.left_operand import reading
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
    """Bytes up to which the second cache holds such a matrix so well that no copy pays. Of the
    iterations of a sequence, which are contiguous, it holds more."""
    return cpu.l2_bytes * (L2_SHARE if _rows_together(v) == v.shape[-2] else 1.0)


def _rows_together(v: Value) -> int:
    """The number of rows with one stride: all, or those of an iteration of a sequence."""
    way = reading(v)
    return v.shape[-2] if way is None else way.period


def padded_rows(v: Value, apart: dict[Value, Value]) -> Value:
    """The same with rows that are not whole pages apart, if a kernel stores it anyway.

    Args:
        v: A left operand.
        apart: Values that have such rows already, by their origin; this adds to it.
    """
    if v.op.name == "transpose":
        [x] = v.args
        moved = padded_rows(x, apart)
        return v if moved is x else rebuilt(v, (moved,))
    if is_view(v) or v.op is COPY or v.op.kind not in ("map", "reduce", "contract") or (
            v.op.partial or v.rank < 2 or v.shape[-1] * v.dtype.bytes % PAGE_BYTES):
        return v
    if v not in apart:
        wide = (*v.shape[:-1], v.shape[-1] + ROW_PADDING_BYTES // v.dtype.bytes)
        none = (0,) * v.rank
        whole = INSET(v, shape=wide, low=none)
        apart[v] = OPS.slice(whole, none, (1,) * v.rank, v.shape)
    return apart[v]


def padded_copy(v: Value) -> Value:
    """A copy whose rows are not whole pages apart."""
    if v.shape[-1] * v.dtype.bytes % PAGE_BYTES:
        return COPY(v)
    none = (0,) * v.rank
    wide = COPY(OPS.pad(v, none, (*none[:-1], ROW_PADDING_BYTES // v.dtype.bytes)))
    return OPS.slice(wide, none, (1,) * v.rank, v.shape)
