"""Normalisations, and softmax."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node


def _along_channels(v: Value, rank: int) -> Value:
    return OPS.reshape(v, (1, v.size, *(1,) * (rank - 2)))


@node("BatchNormalization", but="by its stored statistics, while training as well")
def _batch_norm(n: Node) -> Result:
    n.only(training_mode=0)
    n.only_first_output()
    x = n.value(0)
    gamma, beta = (_along_channels(n.value(k), x.rank) for k in (1, 2))
    mean, variance = (_along_channels(n.value(k, trainable=False), x.rank) for k in (3, 4))
    return (x - mean) * (OPS.rsqrt(variance + n.attr("epsilon", 1e-5)) * gamma) + beta


@node("LayerNormalization", but="first output only")
def _layer_norm(n: Node) -> Result:
    n.only_first_output()
    x = n.value(0)
    axes = tuple(range(x.rank)[n.attr("axis", -1):])
    y = OPS.standardize(x, axis=axes, epsilon=n.attr("epsilon", 1e-5)) * n.value(1)
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
    apart = OPS.reshape(x, (x.shape[0], groups, x.size // (x.shape[0] * groups)))
    y = OPS.reshape(OPS.standardize(apart, axis=2, epsilon=n.attr("epsilon", 1e-5)), x.shape)
    return y * _along_channels(n.value(1), x.rank) + _along_channels(n.value(2), x.rank)


@node("LpNormalization")
def _lp_norm(n: Node) -> Result:
    x, axis = n.value(0), n.attr("axis", -1)
    if n.attr("p", 2) == 1:
        return x / OPS.sum(OPS.abs(x), axis, True)
    return x / OPS.sqrt(OPS.sum(x * x, axis, True))


@node("Softmax", "LogSoftmax")
def _softmax(n: Node) -> Result:
    x = n.value(0)
    axis = range(x.rank)[n.attr("axis", -1)]
    if n.op == "LogSoftmax":
        return OPS.log_softmax(x, axis=axis)
    y = OPS.softmax(x, axis=axis)
    if axis == x.rank - 1:
        n.context.remember_logits(y, "softmax", x)
    return y


@node("LRN")
def _local_response(n: Node) -> Result:
    """Each element against the squares of its neighbours in other channels."""
    x, size = n.value(0), n.attr("size")
    before = (size - 1) // 2
    low = (0, before, *(0,) * (x.rank - 2))
    high = (0, size - 1 - before, *(0,) * (x.rank - 2))
    near = OPS.sum(OPS.windows(OPS.pad(x * x, low, high), (1,), size), axis=x.rank)
    base = near * (n.attr("alpha", 1e-4) / size) + n.attr("bias", 1.0)
    return x * OPS.exp(OPS.log(base) * -n.attr("beta", 0.75))


