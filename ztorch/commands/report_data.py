"""Evaluates a program on rows with known answers, for a report."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztorch.commands import data, named_arrays
from ztorch.commands.train_table import SUFFIXES
from ztorch.errors import ConfigError, DataError
from ztorch.files.png import png
from ztorch.tabular.measures import Inputs, Place, permutation_importance, row_losses
from ztorch.tabular.predictions import Predictions
from ztorch.tabular.record import TargetRecord

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.data.columns import Columns
    from ztorch.program.program import Program
    from ztorch.tabular.pipeline import Pipeline

IMPORTANCE_ROWS = 2000  # largest number of rows for measuring the importance of columns
MAX_FEATURES = 64  # largest number of unnamed features whose importance is measured
WAVE_SIZE = 48, 128  # height and width of the picture of a sound, in pixels
SHOWN_NUMBERS = 8  # largest number of an array's numbers that are shown for a row


@dataclass(frozen=True)
class EvaluatedRows:
    """Rows with known answers, and a program's predictions for them."""

    program: Program
    target: TargetRecord  # the target, with the names of classes
    inputs: Inputs  # by name; the name of a single input is empty
    truth: np.ndarray  # numbers of classes, or quantities
    outputs: np.ndarray  # probabilities, or quantities
    table: Columns | None  # the rows as in the user's table
    columns: dict[str, Place]  # features by column; empty if importance is not measured
    output: str = ""  # name of the evaluated output; empty if the program has only one
    files: tuple[str, ...] = ()  # the file of each row, if rows are files

    @property
    def of_sounds(self) -> bool:
        """Whether rows are sounds."""
        pipeline = self.program.pipeline
        return pipeline is not None and pipeline.record.source == "sounds"

    @property
    def predictions(self) -> Predictions:
        """The outputs with names."""
        return Predictions(self.target, self.outputs)

    @property
    def losses(self) -> np.ndarray:
        """The loss of each row."""
        return row_losses(self.truth, self.outputs, bool(self.target.classes))

    def true_name(self, row: int) -> str:
        """The known answer of a row as text."""
        if self.target.classes:
            return self.target.classes[self.truth[row]]
        return " ".join(f"{value:.6g}" for value in np.ravel(self.truth[row]))

    def place(self, row: int) -> str:
        """The position of a row in the data: its file, line or number."""
        if self.files:
            return self.files[row]
        lines = None if self.table is None else self.table.lines
        return f"row {row}" if lines is None else f"line {lines[row]}"

    def shown(self, row: int) -> tuple[str, str]:
        """The input of a row as text, and as a picture for `src` of an image; one is empty."""
        if self.table is not None:
            names = self.columns or self.table.by_name
            return "; ".join(f"{name}: {self.table[name].texts[row] or '(gap)'}"
                             for name in names), ""
        texts, picture = [], ""
        for name, x in self.inputs.items():
            if not picture and np.ndim(x[row]) == 3 and np.shape(x[row])[2] in (1, 3, 4):
                picture = _picture(x[row])
            elif self.of_sounds:
                picture = _wave(x[row])
            else:
                texts.append((f"{name}: " if name else "") + _beginning(x[row]))
        return "; ".join(texts), picture

    def importance(self) -> dict[str, float]:
        """How much the loss grows without each column, the most important first."""
        if not self.columns:
            return {}
        rows = slice(0, IMPORTANCE_ROWS)
        truth, classifies = self.truth[rows], bool(self.target.classes)

        def score(inputs: Inputs) -> float:
            outputs = _probabilities(_predict(self.program, inputs, self.output), classifies)
            return float(row_losses(truth, outputs, classifies).mean())

        return permutation_importance({name: x[rows] for name, x in self.inputs.items()},
                                      self.columns, score)


def _picture(cells: np.ndarray) -> str:
    """An image as `src` of HTML."""
    low, high = float(cells.min()), float(cells.max())
    scale = 255.0 if low >= 0 and high <= 1 else 255.0 / max(high - low, 1e-9)
    pixels = ((cells - min(low, 0.0)) * scale).round().clip(0, 255).astype(np.uint8)
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def _wave(samples: np.ndarray) -> str:
    """The wave of a sound as `src` of HTML: a column shows the range of several samples."""
    parts = np.array_split(samples.reshape(len(samples), -1)[:, 0], WAVE_SIZE[1])
    ends = np.array([(part.min(initial=0), part.max(initial=0)) for part in parts])
    heights = np.linspace(1, -1, WAVE_SIZE[0])[:, None]
    filled = (heights >= ends[:, 0] - 1 / WAVE_SIZE[0]) & (heights <= ends[:, 1] + 1 / WAVE_SIZE[0])
    return _picture(filled[..., None].astype(np.float32))


def _beginning(cells: np.ndarray | str) -> str:
    """The first numbers of a row, or its text."""
    if isinstance(cells, str):
        return cells
    numbers = ", ".join(f"{value:.4g}" for value in cells.reshape(-1)[:SHOWN_NUMBERS])
    return numbers + (", ..." if cells.size > SHOWN_NUMBERS else "")


class _KnownRows(NamedTuple):
    """Rows, and their known answers."""

    target: TargetRecord
    inputs: Inputs
    truth: np.ndarray
    table: Columns | None
    columns: dict[str, Place]
    files: tuple[str, ...] = ()


