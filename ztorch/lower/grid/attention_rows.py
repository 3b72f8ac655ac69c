"""Attention on grids: its sizes, and the computations on a row of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.dtypes import f32
from ztorch.graph.value import Value, topological
from ztorch.ir.builder import Builder
from ztorch.ir.exponentials import LOG2_E
from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.workgroups import where
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention_results import SHORT
from ztorch.lower.rewrites.softened import Softened
from ztorch.lower.tuning import ATTENTION_NUMBERS


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an attention."""

    matrices: int  # batch size times heads
    rows: int  # queries
    columns: int  # keys
    depth: int  # elements of a query and of a key
    width: int  # elements of a value and of a result


def sizes_of(region: Region) -> AttentionSizes:
    """The sizes of the attention of a region."""
    q, _, v, *_ = region.members[0].args
    *batch, rows, depth = q.shape
    return AttentionSizes(math.prod(batch), rows, v.shape[-2], depth, v.shape[-1])


class AttentionRows:
    """The computations of attention on a row of scores, for any mapping of rows to threads."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], matrix: Operand):
        self.b, self.node, self.sizes = b, region.members[0], sizes_of(region)
        attention: Softened = self.node.attrs["attention"]
        reads = self.node.args[len(self.node.args) - len(attention.reads):]
        self.attention = attention.opened(reads)
        self.results = {v.attrs["index"]: v for v in region.members[1:]}  # further ones
        self.batch = Var("matrix", self.sizes.matrices)
        self.row, self.column = Var("row", self.sizes.rows), Var("column", self.sizes.columns)
        self.depth, self.place = Var("depth", self.sizes.depth), Var("place", self.sizes.width)
        self.e = Emitter(b, memory, {self.batch: matrix})
        if self.attention.dropout_mask is not None:
            self._load_numbers(self.attention.dropout_mask)

    def _load_numbers(self, v: Value) -> None:
        """Loads the few numbers that all elements of a value depend on, such as a seed, once."""
        for x in topological([v]):
            if x in self.e.memory and x.size <= ATTENTION_NUMBERS:
                for flat in range(x.size):
                    self.e.element(x, unflatten(Index() + flat, x.shape))

    def scope(self, **places: Operand) -> Emitter:
        """A scope at a given row, column, and position along a key or a value."""
        return self.e.within(bound={**self.e.bound, **{
            getattr(self, name): at for name, at in places.items()}})

    def index(self, *axes: Var) -> tuple[Index, ...]:
        """A position in a matrix."""
        batch = unflatten(Index.of(self.batch), self.node.shape[:-2])
        return (*batch, *map(Index.of, axes))

    def score(self, e: Emitter, product: Operand, end: Operand | None) -> Operand:
        """The score of a product; minus infinity where `end` is false."""
        a = self.attention
        e.here[a.scores] = product
        x = e.element(a.score, self.index(self.row, self.column))
        return x if end is None else self.b.select(end, x, -math.inf)

    def used(self, e: Emitter, weight: Operand) -> Operand:
        """The weight of an element, or of its gradient; zero where it is dropped."""
        mask = self.attention.dropout_mask
        return weight if mask is None else self.b.select(
            e.element(mask, self.index(self.row, self.column)), weight, 0.0)

    def shift(self, e: Emitter, largest: Operand) -> Operand:
        """The number subtracted from the scores of a row; finite even if all were masked so far."""
        a, b, e = self.attention, self.b, e.within()
        if not a.has_empty_rows:
            largest = b.select(b.gt(largest, -math.inf), largest, 0.0)
        e.here[a.largest] = largest
        return self.number(e, a.shift)

    def exponential(self, x: Operand) -> Operand:
        """e to the power of x."""
        return self.b.exp(x)

    def rescaled(self, e: Emitter, before: Operand, after: Operand) -> Operand:
        """The factor that rescales earlier exponentials when the largest score of a row grows."""
        b = self.b
        factor = self.exponential(b.sub(self.shift(e, before), self.shift(e, after)))
        return b.select(b.eq(before, -math.inf), 0.0, factor)  # the first block

    def number(self, e: Emitter, v: Value) -> Operand:
        """The element of a per-row value."""
        return e.element(v, (*self.index(self.row), Index()))

    def factor(self, e: Emitter, total: Operand) -> Operand:
        """The factor that the result of a row is multiplied by."""
        e, product = e.within(), None
        e.here[self.attention.total] = total
        for v in self.attention.factors:
            x = self.number(e, v)
            product = x if product is None else self.b.mul(product, x)
        return self.b.const(1.0, f32) if product is None else product

    def store_state(self, e: Emitter, largest: Operand, total: Operand, inside: Operand | None,
                    target: Mapping[Value, str]) -> None:
        """Stores the further results of a row, for its gradients."""
        b = self.b
        flat = Index.of(self.batch) * self.sizes.rows + Index.of(self.row)
        for index, v in self.results.items():
            if v in target and index < SHORT:
                with where(b, inside):
                    x = total if index else b.select(b.gt(total, 0.0), b.sub(
                        b.mul(self.shift(e, largest), -LOG2_E), b.log2(total)), 0.0)
                    e.store(target[v], v, flat, x)

    def result(self, n: int) -> list[Value]:
        """A result of the node, as it is and in 16 bits, by what is read."""
        own = self.node if n == 0 else self.results.get(n)
        return [v for v in (own, self.results.get(SHORT + n)) if v is not None]

    def end(self, first: Operand, rows: int) -> Operand:
        """The first column that no row of a block uses."""
        b, ahead = self.b, self.attention.ahead
        all_columns = b.const(self.sizes.columns, b.index)
        if ahead is None:
            return all_columns
        return b.min(all_columns, b.max(b.add(first, rows - 1 + ahead), 1))
