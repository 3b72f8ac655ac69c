"""Checks the loops of a function that was read from a file, before anything runs by them."""

from __future__ import annotations

import itertools

from ztorch.files.kinds import BadValue
from ztorch.runtime.spec import FunctionSpec

MAX_RUNS = 1 << 22  # of kernels in one call on a device, where each is recorded
MAX_DEPTH = 8  # of loops inside one another


def check_loops(f: FunctionSpec, backend: str) -> None:
    """Raises `BadValue` where loops cross one another, or move what is not there."""
    count = len(f.kernels if backend == "cpu" else f.launches)
    for k, (first, end, _) in enumerate(f.loops):
        if not first < end <= count:
            raise BadValue(end, f"above {first}, and at most {count}", "loops", k, 1)
        if k and (first, -end) < (f.loops[k - 1][0], -f.loops[k - 1][1]):
            raise BadValue(first, "after the loops before it, outer ones first", "loops", k, 0)
    for (k, (a, b, _)), (n, (c, d, _)) in itertools.combinations(enumerate(f.loops), 2):
        if a < c < b < d:
            raise BadValue(d, f"at most {b}, where loop {k} around it ends", "loops", n, 1)
    if any(len(around(f, k)) > MAX_DEPTH for k in range(count)):
        raise BadValue([list(row) for row in f.loops], f"at most {MAX_DEPTH} inside one another",
                       "loops")
    if f.launches and f.runs > MAX_RUNS:
        raise BadValue(f.runs, f"at most {MAX_RUNS} runs of kernels", "loops")
    for k, (launch, place, loop, _) in enumerate(f.moves):
        if launch >= len(f.launches) or place >= len(f.launches[launch].places):
            raise BadValue([launch, place], "a place of a launch", "moves", k)
        if loop not in around(f, launch):
            raise BadValue(loop, "the number of a loop around the launch", "moves", k, 2)
        if f.launches[launch].places[place][0] not in ("params", "arena"):
            raise BadValue(place, "a place in params or the arena", "moves", k, 1)


def around(f: FunctionSpec, kernel: int) -> list[int]:
    """The loops around a kernel, outer ones first."""
    return [n for n, (first, end, _) in enumerate(f.loops) if first <= kernel < end]
