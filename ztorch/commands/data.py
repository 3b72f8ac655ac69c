"""Reads the data that a command line names, and writes results to files."""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.commands import named_arrays
from ztorch.commands.file_rows import folder_rows
from ztorch.data.json_lines import (
    SUFFIXES,
    Rows,
    begins_as_json_lines,
    by_row,
    is_json_lines,
    labels_of,
    read_json_lines,
    to_json_lines,
)
from ztorch.errors import ConfigError, DataError, unknown
from ztorch.files.atomic import writable, write_atomic

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.program.program import Program

_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".npz", ".npy", *SUFFIXES)


class TrainingData(NamedTuple):
    """The data that --data or --val names."""

    train: Pair  # rows to train on
    test: Pair | None = None  # rows to test with, if the data have some
    classes: tuple[str, ...] | None = None  # the names of the classes, if labels are texts
    files: tuple[str, ...] = ()  # the file of each image or sound, relative to their folder
    rate: int | None = None  # samples per second of sounds

    def numbered_like(self, other: TrainingData) -> Pair:
        """The rows to train on. Labels have the same numbers as in the other data."""
        if self.classes == other.classes:
            return self.train
        texts, other_texts = self.classes, other.classes
        if texts is None or other_texts is None:
            kinds = ("numbers", "texts") if texts is None else ("texts", "numbers")
            raise DataError("the labels to validate on are {}, those to train on {}; write both in "
                            "one way".format(*kinds))
        if new := [text for text in texts if text not in other_texts]:
            raise DataError(f"the labels to validate on include {new[0]!r}, which is not among "
                            f"those to train on: {', '.join(other_texts)}")
        numbers = np.array([other_texts.index(text) for text in texts], np.int32)
        x, y = self.train
        renumbered: Any = by_row(y, lambda old: numbers[old])
        return x, renumbered


def read_training(name: str, shape: tuple[int, ...] | None = None,
                  rate: int | None = None) -> TrainingData:
    """The data that --data or --val names.

    Args:
        name: A data set, a table (NPZ with x and y, or CSV with the label last), JSON lines with x
            and y, two NPY files as `x.npy,y.npy`, or a folder that has a folder of images or
            sounds for each class.
        shape: The shape of the model's input. Rows of tables and files get it. Default: `None`.
        rate: Samples per second of sounds. Default: `None`, the rate of the first file.

    Examples:
        >>> (x, y), test, *_ = read_training("digits")
        >>> x.shape, test[0].shape
        ((1433, 8, 8, 1), (364, 8, 8, 1))
    """
    from ztorch import data

    if not name:
        raise ConfigError("the name of the data is empty")
    if "," in name:
        parts = name.split(",")
        if len(parts) != 2 or not all(parts):
            raise ConfigError(f"{name!r} names {sum(map(bool, parts))} file(s); pass x.npy,y.npy")
        x, y = map(read_rows, parts)
        return _labeled(x, y, shape)
    if not name.lower().endswith(_SUFFIXES):
        if name in data.names():
            return TrainingData(*data.load(name))
        if Path(name).is_dir():
            return TrainingData(*folder_rows(name, shape, rate))
        if Path(name).name != name:
            raise ConfigError(f"there is no folder {name}")
        raise ConfigError(f"{unknown('data set', name, data.names())}; or a file ending in "
                          f"{' '.join(_SUFFIXES)}, or x.npy,y.npy, or a folder of images or sounds")
    if is_json_lines(name):
        rows = read_json_lines(name)
        if missing := [column for column in ("x", "y") if column not in rows]:
            raise DataError(f"{name} has no {missing[0]!r}; it has {', '.join(rows)}; write lines "
                            'such as {"x": [[0.5, 1.0], [2.0, 3.0]], "y": 1}')
        return _labeled(rows["x"], rows["y"], shape)
    table = data.read_table(name)
    if table.y is None:
        raise DataError(f"{name} holds no y")
    test = table.test and (_shaped(table.test[0], shape), table.test[1])
    return TrainingData((_shaped(table.x, shape), table.y), test, table.classes)


def _labeled(x: Any, y: Any, shape: tuple[int, ...] | None) -> TrainingData:
    """Rows with labels, whose texts are replaced by numbers."""
    has_texts = (y[0] if isinstance(y, list) else y).dtype.kind in "US"
    y, classes = labels_of(y) if has_texts else (y, None)
    return TrainingData((_shaped(x, shape), y), None, classes)


def read_rows(path: str) -> Rows:
    """The numbers in a file: an NPY, x of an NPZ or of JSON lines, or a CSV without labels; "-" is
    a CSV or JSON lines on standard input."""
    from ztorch.data.numpy_files import read_array
    from ztorch.data.tables import read_table

    if path == "-":
        return _read_stream(sys.stdin.buffer.read())
    if is_json_lines(path):
        return _x_of(read_json_lines(path), path)
    return read_array(path) if path.lower().endswith(".npy") else read_table(path, label=None).x


def _x_of(rows: dict[str, Rows], where: str) -> Rows:
    if "x" not in rows:
        raise DataError(f"{where} has no 'x'; it has {', '.join(rows)}")
    return rows["x"]


