"""Fused ops of ONNX Runtime and its tools: products, activations and normalizations."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import NODES, Coded, Node, Result, node
from ztorch.interchange.onnx.nodes.casts import numbers_of
from ztorch.interchange.onnx.nodes.convolution import channels_first, convolved
from ztorch.interchange.onnx.nodes.elementwise import hard_sigmoid
from ztorch.layers.moments import standardized_groups

MICROSOFT = "com.microsoft"


def _activated(n: Node, y: Value, parameters: tuple[float, ...]) -> Value:
    """y after the activation that an attribute names."""
    name = n.attr("activation", "")
    if not name:
        return y
    plain = {"Relu": OPS.relu, "Sigmoid": OPS.sigmoid, "Tanh": OPS.tanh}
    if name in plain:
        result: Value = plain[name](y)
        return result
    if name == "LeakyRelu":
        [slope] = parameters or (0.01,)
        return OPS.leaky_relu(y, negative_slope=slope)
    if name == "Clip":
        low, high = parameters
        return OPS.clip(y, low, high)
    if name == "HardSigmoid":
        return hard_sigmoid(y, *(parameters or (0.2, 0.5)))
    n.unsupported(f"activation={name!r}")


@node("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(n: Node) -> Result:
    n.only(transBatchA=0, transBatchB=0)
    a, b = n.value(0), n.value(1)
    a = OPS.swapaxes(a, -1, -2) if n.attr("transA", 0) else a
    b = OPS.swapaxes(b, -1, -2) if n.attr("transB", 0) else b
    alpha = n.attr("alpha", 1.0)
    y = OPS.matmul(a, b)
    return y if alpha == 1.0 else y * alpha


@node("FusedGemm", domain=MICROSOFT)
def _fused_gemm(n: Node) -> Result:
    y = NODES["Gemm"](n)
    assert isinstance(y, Value)
    parameters = [n.attr(f"activation_{p}") for p in ("alpha", "beta", "gamma")]
    return _activated(n, y, tuple(p for p in parameters if p is not None))


@node("FusedConv", domain=MICROSOFT)
def _fused_conv(n: Node) -> Result:
    y = convolved(n, n.value(0), n.value(1))
    y = channels_first(y + n.value(2) if n.has(2) else y)
    y = y + n.value(3) if n.has(3) else y
    return _activated(n, y, tuple(n.attr("activation_params") or ()))


@node("MatMulNBits", domain=MICROSOFT, but="weights are widened to floats")
def _matmul_of_few_bits(n: Node) -> Result:
    a = n.value(0)
    columns, depth, bits, block = (n.attr(name) for name in ("N", "K", "bits", "block_size"))
    n.attr("accuracy_level")  # only affects how the product is computed
    if n.has(4):
        n.unsupported("groups in another order (g_idx)")
    if bits not in (2, 4, 8):
        n.unsupported(f"bits={bits}; only 2, 4 and 8 are supported")
    blocks = -(-depth // block)
    scales = n.array(2).reshape(columns, blocks, 1)
    codes = _unpacked(n.array(1).reshape(columns, blocks, -1), bits)
    zero = np.float32(1 << (bits - 1))
    if n.has(3):
        zero = n.array(3)
        if zero.dtype.kind != "f":
            zero = _unpacked(zero.reshape(columns, -1), bits)[:, :blocks]
        zero = zero.reshape(columns, blocks, 1).astype(np.float32)
    weights = (codes.astype(np.float32) - zero) * scales.astype(np.float32)
    weights = weights.reshape(columns, -1)[:, :depth].T
    y = OPS.matmul(a, constant(np.ascontiguousarray(weights), a.dtype))
    return y + n.value(5) if n.has(5) else y


@node("GatherBlockQuantized", domain=MICROSOFT)
def _gather_of_few_bits(n: Node) -> Result:
    """Rows of a table of codes, dequantized by the scale and zero point of each block."""
    table, indices, bits = n.input(0), n.value(1), n.attr("bits", 4)
    axis, along, block = (n.attr(name, default) for name, default in (
        ("gather_axis", 0), ("quantize_axis", 1), ("block_size", 128)))
    packed = not isinstance(table, Coded) and bits < 8
    codes = constant(_unpacked(n.array(0), bits)) if packed else numbers_of(n, 0)
    axis, along = range(codes.rank)[axis], range(codes.rank)[along]
    if axis == along:
        n.unsupported("gather_axis that is quantize_axis")
    scales = n.value(2)
    blocks, size = scales.shape[along], codes.shape[along]
    zero: Value | float = 0.0 if isinstance(table, Coded) else float(1 << (bits - 1))
    if n.has(3):
        zeros = constant(_unpacked(n.array(3), bits)) if packed else numbers_of(n, 3)
        key = (slice(None),) * along + (slice(0, blocks),)
        zero = OPS.cast(OPS.take(zeros[key], indices, axis), scales.dtype)
    block_axis = along if along < axis else along + indices.rank - 1
    key = (slice(None),) * block_axis + (slice(0, size),)

    def repeated(x: Value) -> Value:
        return OPS.repeat(x, block or size, block_axis)[key]

    y = OPS.cast(OPS.take(codes, indices, axis), scales.dtype)
    y = y - (repeated(zero) if isinstance(zero, Value) else zero)
    return y * repeated(OPS.take(scales, indices, axis))


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """The codes of few bits in bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = data[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*data.shape[:-1], -1)


