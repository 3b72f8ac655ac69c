"""Transformer blocks, with the arguments and weights of KerasHub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.config import fraction, number, positive
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, checked_activation
from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.context import Context
from ztorch.layers.core import Dense
from ztorch.layers.embedding import need_sequence
from ztorch.layers.layer import Layer
from ztorch.layers.normalization import LayerNormalization
from ztorch.layers.regularization import Dropout

Step = tuple[Callable[[Value], Value], LayerNormalization]


class TransformerBlock(Layer, abstract=True):
    """Base class of transformer blocks: attention, then two dense layers at each position.

    Each part has a residual connection. The sums are normalized, or, with `normalize_first=True`,
    the inputs of each part. Arguments and the order of weights are KerasHub's.
    """

    supports_masking = True
    causal = False
    needs_floats = True
    initializes_inner = True

    def __init__(self, intermediate_dim: int, num_heads: int, dropout: float = 0.0,
                 activation: ActivationLike = "relu", layer_norm_epsilon: float = 1e-5,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 normalize_first: bool = False, rotary: bool = False, **common: Any):
        super().__init__(**common)
        kind = type(self).__name__
        self.intermediate_dim = positive(f"{kind}(intermediate_dim=...)", intermediate_dim)
        self.num_heads = positive(f"{kind}(num_heads=...)", num_heads)
        self.dropout = fraction(f"{kind}(dropout=...)", dropout)
        self.activation = checked_activation(activation)
        self.layer_norm_epsilon = number(f"{kind}(layer_norm_epsilon=...)", layer_norm_epsilon,
                                         above=0)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.normalize_first, self.rotary = normalize_first, rotary
        self.self_attention, self.self_attention_norm = self._attending(
            "self_attention", use_causal_mask=self.causal, rotary=rotary)
        self.feedforward_norm = self._norm("feedforward_norm")
        first = {"kernel_initializer": kernel_initializer, "bias_initializer": bias_initializer}
        self.intermediate = Dense(intermediate_dim, activation, name="intermediate", **first)
        # `build` sets its size to that of the inputs
        self.output = Dense(1, name="output", **first)
        self.drop = Dropout(dropout, name="dropout")
        for layer in self.in_order:
            self.adopt(layer)

    @property
    def in_order(self) -> list[Layer]:
        """The inner layers, in KerasHub's order of weights."""
        return [self.self_attention, self.self_attention_norm, self.feedforward_norm,
                self.intermediate, self.output, self.drop]

    def _attending(self, name: str,
                   **keywords: Any) -> tuple[MultiHeadAttention, LayerNormalization]:
        """An attention layer and its normalization."""
        attention = MultiHeadAttention(
            self.num_heads, dropout=self.dropout, kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer, name=name, **keywords)
        return attention, self._norm(f"{name}_norm")

    def _norm(self, name: str) -> LayerNormalization:
        return LayerNormalization(epsilon=self.layer_norm_epsilon, name=name)

    def build(self, input_shape: Shape) -> None:
        need_sequence(self, input_shape)
        width = input_shape[-1]
        if width % self.num_heads:
            raise shape_error(f"num_heads={self.num_heads} does not divide the {width} features "
                              "of inputs", input_shape,
                              fix=f"choose a number of heads that divides {width}")
        self.output.units = width

    def run(self, x: Value, context: Context, *attentions: Step) -> Value:
        """x after all attentions and the dense layers, each with its residual connection."""

        def feedforward(x: Value) -> Value:
            return self.output(self.intermediate(x, context), context)

        for part, norm in (*attentions, (feedforward, self.feedforward_norm)):
            if self.normalize_first:
                x = x + self.drop(part(norm(x, context)), context)
            else:
                x = norm(x + self.drop(part(x), context), context)
        return x

    def attending(self, context: Context, mask: Value | None) -> Step:
        """The self-attention of the block with a mask, and its normalization."""
        return (lambda x: self.self_attention(x, context, attention_mask=mask),
                self.self_attention_norm)


def _both(padding: Value | None, attention: Value | None, x: Value, of: str = "") -> Value | None:
    """A padding mask (batch, length) and an attention mask, combined into one attention mask."""
    if padding is None:
        return attention
    if padding.shape[1:] != x.shape[1:2]:
        raise shape_error(f"{of}padding_mask and {'the sequence' if of else 'inputs'} do not fit:",
                          padding.shape[1:], x.shape[1:],
                          fix=f"use ({x.shape[1]},), one per position")
    positions = OPS.expand_dims(padding, 1)
    return positions if attention is None else OPS.bitwise_and(attention, positions)


