"""Rows of a table to show: as a model takes them, and as people read them."""

from __future__ import annotations

from typing import Any

from ztorch.data.columns import read_columns
from ztorch.tabular.pipeline import Pipeline
from ztorch.tabular.record import PipelineRecord

Texts = list[dict[str, str]]  # of each row: cells by the name of their column


def rows_with_texts(record: PipelineRecord, source: Any) -> tuple[Any, Texts]:
    """The rows of a table: x, or (x, y) where every row has its target; and the cells of columns of
    text, of which x has the words alone.

    Args:
        record: What the model learned about its columns.
        source: What `zt.data.table` takes.

    Examples:
        >>> from ztorch.data import table
        >>> pipeline = Pipeline(table({"size": [3.0, 5.0]}))
        >>> rows_with_texts(pipeline.record, {"size": [4.0]})
        (array([[4.]], dtype=float32), [{}])
    """
    pipeline, table, target = Pipeline.of_record(record), read_columns(source), record.target
    known = target is not None and target.name in table.by_name and not (
        table[target.name].gaps.any())
    rows = pipeline.arrays(table) if known else pipeline.inputs(table)
    texts = {c.name: table[c.name].texts for c in record.columns if c.kind == "text"}
    return rows, [{name: cells[k] for name, cells in texts.items()} for k in range(table.rows)]
