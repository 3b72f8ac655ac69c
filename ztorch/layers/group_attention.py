"""Attention whose heads share keys and values in groups."""

from __future__ import annotations

from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.layers.attention import MultiHeadAttention


class GroupQueryAttention(MultiHeadAttention):
    """Multi-head attention with fewer heads for keys and values than for queries.

    Each head of keys and values serves a group of queries, which reduces the caches of generation.
    One such head is multi-query attention; as many as query heads is `MultiHeadAttention`. It is
    called like `MultiHeadAttention`.

    Args:
        head_dim: Size of each head. A positive integer.
        num_query_heads: Number of heads of the query. A positive integer.
        num_key_value_heads: Number of heads of key and value. A divisor of `num_query_heads`.
        dropout: Rate at which attention weights are dropped during training, from 0 to below 1.
            Default: `0.0`.
        use_bias: Whether to add biases to query, key, value and output. Default: `True`.
        kernel_initializer: Initializer of the kernels: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the biases: a name or an `Initializer`. Default: `"zeros"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        use_causal_mask: Whether each position attends only to itself and to earlier ones. In Keras
            this is an argument of the call. Default: `False`.
        rotary: Whether to rotate queries and keys by their positions, as `RotaryEmbedding` does.
            Keras has no such argument. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)` for the query; value and key are `(batch, source length,
        features)` and may have other features.

    Output shape:
        `(batch, length, features)`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((7, 16)), GroupQueryAttention(4, 6, 2, name="gqa")])
        >>> [(w.path, w.shape) for w in model.weights if "kernel" in w.path][:2]
        [('gqa/query/kernel', (16, 6, 4)), ('gqa/key/kernel', (16, 2, 4))]
    """

    def __init__(self, head_dim: int, num_query_heads: int, num_key_value_heads: int,
                 dropout: float = 0.0, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 seed: int | None = None, use_causal_mask: bool = False, rotary: bool = False,
                 **common: Any):
        name = "GroupQueryAttention"
        self.head_dim = positive(f"{name}(head_dim=...)", head_dim)
        self.num_query_heads = positive(f"{name}(num_query_heads=...)", num_query_heads)
        positive(f"{name}(num_key_value_heads=...)", num_key_value_heads)
        if num_query_heads % num_key_value_heads:
            raise ConfigError(f"{name}(num_key_value_heads={num_key_value_heads}) must divide "
                              f"num_query_heads={num_query_heads}")
        super().__init__(num_query_heads, head_dim, None, dropout, use_bias, None,
                         kernel_initializer, bias_initializer, seed, use_causal_mask, rotary,
                         num_key_value_heads, **common)
