"""Where batches come from: arrays, or an iterator.

Both kinds of source have `epoch(calls, number, steps)`, a generator of a Batch for each step: it
fills the input buffers of the smallest call that holds the batch. The rest of them is filled up
with the same rows again, at weight 0: these cannot overflow, and leave batch statistics close to
those of the real rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ztorch.errors import DataError
from ztorch.feed.adapter import DataAdapter, rows_of
from ztorch.feed.array_batches import ArrayBatches
from ztorch.feed.datasets import as_stream
from ztorch.feed.device_batches import DeviceBatches
from ztorch.feed.other_sizes import OtherSizes
from ztorch.feed.sources import is_indexed, is_stream, need_no_splits
from ztorch.feed.stream_batches import StreamBatches

BatchSource = ArrayBatches | DeviceBatches | StreamBatches


def batches(adapter: DataAdapter, batch_size: int, x: Any, y: Any = None, sample_weight: Any = None,
            class_weight: Mapping[int, float] | None = None, *, seed: int | None = None,
            feed: Any = None, as_given: bool = False,
            other_sizes: OtherSizes | None = None) -> BatchSource:
    """The batches to train on or to evaluate: of arrays, or from an iterator; of tensors on a
    device where `feed` feeds the program with such. Batches from an iterator that are smaller than
    a step's are steps of their own if they are taken `as_given`, else they are joined; larger ones
    are steps of their own with `other_sizes`, else they are cut."""
    if feed is not None:
        return DeviceBatches.of(feed, batch_size, x, y, sample_weight, class_weight, seed)
    if not adapter.reads_table(x) and is_stream(x, y):
        if y is not None or sample_weight is not None:
            raise DataError(f"x is {'a dataset' if is_indexed(x) else 'an iterator of batches'}; y "
                            "and sample_weight must come from it too: "
                            f"{'items' if is_indexed(x) else 'yield'} (x, y, sample_weight)")
        stream = as_stream(adapter, x, batch_size, True, seed)
        return StreamBatches(adapter, stream, batch_size, True, class_weight, as_given,
                             other_sizes)
    x, y = adapter.with_targets(x, y)
    columns = adapter.inputs(x)
    columns |= adapter.targets(y, columns)
    columns |= adapter.weights_of_outputs(sample_weight, rows_of(columns))
    weights = adapter.weights(sample_weight, class_weight, columns, rows_of(columns))
    return ArrayBatches(adapter, columns, weights, batch_size, seed)


def validation_batches(adapter: DataAdapter, batch_size: int, data: Any,
                       feed_for: Callable[[Any], Any] = lambda x: None,
                       as_given: bool = False, other_sizes: OtherSizes | None = None
                       ) -> BatchSource | None:
    """The batches of `validation_data`, which is (x, y), (x, y, sample_weight) or an iterable.
    `feed_for(x)` gives the object that feeds the program with tensors, or None. Batches of an
    iterable are taken `as_given` or run by `other_sizes`, as those of `batches`."""
    if data is None:
        return None
    is_pair = isinstance(data, (tuple, list)) and len(data) in (2, 3)
    inputs_in_a_tuple = isinstance(data, tuple) and adapter.several_inputs
    if is_pair and (inputs_in_a_tuple or not isinstance(data[0], tuple)):
        try:
            return batches(adapter, batch_size, *data, feed=feed_for(data[0]))
        except DataError as error:
            raise DataError(f"validation_data: {error}") from None
    need_no_splits(data, "validation_data")
    if not adapter.reads_table(data) and not is_stream(data, None):
        form = (f"a {type(data).__name__} of {len(data)}" if isinstance(data, (tuple, list)) else
                "only one array" if hasattr(data, "shape") else f"{type(data).__name__}")
        raise DataError(f"validation_data is {form}; it takes (x, y), (x, y, sample_weight) or "
                        "something that can be iterated again for batches")
    source = batches(adapter, batch_size, data, as_given=as_given,
                     other_sizes=other_sizes)
    if isinstance(source, StreamBatches):
        source.of_validation = True
    return source
