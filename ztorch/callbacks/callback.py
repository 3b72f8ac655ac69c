"""The base class of callbacks: the hooks that `fit`, `evaluate` and `predict` call."""

from __future__ import annotations

import warnings
from typing import Any

from ztorch.errors import nearest

Logs = dict[str, Any]  # scores by name: numbers, and arrays of metrics that have several
SHORTER = {"on_train_batch_begin": "on_batch_begin",  # other names of hooks, as in Keras
           "on_train_batch_end": "on_batch_end"}


class Callback:
    """Base class of callbacks. Override the hooks you need; the others cost nothing.

    `self.program` is the program that runs. `self.model` is the model whose `fit` was called, or
    the program. `self.params` holds epochs, steps, verbose and the names of metrics. Values that a
    hook adds to `logs` appear in the history.

    Examples:
        >>> class Rates(Callback):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print(epoch, logs["loss"], self.program.learning_rate)
        >>> Rates().on_train_begin()  # a hook that it leaves alone
    """

    program: Any = None  # the program that runs
    params: dict[str, Any] = {}  # epochs, steps, verbose, and the names of metrics
    shows_progress = False  # whether it shows the progress in place of `fit`
    order = 0  # callbacks with a lower order run first; the history has 1

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        hooks = [*(name for name in vars(Callback) if name.startswith("on_")), *SHORTER.values()]
        for name in vars(cls):
            hint = name.startswith("on_") and name not in hooks and nearest(name, hooks, 0.85)
            if hint:
                warnings.warn(f"{cls.__name__} defines {name}, which nothing calls{hint}",
                              stacklevel=2)

    @property
    def model(self) -> Any:
        """The model whose `fit` or `evaluate` was called, or the program."""
        return self.params.get("fitted", self.program)

    def before_fit(self, program: Any) -> None:
        """Called by `fit` before it chooses the first epoch."""

    def set_program(self, program: Any) -> None:
        """Called by `fit` with the program, before training."""
        self.program = program

    def set_params(self, params: dict[str, Any]) -> None:
        """Called by `fit` with its arguments, before training."""
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Called before the first epoch.

        Args:
            logs: Empty. Default: `None`.
        """

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Called after the last epoch, and after Ctrl-C or a non-finite loss.

        Args:
            logs: The scores of the last epoch. Default: `None`.
        """

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Called before an epoch.

        Args:
            epoch: Its number, from 0.
            logs: Empty. Default: `None`.
        """

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch and its validation.

        Args:
            epoch: Its number, from 0.
            logs: The scores of the epoch; those of validation are called val_NAME. Default: `None`.
        """

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a training step.

        Args:
            batch: The index of the step in its epoch, from 0.
            logs: Empty. Default: `None`.
        """

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a training step.

        Args:
            batch: The index of the step in its epoch, from 0.
            logs: The mean scores of the epoch so far. Default: `None`.
        """

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Called before validation, and by `evaluate`.

        Args:
            logs: Empty. Default: `None`.
        """

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Called after validation, and by `evaluate`.

        Args:
            logs: The scores of validation. Default: `None`.
        """

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a batch of validation or of `evaluate`.

        Args:
            batch: Its index, from 0.
            logs: Empty. Default: `None`.
        """

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a batch of validation or of `evaluate`.

        Args:
            batch: Its index, from 0.
            logs: The mean scores so far. Default: `None`.
        """

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Called by `predict` before the first batch.

        Args:
            logs: Empty. Default: `None`.
        """

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Called by `predict` after the last batch.

        Args:
            logs: Empty. Default: `None`.
        """

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called by `predict` before a batch.

        Args:
            batch: Its index, from 0.
            logs: Empty. Default: `None`.
        """

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Called by `predict` after a batch.

        Args:
            batch: Its index, from 0.
            logs: Its `outputs`. Default: `None`.
        """

    def listens(self, hook: str) -> bool:
        """Whether this callback overrides a hook: `fit` calls no others."""
        method = self.method(hook)
        return getattr(method, "__func__", method) is not getattr(Callback, hook)

    def method(self, hook: str) -> Any:
        """The method that `fit` calls for a hook: the one with its name, or with Keras' shorter
        name if the class defines only that."""
        method = getattr(self, hook)
        overridden = getattr(method, "__func__", method) is not getattr(Callback, hook)
        return method if overridden else getattr(self, SHORTER.get(hook, hook), method)

    def say(self, text: str) -> None:
        """Prints a line above the progress bar."""
        self.params.get("say", print)(text)


HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
