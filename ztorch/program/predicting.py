"""Prediction, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import overlap
from ztorch.callbacks.callback import Callback
from ztorch.errors import Unsupported
from ztorch.feed import loops
from ztorch.feed.array_batches import ArrayBatches
from ztorch.feed.datasets import as_stream
from ztorch.feed.out_arrays import arrays_by_port
from ztorch.feed.results import Results
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
            as_declared: Callable[[Any], Any], out: Any, as_given: bool) -> Any:
    """Outputs of a program for all rows of x, or for the first `steps` batches of a size.

    `predicted` is the model or program that was called. Callbacks and the result are in the form of
    `as_declared`. With `as_given`, each batch of an iterator is a step. The other arguments are
    those of `Program.predict`.
    """
    into: dict[str, np.ndarray] = {}
    read: Iterable[Any] = ()  # arrays of x
    check_count("steps", steps)
    adapter, metadata = program.adapter, program.metadata
    source: BatchSource
    if not adapter.reads_table(x) and is_stream(x, None):
        if out is not None:
            raise Unsupported("predict(out=...) of an iterator, whose number of rows is not known; "
                              "pass its rows as an array")
        other_sizes = program.other_sizes("predict", more_rows=as_given)
        source, rows = StreamBatches(adapter, as_stream(adapter, x, size, False), size, False,
                                     None, as_given, other_sizes), 0
    else:
        columns = adapter.inputs(x)
        source = ArrayBatches(adapter, columns, None, size)
        rows = source.rows if steps is None else 0  # 0: unknown beforehand
        if out is not None:
            rows = source.rows if steps is None else min(source.rows, steps * size)
            ports = program.executable.functions["predict"].outputs
            into = arrays_by_port(out, ports, rows, metadata)
            read = columns.values()
    apart = not overlap(into.values(), read)
    results = Results(rows, metadata.open_axes, bool(metadata.whole_axes), into if apart else None)
    progress, user_callbacks = Progress(verbose), as_callbacks(callbacks, _USER)
    hooks = Hooks(user_callbacks, program, {
        "steps": steps or source.steps, "verbose": verbose, "fitted": predicted,
        "say": progress.say, "progress": progress})
    outputs = loops.predict(program.calls, source, results, own_progress(progress, user_callbacks),
                            steps, hooks, as_declared)
    if not apart:  # later batches would have read what earlier ones wrote
        for port, array in into.items():
            array[...] = outputs[port]
    return as_declared(outputs)
