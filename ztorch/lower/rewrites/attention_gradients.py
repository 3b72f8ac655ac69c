"""Finds the gradients of attention. Two kernels compute its scores again, block by block:

    weights = exp2(score * log2(e) + level)    level: a number per row, from the result's kernel
    change = weights * (slope @ v.T + shift)   shift: a number per row, minus the sum of slope * y
    dv = weights.T @ slope, dk = change.T @ q * factor     by blocks of queries, for some keys
    dq = change @ k * factor                               by blocks of keys, for some queries

So neither scores nor weights are stored, and no result is summed by several workgroups. With
dropout, random numbers are drawn again, too: where a weight is dropped, slope @ v.T and the weight
of dv are zero, and all results are multiplied by the scale of those that are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ztorch.dtypes import DType, f32
from ztorch.graph.narrow import ROUNDED
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Op, Value, layer_scope, not_evaluated, topological
from ztorch.ir.halves import HALVES
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.product_rules import CHUNK
from ztorch.lower.rewrites.attention import (
    ATTENTION,
    attention_of,
    filled,
    hidden_by,
    in_halves,
    is_row,
    matrix_shape,
    widened,
)
from ztorch.lower.rewrites.attention_gradient_search import (
    GradientSearch,
    product_of_numbers,
    same,
    transposed,
)
from ztorch.lower.rewrites.attention_results import ATTENTION_RESULT
from ztorch.lower.rewrites.attention_scores import bare_scores
from ztorch.lower.rewrites.attention_sums import factors_of, summed_by, total_of
from ztorch.lower.rewrites.softened import Softened
from ztorch.lower.tuning import ATTENTION_GRADIENT_COLUMNS


def _infer(q: Value, k: Value, v: Value, slope: Value, level: Value, shift: Value, *reads: Value,
           attention: Softened, by_keys: bool, factor: float,
           scale: float) -> tuple[tuple[int, ...], DType]:
    return (*q.shape[:-2], *(v.shape[-2:] if by_keys else q.shape[-2:])), attention.dtype


# With `by_keys`: of the values, and its result 1 is that of the keys; otherwise of the queries.
ATTENTION_GRADIENT = Op("attention_gradient", "attention_gradient", _infer, not_evaluated)


def with_attention_gradients(graph: Graph, limits: Limits) -> Graph:
    """The graph with nodes for attention whose scores only its result and its gradients read."""
    grid = limits.grid
    if grid is None or not grid.asynchronous_copies:
        return graph
    products = [v for v in graph.nodes() if v.op.kind == "contract"]
    trained = [x for v in products if (x := _trained(v, products, grid)) is not None]
    while trained:
        new, rewritten = _rewritten(graph, trained)
        nodes = {*rewritten.nodes()}
        alone = [x for x in trained if not {new[x.scores], new[x.slopes]} & nodes]
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
    products: tuple[Value, Value, Value]  # queries, keys, values
    reads: list[Value]  # what scores and dropout read
    scores: Value
    slopes: Value  # slope @ v.T
    slope: Value
    total: Value  # the sums of exponentials
    inverse: Value  # 1 / total
    gradients: dict[Value, tuple[str, bool]]  # "q", "k" or "v", and whether it is transposed
    added: Value  # to slopes / total
    sums: list[Value]  # that it is computed from: of slopes * weights
    factor: float
    scale: float  # of weights that are not dropped
    made: dict[str, Value] = field(default_factory=dict)
    halves: dict[Value, Value] = field(default_factory=dict)  # rounded operands in 16 bits

    def nodes_for(self, name: str, new: Mapping[Value, Value]) -> Value:
        """The result "y", or a gradient, on new operands."""
        *products, reads = *self.products, [new[x] for x in self.reads]
        if name != "y":
            products.append(self.slope)
        q, k, v, *slopes = in_halves(tuple(new[x] for x in products), self.halves)
        if name == "y":
            return self._once("y", lambda: ATTENTION(q, k, v, *reads, attention=self.attention))
        by_keys = name != "q"
        node = self._once("keys" if by_keys else "q", lambda: ATTENTION_GRADIENT(
            q, k, v, *slopes, *self._rows(new, *slopes), *reads, attention=self.attention,
            by_keys=by_keys, factor=self.factor * self.scale, scale=self.scale))
        return node if name != "k" else ATTENTION_RESULT(
            node, index=1, shape=(*q.shape[:-2], *k.shape[-2:][::-1]), dtype=node.dtype)

    def _once(self, name: str, make: Any) -> Value:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def _rows(self, new: Mapping[Value, Value], slope: Value) -> tuple[Value, Value]:
        """The numbers of each row: level and shift."""
        if "level" not in self.made:
            y = self.made["y"]
            level, total = (ATTENTION_RESULT(y, index=n, shape=y.shape[:-1], dtype=f32)
                            for n in range(2))
            short = y if y.dtype in HALVES else ROUNDED(y, dtype=y.args[0].dtype)
            values = {self.total: total, self.result: short, self.slope: OPS.cast(slope, f32)}
            over_values = OPS.sum(OPS.cast(slope, f32) * OPS.cast(short, f32), axis=-1) * total
            values |= {v: OPS.reshape(over_values, v.shape) for v in self.sums}
            added, inverse = _in_float32([self.added.args[0], self.inverse.args[0]], values, new)
            self.made["level"] = OPS.reshape(level, inverse.shape)
            self.made["shift"] = added / (inverse if self.scale == 1.0 else inverse * self.scale)
        return self.made["level"], self.made["shift"]


def _rewritten(graph: Graph, trained: list[_Trained]) -> tuple[dict[Value, Value], Graph]:
    """The new values, by old, and the graph of them."""
    places = {v: (x, *place) for x in trained
              for v, place in ({x.result: ("y", False)} | x.gradients).items()}
    new: dict[Value, Value] = {}
    for v in topological([*(x.result for x in trained), *graph.roots]):
        with layer_scope(v.layer):
            if v in places:
                x, name, turned = places[v]
                node = x.nodes_for(name, new)
                new[v] = transposed(node) if turned else node
            else:
                new[v] = rebuilt(v, tuple(new[a] for a in v.args))
    return new, graph.with_roots(new[r] for r in graph.roots)


def _in_float32(roots: list[Value], known: Mapping[Value, Value],
                new: Mapping[Value, Value]) -> list[Value]:
    """Values computed in float32 from what is known, and elsewhere as before."""
    values, derived = dict(known), {*known}
    for x in topological(roots, known):
        if x in values:
            continue
        if derived.isdisjoint(x.args):
            number = filled(x) if x.dtype in HALVES else None
            values[x] = new[x] if number is None else OPS.full(x.shape, number, f32)
            continue
        derived.add(x)
        args = tuple(values[a] for a in x.args)
        values[x] = OPS.sum(OPS.cast(args[0], f32), axis=x.attrs["axes"]) if (
            x.op.kind == "reduce") else widened(x, args)
    return [OPS.cast(values[v], f32) for v in roots]


def _trained(y: Value, products: list[Value], grid: GridLimits) -> _Trained | None:
    """The attention whose result is y, with its gradients; None if it is none or has none."""
    parts = attention_of(y)
    weights = factors_of(y.args[0], dropped=True) if parts else None
    if parts is None or weights is None:
        return None
    attention, (q, k, v, *reads) = parts
    bare = bare_scores(attention)
    if bare.bare is not bare.unmasked and not attention.has_empty_rows:
        return None  # a row that sees nothing has NaN in its gradients, in others than theirs
    exponentials = [x for kind, x in weights if kind == "value" and x.op.opcode == "exp"]
    inverses = [x for kind, x in weights if kind == "value" and is_row(x)]
    kinds = Counter(kind for kind, _ in weights.elements())
    scale = product_of_numbers(weights)
    if bare.unmasked is not attention.scores or len(exponentials) != 1 or len(inverses) != 1 or (
            kinds["value"] != 2 or kinds["kept"] > 1 or scale <= 0.0):
        return None
    exponential: Value = exponentials[0]
    inverse: Value = inverses[0]
    total = total_of(inverse)
    if total is None or summed_by(total) != exponential:
        return None
    score = exponential.args[0].args[0]
    search = GradientSearch(q, k, v, weights, exponential, hidden_by(score))
    gradients = {c: (name, turned) for c in products for turned in (False, True)
                 if (name := search.name(c, turned))}
    if sorted(name for name, _ in gradients.values()) != ["k", "q", "v"] or (
            search.parts is None or search.slope is None
            or not same(search.slope, search.parts[0].args[0])):
        return None
    slopes, added, factor = search.parts
    if not _fits(in_halves((q, k, v, slopes.args[0]), {}), grid):
        return None
    sums = [x for x in topological([added]) if x.op.kind == "reduce" and x.op.opcode == "add"
            and factors_of(x.args[0], search.mask, dropped=True) == weights - Counter(
                {("value", inverse): 1}) + Counter({("value", slopes): 1})]
    [scores] = [x for x in topological([score]) if x.op.kind == "contract" and x.args[0] is q
                and x.args[1] is k]
    return _Trained(y, attention, (q, k, v), reads, scores, slopes, slopes.args[0],
                    _sum_of(total), inverse, gradients, added, sums, factor, scale)


def _sum_of(total: Value) -> Value:
    while total.op.kind != "reduce":
        total = total.args[1] if total.op.opcode == "select" else total.args[0]
    return total


def _fits(operands: tuple[Value, ...], grid: GridLimits) -> bool:
    """Whether kernels can have such queries, keys, values and slopes, and gain."""
    q, _, v, _ = operands
    chunk = CHUNK // q.dtype.bytes
    return (q.dtype in HALVES and {x.dtype for x in operands} == {q.dtype}
            and matrix_shape(q.dtype, grid) is not None
            and q.shape[-1] % chunk == 0 == v.shape[-1] % chunk
            and v.shape[-2] >= ATTENTION_GRADIENT_COLUMNS)
