"""Which products are the gradients of an attention."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.lower.rewrites.attention import is_row
from ztorch.lower.rewrites.attention_sums import Factors, factors_of, transpose_source


@dataclass
class GradientSearch:
    """Looks for the products that are gradients of an attention."""

    q: Value
    transposed_k: Value
    v: Value
    weights: Factors
    exponential: Value
    mask: Value | None
    slope: Value | None = None
    parts: tuple[Value, Value, float] | None = None  # slope @ v.T, what is added, the factor

    def name(self, c: Value, turned: bool) -> str:
        """Which gradient a product, or the product turned, is; empty if none."""
        sides = tuple(map(transposed, reversed(c.args))) if turned else c.args
        left, order = transpose_source(sides[0])
        last = c.rank - 1
        swapped = order == (*range(last - 1), last, last - 1)
        straight = order == (*range(c.rank),)
        factors = factors_of(left, self.mask, dropped=True) if swapped or straight else None
        if factors is None or c.dtype != self.q.dtype:
            return ""
        if swapped and factors == self.weights:
            self.slope = sides[1]
            return "v"
        parts = self._parts(factors)
        if parts is None or (self.parts is not None and parts != self.parts):
            return ""
        self.parts = parts
        if swapped:
            return "k" if same(sides[1], self.q) else ""
        return "q" if same(sides[1], transposed(self.transposed_k)) else ""

    def _parts(self, factors: Factors) -> tuple[Value, Value, float] | None:
        """The parts of factors that are a gradient of scores."""
        exponential = Counter({("value", self.exponential): 1})
        rest = factors - exponential
        others = [x for kind, x in rest.elements() if kind != "number"]
        if rest.total() != factors.total() - 1 or len(others) != 1 or others[0].op.opcode != "add":
            return None
        for term, added in (others[0].args, others[0].args[::-1]):
            product = factors_of(term, dropped=True)
            if product is None or not is_row(added):
                continue
            before = self.weights - exponential
            [x, *more] = [x for _, x in (product - before).elements()] or [None]
            if not before - product and not more and isinstance(x, Value) and (
                    x.op.kind == "contract" and same(x.args[1], transposed(self.v))):
                return x, added, product_of_numbers(rest)
        return None


def transposed(v: Value) -> Value:
    """The value with its last two axes swapped."""
    return OPS.transpose(v, (*range(v.rank - 2), v.rank - 1, v.rank - 2))


def same(a: Value, b: Value) -> bool:
    """Whether two values are the same transpose of the same value."""
    return transpose_source(a) == transpose_source(b)


def product_of_numbers(factors: Factors) -> float:
    """The product of all numbers among factors."""
    return math.prod(x for kind, x in factors.elements() if kind == "number")
