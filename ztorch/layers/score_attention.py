"""Attention without projections: scores of queries and keys, by products or sums."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import leaves


class Attention(Layer):
    """Dot-product attention: each query gathers values by its products with the keys.

    Called on a list `[query, value]` or `[query, value, key]`; a single tensor attends to itself.
    Positions that the mask of the value hides get no weight. The output is zero where the query is
    masked.

    Args:
        use_scale: Whether to multiply scores by a learned scale. Default: `False`.
        score_mode: `"dot"` for products, or `"concat"` for the sum of `tanh(query + key)`, times a
            learned weight. Default: `"dot"`.
        dropout: Rate at which weights are dropped during training, from 0 to below 1. Default:
            `0.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)` for the query, `(batch, source length, features)` for value and
        key.

    Output shape:
        `(batch, length, features of the value)`.

    Examples:
        >>> from ztorch.layers import Input
        >>> Attention()([Input((5, 8)), Input((9, 8))]).shape
        (None, 5, 8)
    """

    takes_many = True
    supports_masking = True

    def __init__(self, use_scale: bool = False, score_mode: str = "dot", dropout: float = 0.0,
                 seed: int | None = None, **common: Any):
        super().__init__(**common)
        kind = type(self).__name__
        if not isinstance(score_mode, str) or score_mode not in ("dot", "concat"):
            raise ConfigError(f"{kind}(score_mode={score_mode!r}) must be 'dot' or 'concat'")
        self.use_scale, self.score_mode = use_scale, score_mode
        self.dropout = fraction(f"{kind}(dropout=...)", dropout)
        self.seed = None if seed is None else whole_seed(seed)

    def build(self, input_shape: Any) -> None:
        if self.use_scale:
            self.scale = self.add_weight("scale", (), "ones")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight("concat_score_weight", (), "ones")

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        """Builds the layer for tensors that fit together."""
        self._checked(leaves(x))
        super().prepare(x)

    def scores(self, query: Value, key: Value, context: Context) -> Value:
        """The score of each query and key, `(batch, length, source length)`."""
        scale = context.read(self.scale) if self.use_scale else 1.0
        if self.score_mode == "dot":
            products = OPS.matmul(query, OPS.transpose(key, (0, 2, 1)))
            return products * scale if self.use_scale else products
        sums = _sums(query, key)
        return OPS.sum(OPS.tanh(sums * scale if self.use_scale else sums),
                       axis=-1) * context.read(self.concat_score_weight)

    def call(self, x: Any, context: Context, *, use_causal_mask: bool = False,
             return_attention_scores: bool = False) -> Any:
        query, value, key = self._checked(leaves(x))
        scores = self.scores(query, key, context)
        visible = context.mask_of(value)
        if visible is not None:
            visible = OPS.expand_dims(visible, 1)
        if use_causal_mask:
            rows, columns = (OPS.iota((1, *scores.shape[1:]), axis=axis) for axis in (1, 2))
            causal = rows >= columns
            visible = causal if visible is None else OPS.bitwise_and(visible, causal)
        if visible is not None:
            scores = OPS.where(OPS.broadcast_to(visible, scores.shape), scores, -1e9)
        weights = OPS.softmax(scores, axis=-1)
        if context.training and self.dropout:
            seed, step, stream = context.random(self.seed)
            weights = OPS.dropout(weights, self.dropout, seed, step, stream)
        y = OPS.matmul(weights, value)
        counts = context.mask_of(query)
        if counts is not None:
            y = OPS.where(OPS.broadcast_to(OPS.expand_dims(counts, -1), y.shape), y, 0.0)
        y = context.padding.declare(y, context.padding.of(query))
        return (y, weights) if return_attention_scores else y

    def compute_mask(self, x: Any, mask: Any = None) -> Value | None:
        """The mask of the query."""
        return leaves(mask)[0]

    def _checked(self, tensors: list[Value]) -> tuple[Value, Value, Value]:
        """Query, value and key."""
        kind = type(self).__name__
        if not 1 <= len(tensors) <= 3:
            raise shape_error(f"{kind} takes [query, value] or [query, value, key], not "
                              f"{len(tensors)} tensors", fix="pass two or three")
        query, *others = tensors
        value = others[0] if others else query
        key = others[1] if len(others) > 1 else value
        for tensor in (query, value, key):
            self.need_rank(tensor.shape[1:], 2, "(length, features)", "add a Reshape before it")
            if not tensor.dtype.is_float:
                raise shape_error(f"{kind} takes floats, not {tensor.dtype}",
                                  fix="put an Embedding or a Rescaling before it")
        if query.shape[-1] != key.shape[-1] or key.shape[1] != value.shape[1]:
            raise shape_error("query, value and key do not fit:", query.shape[1:], value.shape[1:],
                              key.shape[1:], fix="queries and keys need as many features, values "
                                                 "and keys as many steps")
        return query, value, key


def _sums(query: Value, key: Value) -> Value:
    """The sum of each query and key, `(batch, length, source length, features)`."""
    return OPS.expand_dims(query, 2) + OPS.expand_dims(key, 1)


class AdditiveAttention(Attention):
    """Additive attention: scores are weighted sums of `tanh(query + key)`, after Bahdanau.

    Called on a list `[query, value]` or `[query, value, key]`; a single tensor attends to itself.

    Args:
        use_scale: Whether each feature has a learned weight in the sum. Default: `True`.
        dropout: Rate at which weights are dropped during training, from 0 to below 1. Default:
            `0.0`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)` for the query, `(batch, source length, features)` for value and
        key.

    Output shape:
        `(batch, length, features of the value)`.

    Examples:
        >>> from ztorch.layers import Input
        >>> AdditiveAttention()([Input((5, 8)), Input((9, 8))]).shape
        (None, 5, 8)
    """

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, seed: int | None = None,
                 **common: Any):
        super().__init__(use_scale, "dot", dropout, seed, **common)

    def build(self, input_shape: Any) -> None:
        first = input_shape if isinstance(input_shape, tuple) else input_shape[0]
        if self.use_scale:
            self.scale = self.add_weight("scale", (first[-1],), "glorot_uniform")

    def scores(self, query: Value, key: Value, context: Context) -> Value:
        terms = OPS.tanh(_sums(query, key))
        return OPS.sum(terms * context.read(self.scale) if self.use_scale else terms, axis=-1)
