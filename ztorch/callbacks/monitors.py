"""Callbacks that watch a score: EarlyStopping and ReduceLROnPlateau."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.callbacks.callback import Callback, Logs
from ztorch.config import flag, number, whole
from ztorch.errors import ConfigError, nearest


class Monitor(Callback):
    """Base class of callbacks that watch one score.

    Args:
        monitor: The name of the score, such as "val_loss" or "accuracy". Default: `"val_loss"`.
        mode: "min" or "max" is the direction of improvement; "auto" derives it from the name.
            Default: `"auto"`.
        min_delta: The smallest change that counts as an improvement. Default: `0.0`.

    Examples:
        >>> Monitor("val_accuracy").better(0.8, than=0.7), Monitor("loss").better(0.8, than=0.7)
        (True, False)
    """

    def __init__(self, monitor: str = "val_loss", mode: str = "auto", min_delta: float = 0.0):
        if mode not in ("auto", "min", "max"):
            raise ConfigError(f"mode={mode!r} must be 'auto', 'min' or 'max'")
        if not isinstance(monitor, str):
            raise ConfigError(f"{type(self).__name__}(monitor={monitor!r}) must be a name, such as "
                              "'val_loss'")
        self.monitor = monitor
        self.min_delta = abs(number(f"{type(self).__name__}(min_delta=...)", min_delta))
        self.higher_is_better = mode == "max" or (
            mode == "auto" and _higher_is_better(monitor))
        self._warned = False

    def watched(self, logs: Logs | None) -> float | None:
        """The value of the watched score, or None if this epoch did not measure it."""
        logs = logs or {}
        if self.monitor in logs:
            return one_number(f"{type(self).__name__}(monitor=...)", self.monitor,
                              logs[self.monitor])
        known = sorted({*logs, *measured(self.params)})
        if self.monitor not in known and not self._warned:  # other epochs may measure it
            self._warned = True
            hint = ("; pass validation_data or validation_split to fit."
                    if self.monitor.startswith("val_") and not self.params.get("validated") else "")
            hint = hint or nearest(self.monitor, known) or "."
            warnings.warn(f"{type(self).__name__} watches {self.monitor!r}, which is not measured"
                          f"{hint} Known: {', '.join(known)}", stacklevel=2)
        return None

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than the best one so far, which is None at first."""
        if than is None:
            return not math.isnan(value)
        if self.higher_is_better:
            return value - self.min_delta > than
        return value + self.min_delta < than


def one_number(argument: str, name: str, score: Any) -> float:
    """A score that has to be one number."""
    if np.ndim(score):
        raise ConfigError(f"{argument} is {name!r}, which has {np.size(score)} numbers, and this "
                          "takes one: give the metric an average, or one threshold")
    return float(score)


def measured(params: Mapping[str, Any]) -> list[str]:
    """The names of all scores that this run measures."""
    return [name for name in params.get("metrics", ())
            if not name.startswith("val_") or params.get("validated")]


def _higher_is_better(monitor: str) -> bool:
    words = ("acc", "auc", "precision", "recall", "f1", "r2", "top_k", "iou", "cosine_similarity")
    return any(w in monitor for w in words) and "loss" not in monitor


class EarlyStopping(Monitor):
    """Ends training when a score has not improved for some epochs.

    Args:
        monitor: The name of the score. Default: `"val_loss"`.
        min_delta: The smallest change that counts as an improvement. Default: `0.0`.
        patience: Epochs to wait for an improvement. Default: `0`.
        verbose: 1 prints when training ends. Default: `0`.
        mode: "min" or "max" is the direction of improvement; "auto" derives it from the name.
            Default: `"auto"`.
        baseline: A score to reach; training ends otherwise. None means no baseline. Default:
            `None`.
        restore_best_weights: Whether to restore the weights of the best epoch at the end. Default:
            `False`.
        start_from_epoch: The first epoch that counts, from 0. Default: `0`.

    Examples:
        >>> callback = EarlyStopping("val_loss", patience=3, restore_best_weights=True)
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
        self.wait = 0  # epochs without improvement
        self.stopped_epoch = 0
        self.best: float | None = None
        self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self.watched(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self._keep(epoch)  # without any improvement, the first epoch is the best
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


class ReduceLROnPlateau(Monitor):
    """Lowers the learning rate when a score stops improving.

    Args:
        monitor: The name of the score. Default: `"val_loss"`.
        factor: Factor of each reduction, between 0 and 1. Default: `0.1`.
        patience: Epochs to wait for an improvement. Default: `10`.
        verbose: 1 prints each new rate. Default: `0`.
        mode: "min" or "max" is the direction of improvement; "auto" derives it from the name.
            Default: `"auto"`.
        min_delta: The smallest change that counts as an improvement. Default: `0.0001`.
        cooldown: Epochs to wait after a reduction before counting again. Default: `0`.
        min_lr: The lowest learning rate. Default: `0.0`.

    Examples:
        >>> callback = ReduceLROnPlateau("val_loss", factor=0.2, patience=5, min_lr=1e-5)
    """

    @checked
    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10,
                 verbose: int = 0, mode: str = "auto", min_delta: float = 1e-4,
                 cooldown: int = 0, min_lr: float = 0.0):
        super().__init__(monitor, mode, min_delta)
        self.factor = number("ReduceLROnPlateau(factor=...)", factor, above=0)
        if self.factor >= 1:
            raise ConfigError(f"factor={factor} must be between 0 and 1, such as 0.1")
        self.patience = whole("ReduceLROnPlateau(patience=...)", patience)
        self.verbose = verbose
        self.cooldown = whole("ReduceLROnPlateau(cooldown=...)", cooldown)
        self.min_lr = number("ReduceLROnPlateau(min_lr=...)", min_lr, least=0)
        self.on_train_begin()

    def set_program(self, program: Any) -> None:
        super().set_program(program)
        program.learning_rate = program.learning_rate  # raises now if there is a schedule

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.best: float | None = None
        self.wait = 0
        self.cooldown_left = 0  # epochs

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        rate = self.program.learning_rate
        if logs is not None:
            logs["learning_rate"] = rate
        value = self.watched(logs)
        if value is None:
            return
        if self.cooldown_left:
            self.cooldown_left -= 1
            self.wait = 0
        if self.better(value, self.best):
            self.best = value
            self.wait = 0
        elif not self.cooldown_left:
            self.wait += 1
            if self.wait >= self.patience and rate > self.min_lr:
                lower = max(rate * self.factor, self.min_lr)
                self.program.learning_rate = lower
                self.cooldown_left, self.wait = self.cooldown, 0
                if self.verbose:
                    self.say(f"Epoch {epoch + 1}: reducing the learning rate to {lower:.4g}")
