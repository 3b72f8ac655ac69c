"""Finds attention: the softmax of the rows of one product, times another matrix.

    result = (exp(score(q @ k) - shift(largest)) @ v) * factor(total)

One kernel computes the scores block by block, with a running maximum and sum of exponentials for
each row, so scores are never stored. Any elementwise work on scores is allowed, such as a scale or
a mask, and dropout of weights, whose random numbers are computed where they are used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ztorch.dtypes import DType, f32
from ztorch.graph.narrow import ROUNDED, narrowed
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Op, Value, layer_scope, not_evaluated, topological
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import Fragment, MmaShape
from ztorch.ir.layouts import layout_of
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, certain, is_view
from ztorch.lower.rewrites.large_intermediates import Group, LargeShape, is_broadcast, pointwise
from ztorch.lower.rewrites.masked_columns import Part, is_masked, is_unmasked
from ztorch.lower.rewrites.softened import Softened
from ztorch.lower.tuning import ATTENTION_ROWS, ATTENTION_SHARE, ATTENTION_SIZE, SEEN_ROWS


def _infer(q: Value, k: Value, v: Value, *reads: Value,
           attention: Softened) -> tuple[tuple[int, ...], DType]:
    return (*q.shape[:-1], v.shape[-1]), attention.dtype


ATTENTION = Op("attention", "attention", _infer, not_evaluated)


def with_attention(graph: Graph, limits: Limits) -> Graph:
    """The graph with a node for each attention whose scores nothing else reads."""
    assert limits.grid is not None
    nodes, new, known = graph.nodes(), dict[Value, Value](), dict[Value, Value]()
    readers = Counter([*graph.roots, *(a for v in nodes for a in set(v.args))])
    for v in nodes:
        args = tuple(new[a] for a in v.args)
        new[v] = v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)
        parts = attention_of(v, readers) if _wanted(v, limits.grid) else None
        if parts is not None:
            attention, operands = parts
            q, k, values, *reads = (new[x] for x in operands)
            with layer_scope(v.layer):
                products = in_halves((q, k, values), known)
                if not limits.grid.mma_shapes or matrix_shape(products[0].dtype, limits.grid):
                    new[v] = ATTENTION(*products, *reads, attention=attention)
    return graph.with_roots(new[r] for r in graph.roots)


def in_halves(operands: tuple[Value, ...], known: dict[Value, Value]) -> tuple[Value, ...]:
    """The operands in 16 bits if that is exact for all of them, as in mixed precision."""
    short = tuple(narrowed(x, known) for x in operands)
    halves = tuple(x for x in short if x is not None)
    same = len(halves) == len(operands) and len({x.dtype for x in halves}) == 1
    return halves if same else operands


def attention_on_buffers(v: Value) -> Value:
    """The node with operands that can be read in place."""
    args = tuple(a if _readable(a) else COPY(a) for a in v.args)
    return v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)


def _readable(v: Value) -> bool:
    index = [Index.of(Var(f"d{k}", n)) for k, n in enumerate(v.shape)]
    return not is_view(v) or (bool(v.args) and certain(v, index))


def _wanted(v: Value, grid: GridLimits) -> bool:
    """Whether v may be the last product of an attention for which one kernel pays. Without matrix
    instructions, one kernel is slower than separate products, so it only saves memory."""
    if v.op.kind != "contract" or v.size == 0 or v.shape[-2] < ATTENTION_ROWS:
        return False
    return bool(grid.mma_shapes) or v.args[0].nbytes >= ATTENTION_SHARE * grid.max_buffer_bytes


def matrix_shape(d: DType, grid: GridLimits) -> MmaShape | None:
    """The shape in which a machine multiplies matrices of a dtype without conversion. None if it
    cannot, or if it does not document which thread holds which elements."""
    for shape in grid.mma_shapes:
        if shape.of == d and shape.into == f32 and all(
                layout_of(Fragment(role, shape, grid.mma_layout)) for role in "ac"):
            return shape
    return None


def attention_of(v: Value, readers: Mapping[Value, int] | None = None) -> tuple[
        Softened, tuple[Value, ...]] | None:
    """The attention whose last product v is, and its operands; None if v is none. With `readers`,
    the number of readers of each value, nothing else may read its scores."""
    if v.dtype not in (*HALVES, f32):
        return None
    search = _Search(v, v.args[0].shape)
    e = search.exponential()
    if e is None or e.args[0].op.opcode != "sub" or not is_row(e.args[0].args[1]):
        return None
    score, shift = e.args[0].args
    product, largest = search.product(score), search.reduced("max", score, [shift])
    if product is None or product.args[0].shape[-1] + v.shape[-1] > ATTENTION_SIZE or (
            product.args[0].dtype != v.dtype or v.args[1].dtype != v.dtype):
        return None
    totals = search.reduced("add", e, search.factors)
    if len(largest) != 1 or len(totals) > 1 or not (
            readers is None or search.alone(product, readers)):
        return None
    a = search.attention(product, score, shift.args[0], largest[0], totals)
    if a is None:
        return None
    shape = LargeShape(score.shape[:-2], *score.shape[-2:])
    inner = set(topological([v.args[0]], {product, *search.leaf_of}))
    group = Group(shape, [v], inner | {product})
    a = replace(a, ahead=_ahead(group), shown=_shown(group, score), dtype=v.dtype)
    return a, (*product.args, v.args[1], *search.leaf_of)


def filled(v: Value) -> float | None:
    """The number that all elements are equal to; None if unknown."""
    while v.op.opcode == "cast" or v.op.movement:
        v = v.args[0]
    value = v.attrs.get("value") if v.op.name == "full" else None
    return None if value is None else float(value)


def hidden_by(score: Value) -> Value | None:
    """The mask that is true where a score is not minus infinity; None without one."""
    masked = score.op.opcode == "select" and filled(score.args[2]) == -math.inf
    return score.args[0] if masked else None


def _parts(group: Group) -> list[Part]:
    rows = group.shape.rows
    return [(i, min(i + SEEN_ROWS, rows)) for i in range(0, rows, SEEN_ROWS)]


def _shown(group: Group, score: Value) -> int | None:
    """The largest known n such that each row i uses all columns before i + n."""
    mask, columns = hidden_by(score), group.shape.columns
    if mask is None:
        return None
    for shown in sorted((1, columns - group.shape.rows + 1), reverse=True):
        if all(is_unmasked(group, mask, part, (0, min(part[0] + shown, columns)))
               for part in _parts(group) if part[0] + shown > 0):
            return shown
    return None


def _ahead(group: Group) -> int | None:
    """The smallest known n such that no row i uses a column from i + n on; None if there is none.
    """
    columns = group.shape.columns
    for ahead in (1, columns - group.shape.rows + 1):
        hidden = [(part, (end, columns)) for part in _parts(group)
                  if (end := max(1, part[1] - 1 + ahead)) < columns]
        if hidden and all(is_masked(group, *pair) for pair in hidden):
            return ahead
    return None


@dataclass
class _Search:
    """Looks for the parts of an attention."""

    result: Value
    shape: tuple[int, ...]  # of scores
    factors: list[Value] = field(default_factory=list)  # found so far; one number per row each
    dropout_mask: Value | None = None  # true where weights are not dropped
    leaf_of: dict[Value, Value] = field(default_factory=dict)  # by operand

    def exponential(self) -> Value | None:
        """The weights of the last product, without factors that are constant along rows."""
        w = self.result.args[0]
        while w.op.opcode != "exp":
            rows = [is_row(a) for a in w.args]
            if w.op is ROUNDED or (w.op.opcode == "cast" and w.dtype.is_float):
                w = w.args[0]
            elif w.op.opcode == "mul" and any(rows):
                self.factors.append(w.args[rows.index(True)].args[0])
                w = w.args[1 - rows.index(True)]
            elif w.op.opcode == "div" and rows[1]:
                self.factors.append(OPS.div(OPS.ones_like(w.args[1].args[0]), w.args[1].args[0]))
                w = w.args[0]
            elif w.op.opcode == "mul" and any(numbers := [filled(a) for a in w.args]):
                at = 0 if numbers[0] else 1
                self.factors.append(OPS.full((*w.shape[:-1], 1), numbers[at], f32))
                w = w.args[1 - at]
            elif w.op.opcode == "select" and self.dropout_mask is None and filled(w.args[2]) == 0.0:
                self.dropout_mask, w = w.args[:2]
            else:
                return None
        return w

    def product(self, score: Value) -> Value | None:
        """The product that a score is computed from, if there is exactly one."""
        nodes = topological([score], {v for v in topological([score]) if v.op.kind == "contract"})
        products = [v for v in nodes if v.op.kind == "contract"]
        return products[0] if len(products) == 1 and products[0].shape == self.shape else None

    def reduced(self, opcode: str, x: Value, above: list[Value]) -> list[Value]:
        """The reductions of the rows of x that the values `above` are computed from."""
        return [v for v in topological(above) if v.op.kind == "reduce" and v.op.opcode == opcode
                and v.args[0] is x and v.attrs["axes"] == (len(self.shape) - 1,)]

    def alone(self, product: Value, readers: Mapping[Value, int]) -> bool:
        """Whether the values computed from a product are used only for the result."""
        members = {product}
        for v in topological([self.result], {product}):
            if members.intersection(v.args):
                members.add(v)
        inside = Counter(a for v in members for a in set(v.args))
        return all(readers[v] == inside[v] for v in members if v is not self.result)

    def attention(self, product: Value, score: Value, shift: Value, largest: Value,
                  totals: list[Value]) -> Softened | None:
        """The expressions; None if they read elements at positions other than their own."""
        names = {product: "scores", largest: "largest", **dict.fromkeys(totals, "total")}
        new = {v: leaf("attention", name, v.shape, f32) for v, name in names.items()}
        total = new[totals[0]] if totals else leaf("attention", "total", largest.shape, f32)
        roots, derived = [score, shift, *self.factors], set(new)
        if self.dropout_mask is not None:
            roots.append(self.dropout_mask)
        for v in topological(roots, new):
            if v in new:
                continue
            if derived.intersection(v.args):
                derived.add(v)
                if not (pointwise(v) or is_broadcast(v) or (
                        v.op.movement and v.size == largest.size)):
                    return None
            elif v.op.kind != "map" or not (pointwise(v) or is_view(v) or is_drawn(v)):
                self.leaf_of[v] = leaf("attention", f"read {len(self.leaf_of)}", v.shape, v.dtype)
            new[v] = self.leaf_of[v] if v in self.leaf_of else widened(
                v, tuple(new[a] for a in v.args))
        roots = [new[r] for r in roots]
        mask = None if self.dropout_mask is None else roots.pop()
        return Softened(new[product], new[largest], total, tuple(self.leaf_of.values()), roots[0],
                        roots[1], tuple(roots[2:]), mask)


def is_row(v: Value) -> bool:
    """Whether v is one number per row, broadcast along the row."""
    return is_broadcast(v) and v.shape[-1] > 1 and v.args[0].rank == v.rank and (
        v.args[0].shape == (*v.shape[:-1], 1))


def is_drawn(v: Value) -> bool:
    """Whether elements are computed from few numbers and their positions, as random ones are from a
    seed."""
    return v.op.kind == "map" and bool(v.args) and not v.op.movement and (
        sum(a.size for a in v.args) < v.size // max(1, *v.shape[-1:]))


def widened(v: Value, args: tuple[Value, ...]) -> Value:
    """The value with new arguments, some of which may be float32 in place of 16 bits."""
    if all(a.dtype is old.dtype for a, old in zip(args, v.args, strict=True)):
        return rebuilt(v, args)
    if v.op.opcode == "cast" and v.dtype.is_float:
        return args[0]
    args = tuple(OPS.cast(a, f32) if a.dtype in HALVES else a for a in args)
    return Value(v.op, args, v.attrs, v.shape, f32 if v.dtype in HALVES else v.dtype)
