"""The loop of training: steps, epochs, validation; what each step costs beside the native call
is written here, and kept to a few microseconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ztorch.errors import NonFiniteLoss
from ztorch.feed.batches import Batches
from ztorch.feed.calls import Calls, Meter, evaluate
from ztorch.progress import Progress
from ztorch.training.history import History
from ztorch.training.hooks import Hooks

if TYPE_CHECKING:
    from ztorch.runtime.running import BoundCall


class Interrupt:
    """The first Ctrl-C asks the loop to stop after the step at work; the second one raises.

    Only the main thread hears signals, and only Python's own handler is replaced: a program that
    handles Ctrl-C itself keeps doing so.
    """

    def __init__(self) -> None:
        self.asked = False
        self._ours = False

    def __enter__(self) -> Interrupt:
        if (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
            signal.signal(signal.SIGINT, self._hear)
            self._ours = True
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *exception: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class Trainee(Protocol):
    """What the loop reads and counts on the program that it trains."""

    stop_training: bool
    epoch: int
    epochs_trained: int

    def learning_rate_or_none(self) -> float | None: ...


@dataclass
class Fit:
    """One run of `fit`, all arguments checked."""

    program: Trainee
    calls: Calls
    batches: Batches
    validation: Batches | None
    validation_freq: int | Collection[int]
    validation_steps: int | None
    first: int
    epochs: int
    steps: int | None
    watch: bool  # raise when the loss is not finite
    hooks: Hooks
    history: History
    progress: Progress

    def run(self) -> History:
        """Trains, and gives the history."""
        logs: dict[str, float] = {}
        with self.calls.lend("train") as call, Interrupt() as interrupt:
            self.hooks.call("on_train_begin", {})
            try:
                for epoch in range(self.first, self.epochs):
                    if self.program.stop_training or interrupt.asked:
                        break
                    logs = self._epoch(epoch, call, interrupt)
            except NonFiniteLoss as error:
                error.history = self.history  # type: ignore[attr-defined]
                self.hooks.call("on_train_end", logs)
                raise
            finally:
                self.progress.close()
            if interrupt.asked:
                self.history.interrupted = True
            self.hooks.call("on_train_end", logs)
        return self.history

    def _epoch(self, epoch: int, call: BoundCall, interrupt: Interrupt) -> dict[str, float]:
        program, progress, hooks = self.program, self.progress, self.hooks
        hooks.call("on_epoch_begin", epoch, {})
        progress.begin(epoch, self.steps or self.batches.steps)
        logs, done = self._steps(epoch, call, interrupt)
        if interrupt.asked:
            progress.say(f"Interrupted in epoch {epoch + 1} after step {done}; the weights are "
                         "kept as they are")
            return logs
        program.epoch = epoch + 1
        program.epochs_trained += 1
        if self.validation is not None and self._due(epoch):
            hooks.call("on_test_begin", {})
            measured = evaluate(self.calls, self.validation, stop=lambda: interrupt.asked,
                                steps=self.validation_steps)
            if measured is None:
                progress.say(f"Interrupted in the validation of epoch {epoch + 1}; the weights "
                             "are kept as they are")
            else:
                hooks.call("on_test_end", dict(measured))
                logs |= {f"val_{name}": value for name, value in measured.items()}
        hooks.call("on_epoch_end", epoch, logs)
        progress.end(logs)
        return logs

    def _steps(self, epoch: int, call: BoundCall,
               interrupt: Interrupt) -> tuple[dict[str, float], int]:
        """One epoch's steps: the hot loop."""
        program, progress, hooks, watch = self.program, self.progress, self.hooks, self.watch
        begins, ends = hooks.has("on_train_batch_begin"), hooks.has("on_train_batch_end")
        live = progress.live
        meter = Meter(call)
        step = 0
        for _, weight in self.batches.epoch(call.inputs, program.epochs_trained, self.steps):
            if begins:
                hooks.call("on_train_batch_begin", step, {})
            if weight:  # rows that all weigh nothing have nothing to teach
                call()
                loss = meter.add(weight)
                if loss - loss != 0.0 and watch:  # NaN or infinite
                    raise self._not_finite(call, loss, epoch, step)
            if ends:
                hooks.call("on_train_batch_end", step, meter.means())
            step += 1
            if live and perf_counter() > progress.due:
                progress.draw(step, meter.means())
            if program.stop_training or interrupt.asked:
                break
        progress.trained(step)
        return meter.means(), step

    def _due(self, epoch: int) -> bool:
        if isinstance(self.validation_freq, int):
            return (epoch + 1) % self.validation_freq == 0
        return epoch + 1 in self.validation_freq

    def _not_finite(self, call: BoundCall, loss: float, epoch: int, step: int) -> NonFiniteLoss:
        """Names the place, and what to try, from what the batch and the program show."""
        tips = []
        for name, x in call.inputs.items():
            if name[0] == "x" and x.dtype.kind == "f":
                what = f"x[{name[2:]!r}]" if name[2:] else "x"
                bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
                if bad.any():
                    tips.append(f"row {int(np.argmax(bad))} of this batch of {what} is not finite: "
                                "clean the data")
                elif (largest := float(np.abs(x).max())) > 30:
                    tips.append(f"{what} reaches {largest:g}: scale it to about 1")
        rate = self.program.learning_rate_or_none()
        lower = "" if rate is None else f" (it is {rate:g})"
        tips += [f"lower the learning rate{lower}", "clip gradients with clipnorm=1.0"]
        return NonFiniteLoss(
            f"the loss became {loss} in epoch {epoch + 1}, step {step + 1}; try: "
            f"{'; '.join(tips)}. The weights hold what that step made of them: load a checkpoint, "
            "or compile again, before going on. nan='ignore' trains on regardless")
