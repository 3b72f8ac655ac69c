"""Recurrent layers that read a sequence in both directions."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.recurrent import RecurrentLayer
from ztorch.layers.symbol import leaves

MERGE_MODES = ("concat", "sum", "mul", "ave")


class Bidirectional(Layer):
    """Runs a recurrent layer and a copy that reads the sequence in reverse, and merges their
    outputs.

    Args:
        layer: A recurrent layer, such as `LSTM` or `RNN`.
        merge_mode: How outputs are merged: `"concat"`, `"sum"`, `"mul"` or `"ave"`; `None` returns
            a list of both. Default: `"concat"`.
        backward_layer: The layer that reads in reverse. `None` makes a copy of `layer`. Default:
            `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, steps, features)`. The call also takes `initial_state=`, a list of the states of
        `layer` and of the backward layer, and `mask=`, `(batch, steps)`. As in Keras, outputs of
        masked steps are zero.

    Output shape:
        That of `layer`, with twice the features for `"concat"`. With `return_state`, a list of it
        and the states of both layers.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import LSTM, Input
        >>> model = Sequential([Input((5, 3)), Bidirectional(LSTM(4))])
        >>> model.output_shape, model.weights[3].path
        ((None, 8), 'bidirectional/backward_lstm/kernel')
    """

    takes_many = True

    def __init__(self, layer: Layer, merge_mode: str | None = "concat",
                 backward_layer: Layer | None = None, **common: Any):
        super().__init__(**common)
        if merge_mode not in (*MERGE_MODES, None):
            raise ConfigError(f"Bidirectional(merge_mode={merge_mode!r}) must be one of "
                              f"{', '.join(MERGE_MODES)}, or None")
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
        for way in self._ways():
            way.zero_output_for_mask = way.return_sequences

    def _ways(self) -> tuple[RecurrentLayer, RecurrentLayer]:
        forward, backward = self.forward_way, self.backward_way
        assert isinstance(forward, RecurrentLayer) and isinstance(backward, RecurrentLayer)
        return forward, backward

    def _need_opposites(self) -> None:
        forward, backward = self._ways()
        if forward.go_backwards == backward.go_backwards:
            raise ConfigError(f"layer {self.name!r}: both layers have go_backwards="
                              f"{forward.go_backwards}; set the opposite in backward_layer")
        if forward.return_sequences != backward.return_sequences:
            raise ConfigError(f"layer {self.name!r}: one layer returns sequences and the other "
                              "does not; give both the same return_sequences")
        for name in ("return_state", "stateful"):
            if getattr(forward, name) != getattr(backward, name):
                raise ConfigError(f"layer {self.name!r}: one layer has {name}=True and the other "
                                  f"does not; give both the same {name}")

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        super().prepare(leaves(x)[0])

    def call(self, x: Any, context: Context, initial_state: Any = None) -> Any:
        x, *listed = leaves(x)
        states: list[Any] = listed or ([] if initial_state is None else leaves(initial_state))
        if len(states) % 2:
            many = "state" if len(states) == 1 else "states"
            raise shape_error(f"it got {len(states)} {many}, which is not the same number for "
                              "each of its two layers", fix="pass the states of the layer, then "
                              "those of the backward layer")
        half = len(states) // 2
        ways = [self.forward_way(x, context, initial_state=states[:half] or None),
                self.backward_way(x, context, initial_state=states[half:] or None)]
        [y, *last], [back, *last_back] = (leaves(way) for way in ways)
        if self.layer.return_sequences:
            back = self._in_order(back, x, context)
        merged = [y, back] if self.merge_mode is None else [self._merged(y, back)]
        return [*merged, *last, *last_back] if self.layer.return_state or len(merged) > 1 else (
            merged[0])

    def _in_order(self, back: Value, x: Value, context: Context) -> Value:
        """The outputs of the backward layer, from the first step to the last."""
        back, padding = OPS.flip(back, 1), context.padding
        return padding.declare(back, padding.of(x)) if self.backward_way.reverses_steps else back

    def _merged(self, y: Value, back: Value) -> Value:
        if self.merge_mode == "concat":
            return OPS.concat(y, back, axis=-1)
        if self.merge_mode == "mul":
            return y * back
        total = y + back
        return total * 0.5 if self.merge_mode == "ave" else total

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        own = leaves(mask)[0] if self.layer.return_sequences else None
        return own if self.merge_mode is not None else [own, own]


def _recurrent(spec: Any) -> RecurrentLayer:
    layer = Layer.get(spec) if isinstance(spec, dict) else spec
    if not isinstance(layer, RecurrentLayer):
        raise ConfigError(f"Bidirectional takes a recurrent layer, such as LSTM(8), not {layer!r}")
    return layer
