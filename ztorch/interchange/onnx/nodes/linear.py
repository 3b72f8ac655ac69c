"""Matrix products, sums of products by a formula, and attention."""

from __future__ import annotations

import math

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node


@node("MatMul")
def _matmul(n: Node) -> Result:
    return OPS.matmul(n.value(0), n.value(1))


@node("Gemm")
def _gemm(n: Node) -> Result:
    a, b = n.value(0), n.value(1)
    a = OPS.transpose(a) if n.attr("transA", 0) else a
    b = OPS.transpose(b) if n.attr("transB", 0) else b
    y = OPS.matmul(a, b)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    y = y if alpha == 1.0 else y * alpha
    if not n.has(2) or beta == 0.0:
        return y
    return y + (n.value(2) if beta == 1.0 else n.value(2) * beta)


@node("Einsum", but="one or two operands, each letter once in an operand, no ellipsis")
def _einsum(n: Node) -> Result:
    formula = n.attr("equation").replace(" ", "")
    left, arrow, right = formula.partition("->")
    terms = left.split(",")
    if "." in formula or len(terms) > 2 or any(len(set(t)) < len(t) for t in (*terms, right)):
        n.unsupported(f"equation {formula!r}")
    if not arrow:
        letters = "".join(terms)
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    values = n.values()
    if any(len(t) != v.rank for t, v in zip(terms, values, strict=True)):
        raise ValueError(f"equation {formula!r} does not fit its operands")
    others = [right, right] if len(terms) == 1 else [terms[1] + right, terms[0] + right]
    for k, (term, value) in enumerate(zip(terms, values, strict=True)):
        alone = tuple(j for j, c in enumerate(term) if c not in others[k])  # summed before
        if alone:
            values[k] = OPS.sum(value, axis=alone)
            terms[k] = "".join(c for c in term if c in others[k])
    if len(terms) == 1:
        return OPS.transpose(values[0], tuple(terms[0].index(c) for c in right))
    return _product(values[0], values[1], terms[0], terms[1], right)


def _product(a: Value, b: Value, first: str, second: str, right: str) -> Value:
    """One batched matrix product: letters of both that stay are batches, those that go are
    summed over."""
    sizes = {**dict(zip(first, a.shape, strict=True)), **dict(zip(second, b.shape, strict=True))}
    batch = [c for c in first if c in second and c in right]
    summed = [c for c in first if c in second and c not in right]
    rows, columns = [c for c in first if c not in second], [c for c in second if c not in first]

    def count(letters: list[str]) -> int:
        return math.prod(sizes[c] for c in letters)

    def turned(x: Value, term: str, letters: list[str], last: tuple[int, int]) -> Value:
        x = OPS.transpose(x, tuple(term.index(c) for c in letters))
        return OPS.reshape(x, (count(batch), *last))

    y = OPS.matmul(turned(a, first, batch + rows + summed, (count(rows), count(summed))),
                   turned(b, second, batch + summed + columns, (count(summed), count(columns))))
    letters = batch + rows + columns
    return OPS.transpose(OPS.reshape(y, tuple(sizes[c] for c in letters)),
                         tuple(letters.index(c) for c in right))


@node("Attention", but="no past keys and values, no softcap, first output only")
def _attention(n: Node) -> Result:
    n.only_first_output()
    n.only(softcap=0.0)
    if n.has(4) or n.has(5) or n.has(6):
        n.unsupported("past keys and values, or lengths of them")
    q, k, v = (n.value(j) for j in range(3))
    flat = q.rank == 3
    if flat:
        heads, shared = n.attr("q_num_heads"), n.attr("kv_num_heads")
        q, k, v = _heads(q, heads), _heads(k, shared), _heads(v, shared)
    scale, causal = n.attr("scale"), bool(n.attr("is_causal", 0))
    mask = n.value(3) if n.has(3) else None
    if mask is None or mask.dtype is boolean:
        y = OPS.attention(q, k, v, mask, causal, scale)
    else:
        y = _with_bias(q, k, v, mask, causal, q.shape[-1] ** -0.5 if scale is None else scale)
    if not flat:
        return y
    y = OPS.transpose(y, (0, 2, 1, 3))
    return OPS.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def _heads(x: Value, heads: int) -> Value:
    return OPS.transpose(OPS.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))


def _with_bias(q: Value, k: Value, v: Value, bias: Value, causal: bool, scale: float) -> Value:
    """A mask of numbers is added to the scores."""
    if k.shape[1] != q.shape[1]:
        each = q.shape[1] // k.shape[1]
        k, v = (OPS.reshape(OPS.broadcast_to(OPS.expand_dims(x, 2), (
            *x.shape[:2], each, *x.shape[2:])), (x.shape[0], -1, *x.shape[2:])) for x in (k, v))
    scores = OPS.matmul(q, OPS.transpose(k, (0, 1, 3, 2))) * scale + bias
    if causal:
        rows, columns = (OPS.iota(scores.shape, axis) for axis in (-2, -1))
        scores = OPS.where(OPS.less_equal(columns, rows), scores, -math.inf)
    return OPS.matmul(OPS.softmax(scores), v)
