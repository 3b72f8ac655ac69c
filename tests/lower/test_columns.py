"""Columns that are reduced side by side: how many vectors, and their results at odd shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.attention import fed
from tests.cases.proposals import AVX2, proposed, x
from tests.parity import HERE, Job, Module, agree
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.machines.processors import processor

AVX512 = TARGETS["avx512"].limits
CASES: dict[str, Callable[[Value], Value]] = {
    "sum": lambda y: ops.sum(ops.exp(y), axis=0),
    "moments": lambda y: ops.var(y, axis=0) + ops.mean(y, axis=0),
    "softmax": lambda y: ops.softmax(y, axis=0),
    "powers": lambda y: ops.sum(ops.power(ops.abs(y) + 0.5, 1.3), axis=0),
    "windows": lambda y: ops.max(ops.reshape(y, (3, -1, y.shape[1])), axis=1)}


@pytest.mark.parametrize(("limits", "columns"), [(AVX2, 256), (AVX2, 512), (AVX512, 1000), (AVX512, 1024)])
def test_short_vectors_and_rows_whole_pages_apart_take_more_columns(limits: Limits, columns: int) -> None:
    """Where lines of a row are read that no other loop shares, or that fall on few sets of a cache."""
    wanted = 4 if columns == 1000 else 8
    assert f"columns({wanted})" in proposed(ops.sum(x(9, columns), axis=0), limits)


def test_few_sums_and_values_are_side_by_side() -> None:
    """Sums of a pass fill half of the registers, and code stays short: long chains of instructions are
    those of wider vectors instead."""
    rows = x(9, 1024)
    assert "columns(4)" in proposed(CASES["moments"](rows))  # two sums in the second of its passes
    assert "columns(8)" in proposed(CASES["softmax"](rows))
    for _ in range(31):
        rows = ops.tanh(rows)
    assert proposed(ops.sum(rows, axis=0)) == "rows lanes(32) sums(1) columns(1)"
    strided = ops.take(rows, np.arange(0, 1024, 2), axis=1)  # lanes that are read one by one
    assert "lanes(8)" in proposed(ops.sum(strided, axis=0))


@pytest.mark.parametrize(("columns", "lanes"), [(64, 64), (72, 16), (100, 16), (1000, 64)])
def test_vectors_wider_than_the_ports_are_side_by_side_where_they_leave_no_rest(columns: int, lanes: int) -> None:
    """A processor looks far enough ahead: an instruction takes two cycles. Not behind longer chains."""
    zen4 = TARGETS["avx512"].on_processor(processor("zen4")).limits
    assert f"lanes({lanes})" in proposed(ops.sum(ops.sin(x(9, columns)), axis=0), zen4)
    assert "lanes(64)" in proposed(ops.sum(ops.erfc(x(9, columns // 72 * 72 or 64)), axis=0), zen4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(9, 1024), (21, 300), (6, 131)])
def test_results_at_odd_shapes(name: str, shape: tuple[int, int]) -> None:
    graph = Graph({"y": CASES[name](x(*shape))})
    one = Job(graph, fed(graph))
    for level in HERE:
        module = Module([one], level)
        results = [module.run(0, threads)[0] for threads in (1, 3)]
        agree(one, results[:1], terms=shape[0])
        np.testing.assert_array_equal(results[1], results[0])
