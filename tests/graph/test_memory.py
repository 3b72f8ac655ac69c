"""The memory plan: nothing overlaps, everything is aligned, little is wasted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ztorch.graph.memory import ArenaBuffer, lower_bound, plan


@st.composite
def buffers(draw: st.DrawFn) -> list[ArenaBuffer]:
    rows = draw(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12),
                                   st.sampled_from((1, 16, 64, 256))), max_size=30))
    return [ArenaBuffer(f"b{k}", size, first, first + more, align)
            for k, (size, first, more, align) in enumerate(rows)]


@settings(max_examples=200, deadline=None)
@given(buffers())
def test_live_buffers_never_overlap_and_are_aligned(found: list[ArenaBuffer]) -> None:
    offsets, total = plan(found)
    assert set(offsets) == {b.id for b in found}
    assert total == max((offsets[b.id] + b.size for b in found), default=0) >= lower_bound(found)
    for k, a in enumerate(found):
        assert offsets[a.id] >= 0 and offsets[a.id] % a.align == 0
        for b in found[:k]:
            together = a.first <= b.last and b.first <= a.last
            apart = (offsets[a.id] + a.size <= offsets[b.id]
                     or offsets[b.id] + b.size <= offsets[a.id])
            assert apart or not together or not a.size or not b.size
    assert plan(found) == (offsets, total)


def _training(layers: int, rng: random.Random) -> list[ArenaBuffer]:
    """Activations that wait for the backward pass, and gradients that do not wait at all."""
    kept = [ArenaBuffer(("a", k), rng.randrange(1, 10**6), k, 2 * layers - k) for k in range(layers)]
    brief = [ArenaBuffer(("g", k), rng.randrange(1, 10**6), layers + k, layers + k + 1)
             for k in range(layers)]
    return kept + brief


def _random(rng: random.Random) -> list[ArenaBuffer]:
    count = rng.choice((10, 50, 150))
    return [ArenaBuffer(k, int(2 ** rng.uniform(2, 20)), k,
                        k + (rng.randrange(1, 8) if rng.random() < 0.7 else rng.randrange(1, count)))
            for k in range(count)]


def test_little_is_wasted() -> None:
    spare = []
    for seed in range(25):
        rng = random.Random(seed)
        result = _random(rng) if seed % 2 else _training(rng.choice((5, 40)), rng)
        padded = [ArenaBuffer(b.id, -(-b.size // 64) * 64, b.first, b.last) for b in result]
        spare.append(plan(result)[1] / lower_bound(padded))
    assert max(spare) < 1.1 and sum(spare) / len(spare) < 1.02


def test_a_chain_needs_two_buffers() -> None:
    actual = [ArenaBuffer(k, 1000, k, k + 1, 1) for k in range(20)]
    assert plan(actual)[1] == 2000


def test_nothing_needs_nothing() -> None:
    assert plan([]) == ({}, 0)
    assert plan([ArenaBuffer("empty", 0, 0, 9)]) == ({"empty": 0}, 0)


@pytest.mark.parametrize("wrong", [[ArenaBuffer("a", 1, 0, 1), ArenaBuffer("a", 1, 0, 1)],
                                   [ArenaBuffer("a", -1, 0, 1)], [ArenaBuffer("a", 1, 2, 1)]])
def test_nonsense_is_refused(wrong: list[ArenaBuffer]) -> None:
    with pytest.raises(ValueError, match="buffer"):
        plan(wrong)
