"""Callbacks that call a function, and the one that stops at NaN."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

from ztorch.arguments import checked
from ztorch.callbacks.callback import HOOKS, Callback, Logs
from ztorch.config import number
from ztorch.errors import ConfigError, nearest


class LearningRateScheduler(Callback):
    """Sets the learning rate before each epoch.

    Args:
        schedule: `schedule(epoch, rate)` or `schedule(epoch)` returns the rate of an epoch, counted
            from 0.
        verbose: 1 prints each rate. Default: `0`.

    Examples:
        >>> callback = LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    """

    @checked
    def __init__(self, schedule: Callable[..., float], verbose: int = 0):
        self.schedule = schedule
        self._takes_rate = len(inspect.signature(schedule).parameters) > 1
        self.verbose = verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        now = self.program.learning_rate
        rate = self.schedule(epoch, now) if self._takes_rate else self.schedule(epoch)
        number(f"the result of LearningRateScheduler's schedule for epoch {epoch}", rate, least=0)
        self.program.learning_rate = rate
        if self.verbose:
            self.say(f"Epoch {epoch + 1}: learning rate {rate:.4g}")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = self.program.learning_rate


class LambdaCallback(Callback):
    """Turns functions into a callback.

    Args:
        **hooks: Functions, by the name of their hook, such as on_epoch_end.

    Raises:
        ConfigError: There is no such hook.

    Examples:
        >>> callback = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))
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
    """Ends training when the loss is not finite. Without it, `fit` raises NonFiniteLoss.

    Examples:
        >>> callback = TerminateOnNaN()
    """

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.say(f"Batch {batch}: the loss is not finite, stopping")
            self.program.stop_training = True
