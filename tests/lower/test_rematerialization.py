"""Values that their readers compute for themselves, and epilogues that are separate kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.pretended_cuda import close, install
from tests.cases.zoo import BATCH, rows, small
from tests.parity import HERE, Job, Module, interpreted
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.commands.train import compiled
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower import epilogues
from ztorch.lower import plan as plan_room
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


@pytest.mark.parametrize(("function", "size", "times"), [
    (lambda v: v - ops.mean(v, axis=0), 1, 1), (lambda v: v - ops.mean(v, axis=0), 2, 2),
    (lambda v: ops.exp(v - ops.mean(v, axis=0)), 1, 2)], ids=["cheap", "small", "costly"])
def test_processors_compute_cheap_values_again(function: Callable[[Value], Value], size: int,
                                               times: int) -> None:
    """Not small values, which caches hold, and not those that take longer than a pass over memory.
    """
    n = rematerialization.REMATERIALIZE_BYTES // 64 // size
    y = function(x(n, 16))
    scaled = y * ops.rsqrt(ops.mean(ops.mean(y * y, axis=0)))  # which takes several kernels
    plan = planned(Graph({"y": scaled}), TARGETS["avx2"].limits)
    assert [m for m in stored(plan) if m >= n] == [n * 16] * times


@together()
@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("shape", [(5, 7, 35), (64, 3), (129, 17)])
def test_normalization_with_gradients(level: str, shape: tuple[int, ...],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are computed again give NumPy's numbers, and those of stored ones."""
    images, slope = x(*shape), leaf("input", "slope", shape, f32)
    axes = tuple(range(len(shape) - 1))
    mean, spread = ops.moments(images, axes)
    y = (images - mean) * ops.rsqrt(spread + 1e-3)
    graph = Graph({"y": y, "dx": gradients(ops.sum(y * slope), [images])[0]})
    random = np.random.default_rng(0)
    data, g = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    factor = 1 / np.sqrt(data.astype(np.float64).var(axes) + 1e-3)
    true = (data - data.mean(axes, dtype=np.float64)) * factor
    slopes = factor * (g - g.mean(axes, dtype=np.float64) - true * (g * true).mean(axes))
    for least in (0, 1 << 40):
        monkeypatch.setattr(rematerialization, "REMATERIALIZE_BYTES", least)
        module = Module([Job(graph, {images: data, slope: g})], level)
        one, three = module.run(0, 1), module.run(0, 3)
        for number, wanted, other in zip(one, (true, slopes), three, strict=True):
            np.testing.assert_allclose(number, wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(number, other)


def test_what_costs_more_than_memory_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_room, "REMATERIALIZE_SLOTS", 0)
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


def test_rows_of_a_separate_epilogue_are_normalized_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which stores them, too, where others read them; sums of its columns are another kernel."""
    monkeypatch.setattr(epilogues, "EPILOGUE_BYTES", 0)
    assert GRID.grid is not None
    fast = replace(GRID, grid=replace(GRID.grid, asynchronous_products=True))
    a, w = x(24, 16), leaf("input", "w", (16, 40), f32)
    y = ops.gelu(ops.matmul(a, w))
    graph = Graph({"y": y, "z": ops.standardize(y)})
    assert [s.kernel.name.split("_")[1] for s in planned(graph, fast).steps] == ["matmul", "sum"]
    assert len(planned(Graph({"y": y, "z": ops.sum(y, 0)}), fast).steps) == 3
    random = np.random.default_rng(0)
    one = Job(graph, {v: random.normal(size=v.shape).astype(np.float32) for v in (a, w)})
    for got, want in zip(interpreted(one, fast), one.oracle(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


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
