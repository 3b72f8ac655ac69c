"""Quantized ops of ONNX Runtime. Products add up integers; other ops compute with floats."""

from __future__ import annotations

from collections.abc import Callable

from ztorch.dtypes import f32, i32
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import NODES, Node, Result, node
from ztorch.interchange.onnx.nodes.casts import (
    clipped_codes,
    quantized_by_range,
    requantized,
    shifted,
)
from ztorch.interchange.onnx.nodes.microsoft import MICROSOFT
from ztorch.interchange.onnx.nodes.pooling import average_pooled

for _same in ("QuantizeLinear", "DequantizeLinear"):  # as in ONNX itself
    node(_same, domain=MICROSOFT)(NODES[_same])


def _dequantized(n: Node, k: int) -> Value:
    """Input k dequantized by the scale and zero point in the next two inputs."""
    return OPS.cast(shifted(n, k, k + 2), f32) * n.value(k + 1)


def _quantized(n: Node, y: Value, k: int) -> Value:
    """Floats quantized by the scale and zero point in inputs k and k + 1."""
    zero = n.value(k + 1)
    return OPS.cast(clipped_codes(y / n.value(k), zero, zero.dtype), zero.dtype)


@node("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _binary(n: Node) -> Result:
    a, b = _dequantized(n, 0), _dequantized(n, 3)
    return _quantized(n, a + b if n.op == "QLinearAdd" else a * b, 6)


def _unary(op: str, function: Callable[[Node, Value], Value]) -> None:
    """Registers an op of one quantized tensor by its float counterpart."""
    node(op, domain=MICROSOFT)(lambda n: _quantized(n, function(n, _dequantized(n, 0)), 3))


def _softmax(n: Node, x: Value) -> Value:
    axis = n.attr("axis", -1)
    if n.attr("opset", 13) < 13 and axis not in (-1, x.rank - 1):
        n.unsupported("a softmax of several axes")
    return OPS.softmax(x, axis=axis)


def _mean(n: Node, x: Value) -> Value:
    axes = n.ints("axes") or tuple(range(x.rank))
    return OPS.mean(x, axes, bool(n.attr("keepdims", 1)))


def _global_mean(n: Node, x: Value) -> Value:
    last = n.attr("channels_last", 0)
    return OPS.mean(x, tuple(range(1, x.rank - 1) if last else range(2, x.rank)), True)


def _average(n: Node, x: Value) -> Value:
    n.only(channels_last=0)
    return average_pooled(n, x)


_unary("QLinearSigmoid", lambda n, x: OPS.sigmoid(x))
_unary("QLinearLeakyRelu", lambda n, x: OPS.leaky_relu(
    x, negative_slope=n.attr("alpha", 0.01)))
_unary("QLinearSoftmax", _softmax)
_unary("QLinearReduceMean", _mean)
_unary("QLinearGlobalAveragePool", _global_mean)
_unary("QLinearAveragePool", _average)


@node("QLinearConcat", domain=MICROSOFT)
def _concat(n: Node) -> Result:
    parts = [_dequantized(n, k) for k in range(2, len(n.inputs), 3)]
    return _quantized(n, OPS.concat(*parts, axis=n.attr("axis")), 0)


@node("QGemm", domain=MICROSOFT)
def _gemm(n: Node) -> Result:
    a = shifted(n, 0, 2)
    transposed = n.attr("transB", 0)
    b = shifted(n, 3, 5, 0 if transposed else 1)
    a = OPS.transpose(a) if n.attr("transA", 0) else a
    sums = OPS.matmul(a, OPS.transpose(b) if transposed else b)
    sums = sums + n.value(6) if n.has(6) else sums
    scale = n.value(1) * n.value(4) * n.attr("alpha", 1.0)
    return requantized(n, sums, scale, 7) if n.has(7) else OPS.cast(sums, f32) * scale


@node("MatMulIntegerToFloat", domain=MICROSOFT)
def _matmul_to_dequantized(n: Node) -> Result:
    sums = OPS.matmul(shifted(n, 0, 4, -2), shifted(n, 1, 5, -1))
    y = OPS.cast(sums, f32) * (n.value(2) * n.value(3))
    return y + n.value(6) if n.has(6) else y


@node("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_matmul(n: Node) -> Result:
    codes, scale, zero = quantized_by_range(n, n.value(0))
    sums = OPS.matmul(OPS.cast(codes - zero, i32), shifted(n, 1, 3, -1))
    y = OPS.cast(sums, f32) * (scale * n.value(2))
    return y + n.value(4) if n.has(4) else y
