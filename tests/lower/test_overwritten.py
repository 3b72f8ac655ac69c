"""Stacks of loops over sequences that they read: how little is stored, and that it changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device
from tests.parity import Job, Module, agree
from ztorch import layers as L
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.host.settings import using
from ztorch.lower.rewrites import deep_products
from ztorch.lower.rewrites.overwritten import Overwritten

TRAINED: dict[str, Any] = {"loss": "mse", "optimizer": "sgd"}


def trained(place: str) -> tuple[int, list[np.ndarray]]:
    """The arena of a net with loops in both directions, some of whose steps are masked, and what it
    learns."""
    model = zt.Sequential([
        L.Input((7, 4)), L.Masking(), L.Bidirectional(L.LSTM(16, return_sequences=True)),
        L.GRU(16, return_sequences=True), L.LSTM(16, go_backwards=True)], seed=2)
    x = np.random.default_rng(0).normal(size=(8, 7, 4)).astype(np.float32)
    x[2, 4:] = 0
    with using(cache=None):
        program = model.compile(place, batch_size=8, **TRAINED)
    for _ in range(2):
        program.train_on_batch(x, np.ones((8, 16)))
    return program.executable.spec.arena_bytes, program.get_weights()


def test_weight_gradients_read_gradients_of_gates_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deep products go through the slopes in other steps than the loop that stored them."""
    monkeypatch.setattr(deep_products, "LOOP_DEPTH", 14)
    monkeypatch.setattr(deep_products, "DEEP_PRODUCT_SIZE", 4)
    test_it_changes_no_bit("cpu", monkeypatch)


@pytest.mark.parametrize("place", ["cpu", "cpu:scalar", "vulkan", "opencl"])
def test_it_changes_no_bit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place if place.startswith("cpu") else device(place).id
    arena, weights = trained(place)
    monkeypatch.setattr(Overwritten, "_write_over", lambda *_: None)
    larger, others = trained(place)
    assert arena < larger
    for got, want in zip(weights, others, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_interpreter_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds races, and reads of uninitialized memory."""
    def learned() -> list[np.ndarray]:
        model = zt.Sequential([L.Input((3, 2)), L.LSTM(2)], seed=2)
        with using(cache=None):
            program = model.compile("cpu:scalar", batch_size=8, **TRAINED)
        program.train_on_batch(np.ones((8, 3, 2)), np.ones((8, 2)))
        return program.get_weights()

    weights = learned()
    monkeypatch.setenv("ZTORCH_INTERPRET", "1")
    for got, want in zip(learned(), weights, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_sequence_that_is_read_last_is_kept_until_then() -> None:
    """Two stacks share a buffer. The next loop reads one, stores rows as long as both, then reads the other."""
    random, n = np.random.default_rng(0), 8
    x, w, v, u = (leaf("input", f"x{k}", shape, f32)
                  for k, shape in enumerate([(6, 4, 2 * n), (n, n), (n, 2 * n), (2 * n, n)]))

    def first(h: Value, row: Value) -> tuple[Value, tuple[Value, Value]]:
        a = ops.tanh(ops.tanh(h @ v + row) @ u)
        b = ops.tanh(a @ w)
        return ops.tanh(b @ w), (a, b)

    def second(h: Value, rows: tuple[Value, Value]) -> tuple[Value, Value]:
        stored = ops.tanh((rows[0] + h) @ v)
        return ops.tanh(ops.tanh(stored @ u) @ w + rows[1]), stored

    h, stacks = ops.scan(first, ops.full((4, n), 0.0, f32), ops.tanh(x))
    last, stored = ops.scan(second, h, stacks, reverse=True)
    fed = {v: random.uniform(-1, 1, v.shape).astype(np.float32) for v in (x, w, v, u)}
    job = Job(Graph({"last": last, "stored": ops.tanh(stored)}), fed, "two stacks")
    agree(job, Module([job], "scalar").run(0), terms=50)


def arena_of(layer: type[L.Layer], steps: int, batch: int, width: int) -> float:
    """The arena of a training step, in outputs of all steps."""
    traced = zt.Sequential([L.Input((steps, width)), layer(width)]).compile(
        "cpu", batch_size=batch, **TRAINED)
    return traced.executable.spec.arena_bytes / (steps * batch * width * 4)


@pytest.mark.parametrize(("layer", "stored"), [
    (L.SimpleRNN, 2),  # the slopes, which lie where the product of the inputs lay, and the state
    (L.GRU, 5),  # three gates, the last one's product of the state, and the state
    (L.LSTM, 6)])  # four gates, and both states
def test_what_is_stored_for_each_output(layer: type[L.Layer], stored: int) -> None:
    """And memory that does not grow with the steps. The states before and after each step are one array."""
    assert stored <= arena_of(layer, 1000, 16, 64) < stored + 0.25
    assert arena_of(layer, 2000, 16, 64) < stored + 0.15
