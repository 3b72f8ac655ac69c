"""Steps of optimizers as functions, each compiled to one kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, as_value, op, shape_error
from ztorch.graph.value import Value


def _adam_numpy(weight: Any, gradient: Any, m: Any, v: Any, step: Any,
                learning_rate: float = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                epsilon: float = 1e-7, weight_decay: float = 0.0) -> Any:
    m = m + (gradient - m) * (1 - beta_1)
    v = v + (gradient * gradient - v) * (1 - beta_2)
    rate = learning_rate * np.sqrt(1 - beta_2 ** step) / (1 - beta_1 ** step)
    decayed = weight - weight * weight_decay * learning_rate
    return decayed - m * rate / (np.sqrt(v) + epsilon), m, v


@op(Sample(((3, 5), (3, 5), (3, 5), np.linspace(0.1, 2.0, 15).reshape(3, 5), np.array(3.0)),
           {"weight_decay": 0.01}),
    numpy=_adam_numpy, results=("weight", "m", "v"))
def fused_adam_step(weight: Value, gradient: Value, m: Value, v: Value, step: Value | float,
                    learning_rate: Value | float = 0.001, beta_1: float = 0.9,
                    beta_2: float = 0.999, epsilon: float = 1e-7,
                    weight_decay: float = 0.0) -> tuple[Value, Value, Value]:
    """One step of Adam, as in `optimizers.Adam`, in one pass over memory.

    Args:
        weight: The weight, a float tensor.
        gradient: Its gradient, of the same shape and dtype.
        m: Running mean of the gradient, of the same shape and dtype.
        v: Running mean of the squared gradient, of the same shape and dtype.
        step: Number of the step, 1 for the first: a scalar tensor or a number.
        learning_rate: Learning rate: a scalar tensor or a number. Default: `0.001`.
        beta_1: Decay of `m`. Default: `0.9`.
        beta_2: Decay of `v`. Default: `0.999`.
        epsilon: Added to the square root of `v`. Default: `1e-07`.
        weight_decay: Before the step, `learning_rate * weight_decay * weight` is subtracted.
            Default: `0.0`.

    Returns:
        The new `(weight, m, v)`.

    Examples:
        >>> import ztorch as zt
        >>> w, g, zero = np.array([1.0]), np.array([5.0]), np.zeros(1)
        >>> zt.ops.fused_adam_step(w, g, zero, zero, 1, learning_rate=0.1)[0].round(6)
        array([0.9])
    """
    for name, x in (("gradient", gradient), ("m", m), ("v", v)):
        if (x.shape, x.dtype) != (weight.shape, weight.dtype):
            raise shape_error(f"ops.fused_adam_step: {name} is {x.dtype}, weight {weight.dtype}, "
                              "of shapes", x.shape, weight.shape, fix="all four must be alike")
    m = m + (gradient - m) * (1.0 - beta_1)
    v = v + (gradient * gradient - v) * (1.0 - beta_2)
    count = OPS.cast(as_value(step, weight), weight.dtype)
    rate = OPS.cast(as_value(learning_rate, weight), weight.dtype)
    scaled = rate * OPS.sqrt(_bias(beta_2, count)) / _bias(beta_1, count)
    decayed = weight - weight * (rate * weight_decay) if weight_decay else weight
    return decayed - m * scaled / (OPS.sqrt(v) + epsilon), m, v


def _bias(beta: float, count: Value) -> Value:
    """1 - beta ** count, by expm1: in float32 the plain formula loses half of its digits."""
    return -OPS.expm1(count * math.log(beta)) if beta else OPS.ones_like(count)
