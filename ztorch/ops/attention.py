"""Attention and rotary positions, composed of other ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS, Sample, constant, normal_axes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats

_MASK = np.array([[[True, False, True, True, False]], [[False] * 5]])  # query 2 sees nothing


def _weights_numpy(q: Any, k: Any, mask: Any = None, causal: bool = False,
                   scale: float | None = None) -> Any:
    groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    scores = q @ np.swapaxes(np.repeat(k, groups, -3) if groups > 1 else k, -1, -2)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    if causal:
        visible = visible & (np.tri(*scores.shape[-2:]) > 0)
    scores = np.where(visible, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


def _attention_numpy(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False,
                     scale: float | None = None) -> Any:
    groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    return _weights_numpy(q, k, mask, causal, scale) @ (
        np.repeat(v, groups, -3) if groups > 1 else v)


@op(Sample(((2, 3, 4), (2, 5, 4))), Sample(((2, 3, 4), (2, 5, 4), _MASK)),
    Sample(((4, 3, 2), (2, 3, 2)), {"causal": True, "scale": 1.5}), numpy=_weights_numpy)
def attention_weights(q: Value, k: Value, mask: Value | None = None, causal: bool = False,
                      scale: float | None = None) -> Value:
    """The weight of each key for each query; rows sum to 1.

    Several adjacent heads of `q` may share one head of `k`. If a query sees no key, its row is
    zero, and so are its gradients.

    Args:
        q: Queries `(..., heads, queries, dim)`, floats.
        k: Keys `(..., heads, keys, dim)`, of the same dtype. `q` must have a multiple of these
            heads.
        mask: Boolean tensor that broadcasts to `(..., heads, queries, keys)`: true where a query
            may see a key. `None` allows all. Default: `None`.
        causal: Whether key `j` is hidden from query `i` for `j > i`. Default: `False`.
        scale: Factor of the scores. `None` means `1 / sqrt(dim)`. Default: `None`.

    Returns:
        A tensor `(..., heads, queries, keys)`.
    """
    return weights_of_scores(scores_of(q, k, scale), mask, causal)


def scores_of(q: Value, k: Value, scale: float | None) -> Value:
    """The product of each query with each key, scaled."""
    _check(q, k)
    k = repeated_heads(k, q)
    scores = OPS.matmul(q, OPS.transpose(k, (*range(k.rank - 2), k.rank - 1, k.rank - 2)))
    return scores * (q.shape[-1] ** -0.5 if scale is None else scale)


def weights_of_scores(scores: Value, mask: Value | None, causal: bool) -> Value:
    """The softmax of each row over the keys that its query sees; zeros if it sees none."""
    if mask is not None:
        mask = _checked_mask(mask, scores.shape)
    if causal:
        rows, columns = (OPS.iota(scores.shape, axis) for axis in (-2, -1))
        below = OPS.less_equal(columns, rows)
        mask = below if mask is None else OPS.bitwise_and(mask, below)
    if mask is None:
        return OPS.softmax(scores)
    # Scores are masked before exp. Masking the result would give a gradient of 0 * infinity for a
    # large masked score.
    scores = OPS.where(mask, scores, -math.inf)
    largest = OPS.stop_gradient(OPS.max(scores, -1, True))
    e = OPS.exp(scores - OPS.where(largest > -math.inf, largest, 0.0))
    total = OPS.sum(e, -1, True)  # 0 in rows that see nothing, otherwise at least 1
    return e * (1.0 / OPS.where(total > 0.0, total, 1.0))


@op(Sample(((2, 3, 4), (2, 5, 4), (2, 5, 3))), Sample(((2, 3, 4), (2, 5, 4), (2, 5, 3), _MASK)),
    Sample(((2, 4, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2)), {"causal": True}), numpy=_attention_numpy)
def attention(q: Value, k: Value, v: Value, mask: Value | None = None, causal: bool = False,
              scale: float | None = None) -> Value:
    """Scaled dot-product attention: `softmax(q @ k.T * scale) @ v`.

    Several adjacent heads of `q` may share one head of `k` and `v`.

    Args:
        q: Queries `(..., heads, queries, dim)`, floats.
        k: Keys `(..., heads, keys, dim)`, of the same dtype. `q` must have a multiple of these
            heads.
        v: Values `(..., heads, keys, value dim)`, of the same dtype.
        mask: Boolean tensor that broadcasts to `(..., heads, queries, keys)`: true where a query
            may see a key. `None` allows all. Default: `None`.
        causal: Whether key `j` is hidden from query `i` for `j > i`. Default: `False`.
        scale: Factor of the scores. `None` means `1 / sqrt(dim)`. Default: `None`.

    Returns:
        A tensor `(..., heads, queries, value dim)`.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> q, v = constant(np.zeros((1, 2, 4))), constant(np.array([[[1.0], [3.0]]]))
        >>> evaluate([attention(q, q, v), attention(q, q, v, causal=True)], {})
        [array([[[2.],
                [2.]]]), array([[[1.],
                [2.]]])]
    """
    if v.shape[:-1] != k.shape[:-1]:
        raise shape_error("keys and values do not fit:", k.shape, v.shape,
                          fix="give one value per key, in the same number of heads")
    return OPS.matmul(attention_weights(q, k, mask, causal, scale), repeated_heads(v, q))


def _check(q: Value, k: Value) -> None:
    if q.rank != k.rank or q.rank < 2 or q.shape[-1] != k.shape[-1]:
        raise shape_error("queries and keys do not fit:", q.shape, k.shape,
                          fix="both are (..., heads, length, dim) with the same dim")
    if q.shape[:-3] != k.shape[:-3] or (q.rank > 2 and q.shape[-3] % k.shape[-3]):
        raise shape_error("heads or batches of queries and keys do not fit:", q.shape, k.shape,
                          fix="leading axes must be equal, heads a multiple of the keys' heads")


def repeated_heads(x: Value, q: Value) -> Value:
    """Keys or values, repeated so that each head of the queries has one."""
    if q.rank == 2 or q.shape[-3] == x.shape[-3]:
        return x
    *batch, heads, length, dim = x.shape
    shared = OPS.reshape(x, (*batch, heads, 1, length, dim))
    spread = OPS.broadcast_to(shared, (*batch, heads, q.shape[-3] // heads, length, dim))
    return OPS.reshape(spread, (*batch, q.shape[-3], length, dim))


def _checked_mask(mask: Value, shape: tuple[int, ...]) -> Value:
    if mask.dtype.is_int:  # as in Keras: 0 is masked
        mask = OPS.not_equal(mask, 0)
    if mask.dtype is not boolean:
        raise shape_error(f"an attention mask must be bool, not {mask.dtype}",
                          fix="use true for visible and false for hidden positions")
    fits = mask.rank <= len(shape) and all(
        m in (1, n) for m, n in zip(reversed(mask.shape), reversed(shape), strict=False))
    if not fits:
        raise shape_error("the mask does not fit the scores:", mask.shape, shape,
                          fix="use (queries, keys), where each may be 1, with or without "
                              "leading axes")
    return OPS.broadcast_to(mask, shape)


# -- positions -------------------------------------------------------------------------------------


def _angles(length: int, dim: int, max_wavelength: float) -> np.ndarray:
    """The angle of each pair of elements at each position."""
    slower = max_wavelength ** (-np.arange(dim // 2) / max(dim // 2, 1))
    return np.arange(length)[:, None] * slower


def _rotary_numpy(x: Any, axis: int = -2, max_wavelength: float = 10000.0) -> Any:
    x = np.moveaxis(x, axis, -2)
    angles = _angles(x.shape[-2], x.shape[-1], max_wavelength)
    a, b = np.split(x, 2, -1)
    y = np.concatenate([a * np.cos(angles) - b * np.sin(angles),
                        b * np.cos(angles) + a * np.sin(angles)], -1)
    return np.moveaxis(y.astype(x.dtype), -2, axis)


@op(Sample(((2, 3, 4),)), Sample(((3, 2, 6),), {"axis": 0, "max_wavelength": 100.0}),
    numpy=_rotary_numpy)
def rotary(x: Value, axis: int = -2, max_wavelength: float = 10000.0) -> Value:
    """Rotates pairs of elements of the last axis by angles proportional to the position.

    Elements `i` and `i + dim / 2` form a pair. The product of two rotated vectors depends only on
    the distance of their positions.

    Args:
        x: Tensor of numbers whose last axis has an even size.
        axis: Axis of the positions, not the last one. Default: `-2`.
        max_wavelength: Limit of the wavelengths, in units of `2 * pi` positions. Default:
            `10000.0`.

    Returns:
        A tensor of the shape and dtype of `x`; float64 for integers.
    """
    [x] = as_floats(x)
    dim, [at] = x.shape[-1], normal_axes(axis, x.rank)
    if dim % 2 or at == x.rank - 1:
        raise shape_error(f"ops.rotary rotates pairs of the last axis by positions on axis {axis}; "
                          "it cannot rotate", x.shape, fix="the last axis must be even, and not "
                          "the axis of positions")
    near, far = rotary_factors(x.shape[at], dim, max_wavelength)
    spread = (*(n if k == at else 1 for k, n in enumerate(x.shape[:-1])), 2, dim // 2)
    return rotated(x, *(constant(f.reshape(spread), x.dtype) for f in (near, far)))


def rotary_factors(length: int, dim: int, max_wavelength: float = 10000.0
                   ) -> tuple[np.ndarray, np.ndarray]:
    """The factors of an element and of its partner at each position: two float64 arrays of shape
    `(length, 2, dim / 2)`."""
    angles = _angles(length, dim, max_wavelength)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([cos, cos], 1), np.stack([-sin, sin], 1)


def rotated(x: Value, near: Value, far: Value) -> Value:
    """x with the pairs of its last axis rotated; the factors broadcast to `(..., 2, dim / 2)`."""
    halves = OPS.reshape(x, (*x.shape[:-1], 2, x.shape[-1] // 2))
    return OPS.reshape(halves * near + OPS.flip(halves, halves.rank - 2) * far, x.shape)