class TransformerEncoder(TransformerBlock):
    """A transformer block in which every position attends to all positions.

    In a `Model` it is called on `(x, padding_mask, attention_mask)`. Both masks are boolean:
    `(batch, length)`, true at positions that are not padding, and `(batch, length, length)`, true
    where one position may attend to another.

    Args:
        intermediate_dim: Size of the first dense layer. A positive integer.
        num_heads: Number of attention heads, which must divide the number of features.
        dropout: Rate of dropout after attention and the dense layers, and of attention weights.
            Default: `0.0`.
        activation: Activation of the first dense layer. Default: `"relu"`.
        layer_norm_epsilon: Epsilon of the layer normalizations. Default: `1e-05`.
        kernel_initializer: Initializer of all kernels: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of all biases: a name or an `Initializer`. Default: `"zeros"`.
        normalize_first: Whether to normalize the input of each part instead of the residual sums.
            Default: `False`.
        rotary: Whether to rotate queries and keys by their positions. Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((7, 16)), TransformerEncoder(32, num_heads=4)]).output_shape
        (None, 7, 16)
    """

    def call(self, x: Value, context: Context, padding_mask: Value | None = None,
             attention_mask: Value | None = None) -> Value:
        mask = _both(padding_mask, attention_mask, x)
        return self.run(x, context, self.attending(context, mask))


class TransformerDecoder(TransformerBlock):
    """A transformer block in which each position attends to itself and to earlier positions.

    In a `Model` it is called on `(x, encoder_sequence)`, and also attends to all of the second
    sequence. It takes a padding mask `(batch, length)` and an attention mask for each sequence:
    true at positions that are not padding, and where they may be seen. The first call decides
    whether there is a second sequence, because the weights depend on it.

    Args:
        intermediate_dim: Size of the first dense layer. A positive integer.
        num_heads: Number of attention heads, which must divide the number of features.
        dropout: Rate of dropout after attention and the dense layers, and of attention weights.
            Default: `0.0`.
        activation: Activation of the first dense layer. Default: `"relu"`.
        layer_norm_epsilon: Epsilon of the layer normalizations. Default: `1e-05`.
        kernel_initializer: Initializer of all kernels: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of all biases: a name or an `Initializer`. Default: `"zeros"`.
        normalize_first: Whether to normalize the input of each part instead of the residual sums.
            Default: `False`.
        rotary: Whether to rotate queries and keys of the first sequence by their positions.
            Default: `False`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, length, features)`; the second sequence is `(batch, source length, source
        features)`.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((7, 16)), TransformerDecoder(32, num_heads=4, name="block")])
        >>> model.weights[0].path
        'block/self_attention/query/kernel'
        >>> words, image = Input((7, 16)), Input((49, 24))
        >>> TransformerDecoder(32, num_heads=4)(words, image).shape
        (None, 7, 16)
    """

    causal = True
    cross_attention: MultiHeadAttention | None = None
    cross_attention_norm: LayerNormalization

    @property
    def in_order(self) -> list[Layer]:
        return [self.self_attention, self.self_attention_norm, self.intermediate, self.output,
                self.feedforward_norm, self.drop]

    def prepare(self, x: Any, encoder_sequence: Any = None, *more: Any, **keywords: Any) -> None:
        """Builds the block. The first call decides whether it attends to a second sequence."""
        if encoder_sequence is not None and not self.built and self.cross_attention is None:
            self.cross_attention, self.cross_attention_norm = self._attending("cross_attention")
            for layer in (self.cross_attention_norm, self.cross_attention):  # before dense layers
                self.adopt(layer)
                self.adopted.insert(2, self.adopted.pop())
        if (encoder_sequence is None) != (self.cross_attention is None):
            was, now = ("with", "without") if encoder_sequence is None else ("without", "with")
            raise shape_error(f"called {now} encoder_sequence, but {was} one before",
                              fix="its weights depend on that; use a second "
                                  "TransformerDecoder")
        super().prepare(x)

    def call(self, x: Value, context: Context, encoder_sequence: Value | None = None,
             decoder_padding_mask: Value | None = None, decoder_attention_mask: Value | None = None,
             encoder_padding_mask: Value | None = None,
             encoder_attention_mask: Value | None = None) -> Value:
        visible = _both(decoder_padding_mask, decoder_attention_mask, x, "decoder_")
        attentions = [self.attending(context, visible)]
        cross = self.cross_attention
        if encoder_sequence is not None and cross is not None:
            mask = _both(encoder_padding_mask, encoder_attention_mask, encoder_sequence, "encoder_")
            attentions.append((lambda x: cross(x, encoder_sequence, context, attention_mask=mask),
                               self.cross_attention_norm))
        elif encoder_padding_mask is not None or encoder_attention_mask is not None:
            raise shape_error("called with a mask of an encoder_sequence, but without one",
                              fix="call it on (x, encoder_sequence), or pass masks of x as "
                                  "decoder_padding_mask and decoder_attention_mask")
        return self.run(x, context, *attentions)
