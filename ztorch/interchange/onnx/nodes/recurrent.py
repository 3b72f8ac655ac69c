"""LSTM, GRU and RNN, as loops in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.elementwise import hard_sigmoid
from ztorch.ops.control import scan

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULT = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
Function = Callable[[Value], Value]
States = tuple[Value, ...]  # the output and, for an LSTM, the cell


@dataclass(frozen=True)
class _Direction:
    """The weights of one direction, and the activations of its gates."""

    kernel: Value
    recurrent: Value
    bias: Value | None
    recurrent_bias: Value | None
    peepholes: list[Value] | None  # of the input, output and forget gate of an LSTM
    functions: list[Function]
    projection: Value | None = None  # of the output of an LSTM


@node("LSTM", domain="ztorch")  # with projections, for programs of torch.export
@node("LSTM", "GRU", "RNN")
def _recurrent(n: Node) -> Result:
    batch_first = bool(n.attr("layout", 0))
    x = OPS.transpose(n.value(0), (1, 0, 2)) if batch_first else n.value(0)
    steps, batch, _ = x.shape
    mask = n.context.padding.places(x).get((1 if batch == 1 else steps, 1))
    counts = _real_steps(n, steps, batch)
    if mask is not None:
        real = OPS.transpose(mask.value)
        counts = real if counts is None else OPS.bitwise_and(counts, real)
    w, r = n.value(1), n.value(2)
    directions, units = w.shape[0], w.shape[1] // _GATES[n.op]
    direction = n.attr("direction", "forward")
    if {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction) != directions:
        raise ValueError(f"direction={direction!r} with weights for {directions}")
    sequences, last_states = [], []
    for d in range(directions):
        first = _first_states(n, d, batch, (r.shape[-1], units), x.dtype)
        backwards = direction == "reverse" or d == 1
        outputs, last = _run(n, x, counts, _direction(n, d, w, r), first, units, backwards)
        sequences.append(OPS.expand_dims(outputs, 1))
        last_states.append(last)
    y = OPS.concat(*sequences, axis=1)  # (steps, directions, batch, units)
    ends = [OPS.concat(*(OPS.expand_dims(last, 0) for last in of_directions), axis=0)
            for of_directions in zip(*last_states, strict=True)]
    if mask is not None:
        padding, rows = n.context.padding, 1 if batch == 1 else steps * directions
        y = padding.declare_places(y, {(rows, 1): mask})
        ends = [padding.declare_places(h, {}) for h in ends]
    if batch_first:
        return (OPS.transpose(y, (2, 0, 1, 3)), *(OPS.transpose(h, (1, 0, 2)) for h in ends))
    return (y, *ends)


def _first_states(n: Node, d: int, batch: int, sizes: tuple[int, int],
                  dtype: DType) -> States:
    """The states before the first step of a direction; `sizes`: of an output and of a cell."""
    states = []
    for k in range(2 if n.op == "LSTM" else 1):
        if not n.has(5 + k):
            states.append(OPS.full((batch, sizes[k]), 0.0, dtype))
            continue
        initial = n.value(5 + k)
        states.append(OPS.transpose(initial, (1, 0, 2))[d] if n.attr("layout", 0) else initial[d])
    return tuple(states)


def _real_steps(n: Node, steps: int, batch: int) -> Value | None:
    """Which steps of each row count, `(steps, batch)`; None where all do."""
    if not n.has(4):
        return None
    lengths = OPS.cast(n.value(4), "int32")
    if lengths.shape != (batch,):
        raise ValueError(f"{lengths.shape} lengths for {batch} rows")
    return OPS.expand_dims(OPS.arange(0, steps), 1) < OPS.expand_dims(lengths, 0)


def _direction(n: Node, d: int, w: Value, r: Value) -> _Direction:
    width = w.shape[1]
    bias = n.value(3)[d] if n.has(3) else None
    peepholes = _parts(n.value(7)[d:d + 1], w.shape[1] // 4) if n.has(7) else None
    projection = OPS.transpose(n.value(8)[d]) if n.spec.domain and n.has(8) else None
    input_bias, recurrent_bias = (None, None) if bias is None else (bias[:width], bias[width:])
    return _Direction(OPS.transpose(w[d]), OPS.transpose(r[d]), input_bias, recurrent_bias,
                      peepholes, _functions(n, d, w.shape[0]), projection)


def _functions(n: Node, d: int, directions: int) -> list[Function]:
    """The activations of a direction."""
    per_direction = len(_DEFAULT[n.op])
    names = n.attr("activations") or [*_DEFAULT[n.op]] * directions
    if len(names) != per_direction * directions:
        raise ValueError(f"activations={names}")
    alphas, betas = iter(n.attr("activation_alpha") or ()), iter(n.attr("activation_beta") or ())
    limit = n.attr("clip")
    functions: list[Function] = []
    for name in names:
        function = _function(n, name, alphas, betas)
        number = len(functions) % per_direction
        is_of_cell = n.op == "LSTM" and number == 2  # runtimes do not clip it
        functions.append(function if limit is None or is_of_cell else _clipped(function, limit))
    return functions[d * per_direction:(d + 1) * per_direction]


def _function(n: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    """An activation; one with parameters takes the next ones of the node."""
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


def _run(n: Node, x: Value, counts: Value | None, w: _Direction, first: States, units: int,
         backwards: bool) -> tuple[Value, States]:
    """The outputs of all steps in order of time, and the last state. Steps after the end of a row
    keep its state, and output zeros."""
    step = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[n.op]

    def time_step(state: States, row: tuple[Value, Value | None]) -> Any:
        x, counts = row
        new = step(n, _add(OPS.matmul(x, w.kernel), w.bias), state, w, units)
        if counts is None:
            return new, new[0]
        is_real = OPS.expand_dims(counts, 1)
        new = tuple(OPS.where(is_real, v, old) for v, old in zip(new, state, strict=True))
        return new, OPS.where(is_real, new[0], OPS.zeros_like(new[0]))

    last, outputs = scan(time_step, first, (x, counts), reverse=backwards)
    return outputs, last


def _parts(x: Value, units: int) -> list[Value]:
    return [x[:, k:k + units] for k in range(0, x.shape[1], units)]


def _add(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias


def _rnn(n: Node, x: Value, state: States, w: _Direction, units: int) -> States:
    return (w.functions[0](_add(x + OPS.matmul(state[0], w.recurrent), w.recurrent_bias)),)


def _lstm(n: Node, x: Value, state: States, w: _Direction, units: int) -> States:
    gate, cell, out = w.functions
    z = _add(x + OPS.matmul(state[0], w.recurrent), w.recurrent_bias)
    into, output, forget, new = _parts(z, units)
    if w.peepholes is not None:
        into, forget = into + w.peepholes[0] * state[1], forget + w.peepholes[2] * state[1]
    input_gate = gate(into)
    forget_gate = 1.0 - input_gate if n.attr("input_forget", 0) else gate(forget)
    c = forget_gate * state[1] + input_gate * cell(new)
    if w.peepholes is not None:
        output = output + w.peepholes[1] * c
    h = gate(output) * out(c)
    return h if w.projection is None else OPS.matmul(h, w.projection), c


def _gru(n: Node, x: Value, state: States, w: _Direction, units: int) -> States:
    gate, activation = w.functions
    h = state[0]
    x_update, x_reset, x_new = _parts(x, units)
    if n.attr("linear_before_reset", 0):
        h_update, h_reset, h_new = _parts(
            _add(OPS.matmul(h, w.recurrent), w.recurrent_bias), units)
        new = activation(x_new + gate(x_reset + h_reset) * h_new)
    else:
        kernel, bias = w.recurrent, w.recurrent_bias
        h_update, h_reset = _parts(_add(OPS.matmul(h, kernel[:, :2 * units]),
                                        None if bias is None else bias[:2 * units]), units)
        reset_state = gate(x_reset + h_reset) * h
        new = activation(x_new + _add(OPS.matmul(reset_state, kernel[:, 2 * units:]),
                                      None if bias is None else bias[2 * units:]))
    update = gate(x_update + h_update)
    return (new + update * (h - new),)
