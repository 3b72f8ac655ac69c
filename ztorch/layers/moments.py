"""Means and variances along axes, for normalizations."""

from __future__ import annotations

import math
from itertools import groupby
from typing import NamedTuple

from ztorch.graph.op import OPS
from ztorch.graph.value import Value

SAMPLE_STEP = 61  # elements from one of a sample to the next


class Moments(NamedTuple):
    """The moments of x along axes, kept with size 1."""

    near: Value  # a number near the mean
    apart: Value  # the mean minus that number
    variance: Value
    shifted: Value  # x minus that number

    @property
    def mean(self) -> Value:
        return self.near + self.apart


def moments_of(x: Value, axes: tuple[int, ...], share: Value | None = None,
               scattered: bool = False) -> Moments:
    """The moments of x along axes. `share` holds the weight of each element.

    Sums differences from a number near the mean: if the mean is large compared to the deviation,
    sums of the elements themselves would lose the deviation by rounding. One pass over x is enough
    if all elements count the same, or all rows up to one. It takes two where those that count are
    `scattered`, since a sample may have none of them.
    """
    if scattered:
        assert share is not None
        first = OPS.stop_gradient(x[tuple(slice(0, 1) if k in axes else slice(None)
                                          for k in range(x.rank))])
        from_first = x - first
        far = OPS.sum(from_first * share, axes, True)
        centered = from_first - far
        variance = OPS.sum(centered * centered * share, axes, True)
        return Moments(first + far, OPS.zeros_like(far), variance, centered)
    near = _near(x, axes, share)
    shifted = x - near
    if share is None:
        apart, squares = OPS.mean(shifted, axes, True), OPS.mean(shifted * shifted, axes, True)
    else:
        apart = OPS.sum(shifted * share, axes, True)
        squares = OPS.sum(shifted * shifted * share, axes, True)
    variance = squares - apart * apart
    rounding = OPS.stop_gradient(OPS.relu(-variance))
    return Moments(near, apart, variance + rounding, shifted)


def _near(x: Value, axes: tuple[int, ...], share: Value | None) -> Value:
    """The mean along axes of a sample: of every 61st element, or more, of those that count.

    Sums of squares of differences from it need no second pass. They do not lose the deviation by
    rounding: the square of its distance from the mean of all is at most 61 variances, whatever the
    elements are. The step is prime, so that the sample is spread over examples and positions.
    """
    runs = [list(run) for _, run in groupby(axes, lambda a: a - axes.index(a))]
    run = max(runs, key=lambda run: math.prod(x.shape[a] for a in run))
    before, after, count = x.shape[:run[0]], x.shape[run[-1] + 1:], len(run)
    merged = tuple(sorted({min(a, run[0]) if a <= run[-1] else a - count + 1 for a in axes}))

    def sample(v: Value) -> Value:
        flat = OPS.reshape(v, (*before, math.prod(x.shape[a] for a in run), *after))
        return OPS.slice_by(flat, (*(slice(None),) * len(before), slice(None, None, SAMPLE_STEP)))

    if share is None:
        near = OPS.mean(sample(x), merged)
    else:
        weights = sample(OPS.broadcast_to(share, x.shape))
        total = OPS.sum(weights, merged)
        near = OPS.sum(sample(x) * weights, merged) / OPS.where(total > 0, total, 1.0)
    shape_of_means = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return OPS.stop_gradient(OPS.reshape(near, shape_of_means))


def standardized_groups(x: Value, groups: int, epsilon: float) -> Value:
    """x with mean 0 and variance 1 in each group of features, which come last.

    The few features of a group would fill part of a vector. So positions are summed for each
    feature, and only these sums are combined.
    """
    positions, features = tuple(range(1, x.rank - 1)), x.shape[-1]
    by_group = (x.shape[0], *(1,) * len(positions), groups, features // groups)
    *moments, shifted = moments_of(x, positions)
    near, apart, variance = (OPS.reshape(v, by_group) for v in moments)
    means = near - near[..., :1] + apart  # of features, from the first of a group
    means = means - OPS.mean(means, -1, True)
    factor = OPS.rsqrt(OPS.mean(variance + means * means, -1, True) + epsilon)
    of_features = (*by_group[:-2], features)
    factor, apart = (OPS.reshape(OPS.broadcast_to(v, by_group), of_features)
                     for v in (factor, apart - means))
    return (shifted - apart) * factor