def _read_stream(content: bytes) -> Rows:
    """The numbers of a CSV or of JSON lines on standard input."""
    from ztorch.data.columns import read_columns

    if begins_as_json_lines(content):
        return _x_of(read_json_lines(content), "standard input")
    table = read_columns(io.BytesIO(content))
    x = np.stack([column.numbers for column in table.by_name.values()], 1)
    if not np.isfinite(x).all():
        row, k = np.argwhere(~np.isfinite(x))[0]
        text = list(table.by_name.values())[k].texts[row]
        raise DataError(f"{table.place(row)}, column {k + 1}: {text!r} is not a number")
    return x.astype(np.float32)


def read_inputs(path: str, program: Program) -> Any:
    """The rows that a program predicts from: an array, or a dict of several inputs."""
    if any(port.reader for port in program.adapter.input_ports) and not path.lower().endswith((
            ".npy", ".npz", *SUFFIXES)):
        return _read_texts(path, program)
    shapes = named_arrays.of_program(program)
    if len(shapes.inputs) > 1:
        return named_arrays.read(path, shapes)[0]
    return _shaped(read_rows(path), shapes.x)


def _read_texts(path: str, program: Program) -> Any:
    """Inputs of which some are texts: the columns of a table with the names of inputs. For one
    input: each line of a text file, or the only column of a table."""
    from ztorch.data.columns import read_columns
    from ztorch.data.numpy_files import need_file

    ports = program.adapter.input_ports
    if len(ports) == 1 and not path.lower().endswith((".csv", ".tsv")):
        if path == "-":
            return _lines(sys.stdin.buffer.read())
        need_file(path)
        return _lines(Path(path).read_bytes())
    table = read_columns(sys.stdin.buffer if path == "-" else path)
    if len(ports) == 1:
        if len(table.by_name) > 1:
            raise DataError(f"{table.where} has {len(table.by_name)} columns, and the model takes "
                            "one text a row; pass that column alone, or a .txt with a text a line")
        return next(iter(table.by_name.values())).texts
    if missing := [p.name for p in ports if p.name not in table.by_name]:
        raise DataError(f"{table.where} has no column {missing[0]!r}; the model takes "
                        f"{', '.join(p.name for p in ports)}")
    return {p.name: table[p.name].texts if p.reader else table[p.name].numbers for p in ports}


def _lines(content: bytes) -> list[str]:
    """The lines of a text, which end where editors end them."""
    return [line.decode("utf-8", "replace")
            for line in content.removeprefix(codecs.BOM_UTF8).splitlines()]


def read_texts_with_answers(path: str) -> TrainingData:
    """Texts and their labels: the two columns of a table, the label last."""
    from ztorch.data.columns import read_columns

    table = read_columns(path)
    if len(table.by_name) != 2:
        raise DataError(f"{path} has {len(table.by_name)} columns, and the model takes one text a "
                        "row; pass two columns, the text and then its label")
    texts, labels = table.by_name.values()
    if labels.gaps.any():
        raise DataError(f"{table.place(int(labels.gaps.argmax()))}, column {labels.name!r}: the "
                        "label is missing; fill it in, or leave the row out")
    if labels.cells.dtype.kind == "f":
        integers = (labels.cells == np.floor(labels.cells)).all()
        dtype = np.int32 if integers else np.float32
        return _labeled(texts.cells, labels.cells.astype(dtype), None)
    return _labeled(texts.cells, np.array(labels.texts), None)


def _shaped(x: Any, shape: tuple[int, ...] | None) -> Any:
    """Reshapes flat rows to the model's input, and flattens other rows if the input is flat.
    Anything else is returned unchanged: the program accepts it or reports the error."""
    if shape is None or isinstance(x, list) or not (
            x.ndim == 2 or (x.ndim > 2 and len(shape) == 1)):
        return x
    return x.reshape(len(x), *shape) if np.prod(x.shape[1:]) == np.prod(shape) else x


def write(path: str | None, y: Rows) -> None:
    """Writes rows as NPY, CSV or JSON lines, or to standard output if `path` is None: as CSV, or as
    JSON lines if rows differ in size."""
    if path is not None and is_json_lines(path):
        write_atomic(path, to_json_lines({"": y}).encode())
    elif isinstance(y, list):
        if path is not None:
            raise ConfigError(f"cannot write {path}: rows differ in size; write them to a .jsonl")
        print(to_json_lines({"": y}), end="")
    elif path is not None and path.endswith(".npy"):
        data = io.BytesIO()
        np.save(data, y, allow_pickle=False)
        write_atomic(path, data.getvalue())
    elif path is None or path.endswith((".csv", ".txt")):
        rows = y.reshape(len(y), -1)
        digits = "%d" if y.dtype.kind in "iub" else "%.17g" if y.dtype == np.float64 else "%.9g"
        text = io.StringIO()
        np.savetxt(text if path else sys.stdout, rows, digits, ",")
        if path:
            write_atomic(path, text.getvalue().encode())
    else:
        raise ConfigError(f"cannot write {os.path.basename(path)}: the name must end in .npy or "
                          ".csv")


def need_writable(path: str | None, suffixes: tuple[str, ...]) -> None:
    """Raises unless a file with one of these suffixes can be written: before any work is lost."""
    if path is None:
        return
    if not path.endswith(suffixes):
        raise ConfigError(f"{path or repr(path)} must end in {' or '.join(suffixes)}")
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; make it first")
    writable(path)
