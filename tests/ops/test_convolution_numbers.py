"""The NumPy meaning of convolutions, with which all devices are compared, beside plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ztorch.ops.convolution import conv_numpy, window_slices

RANDOM = np.random.default_rng(2)


def by_loops(x: np.ndarray, kernel: np.ndarray, stride: tuple[int, int], dilation: tuple[int, int],
             groups: int) -> np.ndarray:
    """A convolution without padding, an output at a time."""
    (rows, columns, into, out), (height, width) = kernel.shape, x.shape[1:3]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(
        (height, width), (rows, columns), stride, dilation, strict=True)]
    y = np.zeros((len(x), *counts, out))
    for b, i, j, o in itertools.product(*map(range, y.shape)):
        group = o // (out // groups)
        for r, c, k in itertools.product(range(rows), range(columns), range(into)):
            y[b, i, j, o] += kernel[r, c, k, o] * x[
                b, i * stride[0] + r * dilation[0], j * stride[1] + c * dilation[1], group * into + k]
    return y


@pytest.mark.cheap
@pytest.mark.parametrize(("stride", "dilation", "groups"), [
    ((1, 1), (1, 1), 1), ((2, 3), (1, 1), 1), ((1, 1), (2, 3), 2), ((2, 1), (1, 2), 2)])
def test_the_oracle_of_convolutions(stride: tuple[int, int], dilation: tuple[int, int], groups: int) -> None:
    x, kernel = RANDOM.normal(size=(2, 7, 8, 4)), RANDOM.normal(size=(3, 2, 4 // groups, 6))
    np.testing.assert_allclose(conv_numpy(x, kernel, stride, "valid", dilation, groups),
                               by_loops(x, kernel, stride, dilation, groups), rtol=1e-12)


def test_slices_of_a_window() -> None:
    x = np.arange(70).reshape(1, 10, 7)
    read = x[window_slices((1, 2), (3, 2), (2, 3), (3, 1))]
    np.testing.assert_array_equal(read[0], [[x[0, 3 + 2 * i, 2 + 3 * j] for j in range(2)] for i in range(3)])
