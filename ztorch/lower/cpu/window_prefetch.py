"""Prefetches of the next row of an image while the windows of one row are summed, and of the lines
that its results are stored to.

Neighboring windows read some elements of each of several rows. These are more streams than a
processor's prefetcher follows, so each line from beyond the L2 cache would be waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.region import Region
from ztorch.lower.tuning import EPILOGUE_SHARE

Position = dict[Var, Index]


class NextRow:
    """The elements that the windows of the next row read first, and the results of that row.

    Args:
        region: A region that sums windows.
        target: Names of the buffers that are written, by value.
        image: The image, and the position of an element of a window in terms of the loops.
        row: The loop over rows of windows; None if there is none.
        inner: The loops over rows of a window.
        limits: The machine.
    """

    def __init__(self, region: Region, target: Mapping[Value, str], image: tuple[Value, Index],
                 row: Var | None, inner: Sequence[Var], limits: Limits):
        self.image, self.at = image
        self.results = [(name, region.flat[v]) for v, name in target.items() if v in region.flat]
        self.row = row
        self.rows: list[Position] = []  # of a window, that no earlier window has
        if row is None or not inner or not _is_distant(region, target, self.image, limits):
            return
        step, gap = self.at.factor(row), self.at.factor(inner[-1])
        window = inner[-1].extent
        nbytes = (window * gap + step) * self.image.dtype.bytes  # until the next row is computed
        if 0 < gap <= step and nbytes <= limits.processor.l2_bytes:
            last = {v: Index((), v.extent - 1) for v in inner}
            self.rows = [{**last, inner[-1]: Index((), k)}
                         for k in range(max(0, window - step // gap), window)]

    def prefetch(self, e: Emitter, elements: Sequence[Position], results: Sequence[Position]
                 ) -> None:
        """Prefetches elements and results into the L2 cache.

        Args:
            e: The scope.
            elements: The columns of elements in this row.
            results: The positions of results in this row.
        """
        if self.row is None or not self.rows:
            return
        for at in (row | column for row in self.rows for column in elements):
            e.prefetch(self.image, self.at.replace(at) + self.at.factor(self.row), cache=2)
        for name, flat in self.results:
            for at in results:
                place = flat.replace(at)
                e.prefetch_of(name, place + place.factor(self.row), cache=2)


def _is_distant(region: Region, target: Mapping[Value, str], image: Value, limits: Limits) -> bool:
    """Whether an image and the results are too large for the L2 cache."""
    size = image.nbytes + sum(v.nbytes for v in target if v in region.flat)
    return size > limits.processor.l2_bytes * EPILOGUE_SHARE