def evaluate_rows(program: Program, name: str, artifact: str,
                  output: str | None = None) -> EvaluatedRows:
    """Predicts for rows whose answers are known.

    Args:
        program: The program.
        name: The name of the data.
        artifact: The name of the program, for errors.
        output: The name of the evaluated output if there are several. Default: `None`.
    """
    shapes = named_arrays.of_program(program)
    output = _checked_output(list(shapes.outputs), artifact, output)
    pipeline = program.pipeline
    if pipeline is not None and pipeline.record.columns and name.lower().endswith(SUFFIXES):
        rows = _table_rows(pipeline, name)
    else:
        rows = _array_rows(program, name, shapes, output)
    truth, classes = rows.truth, rows.target.classes
    if classes and len(truth) and not 0 <= truth.min() <= truth.max() < len(classes):
        raise DataError(f"{name} has classes up to {truth.max()}; {artifact} knows {len(classes)}")
    outputs = _predict(program, rows.inputs, output)
    if outputs.ndim != 2 if classes else outputs.size != truth.size:
        raise ConfigError(
            f"{artifact} gives {outputs.shape[1:]} for a row, and the answers of {name} are of "
            f"{truth.shape[1:] or 'one number'}; reports are for one class or quantity a row")
    outputs = _probabilities(outputs, bool(classes))
    return EvaluatedRows(program, rows.target, rows.inputs, truth, outputs, rows.table,
                         rows.columns, output, rows.files)


def _checked_output(names: list[str], artifact: str, output: str | None) -> str:
    """The name of the evaluated output, which is empty if there is only one."""
    if output not in (names if names != [""] else [None]):
        raise ConfigError(f"{artifact} has one output; leave --output out" if names == [""] else
                          f"{artifact} has several outputs; choose one with --output: "
                          f"{', '.join(names)}")
    return output or ""


def _table_rows(pipeline: Pipeline, name: str) -> _KnownRows:
    """The rows of a table with the columns of a pipeline."""
    from ztorch.data import table as typed_table

    target = pipeline.record.target
    assert target is not None
    table = typed_table(name, target.name).columns
    x, truth = pipeline.arrays(table)
    columns: dict[str, Place] = {}
    start = 0
    for column in pipeline.record.columns:
        columns[column.name] = "", list(range(start, start + len(column.features)))
        start += len(column.features)
    return _KnownRows(target, {"": x}, truth, table, columns)


def _array_rows(program: Program, name: str, shapes: named_arrays.PortShapes,
                output: str) -> _KnownRows:
    """The rows of any other data, with the answers of one output."""
    pipeline = program.pipeline
    rows = _read(program, name, shapes, output)
    if pipeline is not None and rows.classes not in (None, pipeline.classes):
        rows = rows._replace(train=rows.numbered_like(
            rows._replace(classes=pipeline.classes)), test=None, classes=pipeline.classes)
    x, truth = rows.test or rows.train
    files = () if rows.test else rows.files
    count = shapes.outputs[output][-1] if shapes.outputs[output] else 1
    if isinstance(truth, list):
        raise ConfigError(f"the answers of {name} differ in size from row to row; reports are "
                          "for one class or quantity a row")
    loss = program.metadata.loss.get(output)
    binary = count == 1 and loss is not None and loss.name.startswith("binary")
    classifies = np.issubdtype(truth.dtype, np.integer) and (count > 1 or binary)
    classes = rows.classes or tuple(map(str, range(2 if binary else count)))
    target = TargetRecord(output, classes if classifies else ())
    if pipeline is not None and pipeline.classes and classifies:
        target = pipeline.record.target or target
    inputs = x if isinstance(x, dict) else {"": x}
    return _KnownRows(target, inputs, truth, None, _columns(inputs), files)


def _read(program: Program, name: str, shapes: named_arrays.PortShapes,
          output: str) -> data.TrainingData:
    if shapes.several:
        return data.TrainingData(_of_output(name, shapes, output), None, None)
    if _reads_texts(program, name):
        return data.read_texts_with_answers(name)
    rate = program.pipeline.record.rate or None if program.pipeline else None
    return data.read_training(name, shapes.x, rate)


def _reads_texts(program: Program, name: str) -> bool:
    """Whether the program reads a text, and the data are a table of texts."""
    return program.adapter.input_ports[0].reader is not None and name.lower().endswith(SUFFIXES)


def _of_output(path: str, shapes: named_arrays.PortShapes, output: str) -> Pair:
    """The rows of a file, and the answers of one output."""
    x, y = named_arrays.read(path, shapes)
    answers = y if isinstance(y, dict) else {"": y}
    if answers.get(output) is None:
        raise DataError(f"{path} has no array {output or 'y'!r}, the answers of "
                        f"{'that' if output else 'the'} output")
    return x, answers[output]


def _columns(inputs: Inputs) -> dict[str, Place]:
    """The features whose importance is measured: each number of short flat rows, otherwise whole
    inputs if there are several."""
    columns: dict[str, Place] = {}
    for name, x in inputs.items():
        if isinstance(x, list):  # rows differ in size
            continue
        if x.ndim == 2 and (1 if name else 0) < x.shape[1] <= MAX_FEATURES:
            columns |= {f"{name or 'number'} {k}": (name, [k]) for k in range(x.shape[1])}
        elif name:
            columns[name] = name, None
    return columns


def _predict(program: Program, inputs: Inputs, output: str) -> np.ndarray:
    """The predictions of a program for the output with this name."""
    y = program.predict(inputs.get("", inputs))
    if isinstance(y, list):
        y = dict(zip(program.output_names, y, strict=True))
    array: np.ndarray = y[output] if isinstance(y, dict) else y
    return array


def _probabilities(outputs: np.ndarray, classifies: bool) -> np.ndarray:
    """Outputs as probabilities of classes. A single output is the probability of the second class;
    several outputs may be logits."""
    if not classifies:
        return outputs
    if outputs.shape[1] == 1:
        return np.concatenate([1 - outputs, outputs], 1)
    if (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3):
        return outputs
    exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)
