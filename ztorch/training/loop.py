"""The training loop: epochs, steps and validation.

Each step is one native call, or part of a call that runs many (`feed/stretches.py`). In the latter
case the Python code in this file runs only about twenty times a second.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ztorch.errors import NonFiniteLoss
from ztorch.feed.batches import BatchSource
from ztorch.feed.call_pool import BorrowedCalls, Calls
from ztorch.feed.loops import evaluate
from ztorch.feed.scores import EpochScores
from ztorch.feed.under_way import UnderWay
from ztorch.terminal.progress import Progress
from ztorch.training.history import History
from ztorch.training.hooks import Hooks

if TYPE_CHECKING:
    from ztorch.feed.staging import Batch
    from ztorch.feed.stretches import Stretch
    from ztorch.runtime.loaded_program import BoundCall


class Interrupt:
    """Handles Ctrl-C: the first stops the loop after the current step, the second raises.

    Only the main thread gets signals. Only Python's own handler is replaced: an application that
    handles Ctrl-C itself continues to do so.
    """

    def __init__(self) -> None:
        self.requested = False
        self._installed = False

    def __enter__(self) -> Interrupt:
        if (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
            signal.signal(signal.SIGINT, self._on_signal)
            self._installed = True
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *exception: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class Trainable(Protocol):
    """The parts of a program that the loop reads and sets."""

    stop_training: bool
    epoch: int
    epochs_trained: int

    def score_names(self, function: str) -> list[str]: ...

    def results(self, totals: Mapping[str, np.ndarray]) -> dict[str, Any]: ...

    def learning_rate_or_none(self) -> float | None: ...


@dataclass
class TrainingLoop:
    """One run of `fit`, with checked arguments."""

    program: Trainable
    calls: Calls
    batches: BatchSource
    validation: BatchSource | None
    validation_calls: Calls
    validation_freq: int | Collection[int]  # every how many epochs, or after which (from 1)
    validation_steps: int | None  # batches of validation; None: all
    first_epoch: int
    epochs: int  # the number of the last epoch
    steps: int | None  # per epoch; None: one pass over the data
    stop_at_nan: bool  # raise when the loss is not finite
    hooks: Hooks
    history: History
    progress: Progress

    def run(self) -> History:
        """Trains, and returns the history."""
        logs: dict[str, Any] = {}
        with self.calls.of_each_bucket("train") as calls, Interrupt() as interrupt:
            self.hooks.call("on_train_begin", {})
            try:
                for epoch in range(self.first_epoch, self.epochs):
                    if self.program.stop_training or interrupt.requested:
                        break
                    logs = self._epoch(epoch, calls, interrupt)
            except NonFiniteLoss as error:
                error.history = self.history  # type: ignore[attr-defined]
                self.hooks.call("on_train_end", logs)
                raise
            finally:
                self.progress.close()
            if interrupt.requested:
                self.history.interrupted = True
            self.hooks.call("on_train_end", logs)
        return self.history

    def _epoch(self, epoch: int, calls: BorrowedCalls,
               interrupt: Interrupt) -> dict[str, Any]:
        program, progress, hooks = self.program, self.progress, self.hooks
        hooks.call("on_epoch_begin", epoch, {})
        progress.begin(epoch, self.steps or self.batches.steps)
        logs, steps = self._steps(epoch, calls, interrupt)
        if interrupt.requested:
            progress.say(f"Interrupted in epoch {epoch + 1} after step {steps}; weights are "
                         "kept as they are")
            return logs
        program.epoch = epoch + 1
        program.epochs_trained += 1
        if self.validation is not None and self._validates_after(epoch):
            scores = evaluate(self.validation_calls, self.validation, program,
                              stop=lambda: interrupt.requested, steps=self.validation_steps,
                              hooks=hooks)
            if scores is None:
                progress.say(f"Interrupted in the validation of epoch {epoch + 1}; the weights "
                             "are kept as they are")
            else:
                logs |= {f"val_{name}": value for name, value in scores.items()}
        hooks.call("on_epoch_end", epoch, logs)
        progress.end(logs)
        return logs

    def _steps(self, epoch: int, calls: BorrowedCalls,
               interrupt: Interrupt) -> tuple[dict[str, Any], int]:
        """Runs the steps of an epoch: the hot loop. Returns the scores and the number of steps."""
        program, progress, hooks = self.program, self.progress, self.hooks
        begins, ends = hooks.has("on_train_batch_begin"), hooks.has("on_train_batch_end")
        ahead = not ends
        live, stop_at_nan = progress.live, self.stop_at_nan
        scores = EpochScores(program, "train", stop_at_nan)
        step = 0

        def score(first_step: int, batch: Batch | Stretch, begun: int) -> None:
            loss = batch.add_to(scores)
            if loss - loss != 0.0 and stop_at_nan:  # NaN or infinite
                raise self._not_finite(batch.call, loss, epoch, first_step + batch.steps - 1,
                                       begun)

        under_way = UnderWay(score)
        in_a_row = None if begins or ends else scores  # hooks need each batch separately
        for batch in self.batches.epoch(calls, program.epochs_trained, self.steps, in_a_row):
            if begins:
                hooks.call("on_train_batch_begin", step, {})
            if batch.weight:  # otherwise no row of the batch counts
                under_way.begin(step, batch, ahead)
            if ends:
                hooks.call("on_train_batch_end", step, scores.means())
            step += batch.steps
            if live and perf_counter() > progress.due:
                progress.draw(step, scores.means())
            if program.stop_training or interrupt.requested:
                break
        under_way.finish()
        progress.trained(step)
        return scores.means(), step

    def _validates_after(self, epoch: int) -> bool:
        if isinstance(self.validation_freq, int):
            return (epoch + 1) % self.validation_freq == 0
        return epoch + 1 in self.validation_freq

    def _not_finite(self, call: BoundCall, loss: float, epoch: int, step: int,
                    begun: int) -> NonFiniteLoss:
        """The error for a loss that is not finite, with advice from the batch and the program.
        `begun` steps after it have already started."""
        fixes = []
        for name, batch in call.inputs.items():
            x = np.asarray(batch)  # it may be a tensor
            if name[0] == "x" and x.dtype.kind == "f":
                argument = f"x[{name[2:]!r}]" if name[2:] else "x"
                bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
                if bad.any():
                    fixes.append(f"row {int(np.argmax(bad))} of this batch of {argument} is not "
                                 "finite: clean the data")
                elif (largest := float(np.abs(x).max())) > 30:
                    fixes.append(f"{argument} reaches {largest:g}: scale it to about 1")
        rate = self.program.learning_rate_or_none()
        lower = "" if rate is None else f" (it is {rate:g})"
        fixes += [f"lower the learning rate{lower}", "clip gradients with clipnorm=1.0"]
        next_one = " and the next" if begun else ""
        return NonFiniteLoss(
            f"the loss became {loss} in epoch {epoch + 1}, step {step + 1}; try: "
            f"{'; '.join(fixes)}. The weights were updated by that step{next_one}: load a "
            "checkpoint, or compile again, before you continue. nan='ignore' continues despite it")
