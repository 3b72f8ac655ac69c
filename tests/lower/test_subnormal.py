"""Subnormal numbers: loops write zeros for them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.parity import HERE, C, Job, Module
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

TENTH = np.float32(0.1)


def decayed(turns: int, step: Callable[[Value], Value]) -> Job:
    """Ones that each turn makes ten times smaller."""
    x = leaf("input", "x", (3, 3), f32)
    y, _ = ops.scan(lambda state, _: (step(state), None), x, None, turns)
    return Job(Graph({"y": y}), {x: np.ones((3, 3))})


def by_product(state: Value) -> Value:
    return state @ ops.full((3, 3), TENTH / 3)


def by_element(state: Value) -> Value:
    return state * TENTH


@pytest.mark.parametrize("machine", ["scalar", *HERE[-1:], *C])
def test_only_loops_flush(machine: str) -> None:
    a, b = (leaf("input", name, (3,), f32) for name in "ab")
    jobs = [decayed(turns, step) for step in (by_product, by_element) for turns in (37, 41)]
    jobs.append(Job(Graph({"y": a * b}), {a: np.full(3, 1e-30), b: np.full(3, 1e-11)}))
    module = Module(jobs, machine)
    for threads in (1, 2):
        results = [module.run(k, threads)[0] for k in range(len(jobs))]
        for k in (0, 2):
            np.testing.assert_allclose(results[k], 1e-37, rtol=1e-4)
            np.testing.assert_array_equal(results[k + 1], 0)
        np.testing.assert_allclose(results[4], 1e-41, rtol=1e-4)  # without a loop all is as ever
    assert TENTH * np.float32(1e-38) > 0  # the thread that called computes as before, too
