"""The sums of the columns of a finished tile, which passes through shared memory in bands. Each
thread adds up lines of its columns in registers; then the threads of a column add up their totals,
in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.grid.workgroups import every, where

Inside = Callable[[Operand], "Operand | None"]  # None: all columns are


@dataclass(frozen=True)
class ColumnGroup:
    """Some columns of a band, vectors of `width` of them, and the threads that share each."""

    first: int  # vector
    count: int  # vectors
    width: int
    sharing: int  # threads of a vector

    def active(self, b: Builder, t: Operand, threads: int) -> Operand | None:
        """Whether a thread has one of the columns; None: all have."""
        used = self.count * self.sharing
        return None if used == threads else b.lt(t, used)


def columns_of(vectors: int, width: int, lines: int, threads: int) -> list[ColumnGroup]:
    """All columns of a band, in groups of which each thread has one vector at a time.

    >>> columns_of(16, 4, 64, 256)
    [ColumnGroup(first=0, count=16, width=4, sharing=16)]
    >>> [(c.first, c.count, c.sharing) for c in columns_of(48, 1, 8, 32)]
    [(0, 32, 1), (32, 16, 2)]
    """
    starts = range(0, vectors, threads)
    counts = [min(threads, vectors - first) for first in starts]
    return [ColumnGroup(first, n, width, min(threads // n, lines))
            for first, n in zip(starts, counts, strict=True)]


class ColumnTotals:
    """The totals of a thread for some columns, a variable for each sum."""

    def __init__(self, b: Builder, sums: Sequence[Value], columns: ColumnGroup, t: Operand,
                 threads: int):
        self.b, self.columns, self.t = b, columns, t
        self.of = {v: b.var(v.dtype, columns.width, 0) for v in sums}
        self.active = columns.active(b, t, threads)
        self.threads = threads

    def clear(self) -> None:
        for total in self.of.values():
            self.b.set(total, 0)

    def lines(self, count: int, start: Operand, inside: Inside, at_once: int) -> Iterator[
            tuple[list[Operand], Operand]]:
        """A thread's lines of a band that starts at a column of the product, in loops with several
        of them at once: these lines, and the thread's first column in the band."""
        b, c, t = self.b, self.columns, self.t
        column = b.mul(b.add(b.rem(t, c.count), c.first), c.width)
        with where(b, self.active), where(b, inside(b.add(start, column))):
            for together in every(b, b.div(t, c.count), count, c.sharing, at_once):
                yield together, column

    def finish(self, array: str, meet: Callable[[], None], inside: Inside, start: Operand,
               part: Operand, parts: int, length: int, target: Mapping[Value, str]) -> None:
        """Adds up the totals of all threads and stores them.

        Args:
            array: Shared memory that nothing else uses now.
            meet: A barrier for the threads.
            inside: Whether a column of the product exists.
            start: The column of the product where the band starts.
            part: The number of the tile among those below one another.
            parts: The number of these tiles.
            length: The columns of the product.
            target: The names of the buffers of the sums.
        """
        b, c, t = self.b, self.columns, self.t
        width = c.count * c.width
        for v, total in self.of.items():
            align = c.width * v.dtype.bytes if c.width > 1 else 0
            with where(b, self.active):
                b.store(array, b.mul(t, c.width), b.get(total), align=align)
            meet()
            with b.loop(t, width, self.threads) as at:
                column = b.add(b.add(start, c.first * c.width), at)
                with where(b, inside(column)):
                    whole = b.var(v.dtype, 1, b.load(array, at))
                    if c.sharing > 1:
                        with b.loop(1, c.sharing) as other:
                            addend = b.load(array, b.add(b.mul(other, width), at))
                            b.set(whole, b.add(b.get(whole), addend))
                    slots = v.size // length
                    place = b.add(b.mul(part, length), column)
                    b.store(target[v], place, b.get(whole))
                    if slots > parts:  # no tile has the others
                        with b.loop(b.add(part, parts), slots, parts) as empty:
                            b.store(target[v], b.add(b.mul(empty, length), column),
                                    b.const(0, v.dtype))
            meet()  # before the next sum, or band
