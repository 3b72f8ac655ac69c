"""Prediction, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ztorch.callbacks.callback import Callback
from ztorch.feed import loops
from ztorch.feed.array_batches import ArrayBatches
from ztorch.feed.datasets import as_stream
from ztorch.feed.results import Outputs, Results
from ztorch.feed.sources import is_stream
from ztorch.feed.stream_batches import StreamBatches
from ztorch.program.fitting import check_count
from ztorch.terminal.progress import Progress
from ztorch.training.hooks import Hooks, as_callbacks, own_progress

if TYPE_CHECKING:
    from ztorch.feed.batches import BatchSource
    from ztorch.program.stateful import Stateful

_USER = 5  # frames from a warning in `as_callbacks` up to the user's call of `predict`


def predict(program: Stateful, predicted: Any, x: Any, size: int, verbose: int | str,
            steps: int | None, callbacks: Callback | Iterable[Callback] | None,
            as_declared: Callable[[Any], Any]) -> Outputs:
    """Outputs of a program for all rows of x, or for the first `steps` batches of a size.

    `predicted` is the model or program that was called. Callbacks get outputs in the form of
    `as_declared`. The other arguments are those of `Program.predict`.
    """
    check_count("steps", steps)
    adapter, metadata = program.adapter, program.metadata
    source: BatchSource
    if not adapter.reads_table(x) and is_stream(x, None):
        source, rows = StreamBatches(adapter, as_stream(adapter, x, size, False), size, False), 0
    else:
        columns = adapter.inputs(x)
        source = ArrayBatches(adapter, columns, None, size)
        rows = source.rows if steps is None else 0  # 0: unknown beforehand
    results = Results(rows, metadata.open_axes, bool(metadata.whole_axes))
    progress, user_callbacks = Progress(verbose), as_callbacks(callbacks, _USER)
    hooks = Hooks(user_callbacks, program, {
        "steps": steps or source.steps, "verbose": verbose, "fitted": predicted,
        "say": progress.say, "progress": progress})
    return loops.predict(program.calls, source, results, own_progress(progress, user_callbacks),
                         steps, hooks, as_declared)
