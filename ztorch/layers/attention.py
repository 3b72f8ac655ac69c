"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.config import fraction, number, positive, whole_seed
from ztorch.dtypes import boolean
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value, layer_scope
from ztorch.initializers import Initializer, Shape
from ztorch.layers.context import Context
from ztorch.layers.embedding import need_sequence
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight
from ztorch.ops.attention import repeated_heads


class AsMatrix(Initializer, abstract=True):
    """Initializes a kernel through the matrix it stands for, so that fans count all heads."""

    def __init__(self, initializer: Any, rows: int):
        self.initializer = Initializer.get(initializer)
        self.rows = rows

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        return self.initializer((self.rows, math.prod(shape) // self.rows), random).reshape(shape)

    def write(self, out: np.ndarray, random: np.random.Generator) -> None:
        self.initializer.write(out.reshape(self.rows, -1), random)

    @property
    def is_independent(self) -> bool:
        return self.initializer.is_independent


class MultiHeadAttention(Layer):
    """Multi-head attention: each position gathers values from the positions that its query matches.

    In a `Sequential` it attends to its own input. In a `Model` it is called with `(query, value,
    key, attention_mask)`; `key` and `attention_mask` are optional. With
    `return_attention_scores=True` the call returns `(y, weights)`; the weights of each head have
    shape `(batch, heads, length, source length)`. `attend` does the same for tensors of the graph.

    Weights have Keras' shapes: `(features, heads, dim)` for query, key and value, and `(heads, dim,
    features)` for the output.

    Args:
        num_heads: Number of heads. A positive integer.
        key_dim: Size of each head of query and key. `None` means `features / num_heads`. Default:
            `None`.
        value_dim: Size of each head of the value. `None` means `key_dim`. Default: `None`.
        dropout: Rate at which attention weights are dropped during training, from 0 to below 1.
            Default: `0.0`.
        use_bias: Whether to add biases to query, key, value and output. Default: `True`.
        output_shape: Number of output features, also as a tuple of one. `None` means that of the
            query. Default: `None`.
        kernel_initializer: Initializer of the kernels: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the biases: a name or an `Initializer`. Default: `"zeros"`.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        use_causal_mask: Whether each position attends only to itself and to earlier ones. In Keras
            this is an argument of the call. Default: `False`.
        rotary: Whether to rotate queries and keys by their positions, as `RotaryEmbedding` does.
            Keras has no such argument. Default: `False`.
        num_key_value_heads: Number of heads of keys and values, a divisor of `num_heads`; adjacent
            query heads share one. `None` means `num_heads`. Default: `None`.
        rotary_wavelength: Limit of the wavelengths of `rotary`, in units of `2 * pi` positions.
            Default: `10000.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)` for the query; value and key are `(batch, source length,
        features)` and may have other features.

    Output shape:
        `(batch, length, features)`, or `output_shape` in place of the features.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((7, 16)), MultiHeadAttention(2, key_dim=8, name="mha")])
        >>> [(w.path, w.shape) for w in model.weights][:2]
        [('mha/query/kernel', (16, 2, 8)), ('mha/query/bias', (2, 8))]
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, num_heads: int, key_dim: int | None = None, value_dim: int | None = None,
                 dropout: float = 0.0, use_bias: bool = True, output_shape: Any = None,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 seed: int | None = None, use_causal_mask: bool = False, rotary: bool = False,
                 num_key_value_heads: int | None = None, rotary_wavelength: float = 10000.0,
                 **common: Any):
        super().__init__(**common)
        self.num_heads = positive("MultiHeadAttention(num_heads=...)", num_heads)
        if isinstance(output_shape, (list, tuple)) and len(output_shape) == 1:  # as in Keras' files
            [output_shape] = output_shape
        dims = {"key_dim": key_dim, "value_dim": value_dim, "output_shape": output_shape}
        self.key_dim, self.value_dim, self.output_shape = (
            None if n is None else positive(f"MultiHeadAttention({argument}=...)", n)
            for argument, n in dims.items())
        self.dropout = fraction("MultiHeadAttention(dropout=...)", dropout)
        self.use_bias = use_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.seed = None if seed is None else whole_seed(seed)
        self.use_causal_mask, self.rotary = use_causal_mask, rotary
        self.num_key_value_heads = (None if num_key_value_heads is None else positive(
            "MultiHeadAttention(num_key_value_heads=...)", num_key_value_heads))
        if self.num_heads % (self.num_key_value_heads or 1):
            raise ConfigError(f"MultiHeadAttention(num_key_value_heads={num_key_value_heads}) does "
                              f"not divide num_heads={num_heads}; give each the same number of "
                              "heads of the query")
        self.rotary_wavelength = number("MultiHeadAttention(rotary_wavelength=...)",
                                        rotary_wavelength, above=0)

    def build(self, input_shape: Shape, value_shape: Shape | None = None,
              key_shape: Shape | None = None) -> None:
        value_shape = value_shape or input_shape
        key_shape = key_shape or value_shape
        for shape in (input_shape, value_shape, key_shape):
            need_sequence(self, shape)
        width, heads = input_shape[-1], self.num_heads
        if self.key_dim is None and width % heads:
            raise shape_error(f"num_heads={heads} does not divide the {width} features of inputs",
                              input_shape, fix="choose another number of heads, or set key_dim, "
                                               "the size of a head")
        dim = self.key_dim or width // heads
        value_dim = self.value_dim or dim
        shared = self.num_key_value_heads or heads
        self.projections = {
            "query": self._project("query", (width, heads, dim)),
            "key": self._project("key", (key_shape[-1], shared, dim)),
            "value": self._project("value", (value_shape[-1], shared, value_dim)),
            "output": self._project("attention_output",
                                    (heads, value_dim, self.output_shape or width), 1)}

    def _project(self, name: str, shape: Shape, outputs: int = 2) -> list[Weight]:
        """Creates the weights of one projection: a kernel, and a bias over its output axes."""
        rows = math.prod(shape[:-outputs])
        weights = [self.add_weight(f"{name}/kernel", shape,
                                   AsMatrix(self.kernel_initializer, rows))]
        if self.use_bias:
            weights.append(self.add_weight(f"{name}/bias", shape[-outputs:], self.bias_initializer))
        return weights

    def prepare(self, x: Any, value: Any = None, key: Any = None, *more: Any,
                **keywords: Any) -> None:
        """Builds the layer for query, value and key, if given."""
        if not self.built:
            self.own_weights = []
            value = x if value is None else value
            self.build_now(*(v.shape[1:] for v in (x, value, value if key is None else key)))

    def call(self, x: Value, context: Context, value: Value | None = None, key: Value | None = None,
             attention_mask: Value | None = None, use_causal_mask: bool = False,
             return_attention_scores: bool = False) -> Any:
        y, weights = self._attended(x, x if value is None else value, key, attention_mask,
                                    use_causal_mask, context)
        return (y, weights) if return_attention_scores else y

    def attend(self, query: Value, value: Value, key: Value | None = None,
               attention_mask: Value | None = None, use_causal_mask: bool = False,
               context: Context | None = None) -> Value:
        """Attends from `query` to `value`, on tensors of the graph.

        Args:
            query: Tensor `(batch, length, features)`.
            value: Tensor `(batch, source length, features)`.
            key: Tensor of the same length as `value`. `None` means `value` itself. Default: `None`.
            attention_mask: Boolean tensor `(batch, length, source length)`, optionally with an axis
                of heads after the batch: true where a query position may see a key position. `None`
                allows everything that the masks of value and key allow. Default: `None`.
            use_causal_mask: Whether each position attends only to itself and to earlier ones.
                Default: `False`.
            context: Context of the call. `None` makes a new one. Default: `None`.

        Returns:
            Tensor `(batch, length, output features)`.

        Examples:
            >>> from ztorch.graph.op import leaf
            >>> words = leaf("input", "words", (1, 5, 8), "float32")
            >>> image = leaf("input", "image", (1, 9, 6), "float32")
            >>> MultiHeadAttention(2).attend(words, image).shape
            (1, 5, 8)
        """
        return self._attended(query, value, key, attention_mask, use_causal_mask,
                              context if context is not None else Context())[0]

    def _attended(self, query: Value, value: Value, key: Value | None,
                  attention_mask: Value | None, use_causal_mask: bool,
                  context: Context) -> tuple[Value, Value]:
        """The result of `attend`, and the weight of each key for each query."""
        key = value if key is None else key
        with layer_scope(self.path):
            if not self.built:
                self.build_now(query.shape[1:], value.shape[1:], key.shape[1:])
            for x in (query, value, key):
                need_sequence(self, x.shape[1:])
            if key.shape[1] != value.shape[1]:
                raise shape_error("each key needs a value, but these differ in length:",
                                  key.shape[1:], value.shape[1:],
                                  fix="omit key to use the values as keys")
            q, k, v = (self._heads(name, x, context)
                       for name, x in (("query", query), ("key", key), ("value", value)))
            causal, decoding = self.use_causal_mask or use_causal_mask, context.decoding
            # A causal query sees no padding, which is at the end.
            mask_of = (context.masks.get if causal and value is query and key is query else
                       context.mask_of)
            masks = mask_of(value), mask_of(key)
            if self.rotary:
                limit = self.rotary_wavelength
                q, k = (OPS.rotary(x, max_wavelength=limit) if decoding is None else
                        decoding.rotated(x, limit) for x in (q, k))
            k = _transposed(context.keep(f"{self.path}/keys", _transposed(k), 3))
            v = context.keep(f"{self.path}/values", v, 2)
            if decoding is not None:
                attention_mask, causal = decoding.seen(), False
            attention_mask = _both(attention_mask, *(masks if decoding is None else ()))
            weights = used_weights = OPS.attention_weights(q, k, attention_mask, causal)
            if context.training and self.dropout:
                seed, step, stream = context.random(self.seed)
                used_weights = OPS.dropout(weights, self.dropout, seed, step, stream)
            together = OPS.transpose(OPS.matmul(used_weights, repeated_heads(v, q)), (0, 2, 1, 3))
            y = self._projected("output", OPS.reshape(
                together, (*together.shape[:2], together.shape[2] * together.shape[3])), context)
            return context.padding.declare(y, context.padding.of(query)), weights

    def _heads(self, name: str, x: Value, context: Context) -> Value:
        """x as (batch, heads, length, dim)."""
        y = self._projected(name, x, context)
        heads = self.projections[name][0].shape[1]
        return OPS.transpose(OPS.reshape(y, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))

    def _projected(self, name: str, x: Value, context: Context) -> Value:
        kernel, *bias = (context.read(w) for w in self.projections[name])
        rows = kernel.shape[:2] if name == "output" else kernel.shape[:1]
        y = OPS.matmul(x, OPS.reshape(kernel, (math.prod(rows), -1)))
        return y + OPS.reshape(bias[0], (-1,)) if bias else y


def _both(attention_mask: Value | None, *masks: Value | None) -> Value | None:
    """The attention mask with an axis of heads; false where value or key are masked as well.

    The mask of the query is left out: it only affects results at masked steps.
    """
    if attention_mask is not None and attention_mask.dtype is not boolean:  # of 0 and 1
        attention_mask = OPS.not_equal(attention_mask, 0)
    if attention_mask is not None and attention_mask.rank == 3:  # one for all heads
        attention_mask = OPS.expand_dims(attention_mask, 1)
    for mask in dict.fromkeys(masks):
        if mask is not None:
            positions = OPS.reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))
            attention_mask = (positions if attention_mask is None else
                              OPS.bitwise_and(attention_mask, positions))
    return attention_mask


def _transposed(x: Value) -> Value:
    """x with its last two axes swapped: keys are cached as the product with queries reads them."""
    return OPS.transpose(x, (0, 1, 3, 2))
