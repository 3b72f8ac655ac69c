"""Numbers of a gamma distribution, by Marsaglia and Tsang's method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ztorch.dtypes import boolean
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, constant, op
from ztorch.graph.value import Value
from ztorch.ops.control import while_loop
from ztorch.ops.random import normals_from, shares_from

ROUNDS = 12  # draws per element: one in 20 is rejected, and all of them with p < 1e-15


@op()
def random_gamma(alpha: Value, seed: Value, step: Value, stream: int = 0) -> Value:
    """Numbers of a gamma distribution with scale 1.

    Each is the first of several draws that is not rejected. The gradient is that of the draw.

    Args:
        alpha: The shape of the distribution for each number: a float tensor of numbers above 0.
        seed: Seed: a uint32 tensor of shape `(2,)`.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.

    Returns:
        A tensor of the shape and dtype of `alpha`.

    Examples:
        >>> import ztorch as zt
        >>> seed, step = np.array([1, 2], np.uint32), np.array(0, np.uint32)
        >>> bool((zt.ops.random_gamma(np.full(100, 3.0, np.float32), seed, step) > 0.0).all())
        True
    """
    shape, d, size = alpha.shape, alpha.dtype, alpha.size

    def normal(first: Value) -> Value:
        return normals_from(shape, seed, step, stream, d, first)

    def uniform(first: Value) -> Value:
        return shares_from(shape, seed, step, stream, d, first)

    small = alpha < 1.0
    scale = OPS.where(small, alpha + 1.0, alpha) - 1.0 / 3.0
    spread = OPS.sqrt(9.0 * scale)

    def cube(z: Value) -> Value:
        return OPS.power(OPS.relu(1.0 + z / spread), 3.0)

    def draw(first: Value, rejected: Value, z: Value) -> tuple[Value, Value, Value]:
        z = OPS.where(rejected, normal(first), z)
        v = cube(z)
        positive = v > 0.0
        logarithm = OPS.log(OPS.where(positive, v, 1.0))
        u = uniform(first + np.uint32(ROUNDS * size))
        accepted = OPS.logical_and(positive, OPS.log(u) < 0.5 * z * z + scale * (
            1.0 - v + logarithm))
        return first + np.uint32(size), OPS.logical_and(rejected, OPS.logical_not(accepted)), z

    # Both loops end for a vector where none of its elements needs another draw.
    _, _, z = while_loop(lambda first, rejected, z: OPS.any(rejected), draw, (
        constant(np.array(0, np.uint32)), OPS.full(shape, True, boolean), OPS.zeros(shape, d)),
        max_steps=ROUNDS)

    exponent = 1.0 / OPS.stop_gradient(alpha)

    def draw_boost(first: Value, missing: Value, boost: Value) -> tuple[Value, Value, Value]:
        return first, OPS.logical_and(missing, False), OPS.where(
            missing, OPS.power(uniform(first), exponent), boost)

    _, _, boost = while_loop(lambda first, missing, boost: OPS.any(missing), draw_boost, (
        constant(np.array(2 * ROUNDS * size, np.uint32)), small, OPS.ones(shape, d)), max_steps=1)
    return scale * cube(OPS.stop_gradient(z)) * _boosted(alpha, boost)


def _boosted(alpha: Value, boost: Value) -> Value:
    """A number between 0 and 1 to the power 1 / alpha, with its gradient; the loop above computes
    it only where there are such powers."""
    def slopes(upstreams: Sequence[Value], args: Sequence[Value],
               shared: Sequence[Value]) -> list[Value]:
        y = _boosted(args[0], shared[0])
        return [-upstreams[0] * y * OPS.log(OPS.where(y > 0.0, y, 1.0)) / args[0]]

    return with_gradient([boost], [alpha], [boost], slopes)[0]
