"""Checks the loops of a function that was read from a file."""

from __future__ import annotations

from ztorch.files.kinds import BadValue
from ztorch.runtime.spec import FunctionSpec

MAX_RUNS = 1 << 22  # runs of kernels in one call on a device, each of which is recorded
MAX_BINDINGS = 1 << 24  # buffers of all these runs, which are recorded too
MAX_DEPTH = 8  # nested loops


def check_loops(f: FunctionSpec, backend: str) -> None:
    """Raises `BadValue` if loops overlap without nesting or run too long, or if moves name a place
    or a loop that does not exist. The time is linear in the length of the lists."""
    around = loops_around(f, len(f.kernels if backend == "cpu" else f.launches))
    if f.launches:
        _check_runs(f)
    moves: set[tuple[int, int, int]] = set()
    for k, (launch, place, loop, _) in enumerate(f.moves):
        if launch >= len(f.launches):
            raise BadValue(launch, f"the number of one of {len(f.launches)} launches",
                           "moves", k, 0)
        places = f.launches[launch].places
        if place >= len(places):
            raise BadValue(place, f"the number of one of {len(places)} places of launch {launch}",
                           "moves", k, 1)
        if loop not in around[launch]:
            raise BadValue(loop, f"the number of a loop around launch {launch}", "moves", k, 2)
        if places[place][0] not in ("params", "arena"):
            raise BadValue(place, "a place in params or the arena", "moves", k, 1)
        if (launch, place, loop) in moves:
            raise BadValue([launch, place, loop], "moved once by each loop", "moves", k)
        moves.add((launch, place, loop))


def loops_around(f: FunctionSpec, count: int) -> list[tuple[int, ...]]:
    """The loops around each kernel of a function, outer ones first. Raises `BadValue` if loops
    overlap without nesting, are not in order, or are nested too deep."""
    for k, (first, end, _) in enumerate(f.loops):
        if not first < end <= count:
            raise BadValue(end, f"above {first}, and at most {count}", "loops", k, 1)
        if k and (first, -end) < (f.loops[k - 1][0], -f.loops[k - 1][1]):
            raise BadValue(first, "after the loops before it, outer ones first", "loops", k, 0)
    around: list[tuple[int, ...]] = []
    inside: tuple[int, ...] = ()  # the loops around the current kernel
    following = 0  # number of the next loop
    for k in range(count):
        while inside and f.loops[inside[-1]][1] == k:
            inside = inside[:-1]
        while following < len(f.loops) and f.loops[following][0] == k:
            end = f.loops[following][1]
            if inside and end > (last := f.loops[inside[-1]][1]):
                raise BadValue(end, f"at most {last}, where loop {inside[-1]} around it ends",
                               "loops", following, 1)
            if len(inside) == MAX_DEPTH:
                raise BadValue(list(f.loops[following]), f"inside at most {MAX_DEPTH - 1} others",
                               "loops", following)
            inside = (*inside, following)
            following += 1
        around.append(inside)
    return around


def _check_runs(f: FunctionSpec) -> None:
    """Checks that the recording of a call fits into memory."""
    times = f.times()
    if (runs := sum(times)) > MAX_RUNS:
        raise BadValue(runs, f"at most {MAX_RUNS} runs of kernels", "loops")
    bindings = sum(n * len(launch.places) for n, launch in zip(times, f.launches, strict=True))
    if bindings > MAX_BINDINGS:
        raise BadValue(bindings, f"at most {MAX_BINDINGS} memories of all runs of kernels", "loops")
