"""Callbacks that write files: ModelCheckpoint and CSVLogger."""

from __future__ import annotations

import csv
import os
import string
from pathlib import Path
from typing import IO, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.callbacks.callback import Callback, Logs
from ztorch.callbacks.monitors import Monitor, measured, one_number
from ztorch.config import flag
from ztorch.errors import ConfigError
from ztorch.files.atomic import need_name, unwritable, writable
from ztorch.terminal.progress import format_number


class ModelCheckpoint(Monitor):
    """Saves the program after each epoch, or after every few batches.

    The path and the arguments choose the format. A path that ends in .zt saves the whole program,
    for `zt.load`. In `model.fit`, .keras saves the model and .weights.h5 its weights, for Keras.
    Any other path saves the weights for `load_weights` if `save_weights_only=True`, and otherwise a
    checkpoint for `load_checkpoint`.

    Args:
        filepath: The file. It may contain {epoch} (from 1), {batch} and names of scores, as in
            "{epoch:02d}-{val_loss:.2f}.safetensors".
        monitor: The score that `save_best_only` watches. Default: `"val_loss"`.
        verbose: 1 prints each file. Default: `0`.
        save_best_only: Whether to save only when the score has improved. Default: `False`.
        save_weights_only: Whether to save only the weights. Default: `False`.
        mode: "min" or "max" is the direction of improvement; "auto" derives it from the name.
            Default: `"auto"`.
        save_freq: "epoch", or a number of batches. Default: `"epoch"`.
        initial_value_threshold: With `save_best_only`, the score that the first file must improve
            on; None accepts any. Default: `None`.

    Examples:
        >>> callback = ModelCheckpoint("best.safetensors", save_best_only=True)
    """

    order = 2  # last, so that files contain the changes of other callbacks

    @checked
    def __init__(self, filepath: str | os.PathLike[str], monitor: str = "val_loss",
                 verbose: int = 0, save_best_only: bool = False, save_weights_only: bool = False,
                 mode: str = "auto", save_freq: str | int = "epoch",
                 initial_value_threshold: float | None = None):
        super().__init__(monitor, mode)
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ConfigError(f"save_freq={save_freq!r} must be 'epoch' or a number of batches")
        self.filepath = os.fspath(filepath)
        self._kind = _kind_of(self.filepath, flag("ModelCheckpoint(save_weights_only=...)",
                                                  save_weights_only))
        self.verbose = verbose
        self.save_best_only = flag("ModelCheckpoint(save_best_only=...)", save_best_only)
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        self.best = initial_value_threshold
        self._epoch = self._batches = 0

    def listens(self, hook: str) -> bool:
        batches = isinstance(self.save_freq, int)
        return super().listens(hook) and (batches or hook != "on_train_batch_end")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        names = self.params.get("metrics", ())
        if self._kind.startswith("model") and self.params["fitted"] is self.program:
            raise ConfigError(f"cannot write {self.filepath!r}: this format is for models, and "
                              "this is the fit of a program; call model.fit(...), or use a name "
                              "that ends in .zt or .safetensors")
        writable(self._path(1, 0, dict.fromkeys(names, 0.0)))  # fails now, not after an epoch
        if self.save_best_only:  # a resumed run must not replace a better file
            for value in self.program.history.history.get(self.monitor, ()):
                if self.better(value, self.best):
                    self.best = value

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        if self._batches % int(self.save_freq) == 0:
            self._save(self._epoch, batch, logs or {})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, 0, logs or {})

    def _save(self, epoch: int, batch: int, logs: Logs) -> None:
        path = self._path(epoch + 1, batch + 1, logs)
        if self.save_best_only:
            value = self.watched(logs)
            if value is None or not self.better(value, self.best):
                return
            if self.verbose:
                before = "" if self.best is None else f" from {format_number(self.best)}"
                self.say(f"Epoch {epoch + 1}: {self.monitor} improved{before} to "
                         f"{format_number(value)}, saving to {path}")
            self.best = value
        elif self.verbose:
            self.say(f"Epoch {epoch + 1}: saving to {path}")
        if self._kind == "program":
            self.program.save(path)
        elif self._kind == "weights":
            self.program.save_weights(path)
        elif self._kind == "model":
            self.params["fitted"].save(path)
        elif self._kind == "model weights":
            self.params["fitted"].save_weights(path)
        else:
            self.program.save_checkpoint(path)

    def _path(self, epoch: int, batch: int, logs: Logs) -> str:
        known: dict[str, Any] = {"epoch": epoch, "batch": batch, **logs}
        measured = set(self.params.get("metrics", ())) | {"learning_rate"}
        parts = []
        try:
            for text, name, form, _ in string.Formatter().parse(self.filepath):
                parts.append(text)
                if name in known:
                    if np.ndim(known[name]):
                        one_number("filepath=...", name, known[name])
                    parts.append(format(known[name], form or ""))
                elif name in measured:
                    parts.append("na")  # not measured in this epoch
                elif name is not None:
                    names = ", ".join(sorted({*known, *measured}))
                    raise ConfigError(f"filepath {self.filepath!r} names {name!r}. Known: {names}")
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"filepath {self.filepath!r}: {error}") from None
        return "".join(parts)


def _kind_of(path: str, weights_only: bool) -> str:
    """The kind of a file: a "program", a "model", "model weights", "weights", a "checkpoint"."""
    for suffix, kind in ((".zt", "program"), (".weights.h5", "model weights"), (".keras", "model")):
        if path.endswith(suffix):
            return kind
    need_name(path, "checkpoints", (".safetensors", ".ckpt"), "use .zt for the whole program, "
              ".keras or .weights.h5 for Keras, or .safetensors for weights "
              "(save_weights_only=True) or for a checkpoint of load_checkpoint")
    return "weights" if weights_only else "checkpoint"


class CSVLogger(Callback):
    """Writes the scores of each epoch to a CSV file.

    Args:
        filename: The file.
        separator: The separator of cells, one character. Default: `","`.
        append: Whether to continue an existing file, not replace it. Default: `False`.

    Examples:
        >>> callback = CSVLogger("log.csv", append=True)
    """

    @checked
    def __init__(self, filename: str | os.PathLike[str], separator: str = ",",
                 append: bool = False):
        if not isinstance(separator, str) or len(separator) != 1:
            raise ConfigError(f"CSVLogger(separator={separator!r}) must be one character")
        self.filename = Path(filename)
        self.separator = separator
        self.append = flag("CSVLogger(append=...)", append)
        self._file: IO[str] | None = None
        self._columns: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        writable(self.filename)
        self._columns = []
        if self.append and self.filename.exists():
            with open(self.filename, newline="") as file:  # use the columns of the existing file
                self._columns = next(csv.reader(file, delimiter=self.separator), [])
        self._file = open(self.filename, "a" if self.append else "w", newline="")  # noqa: SIM115

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        assert self._file is not None
        row: dict[str, Any] = {"epoch": epoch, **(logs or {})}
        writer = csv.writer(self._file, delimiter=self.separator, lineterminator="\n")
        try:
            if not self._columns:
                self._columns = list(dict.fromkeys([*row, *measured(self.params)]))
                writer.writerow(self._columns)
            writer.writerow([_cell(row.get(name, "NA")) for name in self._columns])
            self._file.flush()
        except OSError as error:
            raise unwritable(self.filename, error) from None

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _cell(score: Any) -> Any:
    """A score as a cell of a table; arrays as lists, as Keras writes them."""
    return f"[{', '.join(map(str, score))}]" if np.ndim(score) else score
