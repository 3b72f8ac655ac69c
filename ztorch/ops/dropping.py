"""Dropout, with fewer rounds than other random numbers: its kernels on GPUs would be bound by the
integers of these, and not by memory."""

from __future__ import annotations

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, broadcast_shapes, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.random import FEW_ROUNDS, RANDOM_BITS

Shape = tuple[int, ...]


@op()
def dropout(x: Value, rate: float, seed: Value, step: Value, stream: int = 0,
            noise_shape: Shape | None = None) -> Value:
    """x with random elements set to zero and the others scaled up to keep the mean.

    Args:
        x: Float tensor.
        rate: Share of the elements that become zero, from 0 to 1.
        seed: Seed: a uint32 tensor of shape `(2,)`.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.
        noise_shape: Shape of the decisions, which broadcasts to that of `x`: an axis of size 1
            shares one decision. `None` means the shape of `x`. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> seed, step = np.array([1, 2], np.uint32), np.array(0, np.uint32)
        >>> sorted(set(zt.ops.dropout(np.ones(1000), 0.5, seed, step).tolist()))
        [0.0, 2.0]
    """
    if not 0.0 <= rate <= 1.0:
        raise ConfigError(f"a dropout rate is between 0 and 1, not {rate}")
    if rate == 0.0:
        return x
    shape = x.shape if noise_shape is None else tuple(noise_shape)
    if broadcast_shapes(shape, x.shape) != x.shape:
        raise shape_error("noise of shape", shape, x.shape, fix="each axis must be 1 or equal")
    if rate == 1.0:
        return OPS.zeros_like(x)
    # Compared as integers, without rounding, so that every target drops the same elements.
    threshold = min(round(rate * 2**32), 2**32 - 1)
    bits = RANDOM_BITS(seed, step, shape=shape, stream=stream, word=0, rounds=FEW_ROUNDS)
    keep = OPS.greater_equal(bits, threshold)
    return OPS.where(OPS.broadcast_to(keep, x.shape), x * (1.0 / (1.0 - rate)), 0.0)
