"""Replaces sums over keys, in gradients of attention, by sums over values, which are equal.

    y = (e / total) @ v
    sum over keys of e * (g @ v.T)  ->  total * (sum over values of g * y)

The sum on the left needs a whole row of g @ v.T before its gradient, so that matrix is stored and
read again. With the one on the right, each of its elements is used where it is computed. This is
not so with dropout, whose random numbers are too much work for a product's epilogue. Where teams
compute the gradients (`attention_gradients.py`), they have no epilogue, and such sums are replaced.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from ztorch.graph.narrow import ROUNDED
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rewrite
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites.attention import filled

MOST_FACTORS = 16  # of a product; those of attention have up to five
Factors = Counter[tuple[str, Any]]  # each with its kind
TransposeSource = tuple[Value, tuple[int, ...]]  # a value and the order of its axes


class _Weighted(NamedTuple):
    """A product of weights and values."""

    result: Value
    factors: Factors  # of the weights, without 1 / total
    total: Value  # one for each row


def with_sums_over_values(graph: Graph) -> Graph:
    """The graph with such sums taken over the values. Results differ at most by rounding."""
    by_values: dict[TransposeSource, list[_Weighted]] = {}
    for v in graph.nodes():
        if v.op.kind == "contract" and (weighted := _weighted(v)) is not None:
            by_values.setdefault(transpose_source(v.args[1]), []).append(weighted)
    return rewrite(graph, lambda v: _over_values(v, by_values)) if by_values else graph


def _over_values(v: Value, by_values: dict[TransposeSource, list[_Weighted]]) -> Value | None:
    if v.op.kind != "reduce" or v.op.opcode != "add" or (
            v.attrs["axes"] != (v.args[0].rank - 1,) or (factors := factors_of(v.args[0])) is None):
        return None
    products = [x for (kind, x), count in factors.items()
                if kind == "value" and count == 1 and x.op.kind == "contract"]
    for product in products:
        base, order = transpose_source(product.args[1])
        rest = factors - Counter({("value", product): 1})
        for y in by_values.get((base, (*order[:-2], order[-1], order[-2])), ()):
            if rest == y.factors and y.result.shape[-1] < product.shape[-1]:
                g, result = (OPS.cast(x, dtype=v.dtype) for x in (product.args[0], y.result))
                total = OPS.cast(OPS.reshape(y.total, v.shape), dtype=v.dtype)
                return OPS.sum(g * result, axis=-1) * total
    return None


def _weighted(v: Value) -> _Weighted | None:
    """The product v of weights and values; None if the weights are no softmax."""
    factors = factors_of(v.args[0])
    for kind, x in factors or ():
        total = total_of(x) if kind == "value" else None
        if total is not None and factors is not None:
            exponentials = summed_by(total)
            if ("value", exponentials) in factors:
                return _Weighted(v, factors - Counter({(kind, x): 1}), total)
    return None


def total_of(x: Value) -> Value | None:
    """The t of 1 / t, if x repeats one such number in each row."""
    while x.op.movement and x.args[0].shape[-1:] == (1,):
        x = x.args[0]
    inverse = x.op.opcode == "div" and x.shape[-1:] == (1,) and filled(x.args[0]) == 1.0
    return x.args[1] if inverse else None


def summed_by(total: Value) -> Value | None:
    """The value that a total sums, ignoring the replacement for empty rows."""
    while total.op.movement or total.op.opcode == "select":
        total = total.args[1] if total.op.opcode == "select" else total.args[0]
    return total.args[0] if total.op.kind == "reduce" and total.op.opcode == "add" else None


def factors_of(v: Value, mask: Value | None = None, dropped: bool = False) -> Factors | None:
    """The values and numbers that v is the product of; None if these are too many. Zeros where a
    `mask` is false do not count: another factor is zero there. With `dropped`, other masks are
    factors of the kind "kept"."""
    factors, pending = Factors(), [v]
    while pending:
        x = pending.pop()
        if x.op.opcode == "cast" or x.op is ROUNDED:
            pending.append(x.args[0])
        elif x.op.opcode == "mul":
            pending += x.args
        elif x.op.opcode == "select" and x.args[0] is mask and filled(x.args[2]) == 0.0:
            pending.append(x.args[1])
        elif dropped and x.op.opcode == "select" and filled(x.args[2]) == 0.0:
            factors["kept", x.args[0]] += 1
            pending.append(x.args[1])
        elif (number := filled(x)) is not None:
            factors["number", number] += 1
        else:
            factors["value", x] += 1
        if factors.total() + len(pending) > MOST_FACTORS:
            return None
    return factors


def transpose_source(v: Value) -> TransposeSource:
    """The value whose transpose is v, apart from rounding, and the order of its axes."""
    order = tuple(range(v.rank))
    while v.op.name == "transpose" or v.op.opcode == "cast" or v.op is ROUNDED:
        if v.op.name == "transpose":
            order = tuple(v.attrs["axes"][k] for k in order)
        v = v.args[0]
    return v, order
