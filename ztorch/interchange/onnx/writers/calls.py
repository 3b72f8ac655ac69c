"""Writers of ops that ONNX has too, or has as a few nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import normal_axes
from ztorch.graph.value import Value
from ztorch.interchange.onnx.selection import Write, call
from ztorch.interchange.onnx.writer import Writer
from ztorch.interchange.onnx.writers.primitives import reduced
from ztorch.ops.transposed import transpose_crops
from ztorch.ops.windows import for_each, paddings, spans

# -- products --------------------------------------------------------------------------------------


@call("matmul", onnx="MatMul, or Gemm with its bias",
      when=lambda a, b, **_: all(isinstance(x, Value) and x.rank > 1 for x in (a, b)))
def _matmul(w: Writer, v: Value, a: Value, b: Value, bias: Value | None = None) -> None:
    # Not for vectors: ONNX Runtime 1.31 miscomputes a transposed matrix times a vector.
    if bias is None:
        w.record(v, w.node("MatMul", [w.name(a), w.name(b)]))
    else:
        w.record(v, w.node("Gemm", [w.name(a), w.name(b), w.name(bias)]))


def _channels_first(rank: int) -> tuple[int, ...]:
    """The order of axes with channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def _bias(w: Writer, bias: Value | None) -> list[str]:
    return [] if bias is None else [w.name(bias)]


@call("conv", onnx="Conv")
def _conv(w: Writer, v: Value, x: Value, kernel: Value, stride: Any, padding: Any, dilation: Any,
          groups: int, bias: Value | None = None) -> None:
    count = x.rank - 2
    stride, dilation = for_each("", stride, count), for_each("", dilation, count)
    pads = _pads(w, padding, x, spans(kernel.shape[:-2], dilation), stride)
    order = (kernel.rank - 1, kernel.rank - 2, *range(count))
    inputs = [w.name(x, _channels_first(x.rank)), w.name(kernel, order), *_bias(w, bias)]
    name = w.node("Conv", inputs, kernel_shape=kernel.shape[:-2], strides=stride,
                  dilations=dilation, group=groups, **pads)
    w.record(v, name, _channels_first(x.rank))


def _pads(w: Writer, padding: Any, x: Value, window: Any, stride: Any) -> dict[str, Any]:
    """The padding of windows. If it depends on open sizes, the runtime that reads the file
    computes it."""
    if padding == "same" and max(stride) > 1 and any(map(w.varies, x.shape[1:-1])):
        return {"auto_pad": "SAME_UPPER"}
    low, high = paddings(padding, x.shape[1:-1], window, stride)
    return {"pads": (*low, *high)}


@call("conv_transpose", onnx="ConvTranspose")
def _conv_transpose(w: Writer, v: Value, x: Value, kernel: Value, stride: Any, padding: str,
                    dilation: Any, output_padding: Any, bias: Value | None = None) -> None:
    count = x.rank - 2
    stride, dilation = for_each("", stride, count), for_each("", dilation, count)
    extra = output_padding if isinstance(output_padding, tuple) else (output_padding,) * count
    cuts = [transpose_crops(k, s, padding, o) for k, s, o in
            zip(spans(kernel.shape[:-2], dilation), stride, extra, strict=True)]
    order = (kernel.rank - 1, kernel.rank - 2, *range(count))
    name = w.node("ConvTranspose",
                  [w.name(x, _channels_first(x.rank)), w.name(kernel, order), *_bias(w, bias)],
                  kernel_shape=kernel.shape[:-2], strides=stride, dilations=dilation,
                  pads=(*(a for a, _ in cuts), *(max(b, 0) for _, b in cuts)),
                  output_padding=tuple(max(-b, 0) for _, b in cuts))
    w.record(v, name, _channels_first(x.rank))


# -- images ----------------------------------------------------------------------------------------


@call("max_pool", onnx="MaxPool")
def _max_pool(w: Writer, v: Value, **arguments: Any) -> None:
    _pool(w, v, "MaxPool", **arguments)


@call("average_pool", onnx="AveragePool")
def _average_pool(w: Writer, v: Value, **arguments: Any) -> None:
    _pool(w, v, "AveragePool", **arguments)


def _pool(w: Writer, v: Value, op: str, x: Value, size: Any, stride: Any, padding: Any) -> None:
    count = x.rank - 2
    size = for_each("", size, count)
    stride = size if stride is None else for_each("", stride, count)
    name = w.node(op, [w.name(x, _channels_first(x.rank))], kernel_shape=size, strides=stride,
                  **_pads(w, padding, x, size, stride))
    w.record(v, name, _channels_first(x.rank))


@call("upsample", onnx="Resize")
def _upsample(w: Writer, v: Value, x: Value, size: Any, interpolation: str) -> None:
    scales = np.array([1, 1, *for_each("", size, x.rank - 2)], np.float32)
    options = ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                "nearest_mode": "floor"} if interpolation == "nearest" else
               {"mode": "linear", "coordinate_transformation_mode": "half_pixel"})
    name = w.node("Resize", [w.name(x, _channels_first(x.rank)), "", w.array(scales)], **options)
    w.record(v, name, _channels_first(x.rank))


