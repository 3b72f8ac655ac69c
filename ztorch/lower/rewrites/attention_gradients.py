"""Finds the gradients of attention. Two kernels compute its scores again, block by block:

    weights = exp2(score * log2(e) + level)    level: a number per row, from the result's kernel
    change = weights * (slope @ v.T + shift)   shift: a number per row, minus the sum of slope * y
    dv = weights.T @ slope, dk = change.T @ q * factor     by blocks of queries, for some keys
    dq = change @ k * factor                               by blocks of keys, for some queries

So neither scores nor weights are stored, and no result is summed by several workgroups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ztorch.dtypes import DType, f32
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Op, Value, layer_scope, topological
from ztorch.ir.halves import HALVES
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.product_rules import CHUNK
from ztorch.lower.rewrites.attention import (
    ATTENTION,
    Softened,
    attention_of,
    filled,
    hidden_by,
    is_row,
    matrix_shape,
    widened,
)
from ztorch.lower.rewrites.attention_scores import bare_scores
from ztorch.lower.rewrites.attention_sums import factors_of, summed_by, total_of, transpose_source
from ztorch.lower.tuning import ATTENTION_GRADIENT_COLUMNS


def _infer(q: Value, k: Value, v: Value, slope: Value, level: Value, shift: Value, *reads: Value,
           attention: Softened, by_keys: bool, factor: float) -> tuple[tuple[int, ...], DType]:
    return (*q.shape[:-2], *(v.shape[-2:] if by_keys else q.shape[-2:])), attention.dtype


def _infer_result(node: Value, index: int, shape: tuple[int, ...],
                  dtype: DType) -> tuple[tuple[int, ...], DType]:
    return shape, dtype


def _not_evaluated(*args: Any, **attrs: Any) -> Any:
    raise AssertionError("gradients of attention are found after graphs are evaluated")


# With `by_keys`: of the values, and its result 1 is that of the keys; otherwise of the queries.
ATTENTION_GRADIENT = Op("attention_gradient", "attention_gradient", _infer, _not_evaluated)
# A further result of attention or of its gradients. Of attention, for each row: 0: the number that
# makes exp2(score * log2(e) + number) the weights; 1: the sum of exponentials.
ATTENTION_RESULT = Op("attention", "attention_result", _infer_result, _not_evaluated)


def with_attention_gradients(graph: Graph, limits: Limits) -> Graph:
    """The graph with nodes for attention whose scores only its result and its gradients read."""
    grid = limits.grid
    if grid is None or not (grid.tile_copies and grid.asynchronous_products):
        return graph
    products = [v for v in graph.nodes() if v.op.kind == "contract"]
    trained = [x for v in products if (x := _trained(v, products, grid)) is not None]
    while trained:
        new, rewritten = _rewritten(graph, trained)
        kept = {*rewritten.nodes()}
        alone = [x for x in trained if not {new[x.scores], new[x.slopes]} & kept]
        if len(alone) == len(trained):
            return rewritten
        for x in alone:
            x.made.clear()
        trained = alone
    return graph


@dataclass
class _Trained:
    """Attention and its gradients, as products."""

    result: Value
    attention: Softened
    operands: tuple[Value, ...]  # queries, keys, values and what scores read
    scores: Value
    slopes: Value  # slope @ v.T
    slope: Value
    total: Value  # the sums of exponentials
    inverse: Value  # 1 / total
    gradients: dict[Value, tuple[str, bool]]  # "q", "k" or "v", and whether it is transposed
    added: Value  # to slopes / total
    factor: float
    made: dict[str, Value] = field(default_factory=dict)

    def nodes_for(self, name: str, new: Mapping[Value, Value]) -> Value:
        """The result "y", or a gradient, on new operands."""
        q, k, v, *reads = (new[x] for x in self.operands)
        if name == "y":
            return self._once("y", lambda: ATTENTION(q, k, v, *reads, attention=self.attention))
        by_keys = name != "q"
        node = self._once("keys" if by_keys else "q", lambda: ATTENTION_GRADIENT(
            q, k, v, new[self.slope], *self._rows(new), *reads, attention=self.attention,
            by_keys=by_keys, factor=self.factor))
        return node if name != "k" else ATTENTION_RESULT(
            node, index=1, shape=(*q.shape[:-2], *k.shape[-2:][::-1]), dtype=node.dtype)

    def _once(self, name: str, make: Any) -> Value:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def _rows(self, new: Mapping[Value, Value]) -> tuple[Value, Value]:
        """The numbers of each row: level and shift."""
        if "level" not in self.made:
            y = self.made["y"]
            level, total = (ATTENTION_RESULT(y, index=n, shape=y.shape[:-1], dtype=f32)
                            for n in range(2))
            known = {self.total: total, self.result: y, self.slope: new[self.slope]}
            added, inverse = _in_float32([self.added.args[0], self.inverse.args[0]], known, new)
            self.made["level"] = OPS.reshape(level, inverse.shape)
            self.made["shift"] = added / inverse
        return self.made["level"], self.made["shift"]


def _rewritten(graph: Graph, trained: list[_Trained]) -> tuple[dict[Value, Value], Graph]:
    """The new values, by old, and the graph of them."""
    places = {v: (x, *place) for x in trained
              for v, place in ({x.result: ("y", False)} | x.gradients).items()}
    new: dict[Value, Value] = {}
    for v in topological([*(x.result for x in trained), *graph.roots]):
        with layer_scope(v.layer):
            if v in places:
                x, name, transposed = places[v]
                node = x.nodes_for(name, new)
                new[v] = _transposed(node) if transposed else node
            else:
                new[v] = rebuilt(v, tuple(new[a] for a in v.args))
    return new, graph.with_roots(new[r] for r in graph.roots)


def _in_float32(roots: list[Value], known: Mapping[Value, Value],
                new: Mapping[Value, Value]) -> list[Value]:
    """Values computed in float32 from what is known, and elsewhere as before."""
    made, derived = dict(known), {*known}
    for x in topological(roots, known):
        if x in made:
            continue
        if derived.isdisjoint(x.args):
            number = filled(x) if x.dtype in HALVES else None
            made[x] = new[x] if number is None else OPS.full(x.shape, number, f32)
            continue
        derived.add(x)
        args = tuple(made[a] for a in x.args)
        made[x] = OPS.sum(OPS.cast(args[0], f32), axis=x.attrs["axes"]) if (
            x.op.kind == "reduce") else widened(x, args)
    return [OPS.cast(made[v], f32) for v in roots]


def _trained(y: Value, products: list[Value], grid: GridLimits) -> _Trained | None:
    """The attention whose result is y, with its gradients; None if it is none or has none."""
    parts = attention_of(y) if y.dtype in HALVES else None
    weights = factors_of(y.args[0]) if parts else None
    if parts is None or weights is None or not _fits(parts[1], grid):
        return None
    attention, (q, k, v, *reads) = parts
    bare = bare_scores(attention)
    exponentials = [x for kind, x in weights if kind == "value" and x.op.opcode == "exp"]
    inverses = [x for kind, x in weights if kind == "value" and is_row(x)]
    if bare.unmasked is not attention.scores or len(exponentials) != 1 or len(inverses) != 1 or (
            weights.total() != 2):
        return None
    exponential: Value = exponentials[0]
    inverse: Value = inverses[0]
    total = total_of(inverse)
    if total is None or summed_by(total) != exponential:
        return None
    score = exponential.args[0].args[0]
    search = _GradientSearch(q, k, v, weights, inverse, exponential, hidden_by(score))
    gradients = {c: (name, transposed) for c in products for transposed in (False, True)
                 if (name := search.name(c, transposed))}
    if sorted(name for name, _ in gradients.values()) != ["k", "q", "v"] or (
            search.parts is None or search.slope is None
            or not _same(search.slope, search.parts[0].args[0])):
        return None
    slopes, added, factor = search.parts
    [scores] = [x for x in topological([score]) if x.op.kind == "contract" and x.args[0] is q
                and x.args[1] is k]
    return _Trained(y, attention, (q, k, v, *reads), scores, slopes, slopes.args[0],
                    _sum_of(total), inverse, gradients, added, factor)


def _sum_of(total: Value) -> Value:
    while total.op.kind != "reduce":
        total = total.args[1] if total.op.opcode == "select" else total.args[0]
    return total


def _fits(operands: tuple[Value, ...], grid: GridLimits) -> bool:
    """Whether kernels of teams can have such operands, and gain."""
    q, k, v, *_ = operands
    chunk = CHUNK // q.dtype.bytes
    return (matrix_shape(q.dtype, grid) is not None and {k.dtype, v.dtype} == {q.dtype}
            and q.shape[-1] % chunk == 0 == v.shape[-1] % chunk
            and v.shape[-2] >= ATTENTION_GRADIENT_COLUMNS)


@dataclass
class _GradientSearch:
    """Looks for the products that are gradients of an attention."""

    q: Value
    transposed_k: Value
    v: Value
    weights: Counter[tuple[str, Any]]
    inverse: Value
    exponential: Value
    mask: Value | None
    slope: Value | None = None
    parts: tuple[Value, Value, float] | None = None  # slope @ v.T, what is added, the factor

    def name(self, c: Value, transposed: bool) -> str:
        """Which gradient a product, or the product transposed, is; empty if none."""
        sides = tuple(map(_transposed, reversed(c.args))) if transposed else c.args
        left, order = transpose_source(sides[0])
        last = c.rank - 1
        swapped = order == (*range(last - 1), last, last - 1)
        factors = factors_of(left, self.mask) if swapped or order == (*range(c.rank),) else None
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
            return "k" if _same(sides[1], self.q) else ""
        return "q" if _same(sides[1], _transposed(self.transposed_k)) else ""

    def _parts(self, factors: Counter[tuple[str, Any]]) -> tuple[Value, Value, float] | None:
        """The parts of factors that are a gradient of scores."""
        rest = factors - Counter({("value", self.exponential): 1})
        others = [x for kind, x in rest.elements() if kind == "value"]
        if rest.total() != factors.total() - 1 or len(others) != 1 or others[0].op.opcode != "add":
            return None
        factor = math.prod(x for kind, x in rest.elements() if kind == "number")
        for one, added in (others[0].args, others[0].args[::-1]):
            product = factors_of(one)
            if product is None or not is_row(added) or product.total() != 2 or (
                    ("value", self.inverse) not in product):
                continue
            for kind, x in product:
                if kind == "value" and x.op.kind == "contract" and (
                        _same(x.args[1], _transposed(self.v))):
                    return x, added, factor
        return None


def _transposed(v: Value) -> Value:
    return OPS.transpose(v, (*range(v.rank - 2), v.rank - 1, v.rank - 2))


def _same(a: Value, b: Value) -> bool:
    """Whether two values are the same transpose of the same value."""
    return transpose_source(a) == transpose_source(b)
