"""ProgbarLogger, which shows the progress of a run."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from ztorch.callbacks.callback import Callback, Logs
from ztorch.terminal.progress import Progress


class ProgbarLogger(Callback):
    """Shows the progress of `fit`, `evaluate` and `predict` in their place: a bar on terminals and
    in notebooks, lines elsewhere. The `verbose` argument of the run sets the detail; custom loops
    set it through `set_params`.

    Examples:
        >>> bar = ProgbarLogger()
        >>> bar.set_params({"verbose": 2, "epochs": 1, "steps": 4})
        >>> bar.on_train_begin(); bar.on_epoch_begin(0)
        >>> bar.on_epoch_end(0, {"loss": 0.25})  # doctest: +ELLIPSIS
        Epoch 1/1 - 4/4 - ...s/step - loss: 0.2500
    """

    shows_progress = True
    order = 1  # it also shows what other callbacks add to the scores

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._training = False
        self._done = 0  # steps of the epoch

    def _make_bar(self) -> None:
        self._bar = self.params.get("progress") or Progress(
            self.params.get("verbose", 1), self.params.get("epochs") if self._training else None)

    def _begin(self, epoch: int = 0) -> None:
        if self._bar is not None:
            self._done = 0
            self._bar.begin(epoch, self.params.get("steps"))

    def _draw(self, batch: int, logs: dict[str, Any] | None) -> None:
        self._done = batch + 1
        if self._bar is not None and self._bar.live and perf_counter() > self._bar.due:
            self._bar.draw(self._done, logs or {})

    def _end(self, logs: Logs | None = None) -> None:
        if self._bar is not None:
            self._bar.trained(self._done)
            self._bar.end(logs or {})

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._training = True
        self._make_bar()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._begin(epoch)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._draw(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._end(logs)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._bar is not None:
            self._bar.close()
        self._training = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        if not self._training:  # validation is part of its epoch
            self._make_bar()
            self._begin()

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self._training:
            self._draw(batch, logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        if not self._training:
            self._end(logs)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._make_bar()
        self._begin()

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._draw(batch, None)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._end()
