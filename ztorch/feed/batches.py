"""Rows on their way into a program's staging buffers, one fixed-size batch at a time.

Both kinds of source answer `epoch(staging, number, steps)`: a generator that fills the buffers in
place and yields (real rows, sum of their weights) for each step. A short tail is filled up with
its own rows again, at weight 0: real rows keep batch statistics honest and cannot overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import ConfigError, DataError
from ztorch.feed.columns import pad, store
from ztorch.feed.intake import Columns, Intake, is_stream, rows_of

Staging = Mapping[str, np.ndarray]
Step = tuple[int, float]
Piece = tuple[Columns, np.ndarray | None]  # x and y, w


def permutation(seed: int, number: int, rows: int) -> np.ndarray:
    """The order of rows in one pass over the data: a function of seed and pass, nothing else.

    >>> bool((permutation(7, 0, 50) == permutation(7, 0, 50)).all())
    True
    """
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, number], np.uint64)
    # NumPy promises the raw bits of Philox for ever, but not what Generator.permutation makes of
    # them. So rows are sorted by random numbers, with the row itself in the low bits: no two are
    # equal, and every sort agrees.
    low = np.uint64((1 << max(rows - 1, 1).bit_length()) - 1)
    keys = np.random.Philox(key=key).random_raw(rows)
    keys = (keys & ~low) | np.arange(rows, dtype=np.uint64)
    keys.sort()
    return (keys & low).astype(np.intp)


class Feed:
    """One array's way into its staging buffer, converting where dtypes differ."""

    __slots__ = ("_scratch", "_source", "_target", "dtype")

    def __init__(self, source: np.ndarray, target: np.ndarray, dtype: DType):
        self._source, self._target, self.dtype = source, target, dtype
        same = source.dtype == target.dtype and dtype.name != "bf16"
        self._scratch = target if same else np.empty(target.shape, source.dtype)

    def take(self, rows: np.ndarray) -> None:
        # mode "clip" writes straight into `out`; the default mode gathers into a copy first
        self._source.take(rows, 0, self._scratch, "clip")
        if self._scratch is not self._target:
            store(self._target, self.dtype, self._scratch)

    def slice(self, start: int, stop: int) -> None:
        store(self._target[:stop - start], self.dtype, self._source[start:stop])


