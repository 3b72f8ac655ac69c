"""Writers of layers that ONNX has too: normalizations and recurrent layers, with their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import layer
from ztorch.interchange.onnx.writer import Writer
from ztorch.layers.axes import example_axes
from ztorch.layers.gated import GRU, LSTM, SimpleRNN
from ztorch.layers.normalization import BatchNormalization, GroupNormalization, LayerNormalization
from ztorch.layers.weight import Weight

Weights = Callable[[Weight], Any]


def _label(layer: Any, weight: str) -> str:
    return f"{layer.path}/{weight}"


# -- normalizations --------------------------------------------------------------------------------


def _scale_and_shift(w: Writer, layer: Any, shape: tuple[int, ...], dtype: Any,
                     weight: Weights) -> list[str]:
    """The names of gamma and beta; ones and zeros where the layer has none."""
    gamma = weight(layer.gamma) if layer.scale else np.ones(shape, dtype)
    beta = weight(layer.beta) if layer.center else np.zeros(shape, dtype)
    return [w.array(gamma, _label(layer, "gamma")), w.array(beta, _label(layer, "beta"))]


@layer(BatchNormalization, onnx="BatchNormalization")
def _batch_norm(w: Writer, v: Value, layer: BatchNormalization, x: Value, weight: Weights) -> None:
    [axis] = example_axes(layer.axis, x.rank)
    order = (0, axis, *(k for k in range(1, x.rank) if k != axis))
    moving = [w.array(weight(layer.moving_mean), _label(layer, "moving_mean")),
              w.array(weight(layer.moving_variance), _label(layer, "moving_variance"))]
    scale = _scale_and_shift(w, layer, (x.shape[axis],), x.dtype.working, weight)
    w.record(v, w.node("BatchNormalization", [w.name(x, order), *scale, *moving],
                       epsilon=layer.epsilon), order)


def _trailing(layer: Any, x: Value) -> bool:
    axes = example_axes(layer.axis, x.rank)
    return axes == tuple(range(axes[0], x.rank))


@layer(LayerNormalization, onnx="LayerNormalization", when=_trailing)
def _layer_norm(w: Writer, v: Value, layer: LayerNormalization, x: Value, weight: Weights) -> None:
    axis = example_axes(layer.axis, x.rank)[0]
    scale = _scale_and_shift(w, layer, x.shape[axis:], x.dtype.working, weight)
    w.record(v, w.node("LayerNormalization", [w.name(x), *scale], axis=axis, epsilon=layer.epsilon))


@layer(GroupNormalization, onnx="GroupNormalization", when=lambda layer, x: x.rank > 2)
def _group_norm(w: Writer, v: Value, layer: GroupNormalization, x: Value, weight: Weights) -> None:
    [axis] = example_axes(layer.axis, x.rank)
    order = (0, axis, *(k for k in range(1, x.rank) if k != axis))
    channels = x.shape[axis]
    scale = _scale_and_shift(w, layer, (channels,), x.dtype.working, weight)
    w.record(v, w.node("GroupNormalization", [w.name(x, order), *scale], epsilon=layer.epsilon,
                       num_groups=channels if layer.groups == -1 else layer.groups), order)


# -- recurrent layers ------------------------------------------------------------------------------

_FUNCTIONS: dict[Any, tuple[str, float, float]] = {  # with alpha and beta
    "tanh": ("Tanh", 0, 0), "sigmoid": ("Sigmoid", 0, 0), "relu": ("Relu", 0, 0),
    "hard_sigmoid": ("HardSigmoid", 1 / 6, 0.5)}


def _functions(layer: Any) -> list[Any]:
    inner = layer.activation
    gate = getattr(layer, "recurrent_activation", None)
    if isinstance(layer, SimpleRNN):
        return [inner]
    return [gate, inner] if isinstance(layer, GRU) else [gate, inner, inner]


def _known_functions(layer: Any, x: Value) -> bool:
    return all(isinstance(f, str) and f in _FUNCTIONS for f in _functions(layer))


def _gates(array: np.ndarray, layer: Any) -> np.ndarray:
    """(..., gates * units) in ONNX's layout: gates first, those of an LSTM in its order."""
    parts = np.split(array.T, layer.gates)
    if isinstance(layer, LSTM):
        parts = [parts[k] for k in (0, 3, 1, 2)]  # input, output, forget, cell
    return np.concatenate(parts)[None]


@layer(LSTM, GRU, SimpleRNN, onnx="LSTM, GRU, RNN", when=_known_functions)
def _recurrent(w: Writer, v: Value, layer: Any, x: Value, weight: Weights) -> None:
    width = layer.gates * layer.units
    bias = np.zeros((2, width), x.dtype.working)
    if layer.use_bias:
        layer_bias = weight(layer.bias)
        bias[:len(layer_bias) if layer_bias.ndim == 2 else 1] = layer_bias
    # Two rows of biases, of the inputs and of the states, become one vector.
    biases = np.concatenate([_gates(row, layer)[0] for row in bias])[None]
    arrays = [w.array(_gates(weight(layer.kernel), layer), _label(layer, "kernel")),
              w.array(_gates(weight(layer.recurrent_kernel), layer),
                      _label(layer, "recurrent_kernel")),
              w.array(biases, _label(layer, "bias"))]
    functions = [_FUNCTIONS[f] for f in _functions(layer)]
    attrs: dict[str, Any] = {
        "hidden_size": layer.units, "activations": [name for name, _, _ in functions],
        "direction": "reverse" if layer.go_backwards and not layer.return_sequences else "forward"}
    if any(alpha for _, alpha, _ in functions):
        attrs["activation_alpha"] = [alpha for _, alpha, _ in functions if alpha]
        attrs["activation_beta"] = [beta for _, alpha, beta in functions if alpha]
    if isinstance(layer, GRU):
        attrs["linear_before_reset"] = int(layer.reset_after)
    op = "RNN" if isinstance(layer, SimpleRNN) else type(layer).__name__
    steps = w.name(x, (1, 0, 2))
    if layer.go_backwards and layer.return_sequences:
        # The layer returns steps in the order in which it read them. A Slice reverses its input:
        # OpenVINO 2026.4 misreads two nodes of opposite directions on one tensor.
        steps = w.node("Slice", [steps, w.integers([-1]), w.integers([np.iinfo(np.int64).min]),
                                 w.integers([0]), w.integers([-1])])
    outputs, last_outputs = w.outputs(op, [steps, *arrays], 2, **attrs)
    if layer.return_sequences:
        w.record(v, w.node("Squeeze", [outputs, w.integers([1])]), (1, 0, 2))
    else:
        w.record(v, w.node("Squeeze", [last_outputs, w.integers([0])]))
