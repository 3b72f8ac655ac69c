"""Sums at places start from tables of zeros, which full vectors clear, whatever an update is;
products and extremes from tables of their own neutral elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.proposals import AVX2
from tests.parity import HERE, Job, Module, agree, plan_of
from ztorch.dtypes import dtype
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.ir.opcodes import identity
from ztorch.ir.text import show
from ztorch.ops.scattering import combined_at

random = np.random.default_rng(2)


def job_of(rows: int, updates: int, width: tuple[int, ...]) -> Job:
    at, values = (leaf("input", "at", (updates,), "int32"),
                  leaf("input", "values", (updates, *width), "float32"))
    y = OPS.scatter_add(OPS.zeros((rows, *width), "float32"), at, values)
    return Job(Graph({"y": y}), {at: random.integers(-2, rows + 2, updates).astype(np.int32),
                                 values: random.normal(size=values.shape).astype(np.float32)})


@pytest.mark.parametrize(("rows", "updates", "width"), [
    (1003, 90, ()), (77, 30, (5,)), (301, 40, (17,)), (50, 33, (70,)), (9, 200, (128,)), (3, 2, (90,))])
def test_tables_of_odd_sizes(rows: int, updates: int, width: tuple[int, ...]) -> None:
    job = job_of(rows, updates, width)
    for level in HERE:
        module = Module([job], level)
        one, three = (module.run(0, threads)[0] for threads in (1, 3))
        agree(job, [one], terms=updates)
        np.testing.assert_array_equal(one, three)


def test_full_vectors_clear() -> None:
    plan, _ = plan_of(job_of(1003, 90, ()).graph, AVX2)
    [text] = [show(step.kernel) for step in plan.steps if "sums_at" in step.kernel.name]
    assert "0.0:f32x8" in text


@pytest.mark.parametrize("opcode", ["mul", "max", "min"])
@pytest.mark.parametrize(("rows", "updates", "width", "name"), [
    (301, 40, 17, "float32"), (9, 9001, 1, "float32"), (50, 90, 70, "int32"), (9, 200, 128, "float64"),
    (5, 700, 3, "int8")])
def test_products_and_extremes(opcode: str, rows: int, updates: int, width: int, name: str) -> None:
    at = random.integers(-2, rows + 2, updates).astype(np.int32)
    x = (random.normal(size=(updates, width)) * (1 if opcode == "mul" else 9)).astype(name)
    if opcode == "max" and name == "float32":
        x[3] = np.nan
    want = np.full((rows, width), identity(opcode, dtype(name)), name)
    inside = (at >= 0) & (at < rows)
    {"mul": np.multiply, "max": np.maximum, "min": np.minimum}[opcode].at(want, at[inside], x[inside])
    leaves = leaf("input", "x", (1, updates, width), name), leaf("input", "at", (1, updates, 1), "int32")
    y = combined_at(opcode, *leaves, rows)
    job = Job(Graph({"y": y}), dict(zip(leaves, (x[None], at[None, :, None]), strict=True)))
    for level in HERE:
        module = Module([job], level)
        one, three = (module.run(0, threads)[0] for threads in (1, 3))
        np.testing.assert_allclose(one[0], want, rtol=2e-5 if opcode == "mul" else 0)
        np.testing.assert_array_equal(one, three)


def test_tables_of_few_updates_are_outputs_shared_by_rows() -> None:
    """Workers clear whole rows, and no copy follows."""
    leaves = leaf("input", "x", (1, 90, 128), "float32"), leaf("input", "at", (1, 90, 1), "int32")
    y = OPS.reshape(combined_at("add", *leaves, 500), (500, 128))
    plan, _ = plan_of(Graph({"y": y}), AVX2)
    [table] = plan.steps
    assert repr(table.schedule).endswith("bands(4)"), table.schedule