class ArrayBatches:
    """Batches of arrays in memory (or memory-mapped).

    Steps are numbered through all epochs, and step k is a function of k alone. So an epoch of any
    length goes on where the one before it stopped, and a resumed run sees what it would have seen.
    """

    def __init__(self, intake: Intake, columns: Columns, w: np.ndarray | None, batch: int,
                 seed: int | None = None):
        self.columns, self.w = columns, w
        self.rows = rows_of(columns)
        self.batch = batch
        self.steps = -(-self.rows // batch)
        self._intake = intake
        self._seed = seed  # None keeps the order of the arrays

    def epoch(self, staging: Staging, number: int = 0, steps: int | None = None) -> Iterator[Step]:
        dtypes = self._intake.dtypes
        feeds = [Feed(array, staging[name], dtypes[name]) for name, array in self.columns.items()
                 if name in staging]  # an input that leads to no loss is not there
        weights = staging.get("w")
        count = steps or self.steps
        batch, order, seed = self.batch, None, self._seed
        if weights is not None:
            weights.fill(1.0)
        for k in range(number * count, (number + 1) * count):
            turn, position = divmod(k, self.steps)
            if seed is not None and (order is None or position == 0):
                order = permutation(seed, turn, self.rows)
            start = position * batch
            real = min(batch, self.rows - start)
            if order is None and (real == batch or weights is None):
                for feed in feeds:  # (predicting treats rows apart: old rows may fill the rest)
                    feed.slice(start, start + real)
                chosen = None
            else:
                chosen = (np.arange(start, start + real) if order is None
                          else order[start:start + real])
                if real < batch:
                    chosen = chosen[np.arange(batch) % real]
                for feed in feeds:
                    feed.take(chosen)
            if weights is None:
                yield real, float(real)
                continue
            if self.w is not None:
                weights[...] = (self.w[start:start + batch] if chosen is None
                                else self.w[chosen])
            if real == batch:
                yield real, float(batch if self.w is None else weights.sum(dtype=np.float64))
            else:
                weights[real:] = 0.0
                yield real, float(weights.sum(dtype=np.float64))
                weights.fill(1.0)

    def split(self, fraction: float) -> tuple[ArrayBatches, ArrayBatches]:
        """The leading rows for training and the last `fraction` of them for validation."""
        at = int(self.rows * (1.0 - fraction))
        if not 0.0 < fraction < 1.0 or at == 0 or at == self.rows:
            raise ConfigError(f"validation_split={fraction} of {self.rows} rows leaves one side "
                              "empty; use a fraction such as 0.1")
        return self._part(slice(0, at), self._seed), self._part(slice(at, self.rows), None)

    def _part(self, rows: slice, seed: int | None) -> ArrayBatches:
        columns = {name: array[rows] for name, array in self.columns.items()}
        w = None if self.w is None else self.w[rows]
        return ArrayBatches(self._intake, columns, w, self.batch, seed)


class StreamBatches:
    """Batches of any size from an iterator, cut to the program's size.

    A source that counts its passes in `epoch`, as those of `zt.data` do, is told which pass the
    program is at: so a resumed run sees what it would have seen.
    """

    def __init__(self, intake: Intake, source: Iterable[Any], batch: int, targets: bool,
                 class_weight: Mapping[int, float] | None = None):
        self._intake = intake
        self._source = source
        self._targets = targets
        self._class_weight = class_weight
        self.batch = batch
        self.steps = _known_steps(source, batch)  # else known once an epoch has ended
        self._turn: int | None = None  # the next pass, for a source that counts passes
        self._pieces: Iterator[Piece] | None = None
        self._rest: Piece | None = None
        self._once = iter(source) is source  # a generator, which cannot start again
        self._spent = False

    def epoch(self, staging: Staging, number: int | None = None,
              steps: int | None = None) -> Iterator[Step]:
        made = filled = 0
        if number is None and not self._once:  # evaluation takes the same batches every time
            self._pieces = self._rest = None
        elif number is not None and self._pieces is None and self._rest is None:
            self._go_to(number, steps)
        weights, dtypes = staging.get("w"), self._intake.dtypes
        while steps is None or made < steps:
            piece = self._next()
            if piece is None:  # the source is at its end
                if filled:
                    pad(staging, filled)
                    yield filled, float(filled if weights is None else
                                        weights.sum(dtype=np.float64))
                    made, filled = made + 1, 0
                if steps is None:
                    break
                continue
            columns, w = piece
            rows = rows_of(columns)
            take = min(rows, self.batch - filled)
            where = slice(filled, filled + take)
            for name, array in columns.items():
                if name in staging:
                    store(staging[name][where], dtypes[name], array[:take])
            if weights is not None:
                weights[where] = 1.0 if w is None else w[:take]
            filled += self._put_back(piece, take)
            if filled == self.batch:
                total = self.batch if weights is None else weights.sum(dtype=np.float64)
                yield self.batch, float(total)
                made, filled = made + 1, 0
        if steps is None:
            self.steps = made

    def _go_to(self, number: int, steps: int | None) -> None:
        """Begins where that epoch does: at a pass, or after some steps of one."""
        if not isinstance(getattr(self._source, "epoch", None), int) or not (
                steps is None or self.steps):
            return
        self._turn, done = ((number, 0) if steps is None else
                            divmod(number * steps, self.steps or 1))
        rows = done * self.batch
        while rows and (piece := self._next()):
            rows -= self._put_back(piece, rows)

    def _put_back(self, piece: Piece, taken: int) -> int:
        """Keeps what follows the rows taken; gives how many these are."""
        columns, w = piece
        rows = rows_of(columns)
        if taken < rows:
            self._rest = ({name: array[taken:] for name, array in columns.items()},
                          None if w is None else w[taken:])
        return min(taken, rows)

    def _next(self) -> Piece | None:
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        if self._pieces is None:
            if self._once and self._spent:
                raise DataError("the generator has run out of batches; pass steps_per_epoch so "
                                "that all epochs fit, or something that can be iterated again")
            self._pieces = self._read()
        for piece in self._pieces:
            return piece
        self._pieces, self._spent = None, True
        return None

    def _read(self) -> Iterator[Piece]:
        if self._turn is not None:
            self._source.epoch = self._turn  # type: ignore[attr-defined]
            self._turn += 1
        row = 0
        for k, item in enumerate(self._source):
            x, y, w = self._parts(item, k)
            where = f" of batch {k}"
            columns, weights = self._intake.inputs(x, where), None
            rows = rows_of(columns)
            if self._targets:
                columns |= self._intake.targets(y, rows, where, row)
                weights = self._intake.weights(w, self._class_weight, columns, rows)
            row += rows
            yield columns, weights
        if row == 0:
            raise DataError("the iterator gave no batches; pass at least one row")

    def _parts(self, item: Any, k: int) -> tuple[Any, Any, Any]:
        if not isinstance(item, tuple) and not (isinstance(item, list) and (
                self._targets or not self._intake.several)):
            item = (item,)
        if len(item) > 3 or (self._targets and len(item) < 2):
            wanted = "(x, y) or (x, y, sample_weight)" if self._targets else "x"
            raise DataError(f"batch {k} of the iterator has {len(item)} parts; it takes {wanted}")
        x, y, w = (*item, None, None)[:3]
        return x, y, w


def _known_steps(source: Any, batch: int) -> int | None:
    """How many batches one pass over a source makes, where it can say so beforehand."""
    try:
        if isinstance(source, list):
            rows = sum(_rows(item[0]) for item in source)
        elif getattr(source, "batch_size", None) == batch:
            return len(source)
        else:
            rows = source.rows
    except (AttributeError, TypeError, LookupError):
        return None
    return -(-rows // batch) if isinstance(rows, int) else None


def _rows(x: Any) -> int:
    """The rows of an array, or of the first of several."""
    parts = list(x.values()) if isinstance(x, Mapping) else x
    return (parts[0] if isinstance(parts, (list, tuple)) else parts).shape[0]


Batches = ArrayBatches | StreamBatches


def batches(intake: Intake, batch: int, x: Any, y: Any = None, sample_weight: Any = None,
            class_weight: Mapping[int, float] | None = None, *,
            seed: int | None = None) -> Batches:
    """The source of batches that score: arrays, or an iterator of batches."""
    if is_stream(x, y):
        if y is not None or sample_weight is not None:
            raise DataError("x is an iterator of batches; y and sample_weight must come from it "
                            "too: yield (x, y, sample_weight)")
        return StreamBatches(intake, x, batch, True, class_weight)
    columns = intake.inputs(x)
    rows = rows_of(columns)
    columns |= intake.targets(y, rows)
    weights = intake.weights(sample_weight, class_weight, columns, rows)
    return ArrayBatches(intake, columns, weights, batch, seed)


def validation_batches(intake: Intake, batch: int, data: Any) -> Batches | None:
    """The source of batches that `validation_data` names."""
    if data is None:
        return None
    pair = isinstance(data, (tuple, list)) and len(data) in (2, 3)
    inputs_in_a_tuple = isinstance(data, tuple) and intake.several
    if pair and (inputs_in_a_tuple or not isinstance(data[0], tuple)):
        return batches(intake, batch, *data)
    if not is_stream(data, None):
        raise DataError("validation_data takes (x, y), (x, y, sample_weight) or something that can "
                        "be iterated again for batches")
    return batches(intake, batch, data)
