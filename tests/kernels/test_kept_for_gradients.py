"""Gradients of kernels keep values or compute them again: by cost, and as they report."""

from __future__ import annotations

import math
import re

import numpy as np

import ztorch as zt
from models.kernels.flash_attention import flash_attention


@zt.kernel
def dear_or_cheap(x, dear):
    out = np.empty_like(x)
    for _, thread in zt.threads(1, x.shape[0]):
        total = 0.0
        for k in range(3):
            y = x[thread] * (k + 1.0)
            for _step in tuple(range(9 if dear else 1)):
                y = math.sin(y) + 0.3
            total += y * y
            y = y * 0.5
            total += math.exp(y)
        out[thread] = total
    return out


def test_expensive_values_are_kept_and_cheap_ones_recomputed() -> None:
    """Of nine sines in a row, two are kept in each of three turns: others are near enough to one."""
    x, way, h = np.linspace(-0.3, 0.9, 8), np.linspace(1, 2, 8), 1e-6
    for dear, said in ((False, "keeps nothing of each thread's forward pass"), (True, "keeps 48 bytes")):
        slope = zt.grad(lambda x, dear=dear: zt.ops.sum(dear_or_cheap(x, dear)))
        ends = [dear_or_cheap.debug(x + s * h * way, dear).sum() for s in (1, -1)]
        np.testing.assert_allclose(slope(zt.tensor(x)).numpy() @ way, (ends[0] - ends[1]) / (2 * h),
                                   rtol=1e-8)
        assert said in zt.explain(slope, "f64[8]", device="cpu")


def test_turns_with_large_products_are_computed_again() -> None:
    heads = np.ones((1, 2, 40, 4), np.float32)
    assert re.search(r"a gradient computes iterations again: products of \d+ elements, a state of \d+",
                     flash_attention.explain(heads, heads, heads, block=4))
