"""The block of parameters that a program starts with."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.codegen.targets import TARGETS
from ztorch.compile import parameters
from ztorch.compile.pipeline import compile_functions
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.initializers import stream


@pytest.mark.parametrize("first", [0.0, -0.0, 0.1])
def test_a_broadcast_constant_is_stored(first):
    state = leaf("state", "s", (3,), "float32", np.broadcast_to(np.float32(first), (3,)))
    graph = Graph({"y": OPS.exp(state)}, {"s": OPS.neg(state)})
    made = compile_functions({"step": graph}, TARGETS["scalar"], "numbers")
    stored = made.spec.states["s"].read(made.params)
    assert stored.tobytes() == np.full(3, first, np.float32).tobytes()


def test_threads_draw_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users' initializers run in this thread, in order: they may share a generator."""
    threads: list[str] = []
    shared = np.random.default_rng(0)

    class Users(zt.initializers.Initializer, abstract=True):
        def fill(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
            threads.append(threading.current_thread().name)
            return shared.normal(size=shape)

    monkeypatch.setattr(parameters, "LEAST_DEFERRED", 1)
    model = zt.Sequential([L.Input((5,)), L.Dense(7, kernel_initializer="he_normal"), L.Dense(
        6, kernel_initializer=Users()), L.Dense(4, kernel_initializer="he_normal")], seed=3)
    first, _, theirs, _, last, _ = model.compile("cpu").get_weights()
    for name, drawn, shape in (("dense", first, (5, 7)), ("dense_2", last, (6, 4))):
        want = zt.initializers.HeNormal()(shape, stream(3, f"{name}/kernel"))
        np.testing.assert_array_equal(drawn, want.astype(np.float32))
    want = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    np.testing.assert_array_equal(theirs, want)
    assert threads == ["MainThread"]
