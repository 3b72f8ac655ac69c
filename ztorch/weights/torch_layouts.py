"""The tensors of PyTorch's modules, and how our weights are arranged in them.

Modules have our layer names with dots for slashes. The parts of a transformer block are named as in
nn.TransformerEncoderLayer, or, with a second sequence, as in nn.TransformerDecoderLayer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ztorch.errors import Unsupported
from ztorch.layers import LAYERS
from ztorch.layers.attention import MultiHeadAttention
from ztorch.layers.bidirectional import Bidirectional
from ztorch.layers.cells import GatedCell
from ztorch.layers.convolution import BaseConv
from ztorch.layers.core import Dense
from ztorch.layers.embedding import Embedding, PositionEmbedding
from ztorch.layers.gated import GatedLayer
from ztorch.layers.gates import GatedStep, GRUStep
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.layers.normalization import BatchNormalization, ScaledNormalization
from ztorch.layers.separable import BaseDepthwiseConv, BaseSeparableConv
from ztorch.layers.transformer import TransformerBlock
from ztorch.layers.transposed import BaseConvTranspose
from ztorch.layers.unit_scale import RMSNormalization
from ztorch.layers.weight import Weight
from ztorch.weights.channels import Channels, to_first
from ztorch.weights.modules import Arrange, Entry, ModelPart

Entries = dict[str, Entry]
Modules = Iterator[tuple[str, Entries]]  # suffixes of the layer's name, and the tensors
_PARTS = (("self_attention", "self_attn"), ("cross_attention", "multihead_attn"),
          ("intermediate", "linear1"), ("output", "linear2"))
_NORMS = ("self_attention_norm", "cross_attention_norm", "feedforward_norm")  # norm1 and so on
_GATES = {1: (0,), 4: (0, 1, 2, 3), 3: (1, 0, 2)}  # the number of our gate for each of theirs


def parts(model: Network, channels: Channels) -> list[ModelPart]:
    """A model as PyTorch's modules, in PyTorch's order."""
    missing: list[Layer] = []
    model_parts = list(_walk(model, "", channels, missing))
    if missing:
        raise Unsupported("PyTorch has no module with the weights of "
                          f"{', '.join(f'{type(m).__name__} {m.name!r}' for m in missing)}; "
                          "use our own format, or remove these layers")
    return model_parts


def _walk(layer: Layer, name: str, channels: Channels, missing: list[Layer]) -> Iterator[ModelPart]:
    layout = next((LAYOUTS[kind] for kind in type(layer).__mro__ if kind in LAYOUTS), None)
    if layout is not None:
        for tail, entries in layout(layer, channels):
            if entries:
                yield _part(layer, f"{name}{tail}", entries)
    elif layer.own_weights:
        missing.append(layer)
    for child, inner in _children(layer) if layout is None else ():
        yield from _walk(inner, f"{name}.{child}" if name else child, channels, missing)


def _children(layer: Layer) -> list[tuple[str, Layer]]:
    if not isinstance(layer, TransformerBlock):
        return [(inner.name, inner.stands_for) for inner in layer.adopted]
    by_name = {inner.name: inner for inner in layer.adopted}
    norms = [by_name[ours] for ours in _NORMS if ours in by_name]
    return [*((theirs, by_name[ours]) for ours, theirs in _PARTS if ours in by_name),
            *((f"norm{k}", norm) for k, norm in enumerate(norms, 1))]


def _part(layer: Layer, name: str, entries: Entries) -> ModelPart:
    part = ModelPart(layer, (name,), entries)
    if isinstance(layer, BatchNormalization):
        return replace(part, constants={"num_batches_tracked": np.zeros((), np.int64)})
    return part


def _axes(*order: int) -> Arrange:
    return lambda a: np.transpose(a, order)


def _biased(layer: Dense | BaseConv, entry: Entry) -> Entries:
    return {"weight": entry, **({"bias": Entry((layer.bias,))} if layer.use_bias else {})}


def _dense(layer: Dense, channels: Channels) -> Modules:
    rows, columns = channels.rows(layer), channels.columns(layer)
    entries = _biased(layer, Entry((layer.kernel,), lambda k: to_first(
        to_first(k, rows, 0), columns, 1).T))
    if columns and layer.use_bias:
        entries["bias"] = Entry((layer.bias,), lambda b: to_first(b, columns, 0))
    yield "", entries


def _swap_last(a: np.ndarray) -> np.ndarray:
    """(*size, in, out) as (out, in, *size)."""
    return np.moveaxis(a, (-1, -2), (0, 1))


def _conv(layer: BaseConv, channels: Channels) -> Modules:
    yield "", _biased(layer, Entry((layer.kernel,), _swap_last))


def _channels_out(a: np.ndarray) -> np.ndarray:
    """(*size, channels, each) as (channels * each, 1, *size)."""
    return np.moveaxis(a.reshape(*a.shape[:-2], 1, -1), (-1, -2), (0, 1))


def _depthwise(layer: BaseDepthwiseConv, channels: Channels) -> Modules:
    entries = {"weight": Entry((layer.kernel,), _channels_out)}
    yield "", entries | ({"bias": Entry((layer.bias,))} if layer.use_bias else {})


def _separable(layer: BaseSeparableConv, channels: Channels) -> Modules:
    """Two modules: a depthwise convolution without a bias, and a pointwise one."""
    yield ".depthwise", {"weight": Entry((layer.depthwise_kernel,), _channels_out)}
    entries = {"weight": Entry((layer.pointwise_kernel,), _swap_last)}
    yield ".pointwise", entries | ({"bias": Entry((layer.bias,))} if layer.use_bias else {})


def _scaled(layer: ScaledNormalization, channels: Channels) -> Modules:
    image = channels.rows(layer) or channels.columns(layer)

    def arrange(a: np.ndarray) -> np.ndarray:
        if a.ndim > 1 and channels.first(layer):
            return np.moveaxis(a, -1, 0)
        return to_first(a, image, 0) if a.ndim == 1 else a

    names = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean",
             "running_var": "moving_variance"}
    weights = {w.name: w for w in layer.own_weights}
    yield "", {theirs: Entry((weights[ours],), arrange)
               for theirs, ours in names.items() if ours in weights}


def _single(weight: Weight) -> Modules:
    yield "", {"weight": Entry((weight,))}


def _prelu(layer: Layer, channels: Channels) -> Modules:
    [alpha] = layer.own_weights
    if alpha.size != alpha.shape[-1]:
        raise Unsupported(f"PReLU {layer.name!r} has an alpha for each position, PyTorch's has one "
                          "for each channel; share the other axes: PReLU(shared_axes=(1, 2))")
    yield "", {"weight": Entry((alpha,), np.ravel)}


def _attention(layer: MultiHeadAttention, channels: Channels) -> Modules:
    """One module; queries, keys and values share a matrix if all have the width of the model."""
    projected = layer.projections
    kernels = [projected[n][0] for n in ("query", "key", "value")]
    out = projected["output"][0]
    width = kernels[0].shape[0]
    if any(k.size != k.shape[0] * width for k in kernels) or out.shape[-1] != width:
        raise Unsupported(f"MultiHeadAttention {layer.name!r} has heads whose sizes do not add up "
                          f"to the {width} features of its input, which PyTorch's always do; "
                          "leave out key_dim, value_dim and output_shape")

    def matrix(kernel: np.ndarray) -> np.ndarray:
        return kernel.reshape(kernel.shape[0], -1).T

    if all(k.shape[0] == width for k in kernels):
        entries = {"in_proj_weight": Entry(tuple(kernels), lambda *all: np.concatenate(
            [matrix(k) for k in all]))}
    else:
        entries = {f"{n}_proj_weight": Entry((k,), matrix)
                   for n, k in zip("qkv", kernels, strict=True)}
    if layer.use_bias:
        biases = tuple(projected[n][1] for n in ("query", "key", "value"))
        entries["in_proj_bias"] = Entry(biases, lambda *all: np.concatenate(
            [b.ravel() for b in all]))
        entries["out_proj.bias"] = Entry((projected["output"][1],))
    entries["out_proj.weight"] = Entry((out,), lambda k: k.reshape(-1, k.shape[-1]).T)
    yield "", entries


def _recurrent(layer: GatedLayer, channels: Channels) -> Modules:
    yield "", _direction(layer, channels.rows(layer), "_l0")


def _cell(layer: GatedCell, channels: Channels) -> Modules:
    yield "", _direction(layer, channels.rows(layer), "")


def _bidirectional(layer: Bidirectional, channels: Channels) -> Modules:
    entries: Entries = {}
    for inner, end in ((layer.forward_way, "_l0"), (layer.backward_way, "_l0_reverse")):
        if not isinstance(inner, GatedLayer):
            raise Unsupported(f"Bidirectional {layer.name!r} is around a {type(inner).__name__}, "
                              "for which PyTorch has no module; use SimpleRNN, LSTM or GRU")
        entries |= _direction(inner, channels.rows(inner), end)
    yield "", entries


def _direction(layer: GatedStep, image: tuple[int, ...] | None, end: str) -> Entries:
    if isinstance(layer, GRUStep) and not layer.reset_after:
        raise Unsupported(f"{type(layer).__name__} {layer.name!r} has reset_after=False, which "
                          "PyTorch's GRU lacks; use reset_after=True")
    order = _GATES[layer.gates]

    def gates(a: np.ndarray) -> np.ndarray:
        """The gates along the last axis in PyTorch's order."""
        pieces = np.split(a, len(order), axis=-1)
        return np.concatenate([pieces[k] for k in order], axis=-1)

    entries = {f"weight_ih{end}": Entry((layer.kernel,), lambda k: gates(to_first(k, image, 0)).T),
               f"weight_hh{end}": Entry((layer.recurrent_kernel,), lambda k: gates(k).T)}
    if layer.use_bias:
        two_biases = len(layer.bias.shape) == 2
        entries[f"bias_ih{end}"] = Entry((layer.bias,), lambda b: gates(b[0] if two_biases else b))
        entries[f"bias_hh{end}"] = Entry((layer.bias,), lambda b: gates(b[1] if two_biases else b),
                                         added=not two_biases)
    return entries


LAYOUTS: dict[type[Layer], Callable[..., Modules]] = {
    Dense: _dense, BaseConv: _conv, BaseConvTranspose: _conv, BaseDepthwiseConv: _depthwise,
    BaseSeparableConv: _separable, ScaledNormalization: _scaled,
    RMSNormalization: lambda layer, _: _single(layer.scale),
    Embedding: lambda layer, _: _single(layer.embeddings),
    PositionEmbedding: lambda layer, _: _single(layer.position_embeddings),
    LAYERS["PReLU"]: _prelu, MultiHeadAttention: _attention, GatedLayer: _recurrent,
    GatedCell: _cell, Bidirectional: _bidirectional,
}