# -- activations, whose inputs may have any layout -------------------------------------------------


def _unary(w: Writer, v: Value, x: Value, op: str, *parameters: str, **attrs: Any) -> None:
    tensor = w.tensor(x, w.order_of(x))
    w.record(v, w.node(op, [tensor.name, *parameters], **attrs), tensor.order, tensor.shape)


@call("relu", onnx="Relu, Clip",
      when=lambda negative_slope, threshold, **_: negative_slope == threshold == 0)
def _relu(w: Writer, v: Value, x: Value, max_value: float | None, **_: Any) -> None:
    if max_value is None:
        _unary(w, v, x, "Relu")
    else:
        _unary(w, v, x, "Clip", w.scalar(0, x), w.scalar(max_value, x))


@call("relu6", onnx="Clip")
def _relu6(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "Clip", w.scalar(0, x), w.scalar(6, x))


@call("leaky_relu", onnx="LeakyRelu")
def _leaky_relu(w: Writer, v: Value, x: Value, negative_slope: float) -> None:
    _unary(w, v, x, "LeakyRelu", alpha=float(negative_slope))


@call("elu", onnx="Elu")
def _elu(w: Writer, v: Value, x: Value, alpha: float) -> None:
    _unary(w, v, x, "Elu", alpha=float(alpha))


@call("celu", onnx="Celu", when=lambda x, **_: x.dtype.name == "f32")
def _celu(w: Writer, v: Value, x: Value, alpha: float) -> None:
    _unary(w, v, x, "Celu", alpha=float(alpha))


@call("selu", onnx="Selu")
def _selu(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "Selu")


@call("softplus", onnx="Softplus")
def _softplus(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "Softplus")


@call("softsign", onnx="Softsign")
def _softsign(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "Softsign")


@call("mish", onnx="Mish")
def _mish(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "Mish")


@call("hard_sigmoid", onnx="HardSigmoid")
def _hard_sigmoid(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "HardSigmoid", alpha=1 / 6, beta=0.5)


@call("hard_silu", "hard_swish", onnx="HardSwish")
def _hard_silu(w: Writer, v: Value, x: Value) -> None:
    _unary(w, v, x, "HardSwish")


@call("gelu", onnx="Gelu")
def _gelu(w: Writer, v: Value, x: Value, approximate: bool) -> None:
    _unary(w, v, x, "Gelu", approximate="tanh" if approximate else "none")


# -- along axes ------------------------------------------------------------------------------------


def _is_one(axis: Any) -> bool:
    return isinstance(axis, int) or len(axis) == 1


@call("softmax", onnx="Softmax", when=lambda axis, **_: _is_one(axis))
def _softmax(w: Writer, v: Value, x: Value, axis: Any) -> None:
    _along(w, v, x, axis, "Softmax")


@call("log_softmax", onnx="LogSoftmax", when=lambda axis, **_: _is_one(axis))
def _log_softmax(w: Writer, v: Value, x: Value, axis: Any) -> None:
    _along(w, v, x, axis, "LogSoftmax")


def _along(w: Writer, v: Value, x: Value, axis: Any, op: str) -> None:
    [at] = normal_axes(axis, x.rank)
    order = w.order_of(x)
    w.record(v, w.node(op, [w.name(x, order)], axis=order.index(at) if order else at), order)


_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
               "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"}


def _reduction(op: str) -> Write:
    def write(w: Writer, v: Value, x: Value, axis: Any, keepdims: bool, **_: Any) -> None:
        reduced(w, v, x, op, normal_axes(axis, x.rank), keepdims)

    return write


for _name, _op in _REDUCTIONS.items():
    call(_name, onnx=_op, when=lambda x, dtype=None, **_: x.dtype.is_float and dtype is None)(
        _reduction(_op))


@call("attention_weights", onnx="MatMul, Where, Softmax",
      when=lambda q, k, mask, **_: mask is None and q.shape[:-2] == k.shape[:-2])
def _attention_weights(w: Writer, v: Value, q: Value, k: Value, mask: None, causal: bool,
                       scale: float | None) -> None:
    """Without a mask every query has a key, so that a plain Softmax is right."""
    keys = w.name(k, (*range(k.rank - 2), k.rank - 1, k.rank - 2))
    factor = w.scalar(q.shape[-1] ** -0.5 if scale is None else scale, q)
    scores = w.node("Mul", [w.node("MatMul", [w.name(q), keys]), factor])
    if causal:
        is_causal_pair = (w.node("Trilu", [w.node("Expand", [w.array(np.array(True)), w.shape(
            v.shape[-2:])])], upper=0) if any(map(w.varies, v.shape[-2:])) else
                          w.array(np.tri(*v.shape[-2:], dtype=bool)))
        scores = w.node("Where", [is_causal_pair, scores, w.scalar(-math.inf, q)])
    w.record(v, w.node("Softmax", [scores], axis=-1))
