"""The base of callbacks: the places where `fit` calls out."""

from __future__ import annotations

from typing import Any

Logs = dict[str, float]


class Callback:
    """Base of callbacks: override what you need, the rest costs nothing.

        class Stopwatch(zt.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                print(epoch, logs["loss"], self.program.learning_rate)

    `self.program` is the program in training (`self.model` is the same), `self.params` holds
    epochs, steps, verbose and the known metric names. Values put into `logs` reach the history.
    """

    program: Any = None
    params: dict[str, Any] = {}
    order = 0  # callbacks of a lower order run first; the history is 1

    @property
    def model(self) -> Any:
        return self.program

    def set_program(self, program: Any) -> None:
        self.program = program

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """After the last epoch, also after Ctrl-C and after a loss that is not finite."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Before an epoch, counted from zero."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """After an epoch and its validation."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Before a step."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After a step, with the means of the epoch so far."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Before validation."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """After validation, with its values."""

    def listens(self, hook: str) -> bool:
        """Whether this callback overrides the hook; nothing is prepared for hooks nobody hears."""
        own = getattr(self, hook)
        return getattr(own, "__func__", own) is not getattr(Callback, hook)

    def say(self, text: str) -> None:
        """Prints a line clear of the progress bar."""
        self.params.get("say", print)(text)


HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
