"""Layers that ONNX knows as a whole: normalisations and recurrent layers, with their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.graph.value import Value
from ztorch.interchange.onnx.recipe import layer
from ztorch.interchange.onnx.writer import Writer
from ztorch.layers.axes import example_axes
from ztorch.layers.gated import GRU, LSTM
from ztorch.layers.normalization import BatchNormalization, GroupNormalization, LayerNormalization
from ztorch.layers.recurrent import SimpleRNN
from ztorch.layers.weight import Weight

Weights = Callable[[Weight], Any]


def _label(made: Any, weight: str) -> str:
    return f"{made.path}/{weight}"


# -- normalisations --------------------------------------------------------------------------------


def _scale_and_shift(w: Writer, made: Any, shape: tuple[int, ...], dtype: Any,
                     weight: Weights) -> list[str]:
    """Ones and zeros where the layer has none."""
    gamma = weight(made.gamma) if made.scale else np.ones(shape, dtype)
    beta = weight(made.beta) if made.center else np.zeros(shape, dtype)
    return [w.array(gamma, _label(made, "gamma")), w.array(beta, _label(made, "beta"))]


@layer(BatchNormalization, onnx="BatchNormalization")
def _batch_norm(w: Writer, v: Value, made: BatchNormalization, x: Value, weight: Weights) -> None:
    [axis] = example_axes(made.axis, x.rank)
    order = (0, axis, *(k for k in range(1, x.rank) if k != axis))
    moving = [w.array(weight(made.moving_mean), _label(made, "moving_mean")),
              w.array(weight(made.moving_variance), _label(made, "moving_variance"))]
    scale = _scale_and_shift(w, made, (x.shape[axis],), x.dtype.working, weight)
    w.give(v, w.node("BatchNormalization", [w.name(x, order), *scale, *moving],
                     epsilon=made.epsilon), order)


def _trailing(layer: Any, x: Value) -> bool:
    axes = example_axes(layer.axis, x.rank)
    return axes == tuple(range(axes[0], x.rank))


@layer(LayerNormalization, onnx="LayerNormalization", when=_trailing)
def _layer_norm(w: Writer, v: Value, made: LayerNormalization, x: Value, weight: Weights) -> None:
    axis = example_axes(made.axis, x.rank)[0]
    scale = _scale_and_shift(w, made, x.shape[axis:], x.dtype.working, weight)
    w.give(v, w.node("LayerNormalization", [w.name(x), *scale], axis=axis, epsilon=made.epsilon))


@layer(GroupNormalization, onnx="GroupNormalization", when=lambda layer, x: x.rank > 2)
def _group_norm(w: Writer, v: Value, made: GroupNormalization, x: Value, weight: Weights) -> None:
    [axis] = example_axes(made.axis, x.rank)
    order = (0, axis, *(k for k in range(1, x.rank) if k != axis))
    channels = x.shape[axis]
    scale = _scale_and_shift(w, made, (channels,), x.dtype.working, weight)
    w.give(v, w.node("GroupNormalization", [w.name(x, order), *scale], epsilon=made.epsilon,
                     num_groups=channels if made.groups == -1 else made.groups), order)


# -- recurrent layers ------------------------------------------------------------------------------

_FUNCTIONS: dict[Any, tuple[str, float, float]] = {  # with alpha and beta
    "tanh": ("Tanh", 0, 0), "sigmoid": ("Sigmoid", 0, 0), "relu": ("Relu", 0, 0),
    "hard_sigmoid": ("HardSigmoid", 1 / 6, 0.5)}


def _functions(made: Any) -> list[Any]:
    inner = made.activation
    gate = getattr(made, "recurrent_activation", None)
    return ([inner] if isinstance(made, SimpleRNN) else [gate, inner] if isinstance(made, GRU) else
            [gate, inner, inner])


def _known_functions(layer: Any, x: Value) -> bool:
    return all(isinstance(f, str) and f in _FUNCTIONS for f in _functions(layer))


def _gates(array: np.ndarray, made: Any) -> np.ndarray:
    """(..., gates * units) as ONNX has it: gates first, those of an LSTM in another order."""
    parts = np.split(array.T, made.gates)
    if isinstance(made, LSTM):
        parts = [parts[k] for k in (0, 3, 1, 2)]  # input, output, forget, cell
    return np.concatenate(parts)[None]


@layer(LSTM, GRU, SimpleRNN, onnx="LSTM, GRU, RNN", when=_known_functions)
def _recurrent(w: Writer, v: Value, made: Any, x: Value, weight: Weights) -> None:
    width = made.gates * made.units
    bias = np.zeros((2, width), x.dtype.working)
    if made.use_bias:
        given = weight(made.bias)
        bias[:len(given) if given.ndim == 2 else 1] = given
    # each row as one column of gates, the row of the inputs first
    both = np.concatenate([_gates(row, made)[0] for row in bias])[None]
    arrays = [w.array(_gates(weight(made.kernel), made), _label(made, "kernel")),
              w.array(_gates(weight(made.recurrent_kernel), made),
                      _label(made, "recurrent_kernel")),
              w.array(both, _label(made, "bias"))]
    found = [_FUNCTIONS[f] for f in _functions(made)]
    attrs: dict[str, Any] = {
        "hidden_size": made.units, "activations": [name for name, _, _ in found],
        "direction": "reverse" if made.go_backwards else "forward"}
    if any(alpha for _, alpha, _ in found):
        attrs["activation_alpha"] = [alpha for _, alpha, _ in found if alpha]
        attrs["activation_beta"] = [beta for _, alpha, beta in found if alpha]
    if isinstance(made, GRU):
        attrs["linear_before_reset"] = int(made.reset_after)
    op = "RNN" if isinstance(made, SimpleRNN) else type(made).__name__
    every, last = w.outputs(op, [w.name(x, (1, 0, 2)), *arrays], 2, **attrs)
    if not made.return_sequences:
        w.give(v, w.node("Squeeze", [last, w.integers([0])]))
        return
    name = w.node("Squeeze", [every, w.integers([1])])
    if made.go_backwards:  # the layer gives steps in the order in which it read them
        name = w.node("Slice", [name, w.integers([-1]), w.integers([np.iinfo(np.int64).min]),
                                w.integers([0]), w.integers([-1])])
    w.give(v, name, (1, 0, 2))
