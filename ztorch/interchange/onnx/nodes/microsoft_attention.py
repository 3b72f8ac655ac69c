"""Fused attention ops of ONNX Runtime: projections, heads, caches and rotary embeddings in one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.casts import shifted
from ztorch.interchange.onnx.nodes.linear import biased_attention, split_heads
from ztorch.interchange.onnx.nodes.microsoft import MICROSOFT


def _merge_heads(x: Value) -> Value:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    x = OPS.transpose(x, (0, 2, 1, 3))
    return OPS.reshape(x, (*x.shape[:2], -1))


def _positions(queries: int, keys: int) -> tuple[Value, Value]:
    """Positions of queries, as a column, and of keys, as a row. The queries are the last keys."""
    return (constant(np.arange(keys - queries, keys)[:, None], "int32"),
            constant(np.arange(keys)[None], "int32"))


def _attend(q: Value, k: Value, v: Value, scale: float | None, keep: Value | None,
            bias: Value | None, softcap: float = 0.0) -> Value:
    """Attention of heads, as `biased_attention`. `keep` is the mask; a scale of None or 0 is 1 over
    the square root of the size."""
    scale = scale or q.shape[-1] ** -0.5
    if bias is None and not softcap:
        return OPS.attention(q, k, v, keep, False, scale)
    return biased_attention(q, k, v, bias, keep, scale, softcap)


def _mask(n: Node, index: int, rows: int, queries: int, keys: int) -> Value | None:
    """The mask in an input: the length of each row, its end and its start, or zeros and ones."""
    if not n.has(index):
        return None
    mask = n.value(index)
    columns = constant(np.arange(keys)[None], mask.dtype)
    if mask.rank == 1 and mask.size in (rows, 2 * rows):
        keep = OPS.less(columns, OPS.expand_dims(mask[:rows], 1))
        if mask.size == 2 * rows and mask.size != rows:
            keep = OPS.bitwise_and(keep, OPS.greater_equal(
                columns, OPS.expand_dims(mask[rows:], 1)))
    elif mask.shape == (rows, keys):
        keep = OPS.not_equal(mask, 0)
    elif mask.shape == (rows, queries, keys):
        return OPS.expand_dims(OPS.not_equal(mask, 0), 1)
    else:
        n.unsupported(f"a mask of shape {mask.shape} for {queries} queries and {keys} keys")
    return OPS.reshape(keep, (rows, 1, 1, keys))


def _and(a: Value | None, b: Value | None) -> Value | None:
    return b if a is None else a if b is None else OPS.bitwise_and(a, b)


def _causal(n: Node, queries: int, keys: int) -> Value | None:
    if not n.attr("unidirectional", 0):
        return None
    row, column = _positions(queries, keys)
    return OPS.less_equal(column, row)


@node("Attention", domain=MICROSOFT, but="without do_rotary and shared buffers")
def _attention(n: Node) -> Result:
    n.only(do_rotary=0, past_present_share_buffer=0, rotary_embedding_dim=0)
    n.attr("mask_filter_value")  # masked keys have no weight here
    packed = OPS.matmul(n.value(0), n.value(1))
    sizes = n.ints("qkv_hidden_sizes") or (packed.shape[-1] // 3,) * 3
    return _packed_attention(n, packed, sizes, mask=3, past=4, bias=5)


@node("QAttention", domain=MICROSOFT, but="without do_rotary and shared buffers")
def _quantized_attention(n: Node) -> Result:
    n.only(do_rotary=0, past_present_share_buffer=0)
    n.attr("mask_filter_value")  # masked keys have no weight here
    sums = OPS.matmul(shifted(n, 0, 6), shifted(n, 1, 7))
    packed = OPS.cast(sums, n.value(3).dtype) * (n.value(3) * n.value(4))
    return _packed_attention(n, packed, (packed.shape[-1] // 3,) * 3, mask=5, past=8)


def _packed_attention(n: Node, packed: Value, sizes: Sequence[int], mask: int, past: int,
                      bias: int | None = None) -> Result:
    """Attention of queries, keys and values that are side by side in one tensor.

    Args:
        n: The node; its input 2 is a bias of the tensor.
        packed: (batch, length, features of queries, keys and values).
        sizes: The features of queries, of keys and of values.
        mask: The number of the input with the mask.
        past: The number of the input with past keys and values.
        bias: The number of the input with the bias of scores; None: there is none.
    """
    packed, heads = packed + n.value(2) if n.has(2) else packed, n.attr("num_heads")
    ends = np.cumsum(sizes)
    q, k, v = (split_heads(packed[..., end - size:end], heads)
               for size, end in zip(sizes, ends, strict=True))
    if n.has(past):
        cache = n.value(past)
        k, v = (OPS.concat(cache[j], new, axis=2) for j, new in enumerate((k, v)))
    rows, queries, keys = packed.shape[0], packed.shape[1], k.shape[2]
    keep = _and(_mask(n, mask, rows, queries, keys), _causal(n, queries, keys))
    added = n.value(bias) if bias is not None and n.has(bias) else None
    y = _merge_heads(_attend(q, k, v, n.attr("scale"), keep, added))
    return (y, OPS.stack(k, v)) if any(n.spec.outputs[1:]) else y


@node("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(n: Node) -> Result:
    n.attr("mask_filter_value")  # masked keys have no weight here
    heads, x = n.attr("num_heads"), n.value(0)
    if x.rank == 5:  # queries, keys and values in one tensor
        q, k, v = (OPS.transpose(x[:, :, :, j], (0, 2, 1, 3)) for j in range(3))
    elif n.value(1).rank == 5:
        packed = n.value(1)
        q = split_heads(x, heads)
        k, v = (OPS.transpose(packed[:, :, :, j], (0, 2, 1, 3)) for j in range(2))
    else:
        q = split_heads(x, heads)
        k, v = (n.value(j) for j in (1, 2))
        k, v = (t if t.rank == 4 else split_heads(t, heads) for t in (k, v))
    if n.has(3):
        size, size_of_values = q.shape[-1] * heads, v.shape[-1] * heads
        bias = n.value(3)
        parts = (bias[:size], bias[size:2 * size], bias[2 * size:2 * size + size_of_values])
        q, k, v = (t + OPS.reshape(part, (heads, 1, -1))
                   for t, part in zip((q, k, v), parts, strict=True))
    if n.has(6):
        k = OPS.concat(n.value(6), k, axis=2)
        v = OPS.concat(n.value(7), v, axis=2)
    rows, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    keep = _and(_mask(n, 4, rows, queries, keys), _causal(n, queries, keys))
    y = _merge_heads(_attend(q, k, v, n.attr("scale"), keep, n.value(5) if n.has(5) else None))
    return (y, k, v) if any(n.spec.outputs[1:]) else y


# -- rotations and groups --------------------------------------------------------------------------


def _rotate(x: Value, cosine: Value, sine: Value, interleaved: bool) -> Value:
    """Rotates the first elements of heads by angles, (batch or 1, length, pairs)."""
    half = cosine.shape[-1]
    cosine, sine = (OPS.expand_dims(t, 1) for t in (cosine, sine))
    part, rest = x[..., :2 * half], x[..., 2 * half:]
    a, b = ((part[..., ::2], part[..., 1::2]) if interleaved else
            (part[..., :half], part[..., half:]))
    first, second = a * cosine - b * sine, a * sine + b * cosine
    part = (OPS.reshape(OPS.stack(first, second, axis=-1), part.shape) if interleaved else
            OPS.concat(first, second, axis=-1))
    return OPS.concat(part, rest, axis=-1) if rest.shape[-1] else part


@node("RotaryEmbedding", domain=MICROSOFT)
def _rotary(n: Node) -> Result:
    n.only(is_packed_batching=0, scale=1.0)
    x, at = n.value(0), n.value(1)
    flat = x.rank == 3
    cosine, sine = n.value(2), n.value(3)
    size, heads = n.attr("rotary_embedding_dim", 0), n.attr("num_heads", 0)
    if flat:
        x = split_heads(x, heads or x.shape[-1] // (2 * cosine.shape[-1]))
    if size and size != 2 * cosine.shape[-1]:
        raise ValueError(f"rotary_embedding_dim={size} and angles of {cosine.shape}")
    if at.size == 1 and at.rank < 2:  # the position of the first element
        at = OPS.reshape(at, (1, 1)) + constant(np.arange(x.shape[2])[None], at.dtype)
    y = _rotate(x, OPS.take(cosine, at, 0), OPS.take(sine, at, 0), bool(n.attr("interleaved", 0)))
    return _merge_heads(y) if flat else y


@node("GroupQueryAttention", domain=MICROSOFT,
      but="past keys of one length in all rows")
def _group_query_attention(n: Node) -> Result:
    n.only(smooth_softmax=0, k_quant_type="NONE", v_quant_type="NONE", qk_output=0)
    q, k, v = _grouped_heads(n)
    queries = q.shape[2]
    past = n.shape(3)[2] if n.has(3) else 0
    n.has(6)  # the length of the longest row, which follows from the others
    if n.attr("do_rotary", 0):
        cosine, sine = n.value(7), n.value(8)
        at = n.value(9) if n.has(9) else constant(np.arange(past, past + queries)[None], "int32")
        cosine, sine = OPS.take(cosine, at, 0), OPS.take(sine, at, 0)
        interleaved = bool(n.attr("rotary_interleaved", 0))
        q, k = (_rotate(t, cosine, sine, interleaved) for t in (q, k))
    if past:
        k, v = OPS.concat(n.value(3), k, axis=2), OPS.concat(n.value(4), v, axis=2)
    else:
        n.has(4)
    keep = _causal_window(n, queries, past + queries)
    bias = n.value(10) if n.has(10) else None
    y = _merge_heads(_attend(q, k, v, n.attr("scale"), keep, bias, n.attr("softcap", 0.0)))
    return (y, k, v) if any(n.spec.outputs[1:]) else y


def _grouped_heads(n: Node) -> tuple[Value, Value, Value]:
    """The heads of queries, keys and values, from three inputs or from one."""
    heads, shared, x = n.attr("num_heads"), n.attr("kv_num_heads"), n.value(0)
    if n.has(1):
        return (split_heads(x, heads), split_heads(n.value(1), shared),
                split_heads(n.value(2), shared))
    packed = split_heads(x, heads + 2 * shared)
    return packed[:, :heads], packed[:, heads:heads + shared], packed[:, heads + shared:]


def _causal_window(n: Node, queries: int, keys: int) -> Value:
    """Which keys each query attends to: those before it, in its window, that its row has."""
    row, column = _positions(queries, keys)
    keep = OPS.less_equal(column, row)
    window = n.attr("local_window_size", -1)
    if window >= 0:
        keep = OPS.bitwise_and(keep, OPS.greater(column, row - window))
    last = OPS.reshape(OPS.cast(n.value(5), "int32"), (-1, 1))  # the position of a row's last key
    real = OPS.less_equal(column, last)
    return OPS.bitwise_and(keep, OPS.reshape(real, (-1, 1, 1, keys)))
