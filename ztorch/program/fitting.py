"""From the arguments of `fit` to a training loop. Every argument is checked before it runs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch import dispatch
from ztorch.callbacks import TerminateOnNaN
from ztorch.callbacks.callback import Callback
from ztorch.config import flag, fraction
from ztorch.errors import ConfigError
from ztorch.feed import loops
from ztorch.feed.batches import BatchSource, batches, validation_batches
from ztorch.feed.device_batches import DeviceBatches
from ztorch.feed.other_sizes import OtherSizes
from ztorch.feed.stream_batches import StreamBatches
from ztorch.program.averages import take_averages
from ztorch.terminal.progress import Progress
from ztorch.training.history import History
from ztorch.training.hooks import Hooks, as_callbacks, own_progress
from ztorch.training.loop import TrainingLoop

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful

_USER = 6  # frames from a warning in this file up to the user's call of `fit`


def fit(program: Stateful, fitted: Any, x: Any, y: Any, *, batch_size: int | None, epochs: int,
        verbose: int | str, callbacks: Callback | Iterable[Callback] | None,
        validation_split: float, validation_data: Any, shuffle: bool,
        class_weight: Mapping[int, float] | None, sample_weight: Any, initial_epoch: int | None,
        steps_per_epoch: int | None, validation_batch_size: int | None,
        validation_steps: int | None, validation_freq: int | Collection[int],
        nan: str, as_given: bool) -> History:
    """Trains a program for `fitted`, the model that it belongs to, or a program that it is or
    trains for. With `as_given`, small batches from an iterator are steps of their own. The other
    arguments are those of `Program.fit`."""
    _check_fit(program, sample_weight, class_weight, nan, steps_per_epoch, validation_steps,
               validation_batch_size, validation_freq)
    rows = program.buckets.rows(batch_size)
    user_callbacks = as_callbacks(callbacks, _USER)
    for callback in user_callbacks:
        callback.before_fit(program)
    first_epoch = _first_epoch(program, initial_epoch, epochs)
    seed = program.seed if flag("shuffle", shuffle) else None
    progress = Progress(verbose, epochs)
    split = fraction("validation_split", validation_split or 0.0)
    feed = feed_for(program, x)
    train, validation = _sources(program, rows, x, y, sample_weight, class_weight, seed,
                                 split if validation_data is None else 0.0, validation_data, feed,
                                 as_given, counts=validation_steps is not None or bool(
                                     user_callbacks))
    if (validation_batch_size and validation_steps and validation is not None
            and not isinstance(validation, StreamBatches)):
        validation = validation.first(validation_steps * validation_batch_size)
        validation_steps = None
    with _only_fit_of(program):
        if not (program.resumed and first_epoch == program.epoch):
            program.history = History()
        program.start_at(first_epoch)
        hooks = Hooks([*user_callbacks, program.history], program, {
            "epochs": epochs, "steps": steps_per_epoch or train.steps, "verbose": verbose,
            "validated": validation is not None, "metrics": _score_names(program),
            "say": progress.say, "progress": progress,
            "fitted": program if isinstance(fitted, type(program)) else fitted})
        program.lend_weights()
        history = TrainingLoop(
            program=program, calls=feed or program.calls, batches=train, validation=validation,
            validation_calls=(validation.feed if isinstance(validation, DeviceBatches) else
                              program.calls),
            validation_freq=validation_freq, validation_steps=validation_steps,
            first_epoch=first_epoch, epochs=epochs, steps=steps_per_epoch,
            stop_at_nan=nan == "stop" and not any(
                isinstance(callback, TerminateOnNaN) for callback in user_callbacks),
            hooks=hooks, history=program.history,
            progress=own_progress(progress, user_callbacks)).run()
        if epochs > first_epoch:
            take_averages(program)
        return history


def evaluate(program: Stateful, evaluated: Any, x: Any, y: Any, batch_size: int | None,
             sample_weight: Any, verbose: int | str, steps: int | None,
             callbacks: Callback | Iterable[Callback] | None, as_given: bool) -> dict[str, float]:
    """The scores of a program by name, for `evaluated`, the model or program that was called. With
    `as_given`, small batches from an iterator are steps of their own. The other arguments are those
    of `Program.evaluate`."""
    rows = program.buckets.rows(batch_size)
    check_count("steps", steps)
    feed = feed_for(program, x)
    sizes = _sizes_evaluated(program, as_given, steps is not None or callbacks is not None)
    source = batches(program.adapter, rows, x, y, sample_weight, feed=feed, as_given=as_given,
                     other_sizes=sizes)
    progress, user_callbacks = Progress(verbose), as_callbacks(callbacks, _USER)
    hooks = Hooks(user_callbacks, program, {
        "steps": steps or source.steps, "verbose": verbose, "say": progress.say,
        "progress": progress,
        "fitted": program if isinstance(evaluated, type(program)) else evaluated})
    means = loops.evaluate(feed or program.calls, source, program,
                           own_progress(progress, user_callbacks), steps=steps, hooks=hooks)
    assert means is not None  # only a loop that is told to stop returns None
    return means


def feed_for(program: Stateful, x: Any) -> Any:
    """A feed of the program with the tensors of x, which are on its device; None if x contains no
    such tensors."""
    return dispatch.feed(program, x) if dispatch.is_tensor(x) else None


def check_count(name: str, value: Any) -> None:
    """Raises an error unless a count is None or a positive integer."""
    if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
        raise ConfigError(f"{name}={value!r} must be a positive integer")


def _check_fit(program: Stateful, sample_weight: Any, class_weight: Mapping[int, float] | None,
               nan: str, steps_per_epoch: int | None, validation_steps: int | None,
               validation_batch_size: int | None, validation_freq: int | Collection[int]) -> None:
    """Raises an error for arguments of `fit` that are wrong whatever the data."""
    if "w" not in program.executable.functions["train"].inputs and (
            sample_weight is not None or class_weight):
        raise ConfigError("the train_step of this model ignores the weights of rows; compute its "
                          "loss with self.compute_loss(x, y, y_pred), which applies them")
    if nan not in ("stop", "ignore"):
        raise ConfigError(f"nan={nan!r} must be 'stop' or 'ignore'")
    check_count("steps_per_epoch", steps_per_epoch)
    check_count("validation_steps", validation_steps)
    check_count("validation_batch_size", validation_batch_size)
    if not isinstance(validation_freq, Collection) or isinstance(validation_freq, str):
        check_count("validation_freq", validation_freq)


def _score_names(program: Stateful) -> list[str]:
    """The names of scores in a history: those of training, then those of validation."""
    validates = "evaluate" in program.executable.functions
    return [*program.score_names("train"), *(
        f"val_{name}" for name in (program.score_names("evaluate") if validates else ()))]


def _sizes_evaluated(program: Stateful, as_given: bool, counts: bool) -> OtherSizes | None:
    """Evaluates batches of more rows as one step each, where that matters: batches are counted,
    or their rows are combined. Otherwise the parts of a larger batch have its scores, without
    another compile."""
    whole = "evaluate" in program.metadata.whole_batches
    return program.other_sizes("evaluate", more_rows=as_given and (counts or whole))


def _first_epoch(program: Stateful, initial_epoch: int | None, epochs: int) -> int:
    """The first epoch: that of the checkpoint after `load_checkpoint`, otherwise 0."""
    if not isinstance(epochs, (int, np.integer)) or epochs < 0:
        raise ConfigError(f"epochs={epochs!r} must be an integer of at least 0")
    if initial_epoch is None:
        if program.resumed and epochs <= program.epoch:
            warnings.warn(f"the checkpoint is already at epoch {program.epoch}; pass "
                          f"epochs above {program.epoch}, or initial_epoch=0 to restart at 0",
                          stacklevel=_USER)
        return program.epoch if program.resumed else 0
    if not isinstance(initial_epoch, (int, np.integer)) or initial_epoch < 0:
        raise ConfigError(f"initial_epoch={initial_epoch!r} must be an integer of at least 0")
    return int(initial_epoch)


def _sources(program: Stateful, batch_size: int, x: Any, y: Any, sample_weight: Any,
             class_weight: Mapping[int, float] | None, seed: int | None, split: float,
             validation_data: Any, feed: Any, as_given: bool, counts: bool
             ) -> tuple[BatchSource, BatchSource | None]:
    """The batches for training, and those for validation, whose number counts or not."""
    adapter = program.adapter
    train = batches(adapter, batch_size, x, y, sample_weight, None if split else class_weight,
                    seed=seed, feed=feed, as_given=as_given,
                    other_sizes=program.other_sizes("train", more_rows=as_given))
    validation = validation_batches(adapter, batch_size, validation_data,
                                    functools.partial(feed_for, program), as_given,
                                    _sizes_evaluated(program, as_given, counts))
    if split:
        if isinstance(train, StreamBatches):
            raise ConfigError("validation_split needs arrays; pass validation_data with an "
                              "iterator")
        train, validation = train.split(split)
        # After the split: as in Keras, class weights do not apply in validation.
        train.weigh_classes(class_weight)
    return train, validation


@contextmanager
def _only_fit_of(program: Stateful) -> Iterator[None]:
    """Raises an error if another thread trains the program."""
    if not program.fit_lock.acquire(blocking=False):
        raise ConfigError("this program is already being trained; wait for that fit to end")
    try:
        yield
    finally:
        program.fit_lock.release()
