"""Where windows cross the border of an image. Loops over windows skip the border."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ztorch.graph.value import Value
from ztorch.lower.cpu.left_operand import Run, split
from ztorch.lower.index import Index, Var
from ztorch.lower.region import Region, is_view, reads


@dataclass(frozen=True)
class Edge:
    """An axis of an image with a border, and the position of a window element on it."""

    at: Index  # position of a window element on the padded axis
    low: int  # first position inside the image
    high: int  # first position after the image

    def inside(self, at: dict[Var, Index]) -> bool | None:
        """Whether all elements at these positions are inside; None if only some are."""
        least, most = self.at.replace(at).range
        return True if self.low <= least and most < self.high else (
            False if most < self.low or least >= self.high else None)


Edges = tuple[Edge, ...]


def edges_of(region: Region, full: dict[Var, Index]) -> Edges:
    """The image axes on which the windows of a reduction cross a border."""
    edges: dict[Edge, None] = {}
    for v in region.members:
        if not region.is_row(v) or v.op.kind == "reduce":
            edges |= dict.fromkeys(_borders(v, [i.replace(full) for i in region.index(v)]))
    return tuple(edges)


def _borders(v: Value, index: Sequence[Index]) -> Iterator[Edge]:
    """The borders in the views that v reads."""
    for x, at in reads(v, index):
        if not is_view(x):
            continue
        if x.op.name == "pad":
            low, sizes = x.attrs["low"], x.args[0].shape
            for i, a, n in zip(at, low, sizes, strict=True):
                edge = Edge(i, a, a + n)
                if edge.inside({}) is not True:
                    yield edge
        yield from _borders(x, at)


def all_inside(edges: Sequence[Edge], at: dict[Var, Index]) -> bool | None:
    """Whether elements at these positions are inside on all axes; None if only some are."""
    answers = {edge.inside(at) for edge in edges}
    return False if False in answers else None if None in answers else True


def overlap(at: Index, across: Var, last: Var) -> bool:
    """Whether neighboring results along one loop read common elements along the other."""
    step, gap = at.factor(across), at.factor(last)
    return step > 0 and gap > 0 and ((step % gap == 0 and step // gap < last.extent)
                                     or (gap % step == 0 and gap // step < across.extent))


def runs(extent: int, most: int, inside: Callable[[Index], bool | None]) -> Iterator[Run]:
    """Groups of at most `most` neighbors. Those at a border form groups of one."""
    for run in split(extent, most):
        neighbors = Index.of(Var("p", run.size))
        starts = range(run.start, run.start + run.size * run.count, run.size)
        groups = ((inside(neighbors + start), start) for start in starts)
        for answer, group in groupby(groups, lambda pair: pair[0]):
            first, *others = (start for _, start in group)
            if answer:
                yield Run(first, run.size, 1 + len(others))
            else:
                yield from (Run(start, run.size, 1) for start in (first, *others))
