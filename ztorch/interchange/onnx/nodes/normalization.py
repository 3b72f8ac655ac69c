"""Normalizations and softmax."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.nodes.reduction import by_rows
from ztorch.interchange.onnx.padded_tensors import is_padded, masked, standardized
from ztorch.ops.statistics import root


def _along_channels(v: Value, rank: int) -> Value:
    return OPS.reshape(v, (1, v.size, *(1,) * (rank - 2)))


def _bits(v: Value) -> int:
    return v.dtype.bits


@node("BatchNormalization", but="uses the statistics of the batch only while a model is fitted "
      "whose file has training_mode")
def _batch_norm(n: Node) -> Result:
    dtype, epsilon = n.value(0).dtype, n.attr("epsilon", 1e-5)
    momentum = n.attr("momentum", 0.9)
    n.only(spatial=1)
    weights = [n.value(k) for k in (1, 2)]
    stored = [n.value(k, trainable=False) for k in (3, 4)]
    wide = max((n.value(0), weights[0], stored[0]), key=_bits).dtype
    x = OPS.cast(n.value(0), wide)
    gamma, beta = (_along_channels(OPS.cast(v, wide), x.rank) for v in weights)
    training = bool(n.attr("training_mode", 0))
    if any(n.spec.outputs[1:]) and not training:
        n.unsupported("more than one output without training_mode")
    if not training or not n.trains:
        mean, variance = (_along_channels(OPS.cast(v, wide), x.rank) for v in stored)
        y = (x - mean) * (OPS.rsqrt(variance + epsilon) * gamma) + beta
        return OPS.cast(y, dtype), *stored
    axes = (0, *range(2, x.rank))
    mean, variance = _statistics(n, x, axes)
    y = (x - mean) * (OPS.rsqrt(variance + epsilon) * gamma) + beta
    running = [old * momentum + OPS.cast(OPS.reshape(new, (-1,)), old.dtype) * (1 - momentum)
               for old, new in zip(stored, (mean, variance), strict=True)]
    for k, new in zip((3, 4), running, strict=True):
        n.write(k, new)
    return OPS.cast(y, dtype), *running


def _statistics(n: Node, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """The mean and variance of a batch, without its padding."""
    padding = n.context.padding
    if not (padded := padding.of(x)):
        return OPS.mean(x, axes, True), OPS.var(x, axes, True)
    real = OPS.broadcast_to(padding.real(x), tuple(
        1 if k == 1 else m for k, m in enumerate(x.shape)))
    count = OPS.sum(real, axes, True)
    mean = OPS.sum(masked(n, x, padded, 0) * real, axes, True) / count
    variance = OPS.sum(OPS.square(masked(n, x - mean, padded, 0)) * real, axes, True) / count
    return mean, variance


@node("LayerNormalization")
def _layer_norm(n: Node) -> Result:
    x = n.value(0)
    axes = tuple(range(x.rank)[n.attr("axis", -1):])
    y = standardized(n, x, axes, n.attr("epsilon", 1e-5)) * n.value(1)
    return y + n.value(2) if n.has(2) else y


@node("RMSNormalization")
def _rms_norm(n: Node) -> Result:
    x = n.value(0)
    axes = tuple(range(x.rank)[n.attr("axis", -1):])
    return x * OPS.rsqrt(OPS.mean(x * x, axes, True) + n.attr("epsilon", 1e-5)) * n.value(1)


@node("GroupNormalization", "InstanceNormalization")
def _group_norm(n: Node) -> Result:
    x = n.value(0)
    channels = x.shape[1]
    groups = n.attr("num_groups") if n.op == "GroupNormalization" else channels
    if channels % groups:
        raise ValueError(f"{groups} groups of {channels} channels")
    epsilon = n.attr("epsilon", 1e-5)
    if is_padded(n, x, range(2, x.rank)):
        grouped = OPS.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
        y = standardized(n, grouped, tuple(range(2, grouped.rank)), epsilon)
    else:
        grouped = OPS.reshape(x, (x.shape[0], groups, x.size // (x.shape[0] * groups)))
        y = OPS.standardize(grouped, axis=2, epsilon=epsilon)
    y = OPS.reshape(y, x.shape)
    return y * _along_channels(n.value(1), x.rank) + _along_channels(n.value(2), x.rank)


@node("LpNormalization")
def _lp_norm(n: Node) -> Result:
    x, axis = n.value(0), n.attr("axis", -1)
    x, unmasked = masked(n, x, (axis % x.rank,), 0), x
    norm = (OPS.sum(OPS.abs(x), axis, True) if n.attr("p", 2) == 1 else
            root(OPS.sum(x * x, axis, True)))
    return OPS.where(OPS.equal(norm, 0.0), 0.0, unmasked / norm)


@node("Softmax", "LogSoftmax")
def _softmax(n: Node) -> Result:
    x = n.value(0)
    if n.op == "LogSoftmax":
        return by_rows(n, x, lambda rows, axis: OPS.log_softmax(rows, axis=axis))
    y = by_rows(n, x, lambda rows, axis: OPS.softmax(rows, axis=axis))
    if n.attr("axis", 1 if n.opset < 13 else -1) in (-1, x.rank - 1):
        n.context.remember_logits(y, "softmax", x)
    return y


@node("LRN")
def _local_response(n: Node) -> Result:
    """Divides each element by a power of a sum of squares of its neighbors in other channels."""
    x, size = n.value(0), n.attr("size")
    before = (size - 1) // 2
    low = (0, before, *(0,) * (x.rank - 2))
    high = (0, size - 1 - before, *(0,) * (x.rank - 2))
    near = OPS.sum(OPS.windows(OPS.pad(x * x, low, high), (1,), size), axis=x.rank)
    base = near * (n.attr("alpha", 1e-4) / size) + n.attr("bias", 1.0)
    return x * OPS.exp(OPS.log(base) * -n.attr("beta", 0.75))
