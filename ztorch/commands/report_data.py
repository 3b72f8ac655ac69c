"""The data of a report: a program's predictions for data whose answers are known."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

MOST_ROWS = 2000  # on which importance is measured
MOST_FEATURES = 64  # of arrays without names: with more, importance is not measured
WAVE_SIZE = 48, 128  # pixels of a picture of a sound: height, width
MOST_NUMBERS = 8  # of an array that are shown for a row


@dataclass(frozen=True)
class Examined:
    """A program with rows whose targets are known, and its predictions for them."""

    program: Program
    target: TargetRecord  # the target; classes have names
    inputs: Inputs  # the name of a single one is empty
    truth: np.ndarray  # numbers of classes, or quantities
    outputs: np.ndarray  # probabilities, or quantities
    table: Columns | None  # the rows as the user has them
    columns: dict[str, Place]  # features by column; empty where importance is not measured
    output: str = ""  # the examined output; empty if the program has only one
    files: tuple[str, ...] = ()  # of images: that of each row

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
        """The answer of a row as text."""
        if self.target.classes:
            return self.target.classes[self.truth[row]]
        return " ".join(f"{value:.6g}" for value in np.ravel(self.truth[row]))

    def place(self, row: int) -> str:
        """Where a row is found in the data."""
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
        rows = slice(0, MOST_ROWS)
        truth, classifies = self.truth[rows], bool(self.target.classes)

        def score(inputs: Inputs) -> float:
            outputs = _probable(_predicted(self.program, inputs, self.output), classifies)
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
    """The wave of a sound as `src` of HTML: a column for the lowest and highest of some samples."""
    parts = np.array_split(samples.reshape(len(samples), -1)[:, 0], WAVE_SIZE[1])
    ends = np.array([(part.min(initial=0), part.max(initial=0)) for part in parts])
    heights = np.linspace(1, -1, WAVE_SIZE[0])[:, None]
    filled = (heights >= ends[:, 0] - 1 / WAVE_SIZE[0]) & (heights <= ends[:, 1] + 1 / WAVE_SIZE[0])
    return _picture(filled[..., None].astype(np.float32))


def _beginning(cells: np.ndarray | str) -> str:
    """The first numbers of a row, or its text."""
    if isinstance(cells, str):
        return cells
    numbers = ", ".join(f"{value:.4g}" for value in cells.reshape(-1)[:MOST_NUMBERS])
    return numbers + (", ..." if cells.size > MOST_NUMBERS else "")


def examine(program: Program, name: str, artifact: str, output: str | None = None) -> Examined:
    """Predicts for the rows of data whose answers are known. `output` is the one that is examined,
    of several."""
    shapes = named_arrays.of_program(program)
    names = list(shapes.outputs)
    if output not in (names if names != [""] else [None]):
        raise ConfigError(f"{artifact} has one output; leave --output out" if names == [""] else
                          f"{artifact} has several outputs; choose one with --output: "
                          f"{', '.join(names)}")
    output = output or ""
    pipeline = program.pipeline
    table: Columns | None = None
    columns: dict[str, Place] = {}
    files: tuple[str, ...] = ()
    if pipeline is not None and pipeline.record.columns and name.lower().endswith(SUFFIXES):
        from ztorch.data import table as typed_table

        assert pipeline.record.target is not None
        target = pipeline.record.target
        table = typed_table(name, target.name).columns
        x, truth = pipeline.arrays(table)
        inputs, start = {"": x}, 0
        for column in pipeline.record.columns:
            columns[column.name] = "", list(range(start, start + len(column.features)))
            start += len(column.features)
        classifies = bool(target.classes)
    else:
        rows = data.TrainingData(_of_output(name, shapes, output), None, None) if (
            shapes.several) else data.read_texts_with_answers(name) if _reads_texts(
                program, name) else data.read_training(
                    name, shapes.x, pipeline.record.rate or None if pipeline else None)
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
        columns = _columns(inputs)
    if classifies and len(truth) and not 0 <= truth.min() <= truth.max() < len(target.classes):
        raise DataError(f"{name} has classes up to {truth.max()}; {artifact} knows "
                        f"{len(target.classes)}")
    outputs = _predicted(program, inputs, output)
    if outputs.ndim != 2 if classifies else outputs.size != truth.size:
        raise ConfigError(
            f"{artifact} gives {outputs.shape[1:]} for a row, and the answers of {name} are of "
            f"{truth.shape[1:] or 'one number'}; reports are for one class or quantity a row")
    outputs = _probable(outputs, classifies)
    return Examined(program, target, inputs, truth, outputs, table, columns, output, files)


def _reads_texts(program: Program, name: str) -> bool:
    """Whether data are a table of texts, for a program whose only input is a text."""
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
    """The features of which importance is measured: each number of flat rows with few, else whole
    inputs, where there are several."""
    columns: dict[str, Place] = {}
    for name, x in inputs.items():
        if isinstance(x, list):  # rows differ in size
            continue
        if x.ndim == 2 and (1 if name else 0) < x.shape[1] <= MOST_FEATURES:
            columns |= {f"{name or 'number'} {k}": (name, [k]) for k in range(x.shape[1])}
        elif name:
            columns[name] = name, None
    return columns


def _predicted(program: Program, inputs: Inputs, output: str) -> np.ndarray:
    """The predictions of a program; of several outputs the one with this name."""
    y = program.predict(inputs.get("", inputs))
    named = y if isinstance(y, dict) else dict(zip(program.output_names, y, strict=True)
                                               ) if isinstance(y, list) else {"": y}
    array: np.ndarray = named[output]
    return array


def _probable(outputs: np.ndarray, classifies: bool) -> np.ndarray:
    """Outputs as probabilities of classes: a single one is that of the second, others may be
    logits."""
    if not classifies:
        return outputs
    if outputs.shape[1] == 1:
        return np.concatenate([1 - outputs, outputs], 1)
    if (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3):
        return outputs
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
