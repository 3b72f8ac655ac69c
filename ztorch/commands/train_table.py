"""ztorch train TABLE: chooses a model for a table and trains it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.commands.table_options import TableOptions
from ztorch.errors import ConfigError
from ztorch.sources.recipe import optimizer
from ztorch.terminal.progress import format_number

if TYPE_CHECKING:
    from ztorch.data import TypedTable
    from ztorch.program.program import Program
    from ztorch.tabular.pipeline import Pipeline

EPOCHS = 200  # largest number: training ends earlier, when the validation loss stops falling
PATIENCE = 15  # epochs without a lower validation loss before training ends
LEARNING_RATE = 2e-3  # of AdamW's first step
WEIGHT_DECAY = 0.02  # share of the weights, times the rate, that a step takes away
VALIDATION_SHARE = 0.2  # share of the rows that are for validation
RARE_SHARE = 0.1  # a class with a smaller share of the rows is rare
SUFFIXES = (".csv", ".tsv")  # of tables with named columns


def train_table(path: str, options: TableOptions, *, epochs: int | None,
                batch_size: int | tuple[int, ...] | None, optimizer_: str | None,
                rate: float | None, device: str, threads: int | None, val: str | None,
                seed: int | None, dtype: str | None, verbose: int | str) -> Program:
    """The trained program for a table, with its pipeline."""
    from ztorch import callbacks, data
    from ztorch.commands.table_model import table_model
    from ztorch.tabular.pipeline import Pipeline

    if options.target is None:
        columns = data.table(path).kinds
        raise ConfigError(f"say which column of {path} to learn: --target NAME, one of "
                          f"{', '.join(columns)}")
    table = data.table(path, options.target, **options.kinds)
    if verbose:
        print(table)
        print("Where that is wrong: --number, --category, --date, --text or --ignore COLUMN")
        _print_rare_class(table, options)
    train, validation = _split(table, options, val, seed or 0)
    pipeline = Pipeline(train)
    x, y = pipeline.arrays(train)
    model = table_model(pipeline, x, y, re.sub(r"\W", "_", Path(path).stem) or "table")
    if verbose:
        _print_task(pipeline, train, validation)
        model.summary()
    weights = None
    if options.balance and pipeline.classes:
        counts = np.bincount(y, minlength=len(pipeline.classes))
        weights = {k: len(y) / (len(counts) * max(int(n), 1)) for k, n in enumerate(counts)}
    program = model.compile(
        device, batch_size=batch_size or (32 if len(x) < 2000 else 128),
        optimizer=optimizer(optimizer_ or {"class_name": "AdamW", "config": {
            "weight_decay": WEIGHT_DECAY}}, rate or LEARNING_RATE),
        loss="sparse_categorical_crossentropy" if pipeline.classes else "mse",
        metrics=("accuracy",) if pipeline.classes else ("mae",),
        seed=seed, threads=threads, dtype=dtype or "float32")
    program.fit(x, y, epochs=epochs or EPOCHS, verbose=verbose, class_weight=weights,
                validation_data=pipeline.arrays(validation),
                callbacks=callbacks.EarlyStopping(patience=PATIENCE, restore_best_weights=True))
    program.pipeline = pipeline
    if verbose:
        print(_comparison(program, pipeline, validation, y))
    return program


def _split(table: TypedTable, options: TableOptions, val: str | None,
           seed: int) -> tuple[TypedTable, TypedTable]:
    """Rows to train on and rows to validate on: --val is a share or another table."""
    try:
        share = VALIDATION_SHARE if val is None else float(val)
    except ValueError:
        from ztorch import data

        assert val is not None
        return table, data.table(val, options.target, **options.kinds)
    try:
        return table.split(share, seed)
    except ConfigError as error:
        raise ConfigError(f"{error}; --val sets it") from None


def _print_rare_class(table: TypedTable, options: TableOptions) -> None:
    if not table.classifies or options.balance:
        return
    assert table.target is not None
    names, counts = np.unique(np.array(table.columns[table.target].texts), return_counts=True)
    if counts.min() < RARE_SHARE * table.rows:
        print(f"Of {table.rows:,} rows, {counts.min():,} are {names[counts.argmin()]!r}; --balance "
              "makes rare classes count as much as others")


def _print_task(pipeline: Pipeline, train: TypedTable, validation: TypedTable) -> None:
    target = pipeline.record.target
    assert target is not None
    kind = (f"{len(target.classes)} classes" if target.classes else
            f"a quantity{f' in {target.unit}' if target.unit else ''}")
    print(f"\nPredicts {target.name}, {kind}, from {len(pipeline.record.columns)} columns as "
          f"{pipeline.record.width} features; trains on {train.rows:,} rows and keeps "
          f"{validation.rows:,} apart, which tell when to stop")


def _comparison(program: Program, pipeline: Pipeline, validation: TypedTable,
                y: np.ndarray) -> str:
    """The score on held-out rows, next to the score of a baseline without a model."""
    target = pipeline.record.target
    assert target is not None
    predictions = pipeline.predict(program, validation)
    truth = pipeline.targets(validation)
    start = f"On {validation.rows:,} rows it was not trained on: "
    if target.classes:
        usual = int(np.bincount(y).argmax())
        return (f"{start}accuracy {np.mean(predictions.values == truth):.1%}; always "
                f"{target.classes[usual]!r} would give {np.mean(truth == usual):.1%}")

    def text(error: Any) -> str:
        return f"{format_number(float(error))} {target.unit}".rstrip()

    error = np.abs(predictions.values - truth).mean()
    return (f"{start}wrong by {text(error)} on average; always the mean, {text(y.mean())}, would "
            f"be wrong by {text(np.abs(y.mean() - truth).mean())}")
