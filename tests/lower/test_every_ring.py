"""Rings of workgroups with roles, of products, convolutions, attention and its gradients: none comes to a standstill,
however many tiles, strips or blocks pass through it, and whichever role is ahead.

The first counts are played, until a count of each remainder of the period has a run that repeats itself. Kernels of larger
counts are then compared with what these runs tell of them: a few counts up to a thousand, others each day, or all of them
in a full run."""

from __future__ import annotations

import itertools

import pytest

from tests.cases.covering import share, today
from tests.cases.ring_kernels import RINGS, shared_tiles
from tests.cases.ring_schedules import Cut, Sequence, cuts, play, pumped, sequences

LONGEST = 1000
SHARE = 500  # of all counts, how many one stands for in a run that is not full
MOST_PLAYED = 100  # counts: a run repeats itself by then

Repeated = tuple[list[Sequence], list[Cut]]  # a run, and where it repeats itself


def repeated(threads: list[Sequence], longer: list[Sequence], loops: int) -> list[Repeated]:
    """Of threads that are played, the first ahead and then the last, where both runs repeat themselves; else none."""
    growth = [len(b) - len(a) for (_, a), (_, b) in zip(threads, longer, strict=True)]
    runs = []
    for last_first in (False, True):
        error, moments = play(threads, last_first)
        assert not error, error
        runs.append((threads, cuts(moments, growth, loops)))
    return runs if all(pumped(threads, where, 1) == longer for _, where in runs) else []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RINGS)
def test_no_ring_deadlocks(name: str) -> None:
    kernels, period, loops = RINGS[name]
    bases: dict[int, tuple[int, list[list[Repeated]]]] = {}  # a count of each remainder, and the runs of its kernels
    for count in itertools.count(1):
        if count % period not in bases:
            short, long = ([sequences(k) for k in kernels(n)] for n in (count, count + period))
            runs = [repeated(*pair, loops) for pair in zip(short, long, strict=True)] if short else [[]]
            if all(runs):
                bases[count % period] = count, runs
        elif len(bases) == period:
            break
        assert count < MOST_PLAYED, f"no run repeats itself for {set(range(period)) - set(bases)} of {period}"
    for count in {LONGEST, *share(range(1, LONGEST + 1), today(), SHARE)}:
        base, runs = bases[count % period]
        if count > base:
            for kernel, both in zip(kernels(count), runs, strict=True):
                threads = sequences(kernel)
                for shorter, where in both:
                    assert threads == pumped(shorter, where, (count - base) // period), f"{kernel.name} of {count}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("stages", "teams", "strips", "cluster", "clusters"), [
    (2, 1, 3, 1, 4), (3, 2, 5, 1, 7), (3, 1, 8, 2, 3), (2, 2, 2, 1, 2)])
def test_no_shared_tiles_deadlock(stages: int, teams: int, strips: int, cluster: int, clusters: int) -> None:
    """All workgroups, which wait for one another. Shares differ from count to count, so each count is played whose
    tiles do not fill whole rounds: the small ones, a few of up to a thousand, others each day, or all in a full run."""
    small = range(1, clusters + 2)
    for count in {*small, *share(range(1, LONGEST + 1), today(), SHARE)}:
        rounds = count // clusters
        for whole in {0, max(0, rounds - 1)} if count in small else [count % 2 * max(0, rounds - 1)]:
            groups = clusters if whole else min(clusters, count * strips)
            if groups > 1 and count % groups:
                threads = sequences(shared_tiles(stages, teams, strips, cluster, clusters, count, whole))
                for last_first in (False, True):
                    assert not play(threads, last_first, remembered=False)[0], f"{count} tiles, {whole} whole"
