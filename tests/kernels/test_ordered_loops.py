"""Loops in order within loops in order: writes to arrays that a loop only fills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt

IMAGE = np.random.default_rng(0).uniform(0, 1, (6, 7)).astype(np.float32)


@zt.kernel
def dithered(image):
    """Floyd and Steinberg's: each pixel is rounded, and its neighbors take the error."""
    work = image.copy()
    h, w = image.shape
    out = np.zeros((h, w), np.uint8)
    for y in range(h):
        for x in range(w):
            new = 1.0 if work[y, x] > 0.5 else 0.0
            error = work[y, x] - new
            out[y, x] = np.uint8(new * 255.0)
            if x + 1 < w:
                work[y, x + 1] += error * 7.0 / 16.0
            if y + 1 < h:
                if x > 0:
                    work[y + 1, x - 1] += error * 3.0 / 16.0
                work[y + 1, x] += error * 5.0 / 16.0
                if x + 1 < w:
                    work[y + 1, x + 1] += error / 16.0
    return out


@zt.kernel
def last_of_rows(image):
    """Each row has an element of `out`, which all iterations of the inner loop write."""
    work = image.copy()
    h, w = image.shape
    out = np.zeros(h, image.dtype)
    for y in range(h):
        for x in range(w):
            out[y] = work[y, x] * 0.5
            if x + 1 < w:
                work[y, x + 1] += work[y, x] * 0.5
            if y + 1 < h:
                work[y + 1, x] += work[y, x] * 0.5
    return out


@zt.kernel
def sums_of_rows(image):
    work = image.copy()
    h, w = image.shape
    out = np.zeros(h, image.dtype)
    for y in range(h):
        for x in range(w):
            out[y] += work[y, x]
            if x + 1 < w:
                work[y, x + 1] += work[y, x] * 0.5
            if y + 1 < h:
                work[y + 1, x] += work[y, x] * 0.5
    return out


@pytest.mark.parametrize("kernel", [dithered, last_of_rows, sums_of_rows], ids=repr)
def test_an_array_that_the_outer_loop_only_fills(kernel: Any) -> None:
    np.testing.assert_allclose(kernel(IMAGE), kernel.debug(IMAGE), rtol=1e-5)
    assert kernel.explain(IMAGE).count("iterations in order") == 2
