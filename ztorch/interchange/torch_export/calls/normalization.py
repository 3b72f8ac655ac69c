"""Normalizations and softmax."""

from __future__ import annotations

import math

from ztorch.dtypes import f64
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


def _scale_and_shift(c: OperatorCall, x: CallTensor) -> list[str]:
    """The weight and the bias of the channels of x, or ones and zeros."""
    weight, bias = c.get("weight"), c.get("bias")
    return [weight.name if weight else c.ones(x.dims[1], x.dtype),
            bias.name if bias else c.zeros(x.dims[1], x.dtype)]


@call("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def _batch_norm(c: OperatorCall) -> Result:
    if not c.get("training", False):
        return _normalized(c)
    if c.get("running_mean") is not None:
        c.unsupported("the statistics of the batch, in training; export module.eval()")
    return _batch_statistics(c)


def _normalized(c: OperatorCall) -> str:
    """A normalization by running statistics."""
    x = c.tensor("input")
    return c.node("BatchNormalization", x.name, *_scale_and_shift(c, x),
                  c.x("running_mean"), c.x("running_var"), epsilon=c.get("eps", 1e-5))


@call("_native_batch_norm_legit.no_stats")
def _batch_statistics(c: OperatorCall) -> Result:
    """A normalization by the statistics of the input: of a BatchNorm that tracks none, or as in the
    decomposition of InstanceNorm."""
    x = c.tensor("input")
    over = c.ints(0, *range(2, x.rank))
    centered = c.node("Sub", x.name, c.node("ReduceMean", x.name, over, keepdims=1))
    variance = c.node("ReduceMean", c.node("Mul", centered, centered), over, keepdims=1)
    least = c.number(c.get("eps"), x.dtype)
    y = c.node("Div", centered, c.node("Sqrt", c.node("Add", variance, least)))
    shape = c.ints(-1, *(1,) * (x.rank - 2))
    for op, name in (("Mul", "weight"), ("Add", "bias")):
        if c.get(name) is not None:
            y = c.node(op, y, c.node("Reshape", c.x(name), shape))
    return y


def _shaped(c: OperatorCall, x: CallTensor) -> tuple[list[str], int]:
    """The weight and bias of the last axes, and the first of these axes."""
    shape = c.integers("normalized_shape")
    weight, bias = c.get("weight"), c.get("bias")
    names = [weight.name if weight else c.node("Reshape", c.ones(math.prod(shape), x.dtype),
                                               c.ints(*shape))]
    return [*names, *([bias.name] if bias else [])], x.rank - len(shape)


@call("layer_norm", "native_layer_norm")
def _layer_norm(c: OperatorCall) -> Result:
    x = c.tensor("input")
    names, axis = _shaped(c, x)
    return c.node("LayerNormalization", x.name, *names, axis=axis, epsilon=c.get("eps", 1e-5))


@call("rms_norm", "_fused_rms_norm")
def _rms_norm(c: OperatorCall) -> Result:
    x = c.tensor("input")
    names, axis = _shaped(c, x)
    epsilon = c.get("eps", 2.0 ** (-52 if x.dtype is f64 else -23))  # PyTorch's defaults
    return c.node("RMSNormalization", x.name, *names, axis=axis, epsilon=epsilon)


@call("group_norm", "native_group_norm")
def _group_norm(c: OperatorCall) -> Result:
    x = c.tensor("input")
    return c.node("GroupNormalization", x.name, *_scale_and_shift(c, x),
                  num_groups=c.get("num_groups", c.get("group")), epsilon=c.get("eps", 1e-5))


@call("instance_norm")
def _instance_norm(c: OperatorCall) -> Result:
    x = c.tensor("input")
    if not c.get("use_input_stats", True):
        return _normalized(c)
    return c.node("InstanceNormalization", x.name, *_scale_and_shift(c, x),
                  epsilon=c.get("eps", 1e-5))


@call("softmax.int", "_softmax", "log_softmax.int", "_log_softmax")
def _softmax(c: OperatorCall) -> Result:
    x = c.cast(c.tensor(), c.result.dtype)
    return c.node("LogSoftmax" if "log" in c.op else "Softmax", x, axis=c.get("dim"))


@call("_weight_norm", "_weight_norm_interface")
def _weight_norm(c: OperatorCall) -> Result:
    v, axis = c.tensor("v"), c.get("dim", 0)
    left_out = -1 if axis == -1 else axis % v.rank  # -1: none
    axes = [k for k in range(v.rank) if k != left_out]
    size = c.node("ReduceL2", v.name, c.ints(*axes), keepdims=1)
    return c.node("Mul", v.name, c.node("Div", c.x("g"), size))


@call("cosine_similarity")
def _cosine(c: OperatorCall) -> Result:
    axes, least = c.ints(c.get("dim", 1)), c.number(c.get("eps", 1e-8), c.tensor("x1").dtype)
    x, y = c.x("x1"), c.x("x2")
    sizes = [c.node("Max", c.node("ReduceL2", v, axes, keepdims=0), least) for v in (x, y)]
    product = c.node("ReduceSum", c.node("Mul", x, y), axes, keepdims=0)
    return c.node("Div", product, c.node("Mul", *sizes))
