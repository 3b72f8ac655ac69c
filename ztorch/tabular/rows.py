"""Rows of a table: as a model takes them, and as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.data.columns import read_columns
from ztorch.data.typed_table import TypedTable
from ztorch.foreign_frames import with_names
from ztorch.tabular.pipeline import Pipeline
from ztorch.tabular.record import PipelineRecord

Texts = list[dict[str, str]]  # of each row: cells by the name of their column


def rows_with_texts(record: PipelineRecord, source: Any) -> tuple[Any, Texts]:
    """The rows of a table: x, or (x, y) where every row has its target; and the cells of columns of
    text, of which x has the words alone.

    Args:
        record: The model's record of its columns.
        source: An argument of `zt.data.table`.

    Examples:
        >>> from ztorch.data import table
        >>> pipeline = Pipeline(table({"size": [3.0, 5.0]}))
        >>> rows_with_texts(pipeline.record, {"size": [4.0]})
        (array([[4.]], dtype=float32), [{}])
    """
    pipeline, table, target = Pipeline.of_record(record), read_columns(source), record.target
    has_targets = target is not None and target.name in table.by_name and not (
        table[target.name].gaps.any())
    rows = pipeline.arrays(table) if has_targets else pipeline.inputs(table)
    texts = {c.name: table[c.name].texts for c in record.columns if c.kind == "text"}
    return rows, [{name: cells[k] for name, cells in texts.items()} for k in range(table.rows)]


def is_table(record: PipelineRecord, x: Any) -> bool:
    """Whether x is a table whose columns a pipeline reads; a frame of features is none.

    >>> from ztorch.data import table
    >>> record = Pipeline(table({"size": [3.0, 5.0], "kind": ["a", "b"]})).record
    >>> is_table(record, {"kind": ["b"], "size": [4.0]}), is_table(record, np.ones((1, 3)))
    (True, False)
    """
    if not record.columns or isinstance(x, TypedTable):
        return bool(record.columns)
    x = with_names(x)
    names = x.keys() if isinstance(x, Mapping) else getattr(
        x, "column_names", getattr(x, "columns", None))
    if names is None or not hasattr(type(x), "__getitem__"):
        return False
    names = tuple(map(str, names))
    return names != record.features or names == tuple(c.name for c in record.columns)


def inputs_of(record: PipelineRecord, table: Any) -> np.ndarray:
    """The features of the rows of a table."""
    return Pipeline.of_record(record).inputs(table)


def targets_of(record: PipelineRecord, table: Any, y: Any) -> Any:
    """The targets of the rows of a table: y, with numbers of classes in place of their names; None
    stands for the table's own."""
    pipeline, target = Pipeline.of_record(record), record.target
    if y is None:
        return pipeline.targets(table)
    cells = np.asarray(y)
    if target is None or not target.classes or cells.dtype.kind not in "OUS":
        return y
    return pipeline.targets({target.name: cells.reshape(-1)})
