"""Rings of workgroups with roles, of products, convolutions, attention and its gradients: none comes to a standstill,
however many tiles, strips or blocks pass through it, and whichever role is ahead. A full run plays every count up to a
thousand; others the first ones and a few that change from day to day."""

from __future__ import annotations

import pytest

from tests.cases.covering import share, today
from tests.cases.ring_kernels import RINGS
from tests.cases.ring_schedules import played

LONGEST = 1000
FIRST = {1, 2, 3, 4}
SHARE = 500  # of all counts, how many one stands for in a run that is not full


def plays(name: str, count: int) -> None:
    kernels, ahead = RINGS[name]
    for kernel in kernels(count):
        for last_first in (False, True):
            said = played(kernel, last_first, ahead)
            assert not said, f"{kernel.name} of {count}: {said}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RINGS)
def test_no_ring_deadlocks(name: str) -> None:
    for count in sorted(FIRST | {*share(range(1, LONGEST + 1), today(), SHARE)}):
        plays(name, count)
