"""Optimizer steps of ONNX's training domain, and StopGradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import FloatInitializer, Node, Result, node

DOMAIN = "ai.onnx.preview.training"


def _groups(n: Node, count: int) -> list[list[Value]]:
    """The inputs after rate and step, grouped by role: in each group a tensor for each weight."""
    tensors = n.values()[2:]
    weights = len(tensors) // count
    return [tensors[k * weights:(k + 1) * weights] for k in range(count)]


def _results(rows: Sequence[tuple[Value, ...]]) -> Result:
    """Results of each weight, ordered by role."""
    return tuple(v for role in zip(*rows, strict=True) for v in role)


def _gradient(n: Node, x: Value, g: Value) -> Value:
    return g + n.attr("norm_coefficient", 0.0) * x


@node("Adagrad", domain=DOMAIN)
def _adagrad(n: Node) -> Result:
    rate, step = n.value(0), OPS.cast(n.value(1), n.value(0).dtype)
    rate = rate / (1.0 + step * n.attr("decay_factor", 0.0))
    rows = []
    for x, g, h in zip(*_groups(n, 3), strict=True):
        g = _gradient(n, x, g)
        h = h + g * g
        rows.append((x - rate * g / (OPS.sqrt(h) + n.attr("epsilon", 0.0)), h))
    return _results(rows)


@node("Adam", domain=DOMAIN)
def _adam(n: Node) -> Result:
    rate, step = n.value(0), OPS.cast(n.value(1), n.value(0).dtype)
    alpha, beta = n.attr("alpha", 0.9), n.attr("beta", 0.999)
    corrected = rate * OPS.sqrt(1.0 - OPS.power(beta, step)) / (1.0 - OPS.power(alpha, step))
    rate = OPS.where(OPS.greater(step, 0.0), corrected, rate)
    rows = []
    for x, g, v, h in zip(*_groups(n, 4), strict=True):
        g = _gradient(n, x, g)
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        new = x - rate * v / (OPS.sqrt(h) + n.attr("epsilon", 0.0))
        rows.append(((1 - n.attr("norm_coefficient_post", 0.0)) * new, v, h))
    return _results(rows)


@node("Momentum", domain=DOMAIN)
def _momentum(n: Node) -> Result:
    rate, step = n.value(0), n.value(1)
    alpha, beta = n.attr("alpha"), n.attr("beta")
    beta = OPS.where(OPS.greater(step, 0), OPS.full((), beta, rate.dtype), 1.0)
    rows = []
    for x, g, v in zip(*_groups(n, 3), strict=True):
        g = _gradient(n, x, g)
        v = alpha * v + beta * g
        rows.append((x - rate * (g + alpha * v if n.attr("mode") == "nesterov" else v), v))
    return _results(rows)


@node("StopGradient", domain="ztorch")
def _stop_gradient(n: Node) -> Result:
    """For the parts of torch.export programs that have no gradient."""
    x = n.input(0)
    if isinstance(x, FloatInitializer):  # nodes that need its numbers find them
        return replace(x, read=lambda trainable: OPS.stop_gradient(x.read(trainable)))
    return OPS.stop_gradient(n.value(0))
