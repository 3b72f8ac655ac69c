"""LSTM, GRU and RNN: loops, one or both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.elementwise import hard_sigmoid
from ztorch.ops.control import scan

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULT = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
Function = Callable[[Value], Value]


@dataclass(frozen=True)
class _Way:
    """One direction: its weights, and the functions of its gates."""

    kernel: Value
    recurrent: Value
    bias: Value | None
    recurrent_bias: Value | None
    peepholes: list[Value] | None  # of the input, output and forget gate of an LSTM
    functions: list[Function]
    projection: Value | None = None  # of the output of an LSTM


@node("LSTM", domain="ztorch")  # of a program of torch.export, with projections
@node("LSTM", "GRU", "RNN")
def _recurrent(n: Node) -> Result:
    x = n.value(0)
    if n.attr("layout", 0):
        x = OPS.transpose(x, (1, 0, 2))
    steps, batch, _ = x.shape
    mask = n.context.padding.places(x).get((1 if batch == 1 else steps, 1))
    counts = _check(n, steps, batch)
    if mask is not None:
        real = OPS.transpose(mask.value)
        counts = real if counts is None else OPS.bitwise_and(counts, real)
    w, r = n.value(1), n.value(2)
    directions, units = w.shape[0], w.shape[1] // _GATES[n.op]
    names = {"forward": 1, "reverse": 1, "bidirectional": 2}
    direction = n.attr("direction", "forward")
    if names.get(direction) != directions:
        raise ValueError(f"direction={direction!r} with weights for {directions}")
    states = 2 if n.op == "LSTM" else 1
    sequences, lasts = [], []
    for d in range(directions):
        first = []
        for k in range(states):
            initial = n.value(5 + k) if n.has(5 + k) else None
            if initial is not None and n.attr("layout", 0):
                initial = OPS.transpose(initial, (1, 0, 2))
            size = units if k else r.shape[-1]
            first.append(OPS.full((batch, size), 0.0, x.dtype) if initial is None else
                         initial[d])
        backwards = direction == "reverse" or d == 1
        outputs, last = _run(n, x, counts, _way(n, d, w, r), tuple(first), units, backwards)
        sequences.append(OPS.expand_dims(outputs, 1))
        lasts.append(last)
    y = OPS.concat(*sequences, axis=1)  # (steps, directions, batch, units)
    ends = [OPS.concat(*(OPS.expand_dims(last[k], 0) for last in lasts), axis=0)
            for k in range(states)]
    if mask is not None:
        padding, rows = n.context.padding, 1 if batch == 1 else steps * directions
        y = padding.declare_places(y, {(rows, 1): mask})
        ends = [padding.declare_places(h, {}) for h in ends]
    if n.attr("layout", 0):
        return (OPS.transpose(y, (2, 0, 1, 3)), *(OPS.transpose(h, (1, 0, 2)) for h in ends))
    return (y, *ends)


def _check(n: Node, steps: int, batch: int) -> Value | None:
    """Which steps of each row count, `(steps, batch)`; None where all do."""
    if not n.has(4):
        return None
    lengths = OPS.cast(n.value(4), "int32")
    if lengths.shape != (batch,):
        raise ValueError(f"{lengths.shape} lengths for {batch} rows")
    return OPS.expand_dims(OPS.arange(0, steps), 1) < OPS.expand_dims(lengths, 0)


def _way(n: Node, d: int, w: Value, r: Value) -> _Way:
    width = w.shape[1]
    bias = n.value(3)[d] if n.has(3) else None
    peepholes = _parts(n.value(7)[d:d + 1], w.shape[1] // 4) if n.has(7) else None
    projection = OPS.transpose(n.value(8)[d]) if n.spec.domain and n.has(8) else None
    return _Way(OPS.transpose(w[d]), OPS.transpose(r[d]),
                None if bias is None else bias[:width], None if bias is None else bias[width:],
                peepholes, _functions(n, d, w.shape[0]), projection)


def _functions(n: Node, d: int, directions: int) -> list[Function]:
    each = len(_DEFAULT[n.op])
    names = n.attr("activations") or [*_DEFAULT[n.op]] * directions
    if len(names) != each * directions:
        raise ValueError(f"activations={names}")
    alphas, betas = iter(n.attr("activation_alpha") or ()), iter(n.attr("activation_beta") or ())
    limit = n.attr("clip")
    functions: list[Function] = []
    for name in names:
        function = _function(n, name, alphas, betas)
        is_of_cell = n.op == "LSTM" and len(functions) % each == 2  # which no runtime clips
        functions.append(function if limit is None or is_of_cell else _clipped(function, limit))
    return functions[d * each:(d + 1) * each]


def _function(n: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    """An activation; those with parameters take the next ones of the node."""
    folded = name.lower()
    if folded in ("tanh", "sigmoid", "relu", "softsign", "softplus"):
        function: Function = getattr(OPS, folded)
        return function
    if folded == "leakyrelu":
        return partial(OPS.leaky_relu, negative_slope=next(alphas, 0.01))
    if folded == "thresholdedrelu":
        limit = next(alphas, 1.0)
        return lambda x: OPS.threshold(x, limit, 0.0)
    if folded == "elu":
        return partial(OPS.elu, alpha=next(alphas, 1.0))
    if folded not in ("hardsigmoid", "affine", "scaledtanh"):
        n.unsupported(f"activation {name!r}")
    alpha, beta = next(alphas, 0.2 if folded == "hardsigmoid" else 1.0), next(
        betas, {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": 1.0}[folded])
    if folded == "hardsigmoid":
        return partial(hard_sigmoid, alpha=alpha, beta=beta)
    return (lambda x: x * alpha + beta) if folded == "affine" else (
        lambda x: OPS.tanh(x * beta) * alpha)


def _clipped(function: Function, limit: float) -> Function:
    return lambda x: function(OPS.clip(x, -limit, limit))


def _run(n: Node, x: Value, counts: Value | None, way: _Way, first: tuple[Value, ...], units: int,
         backwards: bool) -> tuple[Value, tuple[Value, ...]]:
    """The outputs of all steps in order of time, and the last state. Steps beyond the length of a
    row leave its state as it is, and give zeros."""
    step = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[n.op]

    def turn(state: tuple[Value, ...], row: tuple[Value, Value | None]) -> Any:
        x, counts = row
        new = step(n, _plus(OPS.matmul(x, way.kernel), way.bias), state, way, units)
        if counts is None:
            return new, new[0]
        seen = OPS.expand_dims(counts, 1)
        new = tuple(OPS.where(seen, v, old) for v, old in zip(new, state, strict=True))
        return new, OPS.where(seen, new[0], OPS.zeros_like(new[0]))

    last, outputs = scan(turn, first, (x, counts), reverse=backwards)
    return outputs, last


def _parts(x: Value, units: int) -> list[Value]:
    return [x[:, k:k + units] for k in range(0, x.shape[1], units)]


def _plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias


def _rnn(n: Node, x: Value, state: tuple[Value, ...], way: _Way, units: int) -> tuple[Value, ...]:
    return (way.functions[0](_plus(x + OPS.matmul(state[0], way.recurrent), way.recurrent_bias)),)


def _lstm(n: Node, x: Value, state: tuple[Value, ...], way: _Way, units: int) -> tuple[Value, ...]:
    gate, cell, out = way.functions
    z = _plus(x + OPS.matmul(state[0], way.recurrent), way.recurrent_bias)
    into, output, forget, new = _parts(z, units)
    if way.peepholes is not None:
        into, forget = into + way.peepholes[0] * state[1], forget + way.peepholes[2] * state[1]
    taken = gate(into)
    kept = 1.0 - taken if n.attr("input_forget", 0) else gate(forget)
    c = kept * state[1] + taken * cell(new)
    if way.peepholes is not None:
        output = output + way.peepholes[1] * c
    h = gate(output) * out(c)
    return h if way.projection is None else OPS.matmul(h, way.projection), c


def _gru(n: Node, x: Value, state: tuple[Value, ...], way: _Way, units: int) -> tuple[Value, ...]:
    gate, activation = way.functions
    h = state[0]
    x_update, x_reset, x_new = _parts(x, units)
    if n.attr("linear_before_reset", 0):
        h_update, h_reset, h_new = _parts(
            _plus(OPS.matmul(h, way.recurrent), way.recurrent_bias), units)
        new = activation(x_new + gate(x_reset + h_reset) * h_new)
    else:
        kernel, bias = way.recurrent, way.recurrent_bias
        h_update, h_reset = _parts(_plus(OPS.matmul(h, kernel[:, :2 * units]),
                                         None if bias is None else bias[:2 * units]), units)
        reset_state = gate(x_reset + h_reset) * h
        new = activation(x_new + _plus(OPS.matmul(reset_state, kernel[:, 2 * units:]),
                                       None if bias is None else bias[2 * units:]))
    update = gate(x_update + h_update)
    return (new + update * (h - new),)
