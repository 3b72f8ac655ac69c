"""Values that several passes over a row need, such as the exponentials of a softmax, lie in a local array, or where
the result will be."""

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

LONG = tuning.LOCAL_ROW_BYTES // 4 + 3  # float32 numbers that are too many for a local array


def exponentials(x: Value, *, axes: tuple[int, ...] = (-1,)) -> Value:
    """exp(x) is expensive, and read before and after its sum."""
    e = ops.exp(x)
    return e / ops.sum(e, axes, keepdims=True)


def job(shape: tuple[int, ...], dtype: str = "float32", axes: tuple[int, ...] = (-1,)) -> Job:
    x = leaf("input", "x", shape, dtype)
    random = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    return Job(Graph({"y": exponentials(x, axes=axes), "z": ops.softmax(x, -1)}), {x: random})


JOBS = {"rows": job((5, 37)), "one": job((70,)), "double": job((3, 4, 19), "float64"),
        "half": job((3, 33), "float16"), "two axes": job((4, 3, 21), axes=(1, 2)),
        "long": job((3, LONG)), "columns": job((7, 3), axes=(0,))}


@together()
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", [*HERE, *C[:1]])
def test_results(name: str, target: str) -> None:
    agree(JOBS[name], Module([JOBS[name]], target).run(0, threads=3), terms=63)


@together()
@pytest.mark.parametrize("name", JOBS)
def test_results_in_the_interpreter(name: str) -> None:
    """It finds elements that are read before they are written."""
    agree(JOBS[name], interpreted(JOBS[name], NARROW, workers=2), terms=63)


def test_rules() -> None:
    """Exponentials take no memory, unless others read them, or no result can replace them element by element."""
    limits = TARGETS["avx2"].limits
    most = tuning.LOCAL_ROW_BYTES // 4

    def arena(y: Value, **others: Value) -> int:
        return plan_of(Graph({"y": y}, others), limits)[0].arena

    def x(*shape: int) -> Value:
        return leaf("input", "x", shape, "float32")

    long, rows = x(64, LONG), 64 * LONG * 4
    assert arena(exponentials(x(64, most))) == arena(exponentials(long)) == 0
    assert arena(exponentials(x(64, 512), axes=(0,))) == 0
    assert arena(ops.cast(exponentials(long), "float16")) >= rows  # a result of two bytes
    e = ops.exp(long)
    assert arena(ops.sum(e * ops.sum(e, -1, keepdims=True), -1)) >= rows  # a result for each row
    state = leaf("state", "w", long.shape, "float32", np.zeros(long.shape, np.float32), kind="weight")
    e = ops.exp(state)
    assert arena(x(1), w=state * e / ops.sum(e, -1, keepdims=True)) >= rows  # its old value is still needed
    e = ops.exp(x(64, most))
    plan, _ = plan_of(Graph({"y": e / ops.sum(e, -1, keepdims=True), "e": e}), limits)
    assert [m.space for m in plan.steps[0].kernel.memories] == ["global"] * 3
