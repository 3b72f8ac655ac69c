"""Pooling against windows taken one by one."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch import ops
from ztorch.dtypes import f32
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf

NUMBERS = np.random.default_rng(5).normal(size=(2, 7, 6, 3)).astype(np.float32)


def windows(size: int, stride: int, same: bool) -> list[list[np.ndarray]]:
    """The windows of an image, without padding."""
    def spans(n: int) -> list[slice]:
        count = -(-n // stride) if same else (n - size) // stride + 1
        before = max(0, (count - 1) * stride + size - n) // 2 if same else 0
        return [slice(max(0, k * stride - before), min(n, k * stride - before + size)) for k in range(count)]

    return [[NUMBERS[:, down, across] for across in spans(6)] for down in spans(7)]


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("name", ["average_pool", "max_pool"])
def test_values(name: str, size: int, stride: int, padding: str) -> None:
    """At a border, the mean is over the elements inside the image."""
    x = leaf("input", "x", NUMBERS.shape, f32)
    y = getattr(ops, name)(x, size, stride, padding)
    [got] = evaluate([y], {x: NUMBERS})
    combined = {"average_pool": np.mean, "max_pool": np.max}[name]
    want = np.stack([np.stack([combined(w, axis=(1, 2)) for w in row], axis=1)
                     for row in windows(size, stride, padding == "same")], axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_windows_of_one_size_need_no_table_of_counts(padding: str) -> None:
    """Where all windows are inside, the mean is a sum times one number."""
    x = leaf("input", "x", (1, 6, 6, 1), f32)
    y = ops.average_pool(x, 2, 2, padding)
    assert (y.op.name, y.args[1].op.name, y.args[1].attrs["value"]) == ("mul", "full", 0.25)


@pytest.mark.parametrize("padding", [((2, 0), (0, 0)), ((0, 0), (0, 2))])
def test_windows_of_nothing_but_padding_are_refused(padding: object) -> None:
    x = leaf("input", "x", NUMBERS.shape, f32)
    with pytest.raises(ShapeError, match="leaves windows of nothing but padding"):
        ops.max_pool(x, 2, padding=padding)
    assert ops.max_pool(x, 3, padding=padding).shape[0] == 2
