"""Batches from an iterator, as they are given or joined to batches of one size."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.errors import DataError
from ztorch.feed.adapter import Columns, DataAdapter, rows_of
from ztorch.feed.named_columns import parts_of_columns
from ztorch.feed.read_ahead import ReadAhead
from ztorch.feed.sequences import joined
from ztorch.feed.sources import begin_pass
from ztorch.feed.staging import Batch

if TYPE_CHECKING:
    from ztorch.feed.call_pool import BorrowedCalls
    from ztorch.feed.other_sizes import LentStates, OtherSizes
    from ztorch.runtime.loaded_program import BoundCall

Piece = tuple[Columns, np.ndarray | None]  # x and y, and the weights of their rows


class StreamBatches:
    """Batches of any size from an iterator, cut and joined to that of a step, or steps of their
    own.

    A source that counts its passes in an attribute `epoch`, as those of `zt.data` do, is told
    which pass comes next. So a resumed run gets the batches that it would have got. Where an epoch
    is a whole pass, a source that takes long is read in a thread, two batches ahead.

    Args:
        adapter: Knows the inputs and targets of the program.
        source: The source of batches: x, (x, y) or (x, y, sample_weight).
        batch_size: The rows of a batch.
        with_targets: Whether batches must hold y; False to predict.
        class_weight: The weight of each class. Default: `None`.
        as_given: Whether smaller batches are steps of their own. Default: `False`.
        other_sizes: Runs batches that do not fit the program; None: those of more rows are cut, and
            longer rows are an error. Default: `None`.
    """

    def __init__(self, adapter: DataAdapter, source: Iterable[Any], batch_size: int,
                 with_targets: bool, class_weight: Mapping[int, float] | None = None,
                 as_given: bool = False, other_sizes: OtherSizes | None = None):
        self._adapter = adapter
        self._source = source
        self._with_targets = with_targets
        self._class_weight = class_weight
        self.batch_size, self._as_given, self._other_sizes = batch_size, as_given, other_sizes
        self.steps = _known_steps(source, batch_size, as_given)  # or after an epoch
        self._next_pass: int | None = None  # for a source that counts passes
        self._pieces: Iterator[Piece] | None = None  # of the pass that is under way
        self._rest: Piece | None = None  # rows that were read and not used yet
        self._single_pass = iter(source) is source  # a generator, which cannot start again
        self._exhausted = False
        self._grows = other_sizes is not None and other_sizes.longer_rows
        self.of_validation = False  # whether errors name validation_data
        self._to_the_end = False  # whether an epoch reads all that the source has

    def epoch(self, calls: BorrowedCalls, number: int | None = None,
              steps: int | None = None, scores: object = None) -> Iterator[Batch]:
        """For each step of an epoch, fills the buffers of the call that fits it. Without `steps`,
        an epoch is one pass over the source; with them, it continues where the one before it
        stopped."""
        step = first_row = 0
        self._to_the_end = steps is None
        if number is None and not self._single_pass:  # evaluation: the same batches every time
            self._pieces = self._rest = None
        elif number is not None and self._pieces is None and self._rest is None:
            self._skip_to(number, steps)
        while steps is None or step < steps:
            columns, weights = self._next_batch()
            if not columns:  # the source is at its end
                if steps is None:
                    break
                continue
            rows = rows_of(columns)
            self._adapter.need_whole_batches(rows, self.batch_size)
            sizes = self._adapter.sizes(columns)
            borrowed: AbstractContextManager[tuple[BoundCall, LentStates | None]] = (
                self._other_sizes.call(sizes)
                if self._other_sizes and not calls.buckets.take(calls.verb, sizes) else
                nullcontext((calls.fitting(sizes), None)))
            with borrowed as (call, states):
                weight = self._adapter.stage(call, columns, weights)
                yield Batch(call, rows, weight, slice(first_row, first_row + rows),
                            self._adapter.lengths(columns), states)
            step, first_row = step + 1, first_row + rows
            if rows < self.batch_size and steps is None and not self._as_given:
                break
        if steps is None:
            self.steps = step

    def _next_batch(self) -> Piece:
        """The rows of the next batch; fewer at the end of a pass or of a given batch, and none when
        the pass has ended."""
        if self._as_given:
            piece = self._next()
            if piece is None:
                return {}, None
            return piece if self._other_sizes and self._other_sizes.more_rows else _rows_from(
                piece, 0, self._put_back(piece, self.batch_size))
        parts: list[Piece] = []
        filled = 0
        while filled < self.batch_size and (piece := self._next()):
            used = self._put_back(piece, self.batch_size - filled)
            filled += used
            part = _rows_from(piece, 0, used)
            # A source may fill the same arrays for the next piece.
            parts.append(part if filled == self.batch_size else copy.deepcopy(part))
        if len(parts) < 2:
            return parts[0] if parts else ({}, None)
        weights = None if all(w is None for _, w in parts) else np.concatenate([
            np.ones(rows_of(columns), np.float32) if w is None else w for columns, w in parts])
        return {name: joined([columns[name] for columns, _ in parts])
                for name in parts[0][0]}, weights

    def _skip_to(self, number: int, steps: int | None) -> None:
        """Begins where that epoch does: at a pass, or after some steps of one."""
        if not isinstance(getattr(self._source, "epoch", None), int) or not (
                steps is None or self.steps):
            return
        self._next_pass, skipped = ((number, 0) if steps is None else
                                    divmod(number * steps, self.steps or 1))
        for _ in range(skipped):
            self._next_batch()

    def _put_back(self, piece: Piece, used: int) -> int:
        """Keeps the rows of a piece after those that are used; returns how many are."""
        rows = rows_of(piece[0])
        if used < rows:
            self._rest = _rows_from(piece, used, rows)
        return min(used, rows)

    def _next(self) -> Piece | None:
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        if self._pieces is None:
            if self._single_pass and self._exhausted:
                if self.of_validation:
                    raise DataError("the generator of validation_data has run out of batches; pass "
                                    "arrays, or something that can be iterated again, such as a "
                                    "list of batches")
                raise DataError("the generator has run out of batches; pass steps_per_epoch so "
                                "that all epochs fit, or something that can be iterated again")
            pieces = self._read()
            self._pieces = ReadAhead(pieces, copy.deepcopy) if self._to_the_end else pieces
        for piece in self._pieces:
            return piece
        self._pieces, self._exhausted = None, True
        return None

    def _read(self) -> Iterator[Piece]:
        if self._next_pass is not None:
            begin_pass(self._source, self._next_pass)
            self._next_pass += 1
        row = 0
        for k, item in enumerate(self._source):
            x, y, sample_weight = self._parts(item, k)
            suffix = f" of batch {k}"
            columns, weights = self._adapter.inputs(x, suffix, self._grows), None
            rows = rows_of(columns)
            if self._with_targets:
                columns |= self._adapter.targets(y, columns, suffix, row)
                columns |= self._adapter.weights_of_outputs(sample_weight, rows)
                weights = self._adapter.weights(sample_weight, self._class_weight, columns, rows)
            row += rows
            yield columns, weights
        if row == 0:
            raise DataError("the iterator gave no batches; pass at least one row")

    def _parts(self, item: Any, k: int) -> tuple[Any, Any, Any]:
        in_a_list = isinstance(item, list) and (self._with_targets or not (
            self._adapter.several_inputs or self._adapter.open_axes))  # else rows, or inputs
        needs_y = self._with_targets and bool(self._adapter.target_ports)
        if isinstance(item, Mapping):
            item = parts_of_columns(self._adapter, item, needs_y,
                                    f"batch {k} of the iterator has")
        if not isinstance(item, tuple) and not in_a_list:
            item = (item,)
        if len(item) > 3 or (needs_y and len(item) < 2):
            expected = "(x, y) or (x, y, sample_weight)" if self._with_targets else "x"
            raise DataError(f"batch {k} of the iterator has {len(item)} parts; it takes {expected}")
        x, y, sample_weight = (*item, None, None)[:3]
        return x, y, sample_weight


def _rows_from(piece: Piece, first: int, end: int) -> Piece:
    """Some rows of a piece, as they are there."""
    columns, weights = piece
    return ({name: array[first:end] for name, array in columns.items()},
            None if weights is None else weights[first:end])


def _known_steps(source: Any, batch_size: int, as_given: bool) -> int | None:
    """The batches in one pass over a source, or None where it cannot say beforehand."""
    try:
        if isinstance(source, list):
            sizes = [_rows(item[0]) for item in source]
            if as_given:
                return sum(-(-n // batch_size) for n in sizes)
            rows = sum(sizes)
        elif getattr(source, "batch_size", None) == batch_size:
            return len(source)
        else:
            rows = source.rows
    except (AttributeError, TypeError, LookupError):
        return None
    return -(-rows // batch_size) if isinstance(rows, int) else None


def _rows(x: Any) -> int:
    """The rows of an array, or of the first of several."""
    parts = list(x.values()) if isinstance(x, Mapping) else x
    return (parts[0] if isinstance(parts, (list, tuple)) else parts).shape[0]
