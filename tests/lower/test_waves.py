"""Waves of kernels: few of them, in an order that is allowed, with memory of their own."""

from __future__ import annotations

import random

import pytest

from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.order import copies_of, ordered
from ztorch.lower.placement import Placement
from ztorch.lower.waves import bounds, in_waves

Case = tuple[dict[int, set[int]], dict[int, set[Value]], dict[int, list[Value]]]


def graph_of(seed: int) -> Case:
    """Regions that each write a value, and read those of a few before them."""
    rng = random.Random(seed)
    made = [leaf("input", f"v{k}", (rng.choice((4, 64, 1 << 16)),), f32) for k in range(40)]
    needs = {k: {rng.randrange(max(0, k - 8), k) for _ in range(rng.randint(0, 2))} if k else set() for k in range(40)}
    return needs, {k: {made[h] for h in needs[k]} for k in needs}, {k: [made[k]] for k in needs}


def depth(order: list[int], needs: dict[int, set[int]]) -> int:
    values = {k: f"v{k}" for k in order}
    starts = {first for first, _ in bounds([[values[h] for h in needs[k]] for k in order], [[values[k]] for k in order])}
    return len(starts)


def longest(needs: dict[int, set[int]]) -> int:
    length: dict[int, int] = {}
    for k in sorted(needs):
        length[k] = 1 + max((length[h] for h in needs[k]), default=0)
    return max(length.values())


@pytest.mark.parametrize("seed", range(5))
def test_as_few_waves_as_the_longest_chain(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    needs, reads, writes = graph_of(seed)
    before = ordered(needs, reads, writes)
    late = copies_of(needs, reads, writes, ())
    monkeypatch.setattr("ztorch.lower.waves.WAVES_MEMORY", 1000)
    order = in_waves(before, needs, reads, writes, late)
    assert sorted(order) == sorted(needs)
    place = {k: at for at, k in enumerate(order)}
    assert all(place[h] < place[k] for k in needs for h in needs[k])
    assert longest(needs) <= depth(order, needs) <= longest(needs) + bool(late) < depth(before, needs)


def test_late_regions_come_before_their_first_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztorch.lower.waves.WAVES_MEMORY", 1000)
    made = [leaf("input", f"v{k}", (4,), f32) for k in range(5)]
    needs = {0: set(), 1: set(), 2: {1}, 3: {2}, 4: {0, 3}}
    reads = {k: {made[h] for h in needs[k]} for k in needs}
    assert in_waves(range(5), needs, reads, {k: [made[k]] for k in needs}, {0}) == [1, 2, 0, 3, 4]


def test_memory_comes_first() -> None:
    """Eight large values, each read by the next region: computed at once, they would be alive at once."""
    made = [leaf("input", f"v{k}", (1 << 12,), f32) for k in range(24)]
    needs = {k: {k - 1} if k % 3 else set() for k in range(24)}
    reads = {k: {made[h] for h in needs[k]} for k in needs}
    order = list(range(24))
    assert in_waves(order, needs, reads, {k: [made[k]] for k in needs}, ()) == order


def test_kernels_of_a_wave_share_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three products and their gradients: where the arena's reuse asked for barriers, there are none."""
    x = leaf("input", "x", (96, 64), f32)
    weights = [leaf("state", f"w{k}", (64, 64), f32) for k in range(3)]
    h = x
    for w in weights:
        h = ops.relu(ops.matmul(h, w))
    found = gradients(ops.sum(h * h), weights)
    graph = Graph({"loss": ops.sum(h * h)}, {w.attrs["name"]: w - 0.1 * g for w, g in zip(weights, found, strict=True)})
    def waits() -> int:
        return sum(step.barrier for step in plan_of(graph, target("cuda:sm_90").limits)[0].steps)

    apart = waits()
    monkeypatch.setattr(Placement, "_lives", lambda placement: [(k, k) for k in range(len(placement.regions))])
    assert apart < waits()
