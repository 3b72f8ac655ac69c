"""ztorch run: predicts with an artifact, or another model that has learned something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from ztorch.commands import data, named_arrays
from ztorch.commands.file_rows import FileReader, file_reader
from ztorch.commands.programs import program_of
from ztorch.commands.run_function import run_function
from ztorch.data.json_lines import SUFFIXES, Rows, by_row, is_json_lines
from ztorch.errors import ConfigError
from ztorch.files.atomic import write_atomic
from ztorch.runtime.load import open_artifact
from ztorch.sources.find import is_artifact
from ztorch.terminal.work_line import at, working

if TYPE_CHECKING:
    from ztorch.program.program import Program
    from ztorch.tabular.pipeline import Pipeline
    from ztorch.tabular.predictions import Predictions

STDIN = "-"  # names standard input
# The first bytes of files of images and sounds.
_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_SHOWN_CATEGORIES = 5  # largest number of categories that a warning names


def run(model: str, sources: tuple[str, ...], out: str | None, classes: bool,
        threads: int | None) -> None:
    """Predicts for rows, a table or images, and writes the outputs, the classes or their names."""
    data.need_writable(out, (".npy", ".csv", ".txt", ".npz", *SUFFIXES))
    if not sources:
        if sys.stdin.isatty():
            raise ConfigError("give an INPUT: a file, or - for standard input")
        sources = (STDIN,)
    with nullcontext() if STDIN in sources else working(f"run {model}"):  # the user may be typing
        write = _predict(model, sources, out, classes, threads)
    write()


def _predict(model: str, sources: tuple[str, ...], out: str | None, classes: bool,
             threads: int | None) -> Callable[[], None]:
    """Predicts, and returns a writer of the result."""
    if is_artifact(model) and open_artifact(model).manifest.program.arguments is not None:
        if classes:
            raise ConfigError(f"--classes is for a model, and {model} holds a function; omit it")
        return lambda: run_function(model, sources, out, threads)
    at("load")
    program = program_of(model, threads)
    at("predict")
    pipeline = program.pipeline
    shapes = named_arrays.of_program(program)
    reader = file_reader(program, shapes.x)
    if reader and all(map(reader.takes, sources)):
        return _run_files(program, reader, sources, out, classes)
    if reader and sources == (STDIN,) and _stdin_is_file():
        with NamedTemporaryFile() as file:
            file.write(sys.stdin.buffer.read())
            file.flush()
            return _run_files(program, reader, (file.name,), out, classes)
    if len(sources) > 1:
        wrong = next(source for source in sources if not (reader and reader.takes(source)))
        raise ConfigError(f"give one INPUT; several are for images and sounds, and {wrong} is none "
                          "that this model takes")
    source = sources[0]
    as_table = source == STDIN or source.lower().endswith((".csv", ".tsv", ".txt"))
    if pipeline is not None and pipeline.record.columns and as_table:
        return partial(_write_table, pipeline, pipeline.predict(
            program, sys.stdin.buffer if source == STDIN else source), out, classes)
    names = list(shapes.outputs)
    if names == [""] and out is not None and out.endswith(".npz"):
        raise ConfigError(f"cannot write {out}: the only output has no name; write it to .npy or "
                          ".csv")
    y = program.predict(data.read_inputs(source, program))
    if pipeline is not None and pipeline.classes and not (out or "").endswith((".npy", *SUFFIXES)):
        return lambda: _write_predictions(pipeline.predictions(y), out, classes)
    outputs = [y] if names == [""] else list(y.values()) if isinstance(y, dict) else y
    outputs = [by_row(rows, lambda y: y.argmax(-1)) if classes else rows for rows in outputs]
    return lambda: _write_outputs(names, outputs, out)


def _stdin_is_file() -> bool:
    """Whether standard input is an image or a sound, not text."""
    head = sys.stdin.buffer.peek(len(_SIGNATURES[0])) if hasattr(sys.stdin.buffer, "peek") else b""
    return head.startswith(_SIGNATURES)


def _write_outputs(names: list[str], outputs: list[Rows], out: str | None) -> None:
    """Writes outputs without names of classes."""
    if names == [""]:
        data.write(out, outputs[0])
    else:
        named_arrays.write(out, dict(zip(names, outputs, strict=True)))
    _print_written(out, len(outputs[0]))


def _run_files(program: Program, reader: FileReader, sources: tuple[str, ...], out: str | None,
               classes: bool) -> Callable[[], None]:
    """Predicts for images or sounds. The returned writer prints a line with the likeliest class for
    each of them."""
    x, files = reader.read(sources)
    y = program.predict(x)
    if program.pipeline is None or not program.pipeline.classes:
        return lambda: _write_outputs([""], [y.argmax(-1) if classes else y], out)
    predictions = program.pipeline.predictions(y)
    if out is not None:
        return lambda: _write_predictions(predictions, out, classes)
    width = max(len(str(file)) for file in files)
    results = predictions.names if classes else [predictions.best(k) for k in range(len(files))]
    lines = results if len(files) == 1 else [
        f"{str(file).ljust(width)}  {result}" for file, result in zip(files, results, strict=True)]
    return lambda: print(*lines, sep="\n")


def _write_table(pipeline: Pipeline, predictions: Predictions, out: str | None,
                 names_only: bool) -> None:
    """Writes predictions for a table's rows, after a note on values that are new to the model."""
    _warn_of_unseen(pipeline)
    _write_predictions(predictions, out, names_only)


def _write_predictions(predictions: Predictions, out: str | None, names_only: bool) -> None:
    """Writes names and probabilities as CSV or JSON lines, or only numbers as NPY."""
    if out is not None and out.endswith(".npy"):
        numbers = predictions.values if names_only or predictions.probabilities is None else (
            predictions.probabilities)
        data.write(out, numbers)
    elif out is not None and out.endswith(".npz"):
        raise ConfigError(f"cannot write {out}: the only output has no name; write it to .npy or "
                          ".csv")
    elif out is not None and is_json_lines(out):
        write_atomic(out, predictions.to_json_lines(names_only).encode())
    elif out is None:
        print(predictions.to_csv(names_only), end="")
    else:
        write_atomic(out, predictions.to_csv(names_only).encode())
    _print_written(out, len(predictions))


def _warn_of_unseen(pipeline: Pipeline) -> None:
    """Warns of categories that the model does not know."""
    for column, counts in pipeline.unseen.items():
        shown = ", ".join(repr(text) for text, _ in counts.most_common(_SHOWN_CATEGORIES))
        print(f"warning: {sum(counts.values())} cells of column {column!r} hold categories that "
              f"the model never saw: {shown}", file=sys.stderr)


def _print_written(out: str | None, rows: int) -> None:
    if out:
        print(f"Wrote {out}: {rows} rows")
