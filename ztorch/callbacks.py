"""What may be done around epochs and batches of `fit`, under Keras' names."""

from __future__ import annotations

import csv
import inspect
import math
import os
import string
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from ztorch import tensorfile
from ztorch.arguments import checked
from ztorch.config import flag, number, whole
from ztorch.errors import ConfigError, nearest
from ztorch.training.hooks import HOOKS, Callback, Logs
from ztorch.training.progress import number as spelled


class Monitor(Callback):
    """Base of callbacks that watch one value: what better means, and a warning if it is absent."""

    def __init__(self, monitor: str = "val_loss", mode: str = "auto", min_delta: float = 0.0):
        if mode not in ("auto", "min", "max"):
            raise ConfigError(f"mode={mode!r} must be 'auto', 'min' or 'max'")
        if not isinstance(monitor, str):
            raise ConfigError(f"{type(self).__name__}(monitor={monitor!r}) must be a name, such as "
                              "'val_loss'")
        self.monitor = monitor
        self.min_delta = abs(number(f"{type(self).__name__}(min_delta=...)", min_delta))
        self.rising = mode == "max" or (mode == "auto" and _rises(monitor))
        self._warned = False

    def watched(self, logs: Logs | None) -> float | None:
        """The value after this epoch, or None."""
        logs = logs or {}
        if self.monitor in logs:
            return float(logs[self.monitor])
        known = sorted({*logs, *_measured(self.params)})
        if self.monitor not in known and not self._warned:  # else it is measured in other epochs
            self._warned = True
            hint = ("; pass validation_data or validation_split to fit."
                    if self.monitor.startswith("val_") and not self.params.get("validated") else "")
            hint = hint or nearest(self.monitor, known) or "."
            warnings.warn(f"{type(self).__name__} watches {self.monitor!r}, which is not measured"
                          f"{hint} Known: {', '.join(known)}", stacklevel=2)
        return None

    def better(self, value: float, than: float | None) -> bool:
        if than is None:
            return not math.isnan(value)
        if self.rising:
            return value - self.min_delta > than
        return value + self.min_delta < than


def _measured(params: Mapping[str, Any]) -> list[str]:
    """What this run measures, in epochs with validation."""
    return [name for name in params.get("metrics", ())
            if not name.startswith("val_") or params.get("validated")]


def _rises(monitor: str) -> bool:
    words = ("acc", "auc", "precision", "recall", "f1", "r2", "top_k", "iou", "cosine_similarity")
    return any(w in monitor for w in words) and "loss" not in monitor


