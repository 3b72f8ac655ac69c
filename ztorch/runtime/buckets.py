"""The sizes that a program is compiled for, and the choice of a function for a call.

The size of a batch, and of axes with a name, may vary from call to call. A program has each of its
functions once for each combination of sizes: a bucket. The function of the largest bucket has the
plain name, such as predict; the others name their sizes: predict@8, or predict@8x128 if a second
axis varies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError, DataError
from ztorch.real_sizes import OpenAxis

BATCH = "batch"  # the axis of rows, which comes first
ROWS = 32  # of a batch, if neither a call nor an Input sets it

Sizes = tuple[int, ...]  # the size of each axis that varies, the batch first


def verb_of(function: str) -> str:
    """The name of a function without its bucket.

    >>> verb_of("predict@8x128"), verb_of("train")
    ('predict', 'train')
    """
    return function.partition("@")[0]


def parse_open_axes(text: str) -> dict[int, OpenAxis]:
    """The axes of a row whose size varies, by number, from their text in the metadata: the name of
    each axis, or nothing.

    >>> {axis: str(open_axis) for axis, open_axis in parse_open_axes(",width@1-2/1").items()}
    {1: 'width@1-2/1'}
    """
    return {axis: OpenAxis.of(part) for axis, part in enumerate(text.split(",")) if part}


def open_axes_text(axes: Mapping[int, OpenAxis]) -> str:
    """The text in the metadata for axes by number.

    >>> open_axes_text({1: OpenAxis("width")})
    ',width'
    """
    return ",".join(str(axes.get(axis, "")) for axis in range(max(axes) + 1))


class Buckets:
    """The buckets of a program.

    Args:
        axes: The sizes of each axis that varies, in ascending order; the batch comes first.
        whole_batches: The functions whose batches are never padded, since all their rows count.
            Default: `()`.
        whole_axes: The axes along which rows are never padded: their sizes must be those of a
            bucket. Default: `()`.
        multiples: For some axes, a number that sizes must be multiples of. Default: none.

    Examples:
        >>> buckets = Buckets({"batch": (1, 8, 32), "time": (64, 128)})
        >>> buckets.function("predict", (5, 100)), buckets.function("predict", (9, 65))
        ('predict@8x128', 'predict')
    """

    def __init__(self, axes: Mapping[str, Sequence[int]], whole_batches: Iterable[str] = (),
                 whole_axes: Iterable[str] = (), multiples: Mapping[str, int] | None = None):
        self._whole_batches = frozenset(whole_batches)
        self.whole_axes = frozenset(whole_axes)
        self._multiples = dict(multiples or {})
        self.axes = {name: tuple(sizes) for name, sizes in axes.items()}
        self.largest: Sizes = tuple(sizes[-1] for sizes in self.axes.values())
        self._sizes = tuple(self.axes.values())
        self._suffixes = {sizes: "" if sizes == self.largest else f"@{'x'.join(map(str, sizes))}"
                          for sizes in product(*self._sizes)}

    def __iter__(self) -> Iterator[Sizes]:
        """The sizes of each bucket, the largest first."""
        return iter(sorted(self._suffixes, reverse=True))

    def __len__(self) -> int:
        return len(self._suffixes)

    @property
    def batch_size(self) -> int:
        """The largest number of rows of a call."""
        return self.largest[0]

    def rows(self, requested: int | None) -> int:
        """The rows of a batch: as many as a user asks for, or the most that the program is compiled
        for. One that is compiled for a single size takes that size only."""
        compiled = self.batch_size
        if requested is None or positive("batch_size", requested) == compiled:
            return compiled
        sizes = self._sizes[0]
        if len(sizes) > 1 and requested < compiled:
            return int(requested)
        up_to = "up to " if len(sizes) > 1 else ""
        raise ConfigError(f"batch_size={requested}, but this program is compiled for {up_to}"
                          f"{compiled} rows at a time; omit batch_size, or compile with batch_size="
                          f"{requested if len(sizes) == 1 else (*sizes, requested)}")

    def name(self, verb: str, sizes: Sizes) -> str:
        """The function of the bucket with exactly these sizes."""
        return verb + self._suffixes[sizes]

    def take_rows(self, verb: str, rows: int) -> bool:
        """Whether a function takes a batch of so many rows, padded where it may be."""
        padded = verb not in self._whole_batches
        return rows in self._sizes[0] or (padded and rows < self.batch_size)

    def take(self, verb: str, sizes: Sequence[int]) -> bool:
        """Whether a function takes a batch of these sizes, padded where it may be."""
        return self.take_rows(verb, sizes[0]) and all(
            self.size_for(axis, n) in self.axes[axis]
            for axis, n in zip([*self.axes][1:], sizes[1:], strict=True))

    def size_for(self, axis: str, size: int) -> int:
        """The smallest size of a bucket that an axis of this size fits in; where there is none, a
        new one: exactly this for rows that are never padded, else the largest, doubled until it
        holds this."""
        sizes = self.axes[axis]
        if axis in self.whole_axes:
            return size
        largest = sizes[-1]
        while largest < size:
            largest *= 2
        return largest if largest > sizes[-1] else sizes[bisect_left(sizes, size)]

    def function(self, verb: str, sizes: Sequence[int]) -> str:
        """The function of the smallest bucket in which these sizes fit."""
        if verb in self._whole_batches and sizes[0] not in self._sizes[0]:
            listed = ", ".join(map(str, sorted({*self._sizes[0], sizes[0]})))
            raise DataError(f"a batch has {sizes[0]} rows, and batches of this model cannot be "
                            f"padded to {self.batch_size}, because the model, or a custom step, "
                            "loss or metric, combines or counts the rows of a batch; use "
                            f"compile(batch_size=({listed})), or pass a multiple of the batch size")
        if self.whole_axes:
            for name, n in zip(self.axes, sizes, strict=True):
                if name in self.whole_axes:
                    self.need_size(name, n, "")
        try:
            return verb + self._suffixes[tuple([
                axis[bisect_left(axis, n)] for axis, n in zip(self._sizes, sizes)])]  # noqa: B905
        except IndexError:
            raise self._too_large(sizes) from None

    def _too_large(self, sizes: Sequence[int]) -> DataError:
        return next(self._error(name, n) for (name, axis), n in zip(
            self.axes.items(), sizes, strict=True) if n > axis[-1])

    def _error(self, axis: str, size: int, label: str = "") -> DataError:
        option = "batch_size" if axis == BATCH else f"sizes={{{axis!r}: ...}}"
        if axis in self.whole_axes:
            listed = ", ".join(map(str, sorted({*self.axes[axis], size})))
            return DataError(f"axis {axis!r}{label and f' of {label}'} has size {size}, and this "
                             f"program is compiled for {' and '.join(map(str, self.axes[axis]))} "
                             "only: the model mixes positions along this axis, so rows cannot be "
                             "padded; pass rows of such a size, or compile with "
                             f"sizes={{{axis!r}: ({listed})}}")
        return DataError(f"axis {axis!r}{label and f' of {label}'} has size {size}, and this "
                         f"program is compiled for sizes up to {self.axes[axis][-1]} "
                         f"({', '.join(map(str, self.axes[axis]))}); pass fewer, or compile with "
                         f"a larger size in {option}")

    def need_size(self, axis: str, size: int, label: str, grows: bool = False) -> None:
        """Raises an error if no bucket fits an axis of this size, and none is made for it because
        the axis `grows`; it names the argument `label`."""
        if not grows and self.size_for(axis, size) not in self.axes[axis]:
            raise self._error(axis, size, label)
        factor = self._multiples.get(axis, 1)
        if size % factor:
            raise DataError(f"axis {axis!r} of {label} has size {size}, and this model takes "
                            f"multiples of {factor}, because it joins tensors whose sizes are "
                            "equal only for these; crop rows to "
                            f"{size // factor * factor}, or pad them to "
                            f"{-(-size // factor) * factor}")

    def can_be_batched(self, lengths: Mapping[str, Any]) -> bool:
        """Whether rows of these sizes, by axis, may be in one batch: sizes must be equal along axes
        without padding."""
        return all(len({*lengths[axis].tolist()}) == 1 for axis in self.whole_axes)

    def check_batchable(self, lengths: Mapping[str, Any]) -> None:
        """Raises an error if rows of these sizes, by axis, may not be in one batch."""
        if not self.can_be_batched(lengths):
            sizes = "; ".join(f"{axis!r}: {', '.join(map(str, sorted({*lengths[axis].tolist()})))}"
                              for axis in sorted(self.whole_axes))
            raise DataError(f"a batch has rows of several sizes ({sizes}), and rows of this model "
                            f"cannot be padded; pass batches of {self.batch_size} rows of one "
                            "size")
