"""Values that their readers compute for themselves, and epilogues that are separate kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.pretended_cuda import close, install
from tests.cases.zoo import BATCH, rows, small
from ztorch import ops
from ztorch.commands.train import compiled
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower import epilogues
from ztorch.lower.params import Params
from ztorch.lower.plan import Plan, lower
from ztorch.lower.rewrites import rematerialization

GRID = Limits(0, 64, True, grid=GridLimits(load_width=4, compute_units=2))


def x(*shape: int) -> Value:
    return leaf("input", "x", shape, f32)


def planned(graph: Graph, limits: Limits) -> Plan:
    return lower("f", graph, limits, Params(limits))


def stored(plan: Plan) -> list[int]:
    """The sizes of the values that kernels write, in order."""
    return [m.size for step in plan.steps
            for m, writes in zip((m for m in step.kernel.memories if m.space == "global"), step.writes,
                                 strict=True) if writes]


def variance(n: int) -> Graph:
    """x - mean has two readers in separate kernels."""
    images = x(n, 16)
    away = images - ops.mean(images, axis=0)
    return Graph({"y": away * ops.rsqrt(ops.mean(away * away, axis=0) + 1e-3)})


def test_what_is_cheap_is_not_stored() -> None:
    large = rematerialization.REMATERIALIZE_BYTES // 64
    plan = planned(variance(large), GRID)
    assert [n for n in stored(plan) if n >= large] == [large * 16], "of large arrays only the result"
    small_one = planned(variance(large // 2), GRID)
    assert [n for n in stored(small_one) if n >= large // 2] == [large * 8] * 2


def test_what_costs_more_than_memory_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialization, "REMATERIALIZE_SLOTS", 0)
    large = rematerialization.REMATERIALIZE_BYTES // 64
    assert [n for n in stored(planned(variance(large), GRID)) if n >= large] == [large * 16] * 2


@pytest.mark.parametrize(("epilogue", "kernels"), [
    (lambda y: ops.relu(y + 1.0), 1), (lambda y: ops.gelu(y), 2),
    (lambda y: y * x(512, 512) + leaf("input", "z", (512, 512), f32), 2)])
def test_heavy_epilogues_are_separate_kernels(epilogue: object, kernels: int) -> None:
    assert GRID.grid is not None
    fast = replace(GRID, grid=replace(GRID.grid, asynchronous_products=True))
    y = epilogue(ops.matmul(x(512, 64), leaf("input", "w", (64, 512), f32)))  # type: ignore[operator]
    graph = Graph({"y": y})
    assert len(planned(graph, fast).steps) == kernels
    assert len(planned(graph, GRID).steps) == 1, "threads that wait for products have time"


@pytest.mark.parametrize("name", ["digits_cnn", pytest.param("lstm_classifier", marks=pytest.mark.slow)])
def test_training_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed again, and whichever epilogues are split off."""
    weights = []
    for least in (1 << 40, 0):
        with monkeypatch.context() as patch:
            patch.setattr(rematerialization, "REMATERIALIZE_BYTES", least)
            patch.setattr(epilogues, "EPILOGUE_BYTES", least)
            patch.setattr(epilogues, "EPILOGUE_SLOTS", 0)
            fake = install(patch)
            program = compiled(small(name), "cuda", BATCH)
            data = rows(program.executable, program.metadata, small(name), 1)
            program.fit(*data, epochs=1, verbose=0, shuffle=False)
            weights.append(program.get_weights())
            close(fake)
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
