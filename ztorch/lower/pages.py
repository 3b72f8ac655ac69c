"""Left operands of products whose rows are whole pages apart. The first cache keeps only a few
lines of such rows, so those of a tile evict one another.

    attention of 1,024 positions: weights of 64 x 1024 lie in rows of 1,040 numbers
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Value
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import INSET
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.tuning import PAGE_BYTES, ROW_PADDING_BYTES


def whole_pages(v: Value) -> bool:
    """Whether the rows of a matrix lie whole pages distance."""
    row = Var("row", v.shape[-2])
    base = view_of(v, (*(Index() for _ in v.shape[:-2]), Index.of(row), Index()))
    distance = base[1].factor(row) * v.dtype.bytes if base else 0
    return distance > 0 and distance % PAGE_BYTES == 0


def rows_apart(v: Value, apart: dict[Value, Value]) -> Value:
    """The same with rows that are not whole pages apart, if a kernel stores it anyway.

    Args:
        v: A left operand.
        apart: What has such rows already, by what it was made of; this adds to it.
    """
    if v.op.name == "transpose":
        [x] = v.args
        moved = rows_apart(x, apart)
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


def padded_rows(v: Value) -> Value:
    """A copy whose rows are not whole pages apart: such rows would evict one another."""
    none = (0,) * v.rank
    wide = COPY(OPS.pad(v, none, (*none[:-1], ROW_PADDING_BYTES // v.dtype.bytes)))
    return OPS.slice(wide, none, (1,) * v.rank, v.shape)
