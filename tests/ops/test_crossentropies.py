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
