"""Recurrent layers in PyTorch's words: by PyTorch's own modules, and cells step by step."""

from __future__ import annotations

from typing import Any

from tests.layers.torch_images import ACTIVATIONS, Images, Tensor


class Recurrent(Images):
    """Recurrent layers and cells."""

    def gates(self, a: Tensor, order: tuple[int, ...]) -> Tensor:
        """Columns of gates as PyTorch's rows, in its order."""
        parts = a.chunk(len(order), -1)
        return self.torch.cat([parts[k].T if a.ndim == 2 else parts[k] for k in order])

    def _SimpleRNN(self, layer: Any, x: Tensor) -> Tensor:
        return self.recurrent(layer, x, "RNN", (0,), nonlinearity=layer.activation)

    def _LSTM(self, layer: Any, x: Tensor) -> Tensor:
        return self.recurrent(layer, x, "LSTM", (0, 1, 2, 3))

    def _GRU(self, layer: Any, x: Tensor) -> Tensor:
        return self.recurrent(layer, x, "GRU", (1, 0, 2))

    def recurrent(self, layer: Any, x: Tensor, kind: str, order: tuple[int, ...],
                  **how: Any) -> Tensor:
        torch = self.torch
        cell = getattr(torch.nn, kind)(x.shape[-1], layer.units, batch_first=True,
                                       bias=layer.use_bias, dtype=x.dtype, **how)
        parameters = {"weight_ih_l0": self.gates(self.get(layer, "kernel"), order),
                      "weight_hh_l0": self.gates(self.get(layer, "recurrent_kernel"), order)}
        if layer.use_bias:
            bias = self.get(layer, "bias")
            both = bias if bias.ndim == 2 else torch.stack([bias, torch.zeros_like(bias)])
            parameters |= {f"bias_{way}_l0": self.gates(both[k], order)
                           for k, way in enumerate(("ih", "hh"))}
        y, _ = torch.func.functional_call(cell, parameters, x.flip(1) if layer.go_backwards else x)
        return y if layer.return_sequences else y[:, -1]

    def _Bidirectional(self, layer: Any, x: Tensor) -> Tensor:
        one, other = self.run(layer.forward_way, x), self.run(layer.backward_way, x)
        if layer.layer.return_sequences:
            other = other.flip(1)
        return {"concat": lambda: self.torch.cat([one, other], -1), "sum": lambda: one + other,
                "mul": lambda: one * other, "ave": lambda: (one + other) / 2}[layer.merge_mode]()

    # -- cells, step by step -----------------------------------------------------------------------

    def _RNN(self, layer: Any, x: Tensor) -> Tensor:
        states, outputs = self.zeros(layer.cell, x), []
        for t in reversed(range(x.shape[1])) if layer.go_backwards else range(x.shape[1]):
            y, states = self.stepped(layer.cell, x[:, t], states)
            outputs.append(y)
        return self.torch.stack(outputs, 1) if layer.return_sequences else outputs[-1]

    def zeros(self, cell: Any, x: Tensor) -> list[Any]:
        if type(cell).__name__ == "StackedRNNCells":
            return [self.zeros(inner, x) for inner in cell.adopted]
        sizes = cell.state_size if isinstance(cell.state_size, list) else [cell.state_size]
        return [x.new_zeros(len(x), n) for n in sizes]

    def stepped(self, cell: Any, x: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        kind = type(cell).__name__
        if kind == "StackedRNNCells":
            new = []
            for inner, own in zip(cell.adopted, states, strict=True):
                x, own = self.stepped(inner, x, own)
                new.append(own)
            return x, new
        order = {"SimpleRNNCell": (0,), "LSTMCell": (0, 1, 2, 3), "GRUCell": (1, 0, 2)}[kind]
        bias = self.get(cell, "bias")
        both = bias if bias.ndim == 2 else self.torch.stack([bias, self.torch.zeros_like(bias)])
        parameters = [self.gates(self.get(cell, "kernel"), order),
                      self.gates(self.get(cell, "recurrent_kernel"), order),
                      *(self.gates(row, order) for row in both)]
        if kind == "LSTMCell":
            states = list(self.torch.lstm_cell(x, states, *parameters))
        elif kind == "GRUCell":
            states = [self.torch.gru_cell(x, states[0], *parameters)]
        else:
            states = [self.torch.rnn_tanh_cell(x, states[0], *parameters)]
        return states[0], states

    # -- convolutions as products ------------------------------------------------------------------

    def _ConvLSTM2D(self, layer: Any, x: Tensor) -> Tensor:
        first = layer.data_format == "channels_first"
        x = x if first else x.movedim(-1, 2)
        into, again = (self.get(layer, name).movedim((-1, -2), (0, 1))
                       for name in ("kernel", "recurrent_kernel"))
        conv = getattr(self.f, f"conv{layer.axes}d")
        bias = self.get(layer, "bias") if layer.use_bias else x.new_zeros(4 * layer.filters)
        h = c = None
        outputs = []
        for t in reversed(range(x.shape[1])) if layer.go_backwards else range(x.shape[1]):
            z = self.convolved(layer, x[:, t], into, 1) + bias.reshape(-1, *(1,) * layer.axes)
            if h is not None:
                frame = [n for k in reversed(layer.kernel_size) for n in ((k - 1) // 2, k // 2)]
                z = z + conv(self.f.pad(h, frame), again)
            gate, act = (ACTIVATIONS[name] for name in (layer.recurrent_activation,
                                                        layer.activation))
            i, f, g, o = z.chunk(4, 1)
            new = gate(self.f, i) * act(self.f, g)
            c = new if c is None else gate(self.f, f) * c + new
            h = gate(self.f, o) * act(self.f, c)
            outputs.append(h if first else h.movedim(1, -1))
        return self.torch.stack(outputs, 1) if layer.return_sequences else outputs[-1]

    _ConvLSTM1D = _ConvLSTM3D = _ConvLSTM2D
