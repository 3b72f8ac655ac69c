"""Products that loops read, computed in blocks of turns: when, and that it makes no difference."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE
from ztorch import layers as L
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import declare_states
from ztorch.graph.evaluate import evaluate
from ztorch.graph.hoisting import products_first
from ztorch.host.settings import using
from ztorch.lower.plan import Plan, lower
from ztorch.lower.rewrites.strip_mining import StripMinedLoop, strip_mined


def results() -> list[np.ndarray]:
    """Predictions and training of a net with loops in both directions and masked steps."""
    model = zt.Sequential([
        L.Input((7, 4)), L.Masking(), L.Bidirectional(L.LSTM(3, return_sequences=True)),
        L.GRU(5, go_backwards=True)], seed=2)
    x = np.random.default_rng(0).normal(size=(6, 7, 4)).astype(np.float32)
    x[2, 4:] = 0
    with using(cache=None):
        program = model.compile("cpu", batch_size=6, loss="mse", optimizer=zt.optimizers.SGD(0.5))
    before = program.predict(x)
    program.train_on_batch(x, np.ones((6, 5)))
    return [before, *program.get_weights()]


def test_blocks_give_the_same_bits_as_the_undivided_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of three turns, and the one that is left."""
    whole, made = results(), []

    def block_size(blocks: StripMinedLoop, capacity: tuple[int, int]) -> int:
        made.append(len(blocks.products))
        return 3 if blocks.products and blocks.body.trip_count > 3 else 0

    monkeypatch.setattr(StripMinedLoop, "block_size", block_size)
    for got, want in zip(results(), whole, strict=True):
        np.testing.assert_array_equal(got, want)
    assert sum(made) >= 6  # three layers, predicting and learning


def test_blocks_compute_what_the_undivided_loop_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In NumPy, without code: outputs of all steps, and the last state."""
    graph = zt.Sequential([L.Input((7, 3)), L.LSTM(2, return_sequences=True), L.GRU(3)]).trace(2).functions["predict"]
    graph = products_first(graph)
    monkeypatch.setattr(StripMinedLoop, "block_size", lambda blocks, capacity: 3 if blocks.products else 0)
    blocks = strip_mined(graph, TARGETS[HERE[-1]].limits)
    random = np.random.default_rng(1)
    fed = {v: random.normal(size=v.shape) for v in graph.nodes() if v.op.kind == "leaf"}
    assert sum(v.op.kind == "loop" for v in blocks.nodes()) == 4  # two, and the last steps of each
    for got, want in zip(*(evaluate([*g.roots], fed, oracle=True) for g in (blocks, graph)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def plan(steps: int, batch: int, width: int) -> Plan:
    """That of an LSTM which predicts."""
    traced = zt.Sequential([L.Input((steps, width)), L.LSTM(width)]).trace(batch)
    target = TARGETS[HERE[-1]]
    return lower("predict", products_first(traced.functions["predict"]), target.limits, declare_states(traced.functions, target))


def test_batches_that_fit_the_second_cache_are_computed_together() -> None:
    assert len(plan(100, 1, 64).loops) == 1  # 100 kB for all turns
    assert len(plan(400, 2, 512).loops) == 1  # large, but few rows a block would read all weights again
    longer = plan(1000, 16, 64)
    assert len(longer.loops) == 2
    assert longer.arena < 1000 * 16 * 256 * 4 / 2  # half of the product's memory
    wide = plan(256, 16, 256)  # eight turns would fit the L2 cache, and be too few rows
    assert len(wide.loops) == 2 and wide.arena < 256 * 16 * 1024 * 4 / 2


def test_blocks_update_states_of_the_outer_loop_in_place() -> None:
    """Inside the loop over blocks are the product, and the two kernels of a turn: no copies."""
    steps = plan(1000, 16, 64)
    first, last = steps.loops[0].first, steps.loops[0].end
    assert [step.key.rsplit("_lstm_")[1] for step in steps.steps[first:last]] == [
        "matmul_add_f32", "matmul_add_f32", "sigmoid_mul_f32"]
