"""What an output is computed from lies in its place, where each element is read before it is replaced."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import HERE, NARROW, C, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower import tuning

LONG = tuning.LOCAL_ROW_BYTES // 4 + 3  # a row of float32 that is too long for a local array


def x(*shape: int) -> Value:
    return leaf("input", "x", shape, "float32")


def scores(rows: int, columns: int) -> tuple[Value, Value, Value]:
    a, w = leaf("input", "a", (rows, 4), "float32"), leaf("input", "w", (4, columns), "float32")
    return a, w, ops.matmul(a, w)


def job(columns: int, *outputs: str) -> Job:
    """Some functions of a product, which may or may not replace it."""
    a, w, s = scores(5, columns)
    e = ops.exp(s)
    total = ops.sum(e, -1, keepdims=True)
    made = {"softmax": ops.softmax(s, -1), "both": ops.softmax(s, -1) + s, "scaled": e / total,
            "centered": s - ops.mean(s, -1, keepdims=True), "scores": s,
            "turned": ops.softmax(ops.flip(s, (1,)), -1) * s, "columns": ops.softmax(s, 0)}
    random = np.random.default_rng(columns)
    return Job(Graph({name: made[name] for name in outputs}), {
        v: random.standard_normal(v.shape).astype(np.float32) for v in (a, w)})


JOBS = {f"{'-'.join(names)} {n}": job(n, *names) for n in (48, LONG) for names in (
    ("softmax",), ("both",), ("scaled",), ("centered",), ("turned",), ("columns",), ("softmax", "scores"),
    ("softmax", "centered"))}


@together()
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", [*HERE[-2:], *C[:1]])
def test_results(name: str, target: str) -> None:
    agree(JOBS[name], Module([JOBS[name]], target).run(0, threads=2), terms=63)


@together()
@pytest.mark.parametrize("name", [n for n in JOBS if n.endswith(" 48")])
def test_results_in_the_interpreter(name: str) -> None:
    agree(JOBS[name], interpreted(JOBS[name], NARROW, workers=2), terms=63)


@pytest.mark.parametrize("columns", [48, LONG])
def test_rules(columns: int) -> None:
    """Only a product that one kernel reads, each element where it stores that of its output, and that no pass reads
    after exponentials replaced it."""
    def arena(*outputs: str) -> int:
        return plan_of(job(columns, *outputs).graph, TARGETS["avx512"].limits)[0].arena

    size = 5 * columns * 4
    for name in ("softmax", "scaled", "centered", "columns"):
        assert arena(name) < size, name
    assert arena("turned") >= size
    assert arena("softmax", "centered") >= size or columns == 48  # short rows: one kernel for both
    assert (arena("both") >= size) == (columns == LONG)


def test_short_rows_that_end_in_a_part_of_a_vector() -> None:
    """The store of that part would hold up the load of the next row."""
    for columns, apart in ((37, True), (127, True), (131, False), (32, False)):
        size = 5 * columns * 4
        arena = plan_of(job(columns, "softmax").graph, TARGETS["avx512"].limits)[0].arena
        assert (arena >= size) == apart, columns
