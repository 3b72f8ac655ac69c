"""Recurrent layers that read a sequence from both ends."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.recurrent import RecurrentLayer

MERGE_MODES = ("concat", "sum", "mul", "ave")


class Bidirectional(Layer):
    """A recurrent layer and a copy that reads the sequence from its end, with their outputs merged.

    Args:
        layer: A `SimpleRNN`, `LSTM` or `GRU`.
        merge_mode: How outputs are merged: `"concat"`, `"sum"`, `"mul"` or `"ave"`. Default:
            `"concat"`.
        backward_layer: The layer that reads from the end. `None` makes a copy of `layer`. Default:
            `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`.

    Output shape:
        That of `layer`, with twice the features for `"concat"`.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import LSTM, Input
        >>> model = Sequential([Input((5, 3)), Bidirectional(LSTM(4))])
        >>> model.output_shape, model.weights[3].path
        ((8,), 'bidirectional/backward_lstm/kernel')
    """

    def __init__(self, layer: Layer, merge_mode: str = "concat",
                 backward_layer: Layer | None = None, **common: Any):
        super().__init__(**common)
        if merge_mode not in MERGE_MODES:
            raise ConfigError(f"Bidirectional(merge_mode={merge_mode!r}) must be one of "
                              f"{', '.join(MERGE_MODES)}")
        self.merge_mode = merge_mode
        self.layer = _recurrent(layer)
        forward = {**self.layer.get_config(),
                   "name": f"forward_{self.layer.name.removeprefix('forward_')}"}
        backward = {**self.layer.get_config(), "go_backwards": not self.layer.go_backwards,
                    "name": f"backward_{self.layer.name.removeprefix('backward_')}"}
        self.backward_layer = None if backward_layer is None else _recurrent(backward_layer)
        self.forward_way = self.adopt(type(self.layer).from_config(forward))
        self.backward_way = self.adopt(self.backward_layer
                                       or type(self.layer).from_config(backward))
        self._need_opposites()

    def _need_opposites(self) -> None:
        forward, backward = self.forward_way, self.backward_way
        assert isinstance(forward, RecurrentLayer) and isinstance(backward, RecurrentLayer)
        if forward.go_backwards == backward.go_backwards:
            raise ConfigError(f"layer {self.name!r}: both layers have go_backwards="
                              f"{forward.go_backwards}; give backward_layer the other one")
        if forward.return_sequences != backward.return_sequences:
            raise ConfigError(f"layer {self.name!r}: one layer returns sequences and the other "
                              "does not; give both the same return_sequences")

    def call(self, x: Value, context: Context) -> Value:
        y, back = self.forward_way(x, context), self.backward_way(x, context)
        if self.layer.return_sequences:
            back = context.masks.declare(OPS.flip(back, 1), context.masks.of(x))
        if self.merge_mode == "concat":
            return OPS.concat(y, back, axis=-1)
        if self.merge_mode == "mul":
            return y * back
        total = y + back
        return total * 0.5 if self.merge_mode == "ave" else total


def _recurrent(spec: Any) -> RecurrentLayer:
    layer = Layer.get(spec) if isinstance(spec, dict) else spec
    if not isinstance(layer, RecurrentLayer):
        raise ConfigError(f"Bidirectional takes a SimpleRNN, LSTM or GRU, not {layer!r}")
    return layer
