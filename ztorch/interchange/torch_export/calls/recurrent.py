"""Recurrent layers, each of which becomes a node of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.interchange.torch_export.calls.movement import part
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

# The number of PyTorch's gate for each of ONNX's gates.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _reordered(c: OperatorCall, kind: str, weight: CallTensor) -> str:
    """Gates in ONNX's order."""
    order, rows = _GATES[kind], weight.dims[0]
    if not isinstance(rows, int):
        c.unsupported("weights of open size")
    size = rows // len(order)
    parts = [part(c, weight.name, 0, k * size, (k + 1) * size) for k in order]
    return c.node("Concat", *parts, axis=0) if len(parts) > 1 else weight.name


def _layer(c: OperatorCall, x: str, weights: Sequence[Sequence[CallTensor]],
           initial: Sequence[str]) -> list[str]:
    """The outputs of all steps, then the last states; `weights` are those of each direction."""
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(c.op.removesuffix("_cell"), "RNN")
    first = c.ints(0)
    w, r = (c.node("Concat", *(c.node("Unsqueeze", _reordered(c, kind, p[k]), first)
                               for p in weights), axis=0) for k in (0, 1))
    bias = c.node("Concat", *(c.node("Unsqueeze", c.node(
        "Concat", *(_reordered(c, kind, p[k]) for k in (2, 3)), axis=0), first)
        for p in weights), axis=0) if len(weights[0]) >= 4 else ""
    attrs: dict[str, Any] = {"direction": "bidirectional" if len(weights) == 2 else "forward"}
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    if "relu" in c.op:
        attrs["activations"] = ["Relu"] * len(weights)
    inputs = [x, w, r, bias, "", *initial]
    if len(weights[0]) % 2 == 0:
        return c.nodes(kind, inputs, 1 + len(initial), **attrs)
    projections = [c.node("Unsqueeze", p[-1].name, first) for p in weights]
    projection = c.node("Concat", *projections, axis=0)
    return c.nodes(kind, [*inputs, "", projection], 1 + len(initial), domain="ztorch", **attrs)


@call("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def _recurrent(c: OperatorCall) -> Result:
    if c.get("train", False) and c.get("dropout", 0.0):
        c.unsupported("dropout in training; export module.eval()")
    states, directions = c.get("hx"), 2 if c.get("bidirectional", False) else 1
    states = states if isinstance(states, list) else [states]
    params: Sequence[CallTensor] = c.get("params")
    layers = c.get("num_layers")
    per_direction = len(params) // (layers * directions)
    x = c.x("input")
    if c.get("batch_first", False):
        x = c.node("Transpose", x, perm=[1, 0, 2])
    last: list[list[str]] = [[] for _ in states]
    for layer in range(layers):
        weights = [params[(layer * directions + d) * per_direction:][:per_direction]
                   for d in range(directions)]
        initial = [part(c, s.name, 0, layer * directions, (layer + 1) * directions) for s in states]
        outputs, *ends = _layer(c, x, weights, initial)
        x = c.node("Reshape", c.node("Transpose", outputs, perm=[0, 2, 1, 3]), c.ints(0, 0, -1))
        for k, end in enumerate(ends):
            last[k].append(end)
    if c.get("batch_first", False):
        x = c.node("Transpose", x, perm=[1, 0, 2])
    return [x, *(c.node("Concat", *ends, axis=0) for ends in last)]


@call("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(c: OperatorCall) -> Result:
    """A layer of one step."""
    states, first = c.get("hx"), c.ints(0)
    initial = [c.node("Unsqueeze", s.name, first)
               for s in (states if isinstance(states, list) else [states])]
    weights = [w for name in ("w_ih", "w_hh", "b_ih", "b_hh") if (w := c.get(name)) is not None]
    _, *ends = _layer(c, c.node("Unsqueeze", c.x("input"), first), [weights], initial)
    results = [c.node("Squeeze", end, first) for end in ends]
    return results if c.op == "lstm_cell" else results[0]