# -- activations -----------------------------------------------------------------------------------


@node("Gelu", domain=MICROSOFT)
def _gelu(n: Node) -> Result:
    return OPS.gelu(n.value(0))


@node("BiasGelu", domain=MICROSOFT)
def _bias_gelu(n: Node) -> Result:
    return OPS.gelu(n.value(0) + n.value(1))


@node("FastGelu", domain=MICROSOFT)
def _fast_gelu(n: Node) -> Result:
    x = n.value(0)
    return OPS.gelu(x + n.value(1) if n.has(1) else x, approximate=True)


@node("QuickGelu", domain=MICROSOFT)
def _quick_gelu(n: Node) -> Result:
    x = n.value(0)
    return x * OPS.sigmoid(x * n.attr("alpha", 1.702))


@node("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(n: Node) -> Result:
    x = n.value(0) + n.value(1)
    half = x.shape[-1] // 2
    return x[..., :half] * OPS.gelu(x[..., half:])


@node("BiasAdd", domain=MICROSOFT)
def _bias_add(n: Node) -> Result:
    return n.value(0) + n.value(1) + n.value(2)


@node("Inverse", domain=MICROSOFT)
def _inverse(n: Node) -> Result:
    return OPS.inv(n.value(0))


@node("ExpandDims", domain=MICROSOFT)
def _expand_dims(n: Node) -> Result:
    return OPS.expand_dims(n.value(0), int(n.number(1)))


@node("CDist", domain=MICROSOFT)
def _distances(n: Node) -> Result:
    a, b = n.value(0), n.value(1)
    metric = n.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        n.unsupported(f"metric={metric!r}")
    d = OPS.expand_dims(a, 1) - OPS.expand_dims(b, 0)
    y = OPS.sum(d * d, -1)
    return OPS.sqrt(y) if metric == "euclidean" else y


# -- normalizations --------------------------------------------------------------------------------


def _moments(x: Value, epsilon: float) -> tuple[Value, Value, Value]:
    """The normalized rows, their means and their scales."""
    mean = OPS.mean(x, -1, True)
    scale = OPS.rsqrt(OPS.var(x, -1, True) + epsilon)
    return (x - mean) * scale, mean, scale


def _outputs_read(n: Node, *outputs: Value) -> Result:
    """The outputs up to the last one that is read."""
    last = max((k for k, name in enumerate(n.spec.outputs) if name), default=0)
    return outputs[0] if last == 0 else outputs[:last + 1]


@node("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_norm(n: Node) -> Result:
    total = n.value(0) + n.value(1)
    total = total + n.value(4) if n.has(4) else total
    y, mean, scale = _moments(total, n.attr("epsilon", 1e-12))
    y = y * n.value(2)
    return _outputs_read(n, y + n.value(3) if n.has(3) else y, mean, scale, total)


def _root_mean_square(x: Value, epsilon: float) -> Value:
    return OPS.rsqrt(OPS.mean(x * x, -1, True) + epsilon)


@node("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms_norm(n: Node) -> Result:
    total = n.value(0) + n.value(1)
    total = total + n.value(3) if n.has(3) else total
    scale = _root_mean_square(total, n.attr("epsilon", 1e-12))
    return _outputs_read(n, total * scale * n.value(2), scale, scale, total)


@node("SimplifiedLayerNormalization")
def _rms_norm(n: Node) -> Result:
    x = n.value(0)
    if n.attr("axis", -1) not in (-1, x.rank - 1):
        n.unsupported("an axis that is not the last")
    n.attr("stash_type")  # only affects the precision
    scale = _root_mean_square(x, n.attr("epsilon", 1e-5))
    return _outputs_read(n, x * scale * n.value(1), scale)


@node("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_norm(n: Node) -> Result:
    ids = n.value(0)
    rows, length = ids.shape
    total = OPS.take(n.value(2), ids, 0)
    positions = n.value(8) if n.has(8) else constant(np.arange(length)[None], "int32")
    total = total + OPS.take(n.value(3), positions, 0)
    if n.has(1) and n.has(4):
        total = total + OPS.take(n.value(4), n.value(1), 0)
    n.attr("mask_index_type")  # the shape of the mask tells its kind
    y, _, _ = _moments(total, n.attr("epsilon", 1e-12))
    count = (OPS.sum(OPS.cast(n.value(7), "int32"), 1) if n.has(7) else
             OPS.full((rows,), 0, "int32"))
    return _outputs_read(n, y * n.value(5) + n.value(6), count, total)


@node("GroupNorm", domain=MICROSOFT)
def _group_norm(n: Node) -> Result:
    """Channels come last, unless an attribute says otherwise."""
    x, groups = n.value(0), n.attr("groups")
    n.only(channels_last=1)
    y = standardized_groups(x, groups, n.attr("epsilon", 1e-5)) * n.value(1) + n.value(2)
    return y * OPS.sigmoid(y) if n.attr("activation") else y
