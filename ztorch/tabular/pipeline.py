"""From columns of a table to the input of a model, and from its output to names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.data.columns import Columns, read_columns
from ztorch.data.typed_table import TypedTable
from ztorch.errors import ConfigError, DataError, nearest, unknown
from ztorch.files.kinds import BadValue
from ztorch.tabular.encoders import ENCODERS, encoder_of
from ztorch.tabular.encoding import category, encoded, learned
from ztorch.tabular.host_layer import HostLayer
from ztorch.tabular.predictions import Predictions
from ztorch.tabular.record import EncoderRecord, PipelineRecord, TargetRecord


class Pipeline:
    """How the columns of a table become the input of a model, and its output names.

    It learns from a table: the medians that fill gaps, the categories, the words of texts. Then it
    makes an array of any table with these columns, in any order. It is data alone, and artifacts
    keep it: set `program.pipeline`, and `program.save` writes it.

    Args:
        table: A table from `zt.data.table`, to learn from.

    Examples:
        >>> import ztorch as zt
        >>> table = zt.data.table({"age": [22, None, 35], "sex": ["m", "f", "f"],
        ...                        "fate": ["lost", "saved", "saved"]}, target="fate")
        >>> pipeline = Pipeline(table)
        >>> pipeline.features
        ('age', 'age is missing', 'sex = f', 'sex = m')
        >>> pipeline.inputs({"sex": ["m"], "age": [50]})
        array([[50.,  0.,  0.,  1.]], dtype=float32)
        >>> pipeline.targets(table)
        array([0, 1, 1], dtype=int32)
    """

    @checked
    def __init__(self, table: TypedTable):
        if not isinstance(table, TypedTable):
            raise ConfigError(f"Pipeline takes a table from zt.data.table, not a "
                              f"{type(table).__name__}")
        if not table.inputs:
            notes = [f"{kind.name!r} {kind.note}" for kind in table.kinds.values() if kind.note]
            raise DataError(f"{table.columns.where} has no column to learn from"
                            f"{': ' if notes else ''}{', '.join(notes)}; declare one's kind, such "
                            "as number=[NAME]")
        target = None
        if table.target is not None:
            kind, cells = table.kinds[table.target], table.columns[table.target]
            classes = _ordered({category(text) for text in cells.texts}) if table.classifies else ()
            target = TargetRecord(kind.name, classes, "" if classes else kind.unit)
        columns = tuple(learned(kind, table.columns[kind.name]) for kind in table.inputs)
        self.record = PipelineRecord(1, "table", columns, target)
        self.unseen: dict[str, Counter[str]] = {}  # of the last table: categories by column

    @classmethod
    def of_record(cls, record: PipelineRecord) -> Pipeline:
        """The pipeline that a record describes."""
        pipeline = object.__new__(cls)
        pipeline.record, pipeline.unseen = record, {}
        return pipeline

    @classmethod
    def of_classes(cls, classes: Sequence[str], images: bool = False,
                   rate: int | None = None) -> Pipeline:
        """The names of the classes of a model that takes images, sounds, or arrays that are ready
        for it.

        Args:
            classes: A name for each output of the model.
            images: Whether `ztorch run` reads files of images for it. Default: `False`.
            rate: For a model of sounds, of which `ztorch run` reads WAV files: their samples a
                second. Default: `None`.

        Returns:
            A pipeline without columns.

        Examples:
            >>> Pipeline.of_classes(["cat", "dog"], images=True).classes
            ('cat', 'dog')
        """
        if rate is not None:
            positive("of_classes(rate=...)", rate)
        source = "images" if images else "arrays" if rate is None else "sounds"
        return cls.of_record(PipelineRecord(
            1, source, (), TargetRecord("", tuple(map(str, classes))), rate=rate or 0))

    @classmethod
    def of_layer(cls, layer: HostLayer, classes: Sequence[str] = ()) -> Pipeline:
        """A layer that prepares values for a model, such as texts, and the names of its classes.

        Args:
            layer: A layer that runs on the host: TextVectorization, StringLookup ...
            classes: A name for each output of the model; none for a quantity. Default: `()`.

        Returns:
            A pipeline; its `inputs` takes an array or list of values.

        Examples:
            >>> import ztorch as zt
            >>> words = zt.layers.TextVectorization(vocabulary=["good", "bad"])
            >>> Pipeline.of_layer(words, ["sad", "glad"]).inputs(["so good", "bad"]).tolist()
            [[1, 2], [3, 0]]
        """
        if type(layer) not in ENCODERS.values():
            raise ConfigError(f"of_layer takes a layer that runs on the host, one of "
                              f"{', '.join(ENCODERS)}, not a {type(layer).__name__}")
        return cls.of_record(PipelineRecord(
            1, "values", (), TargetRecord("", tuple(map(str, classes))),
            EncoderRecord(type(layer).__name__, layer.get_config())))

    @cached_property
    def layer(self) -> HostLayer | None:
        """The layer that prepares values; None for tables and images."""
        encoder = self.record.encoder
        return None if encoder is None else encoder_of(encoder)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the numbers in a row of the input."""
        return tuple(name for column in self.record.columns for name in column.features)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty where the target is a quantity."""
        return self.record.target.classes if self.record.target else ()

    def inputs(self, table: Any) -> np.ndarray:
        """The input of the model for a table, in which columns may be in any order.

        Categories that were not there when the pipeline learned have no feature, or that of rare
        ones; `unseen` counts them.

        Args:
            table: A table, or an argument of `zt.data.table`; values for a pipeline of a layer.

        Returns:
            A float32 array of shape (rows, features); the result of the layer.

        Raises:
            DataError: A column is missing, or a cell does not fit; the message names line and
                column.
        """
        if self.layer is not None:
            return self.layer(table)
        if self.record.source != "table":
            raise DataError(f"this model takes {self.record.source}, not a table; give them to "
                            "program.predict")
        columns = _columns(table)
        if not columns.rows:
            raise DataError(f"{columns.where} has no rows")
        self.unseen = {}
        missing = [c.name for c in self.record.columns if c.name not in columns.by_name]
        if missing and not columns.has_names:
            raise DataError(f"{columns.where} has no header; its first line must name the columns: "
                            f"{','.join(c.name for c in self.record.columns)}")
        if missing:
            hint = nearest(missing[0], columns.by_name, 0.6) or ";"
            raise DataError(f"{columns.where} has no column {missing[0]!r}{hint} the model learned "
                            f"from {', '.join(c.name for c in self.record.columns)}, and the table "
                            f"has {', '.join(columns.by_name)}")
        return np.concatenate([encoded(record, columns, self.unseen)
                               for record in self.record.columns], 1)

    def targets(self, table: Any) -> np.ndarray:
        """The targets of a table: numbers of classes as int32, or quantities as
        float32.

        Args:
            table: A table, or an argument of `zt.data.table`.

        Raises:
            DataError: A cell of the target is empty or fits no class.
        """
        columns, target = _columns(table), self.record.target
        if target is None:
            raise DataError("this pipeline has no target; make the table with target=NAME")
        column = columns[target.name]
        if not target.classes:
            values = column.numbers.astype(np.float32)
            wrong = ~np.isfinite(values)
        else:
            numbers = {name: k for k, name in enumerate(target.classes)}
            values = np.array([numbers.get(category(t), -1) for t in column.texts], np.int32)
            wrong = values < 0
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            text = column.texts[row]
            raise DataError(f"{columns.place(row)}: the target {target.name!r} "
                            + (f"is empty; leave such rows out: zt.data.table(..., "
                               f"target={target.name!r})" if not text else
                               f"is {text!r}, " + ("not a number" if not target.classes else str(
                                   unknown("class", text, target.classes)))))
        return values

    def arrays(self, table: Any) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of a table, as `fit` takes them.

        Args:
            table: A table, or an argument of `zt.data.table`.
        """
        return self.inputs(table), self.targets(table)

    def statistics(self, x: np.ndarray) -> tuple[list[float], list[float]]:
        """Mean and variance of each feature, for a Normalization layer. Features that are 0 or 1
        stay as they are.

        Args:
            x: The result of `inputs` for the table to train on.

        Examples:
            >>> table = TypedTable(read_columns({"a": [1, 2, 3], "b": ["x", "y", "x"]}), None, {})
            >>> pipeline = Pipeline(table)
            >>> pipeline.statistics(pipeline.inputs(table))
            ([2.0, 0.0, 0.0], [0.6666666666666666, 1.0, 1.0])
        """
        wide = x.astype(np.float64)
        flags = ((wide == 0) | (wide == 1)).all(0)
        variance = wide.var(0)
        fixed = flags | (variance == 0)
        return (np.where(flags, 0.0, wide.mean(0)).tolist(),
                np.where(fixed, 1.0, variance).tolist())

    def predictions(self, outputs: np.ndarray) -> Predictions:
        """The output of the model with names.

        Args:
            outputs: The result of `program.predict`.
        """
        return Predictions(self.record.target or TargetRecord(""), outputs)

    def predict(self, program: Any, table: Any) -> Predictions:
        """Predicts for the rows of a table.

        Args:
            program: The program or model to run.
            table: A table, or an argument of `zt.data.table`.
        """
        return self.predictions(program.predict(self.inputs(table)))

    def get_config(self) -> dict[str, Any]:
        """The pipeline as JSON data."""
        config: dict[str, Any] = self.record.to_json()
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Pipeline:
        """The pipeline that `get_config` described.

        Args:
            config: JSON data.

        Raises:
            ConfigError: It does not describe a pipeline.
        """
        try:
            return cls.of_record(PipelineRecord.from_json(config))
        except BadValue as error:
            raise ConfigError(f"this config does not describe a Pipeline: {error}") from None

    def __repr__(self) -> str:
        target = self.record.target
        return (f"<Pipeline of {len(self.record.columns)} columns, {self.record.width} features"
                f"{f', to predict {target.name}' if target and target.name else ''}>")


def _columns(table: Any) -> Columns:
    return table.columns if isinstance(table, TypedTable) else read_columns(table)


def _ordered(names: set[str]) -> tuple[str, ...]:
    """Names in sorted order; numbers by their size."""
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))
