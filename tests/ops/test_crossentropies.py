"""Cross-entropies where labels are no classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt


@pytest.mark.parametrize("from_logits", [False, True])
def test_labels_out_of_range_cost_nothing(from_logits: bool) -> None:
    labels, x = np.array([1, -1, 3]), np.random.default_rng(0).uniform(0.1, 0.9, (3, 3))

    def loss(x: Any) -> Any:
        return zt.ops.sparse_categorical_crossentropy(labels, x, from_logits=from_logits)

    p = np.exp(x) if from_logits else x
    np.testing.assert_allclose(loss(x), [-np.log(p[0, 1] / p[0].sum()), 0, 0], rtol=1e-6)
    gradient = np.asarray(zt.grad(lambda x: zt.ops.sum(loss(x)))(zt.tensor(x)))
    assert gradient[0].all() and not gradient[1:].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_probabilities_in_16_bits(dtype: str) -> None:
    """1 - 1e-7 is 1 there, whose logarithm was minus infinity."""
    sure, sums = np.array([[0.0, 1.0], [1.0, 0.0]]), np.log(np.array([1e-7, 1 - 1e-7]))
    p = zt.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=dtype)
    for name in ("binary_crossentropy", "kl_divergence"):
        loss = zt.losses.get(name)(sure, p)
        expected = -sums.mean() if name[0] == "b" else -sums.sum() / 2
        assert loss.dtype == "float32" and float(loss) == pytest.approx(expected, rel=0.02)
    values = zt.ops.binary_crossentropy(zt.tensor(sure, dtype=dtype), p)
    assert values.dtype == dtype
    np.testing.assert_allclose(values.astype("float64"), [[-sums[0]] * 2, [0, 0]], 0.02, 0.05)
    values = zt.ops.categorical_crossentropy(zt.tensor(sure, dtype=dtype), p)
    np.testing.assert_allclose(values.astype("float64"), [-sums[0], 0], 0.02, 0.05)
