"""The NumPy meaning of convolutions, with which all devices are compared, beside plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ztorch import ops
from ztorch.dtypes import DType, f16, f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import topological
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


@pytest.mark.parametrize(("frame", "size", "stride", "alone"), [
    ((1, 1), 3, 1, True), ((0, 2), 3, 2, True), ((1, 2), 4, 1, True),
    ((3, 3), 3, 1, False)])  # some windows would be in the frame alone
@pytest.mark.parametrize("d", [f32, f16])
def test_zeros_around_an_input_are_padding(d: DType, frame: tuple[int, int], size: int, stride: int, alone: bool) -> None:
    """No gradient is computed for them, and its numbers are those of the frame cut off."""
    x, kernel = leaf("input", "x", (2, 7, 6, 8), d), leaf("input", "kernel", (size, size, 8, 5), d)
    low, high = ((0, n, n, 0) for n in frame)
    framed = ops.pad(x, low, high)
    whole = leaf("input", "framed", framed.shape, d)
    results = [ops.conv(v, kernel, stride) for v in (framed, whole)]
    slopes = [gradients(ops.sum(ops.square(y)), [v])[0] for y, v in zip(results, (x, whole), strict=True)]
    if stride == 1:
        products = {v.size for v in topological([slopes[0]]) if v.op.kind == "contract"}
        assert (x.size in products) == alone and (framed.size in products) == (not alone)
    random = np.random.default_rng(1)
    feeds = {v: random.standard_normal(v.shape).astype(d.numpy) for v in (x, kernel)}
    error = 1e-4 if d is f32 else 1e-2  # of the largest
    feeds[whole] = np.pad(feeds[x], list(zip(low, high, strict=True)))
    y, want_y, got, want = evaluate([*results, *slopes], feeds)
    np.testing.assert_allclose(y, want_y, rtol=1e-4, atol=error * abs(want_y).max())
    n = frame[0]
    np.testing.assert_allclose(got, want[:, n:n + 7, n:n + 6], rtol=1e-4, atol=error * abs(want).max())
