"""Loops that nothing looks into are computed in parts of one structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import realize
from ztorch.arrays.long_loops import compute_iterations
from ztorch.arrays.recording import MAX_DEPTH

pytestmark = pytest.mark.usefixtures("by_numpy")

START = np.random.default_rng(0).uniform(-1, 1, (3, 4))
Iteration = Callable[[Any, list[Any], Any], list[Any]]  # the functions, what a loop carries, a constant


def pendulums(f: Any, state: list[Any], x: Any) -> list[Any]:
    """Two tensors are carried, and a term depends on neither."""
    angle, speed = state
    speed = speed - 0.1 * f.sin(2 * angle) * f.exp(-x * x)
    return [angle + 0.1 * speed, speed]


def sums(f: Any, state: list[Any], x: Any) -> list[Any]:
    """The same call follows itself inside an iteration."""
    [y] = state
    total = y + x + x + x + x
    return [f.sin(total) / 2 + f.max(y)]


@pytest.mark.parametrize("iteration", [pendulums, sums])
def test_loops_of_any_length_compile_few_programs(iteration: Iteration, monkeypatch: pytest.MonkeyPatch) -> None:
    structures: set[Any] = set()
    find = realize.program_for
    monkeypatch.setattr(realize, "program_for", lambda key, slots, code: (
        structures.add((key, slots)), find(key, slots, code))[1])

    def looped(f: Any, x: Any, count: int) -> list[Any]:
        state = [x, x * 0.5][:2 if iteration is pendulums else 1]
        for _ in range(count):
            state = iteration(f, state, x)
        return state

    depth = 5  # of an iteration, at least
    for count in (2 * MAX_DEPTH // depth, 2 * MAX_DEPTH // depth + 1, 6 * MAX_DEPTH // depth):
        structures.clear()
        got = looped(zt.ops, zt.tensor(START, device="cpu"), count)
        for y, want in zip(got, looped(np, START, count), strict=True):
            np.testing.assert_allclose(y.numpy(), want, rtol=1e-9, atol=1e-12)
        assert len(structures) <= 3, len(structures)  # the first part, those between, the rest


def test_chains_without_iterations_run_together() -> None:
    x, random = zt.tensor(START, device="cpu"), np.random.default_rng(1)
    y, want = x, START
    for k in random.integers(0, 4, 3 * MAX_DEPTH):
        name = ("sin", "cos", "tanh", "abs")[k]
        y, want = getattr(zt.ops, name)(y), getattr(np, name)(want)
        assert y.node.depth <= MAX_DEPTH + 1
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-9)


def test_referenced_tensors_survive() -> None:
    x = zt.tensor(START, device="cpu")
    seen, want, y = [], [], START
    for k in range(MAX_DEPTH):
        x, y = zt.ops.sin(x * 2.0) + 1.0, np.sin(y * 2.0) + 1.0
        if k % 7 == 0:
            seen.append(x)
            want.append(y)
    for got, true in zip(seen, want, strict=True):
        np.testing.assert_allclose(got.numpy(), true, rtol=1e-7)


def test_depths_are_counted_again() -> None:
    """A short chain that began at a deep tensor is short once that one is computed."""
    y, nodes = zt.tensor([0.5], device="cpu"), []
    for _ in range(60):
        y = y * 0.5
        nodes.append(y.node)
    for node in nodes:
        node.depth += MAX_DEPTH - 60
    assert compute_iterations([y.node]) == y.node.depth == 60
    assert all(node.block is None for node in nodes)
