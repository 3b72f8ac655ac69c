"""Products of large k as loops over blocks of k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.proposals import AVX2
from ztorch import ops
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.rewrites.deep_products import loops_over_k

K, N = 2048, 64


@pytest.mark.parametrize(("shape", "part"), [
    ((K * N + 1,), lambda x: x[1:].reshape((K, N))),  # no range of columns of a matrix
    ((K, N + 5), lambda x: x[:, 3:N + 3])])
def test_right_operands_that_are_parts_of_tensors(shape: tuple[int, ...], part: Callable[[Any], Any]) -> None:
    a, b = leaf("input", "a", (K, N), "float32"), leaf("input", "b", shape, "float32")
    looped = loops_over_k(Graph({"y": ops.transpose(a) @ part(b)}), AVX2)
    assert any(v.op.kind == "loop" for v in looped.nodes())

    random = np.random.default_rng(0)
    left, right = (random.normal(size=s).astype(np.float32) for s in ((K, N), shape))
    got = zt.compiled(lambda a, b: ops.transpose(a) @ part(b))(left, right)
    np.testing.assert_allclose(got, left.T.astype(float) @ part(right), atol=1e-3)
