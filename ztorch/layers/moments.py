"""Means and variances along axes, for normalizations."""

from __future__ import annotations

import math
from itertools import groupby

from ztorch.graph.op import OPS
from ztorch.graph.value import Value

SAMPLE_STEP = 61  # elements from one of a sample to the next


def moments_of(x: Value, axes: tuple[int, ...],
               share: Value | None = None) -> tuple[Value, Value, Value, Value]:
    """A number near the mean along axes, the rest of the mean, the variance, all kept with size 1,
    and x minus the mean. `share` holds the weight of each element.

    Sums differences from that number: if the mean is large compared to the deviation, sums of the
    elements themselves would lose the deviation by rounding. One pass over x is enough if all
    elements count the same. With weights it takes two, since a sample may have none that count.
    """
    if share is None:
        near = _near(x, axes)
        shifted = x - near
        apart = OPS.mean(shifted, axes, True)
        variance = OPS.mean(shifted * shifted, axes, True) - apart * apart
        rounding = OPS.stop_gradient(OPS.relu(-variance))
        return near, apart, variance + rounding, shifted - apart
    first = OPS.stop_gradient(x[tuple(slice(0, 1) if k in axes else slice(None)
                                      for k in range(x.rank))])
    shifted = x - first
    apart = OPS.sum(shifted * share, axes, True)
    centered = shifted - apart
    return first, apart, OPS.sum(centered * centered * share, axes, True), centered


def _near(x: Value, axes: tuple[int, ...]) -> Value:
    """The mean along axes of a sample: of every 61st element, or more.

    Sums of squares of differences from it need no second pass. They do not lose the deviation by
    rounding: the square of its distance from the mean of all is at most 61 variances, whatever the
    elements are. The step is prime, so that the sample is spread over examples and positions.
    """
    runs = [list(run) for _, run in groupby(axes, lambda a: a - axes.index(a))]
    run = max(runs, key=lambda run: math.prod(x.shape[a] for a in run))
    before, after, count = x.shape[:run[0]], x.shape[run[-1] + 1:], len(run)
    flat = OPS.reshape(x, (*before, math.prod(x.shape[a] for a in run), *after))
    sample = OPS.slice_by(flat, (*(slice(None),) * len(before), slice(None, None, SAMPLE_STEP)))
    merged = {min(a, run[0]) if a <= run[-1] else a - count + 1 for a in axes}
    near = OPS.mean(sample, tuple(sorted(merged)))
    shape_of_means = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return OPS.stop_gradient(OPS.reshape(near, shape_of_means))


def standardized_groups(x: Value, groups: int, epsilon: float) -> Value:
    """x with mean 0 and variance 1 in each group of features, which come last.

    The few features of a group would fill part of a vector. So positions are summed for each
    feature, and only these sums are combined.
    """
    positions, features = tuple(range(1, x.rank - 1)), x.shape[-1]
    by_group = (x.shape[0], *(1,) * len(positions), groups, features // groups)
    *moments, centered = moments_of(x, positions)
    near, apart, variance = (OPS.reshape(v, by_group) for v in moments)
    apart = near - near[..., :1] + apart  # means of features
    apart = apart - OPS.mean(apart, -1, True)
    factor = OPS.rsqrt(OPS.mean(variance + apart * apart, -1, True) + epsilon)
    of_features = (*by_group[:-2], features)
    factor, apart = (OPS.reshape(OPS.broadcast_to(v, by_group), of_features)
                     for v in (factor, apart))
    return (centered + apart) * factor
