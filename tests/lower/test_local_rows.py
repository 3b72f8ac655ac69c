"""Values that several passes over a row need, such as the exponentials of a softmax, lie in a local array."""

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


def exponentials(x: Value, *, axes: tuple[int, ...] = (-1,)) -> Value:
    """exp(x) is expensive, and read before and after its sum."""
    e = ops.exp(x)
    return e / ops.sum(e, axes, keepdims=True)


def job(shape: tuple[int, ...], dtype: str = "float32", axes: tuple[int, ...] = (-1,)) -> Job:
    x = leaf("input", "x", shape, dtype)
    random = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    return Job(Graph({"y": exponentials(x, axes=axes), "z": ops.softmax(x, -1)}), {x: random})


JOBS = {"rows": job((5, 37)), "one": job((70,)), "double": job((3, 4, 19), "float64"),
        "half": job((3, 33), "float16"), "two axes": job((4, 3, 21), axes=(1, 2))}


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
    """Short rows take no memory; long ones, and columns, lie in buffers; so do rows that others read."""
    limits = TARGETS["avx2"].limits
    most = tuning.LOCAL_ROW_BYTES // 4

    def arena(y: Value) -> int:
        return plan_of(Graph({"y": y}), limits)[0].arena

    def x(*shape: int) -> Value:
        return leaf("input", "x", shape, "float32")

    assert arena(exponentials(x(64, most))) == 0
    assert arena(exponentials(x(64, most + 1))) >= 64 * (most + 1) * 4
    assert arena(exponentials(x(64, 512), axes=(0,))) >= 64 * 512 * 4
    e = ops.exp(x(64, most))
    plan, _ = plan_of(Graph({"y": e / ops.sum(e, -1, keepdims=True), "e": e}), limits)
    assert [m.space for m in plan.steps[0].kernel.memories] == ["global"] * 3
