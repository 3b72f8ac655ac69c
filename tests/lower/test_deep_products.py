"""Products of large k as loops over blocks of k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.attention import fed
from tests.cases.proposals import AVX2
from tests.parity import HERE, Job, Module, agree, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16, from_storage, to_storage
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.rewrites.deep_products import loops_over_k
from ztorch.lower.schedule import ProductSchedule
from ztorch.machines.processors import processor

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


@pytest.mark.parametrize(("k", "m", "n"), [(2048, 64, 64), (2063, 70, 65), (2240, 129, 64), (2050, 67, 128)])
def test_loops_over_odd_shapes(k: int, m: int, n: int) -> None:
    """At each level: blocks of other sizes, the smaller operand on the left, a rest of k."""
    a, b = leaf("input", "a", (k, m), "float32"), leaf("input", "b", (k, n), "float32")
    graph = Graph({"y": ops.relu(ops.transpose(a) @ b)})
    one = Job(graph, fed(graph))
    for level in HERE:
        module = Module([one], level)
        results = [module.run(0, threads)[0] for threads in (1, 2)]
        agree(one, results[:1], terms=k)
        np.testing.assert_array_equal(results[1], results[0])


@pytest.mark.parametrize("turned", [False, True], ids=["in parts", "in a loop"])
@pytest.mark.parametrize("d", [f16, bf16])
def test_parts_are_rounded_once(d: DType, turned: bool) -> None:
    """Sums of 16-bit products are rounded at the end: where each part was, errors were ten times as large."""
    a, b = leaf("input", "a", (8200, N) if turned else (N, 8200), d), leaf("input", "b", (8200, N), d)
    graph = Graph({"y": ops.matmul(ops.transpose(a) if turned else a, b)})
    random = np.random.default_rng(4)
    left, right = (from_storage(d, to_storage(d, random.uniform(0, 2, (8200, N)).astype(np.float32))) for _ in range(2))
    one = Job(graph, {a: left if turned else left.T, b: right})
    exact = left.astype(np.float64).T @ right.astype(np.float64)
    for level in HERE:
        [got] = Module([one], level).run(0)
        assert np.abs(got / exact - 1).max() < 1.01 * 2.0**-(11 if d is f16 else 8)


def _of_loops(m: int, n: int, limits: Limits) -> tuple[tuple[int, ...], int, bool]:
    """The left operand's slices in the loop of a product, the iterations, and whether the kernel prefetches the
    next slice of either operand."""
    a, b = leaf("input", "a", (6272, m), "float32"), leaf("input", "b", (6272, n), "float32")
    graph = Graph({"y": ops.transpose(a) @ b})
    [loop] = [v for v in loops_over_k(graph, limits).nodes() if v.op.kind == "loop"]
    [step] = [s for s in plan_of(graph, limits)[0].steps if isinstance(s.schedule, ProductSchedule)]
    fetched = {i.attrs["mem"] for i in step.kernel.body if i.opcode == "prefetch" and i.attrs["cache"] == 2}
    return loop.args[2].shape, loop.attrs["body"].trip_count, len(fetched) == 2


def test_blocks_of_a_loop_suit_the_caches() -> None:
    """Short vectors leave a part of each line to the next tile: the L1 cache holds a block's lines unless the
    result fills much of the L2 cache, and the larger operand is not copied."""
    zen4 = processor("zen4")
    short, wide = (replace(TARGETS[level].limits, processor=zen4) for level in ("avx2", "avx512"))
    assert _of_loops(64, 256, short) == ((28, 224, 64), 28, True)
    assert _of_loops(64, 256, wide) == ((14, 448, 64), 14, True)
    assert _of_loops(1024, 256, short) == ((14, 448, 256), 14, False)
    assert _of_loops(1024, 256, wide) == ((14, 448, 1024), 14, False)
