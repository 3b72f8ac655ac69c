"""The elementwise work of an attention: what is done to scores, and to the weights made of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ztorch.dtypes import DType, f32
from ztorch.graph.rewrite import substituted
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Value, topological


@dataclass(frozen=True, eq=False)
class Softened:
    """The elementwise work on the scores of a row: expressions of leaves, in float32."""

    scores: Value  # leaf: products of queries and keys
    largest: Value  # leaf: the largest score of a row
    total: Value  # leaf: the sum of exponentials of a row
    reads: tuple[Value, ...]  # leaves: all other operands
    score: Value  # a product after scaling and masking
    shift: Value  # subtracted before the exponential; one number per row
    factors: tuple[Value, ...]  # multiplied with the result; one number per row each
    # True where a weight is used, and not dropped; None: everywhere.
    dropout_mask: Value | None = None
    dtype: DType = f32  # of the result
    ahead: int | None = None  # row i uses no column from i + ahead on, by blocks; None: all
    shown: int | None = None  # row i uses all columns before i + shown, by blocks; None: unknown

    @property
    def roots(self) -> tuple[Value, ...]:
        """All that is computed."""
        mask = () if self.dropout_mask is None else (self.dropout_mask,)
        return self.score, self.shift, *self.factors, *mask

    @property
    def has_empty_rows(self) -> bool:
        """Whether rows that see nothing have a result, since their shift is chosen; else NaN."""
        return any(v.op.opcode == "select" for v in topological([self.shift]))

    def opened(self, args: Sequence[Value]) -> Softened:
        """The same with the kernel's operands in place of `reads`."""
        score, shift, *others = substituted(
            self.roots, dict(zip(self.reads, args, strict=True)))
        mask = None if self.dropout_mask is None else others.pop()
        return replace(self, score=score, shift=shift, factors=tuple(others), dropout_mask=mask)

    @functools.cached_property
    def text(self) -> str | None:
        """A digest, equal for equal computations; None if user-defined ops are involved."""
        values = (self.scores, self.largest, self.total, *self.reads, *self.roots)
        text = text_of(Graph({str(k): v for k, v in enumerate(values)}))
        return text and hashlib.sha256(f"{text}\n{self.ahead}\n{self.shown}".encode()).hexdigest()

    def __repr__(self) -> str:
        """The text by which attributes of nodes are compared: equal for equal computations."""
        return f"<attention {self.text or id(self)}>"
