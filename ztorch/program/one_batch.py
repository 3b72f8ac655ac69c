"""One call on at most a batch of rows: a training step, or the scores of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch import dispatch
from ztorch.feed.adapter import rows_of
from ztorch.feed.device_batches import DeviceBatches
from ztorch.feed.scores import EpochScores

if TYPE_CHECKING:
    from ztorch.program.stateful import Stateful

Scores = float | list[Any] | dict[str, Any]  # some metrics are arrays


def run_batch(program: Stateful, function: str, x: Any, y: Any, sample_weight: Any,
              class_weight: Mapping[int, float] | None, return_dict: bool) -> Scores:
    """Runs "train" or "evaluate" once. The other arguments are those of `train_on_batch`."""
    program.need(function)
    adapter = program.adapter
    feed = dispatch.feed(program, x) if dispatch.is_tensor(x) else None
    if feed is not None:
        return _run_tensors(program, function, feed, DeviceBatches.of(
            feed, program.batch_size, x, y, sample_weight, class_weight), return_dict)
    x, y = adapter.with_targets(x, y)
    columns = adapter.inputs(x)
    rows = rows_of(columns)
    columns |= adapter.targets(y, columns)
    columns |= adapter.weights_of_outputs(sample_weight, rows)
    row_weights = adapter.weights(sample_weight, class_weight, columns, rows)
    program.need_one_batch(rows)
    adapter.need_whole_batches(rows, program.batch_size)
    with program.calls.fitting(function, adapter.sizes(columns)) as call:
        scores = EpochScores(program, function)
        weight = adapter.stage(call, columns, row_weights)
        if weight:
            call()
            scores.add(call, weight)
            if function == "train":
                program.lend_weights()
    return as_scores(scores.means(), return_dict)


def _run_tensors(program: Stateful, function: str, feed: Any, batches: DeviceBatches,
                 return_dict: bool) -> Scores:
    """The same for tensors, on their device."""
    program.need_one_batch(batches.rows)
    with feed.of_each_bucket(function) as calls:
        scores = EpochScores(program, function)
        for call, _, weight, *_ in batches.epoch(calls):
            if weight:
                call()
                scores.add(call, weight)
                if function == "train":
                    program.lend_weights()
    return as_scores(scores.means(), return_dict)


def as_scores(means: dict[str, Any], as_dict: bool) -> Scores:
    """Scores in Keras' form: only the loss, a list, or a dict."""
    if as_dict:
        return means
    values = list(means.values())
    return values if len(values) > 1 else values[0]
