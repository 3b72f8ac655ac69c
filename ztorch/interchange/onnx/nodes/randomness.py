"""Random numbers and dropout. The numbers are ztorch's own: the standard fixes no generator."""

from __future__ import annotations

from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node


def _draw(n: Node, shape: tuple[int, ...], d: DType, normal: bool) -> Value:
    seed = n.attr("seed")
    seed, step, stream = n.context.random(None if seed is None else hash(float(seed)))
    draw = OPS.random_normal if normal else OPS.random_uniform
    y: Value = draw(shape, seed, step, stream, d)
    return y


def _scaled(n: Node, shape: tuple[int, ...], d: DType) -> Value:
    if n.op.startswith("RandomNormal"):
        return _draw(n, shape, d, True) * n.attr("scale", 1.0) + n.attr("mean", 0.0)
    low, high = n.attr("low", 0.0), n.attr("high", 1.0)
    return _draw(n, shape, d, False) * (high - low) + low


@node("RandomNormal", "RandomUniform")
def _random(n: Node) -> Result:
    return _scaled(n, n.ints("shape") or (), n.dtype_of(n.attr("dtype", 1)))


@node("RandomNormalLike", "RandomUniformLike")
def _random_like(n: Node) -> Result:
    number = n.attr("dtype", 0)
    return _scaled(n, n.shape(0), n.dtype_of(number) if number else n.value(0).dtype)


@node("Bernoulli")
def _bernoulli(n: Node) -> Result:
    x, number = n.value(0), n.attr("dtype", 0)
    hit = OPS.less(_draw(n, x.shape, x.dtype, False), x)
    return OPS.cast(hit, n.dtype_of(number) if number else x.dtype)


@node("Multinomial")
def _multinomial(n: Node) -> Result:
    logits, count = n.value(0), n.attr("sample_size", 1)
    ends = OPS.cumsum(OPS.softmax(logits), -1)  # the end of each class on the unit interval
    samples = _draw(n, (logits.shape[0], count, 1), logits.dtype, False)
    last = logits.shape[1] - 1
    below = OPS.less_equal(OPS.expand_dims(ends[:, :last], 1), samples)
    return OPS.sum(OPS.cast(below, n.dtype_of(n.attr("dtype", 6))), axis=-1)


@node("Dropout")
def _dropout(n: Node) -> Result:
    x = n.input(0)
    n.attr("seed")
    ratio: Any = n.number(1) if n.has(1) else n.attr("ratio", 0.5)
    training = n.opset >= 12 and n.has(2) and bool(n.number(2)) and n.trains
    if not any(n.spec.outputs[1:]) and (not training or not ratio):
        return x
    v = n.value(0)
    kind = boolean if n.opset >= 10 else v.dtype
    if not training or not ratio:
        return x, OPS.full(v.shape, 1, kind)
    mask = OPS.greater_equal(_draw(n, v.shape, v.dtype, False), ratio)
    return OPS.where(mask, v * (1 / (1 - ratio)), 0.0), OPS.cast(mask, kind)