class EarlyStopping(Monitor):
    """Stops when the watched value has not improved for `patience` epochs.

        zt.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    """

    @checked
    def __init__(self, monitor: str = "val_loss", min_delta: float = 0.0, patience: int = 0,
                 verbose: int = 0, mode: str = "auto", baseline: float | None = None,
                 restore_best_weights: bool = False, start_from_epoch: int = 0):
        super().__init__(monitor, mode, min_delta)
        self.patience = whole("EarlyStopping(patience=...)", patience)
        self.verbose = verbose
        self.baseline = (None if baseline is None else
                         number("EarlyStopping(baseline=...)", baseline))
        self.restore_best_weights = flag("EarlyStopping(restore_best_weights=...)",
                                         restore_best_weights)
        self.start_from_epoch = whole("EarlyStopping(start_from_epoch=...)", start_from_epoch)
        self.on_train_begin()

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best: float | None = None
        self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.watched(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self._keep(epoch)  # if nothing ever improves, the first epoch was best
        self.wait += 1
        if self.better(value, self.best):
            self.best = value
            self._keep(epoch)
            if self.baseline is None or self.better(value, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.program.stop_training = True

    def _keep(self, epoch: int) -> None:
        self.best_epoch = epoch
        if self.restore_best_weights:
            self.best_weights = self.program.get_weights()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch and self.verbose:
            self.say(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.best_weights is not None:
            if self.verbose:
                self.say(f"Restoring the weights of the best epoch: {self.best_epoch + 1}")
            self.program.set_weights(self.best_weights)


class ModelCheckpoint(Monitor):
    """Saves after epochs (or every `save_freq` batches).

    What is saved follows from the arguments: a path ending in `.zt` the compiled artifact;
    `save_weights_only=True` the weights; else a checkpoint that `load_checkpoint` resumes from.
    `filepath` may hold `{epoch}` (from one), `{batch}` and values: `"{epoch:02d}-{val_loss:.2f}"`.

        zt.callbacks.ModelCheckpoint("best.safetensors", save_best_only=True)
    """

    order = 2  # last, so that a file holds what other callbacks changed (the learning rate, say)

    @checked
    def __init__(self, filepath: str | os.PathLike[str], monitor: str = "val_loss",
                 verbose: int = 0, save_best_only: bool = False, save_weights_only: bool = False,
                 mode: str = "auto", save_freq: str | int = "epoch",
                 initial_value_threshold: float | None = None):
        super().__init__(monitor, mode)
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ConfigError(f"save_freq={save_freq!r} must be 'epoch' or a number of batches")
        self.filepath = os.fspath(filepath)
        if not self.filepath.endswith(".zt"):
            tensorfile.need_name(filepath, "checkpoints", ".safetensors", "name it .zt for the "
                                 "whole program, or .safetensors for weights (save_weights_only="
                                 "True) or for what load_checkpoint goes on from")
        self.verbose = verbose
        self.save_best_only = flag("ModelCheckpoint(save_best_only=...)", save_best_only)
        self.save_weights_only = flag("ModelCheckpoint(save_weights_only=...)", save_weights_only)
        self.save_freq = save_freq
        self.best = initial_value_threshold
        self._epoch = self._batches = 0

    def listens(self, hook: str) -> bool:
        batches = isinstance(self.save_freq, int)
        return super().listens(hook) and (batches or hook != "on_train_batch_end")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        tensorfile.writable(  # fails early
            self._path(1, 0, dict.fromkeys(self.params.get("metrics", ()), 0.0)))
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
                before = "" if self.best is None else f" from {spelled(self.best)}"
                self.say(f"Epoch {epoch + 1}: {self.monitor} improved{before} to {spelled(value)}, "
                         f"saving to {path}")
            self.best = value
        elif self.verbose:
            self.say(f"Epoch {epoch + 1}: saving to {path}")
        if path.endswith(".zt"):
            self.program.save(path)
        elif self.save_weights_only:
            self.program.save_weights(path)
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


class CSVLogger(Callback):
    """Writes the values of each epoch to a CSV file as it ends.

        zt.callbacks.CSVLogger("log.csv", append=True)
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
        tensorfile.writable(self.filename)
        self._columns = []
        if self.append and self.filename.exists():
            with open(self.filename, newline="") as file:  # go on under the columns that are there
                self._columns = next(csv.reader(file, delimiter=self.separator), [])
        self._file = open(self.filename, "a" if self.append else "w", newline="")  # noqa: SIM115

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        assert self._file is not None
        row: dict[str, Any] = {"epoch": epoch, **(logs or {})}
        writer = csv.writer(self._file, delimiter=self.separator, lineterminator="\n")
        try:
            if not self._columns:
                self._columns = list(dict.fromkeys([*row, *_measured(self.params)]))
                writer.writerow(self._columns)
            writer.writerow([row.get(name, "NA") for name in self._columns])
            self._file.flush()
        except OSError as error:
            raise tensorfile.unwritable(self.filename, error) from None

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ReduceLROnPlateau(Monitor):
    """Multiplies the learning rate by `factor` after `patience` epochs without improvement.

        zt.callbacks.ReduceLROnPlateau("val_loss", factor=0.2, patience=5, min_lr=1e-5)
    """

    @checked
    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10,
                 verbose: int = 0, mode: str = "auto", min_delta: float = 1e-4,
                 cooldown: int = 0, min_lr: float = 0.0):
        super().__init__(monitor, mode, min_delta)
        self.factor = number("ReduceLROnPlateau(factor=...)", factor, above=0)
        if self.factor >= 1:
            raise ConfigError(f"factor={factor} must lie between 0 and 1, such as 0.1")
        self.patience = whole("ReduceLROnPlateau(patience=...)", patience)
        self.verbose = verbose
        self.cooldown = whole("ReduceLROnPlateau(cooldown=...)", cooldown)
        self.min_lr = number("ReduceLROnPlateau(min_lr=...)", min_lr, least=0)
        self.on_train_begin()

    def set_program(self, program: Any) -> None:
        super().set_program(program)
        _ = program.learning_rate  # a schedule refuses now, not after an epoch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.best: float | None = None
        self.wait = 0
        self.resting = 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        rate = self.program.learning_rate
        if logs is not None:
            logs["learning_rate"] = rate
        value = self.watched(logs)
        if value is None:
            return
        if self.resting:
            self.resting -= 1
            self.wait = 0
        if self.better(value, self.best):
            self.best = value
            self.wait = 0
        elif not self.resting:
            self.wait += 1
            if self.wait >= self.patience and rate > self.min_lr:
                lower = max(rate * self.factor, self.min_lr)
                self.program.learning_rate = lower
                self.resting, self.wait = self.cooldown, 0
                if self.verbose:
                    self.say(f"Epoch {epoch + 1}: reducing the learning rate to {lower:.4g}")


class LearningRateScheduler(Callback):
    """Sets the learning rate of each epoch to `schedule(epoch, rate)`, or `schedule(epoch)`.

        zt.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    """

    @checked
    def __init__(self, schedule: Callable[..., float], verbose: int = 0):
        self.schedule = schedule
        self._takes_rate = len(inspect.signature(schedule).parameters) > 1
        self.verbose = verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        now = self.program.learning_rate
        rate = self.schedule(epoch, now) if self._takes_rate else self.schedule(epoch)
        self.program.learning_rate = rate
        if self.verbose:
            self.say(f"Epoch {epoch + 1}: learning rate {rate:.4g}")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = self.program.learning_rate


class LambdaCallback(Callback):
    """Functions as a callback.

        zt.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))
    """

    def __init__(self, **hooks: Callable[..., None]):
        for name, function in hooks.items():
            if name not in HOOKS:
                near = nearest(name, HOOKS) or "."
                raise ConfigError(f"LambdaCallback has no {name}{near} Known: {', '.join(HOOKS)}")
            if not callable(function):
                raise ConfigError(f"LambdaCallback({name}={function!r}) must be a function")
            setattr(self, name, function)


class TerminateOnNaN(Callback):
    """Stops quietly when the loss is not finite; without it, `fit` raises NonFiniteLoss."""

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.say(f"Batch {batch}: the loss is not finite, stopping")
            self.program.stop_training = True


# What others call a thing, and what does it here.
_ELSEWHERE = {
    "BackupAndRestore": "ModelCheckpoint(path), and program.load_checkpoint(path) before fit where "
                        "that file is there",
    "TensorBoard": "CSVLogger(path) and program.history.plot(path)",
    "ProgbarLogger": "verbose=1 of fit", "History": "what fit returns, and program.history"}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    here = _ELSEWHERE.get(name)
    hint = f"; here it is {here}" if here else nearest(name, [n for n in globals() if n[0] != "_"])
    raise AttributeError(f"module 'ztorch.callbacks' has no attribute {name!r}{hint}")
