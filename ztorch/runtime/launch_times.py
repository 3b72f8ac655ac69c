"""Times the launches of a function on a device, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

from ztorch.backends.handles import Launch
from ztorch.runtime.remote import Remote, RemoteCall
from ztorch.work_line import at

BLOCK_SECONDS = 2e-3  # that repeated launches should take, beside which the start does not count
MOST_REPEATS = 200
ROUNDS = 3  # measurements, whose median is the result


def launch_seconds(call: RemoteCall) -> list[float]:
    """Seconds of each launch of a function, from its start to that of the next one, which waits for
    it. Weights are restored afterwards."""
    function, program = call.function, call.program
    assert isinstance(program, Remote)
    weights = program.params
    known: dict[tuple[int, tuple[int, ...]], float] = {}
    seconds: dict[int, float] = {}
    for k, launch in program.launches(function, call.ports.places):
        if k not in seconds:  # else a later iteration of a loop
            at(f"measure kernel {k + 1}", k, len(function.launches))
            key = launch.entry, launch.grid
            if key not in known:
                known[key] = _alone(call, program, launch._replace(barrier=True))
            seconds[k] = known[key]
    program.write_params(weights)
    return [seconds[k] for k in range(len(function.launches))]


def _alone(call: RemoteCall, program: Remote, launch: Launch) -> float:
    device = call.ports.device

    def seconds(count: int) -> float:
        recording = device.record(program.module, (launch,) * count)
        try:
            return call_seconds(lambda: device.run(recording), call)
        finally:
            device.drop(recording)

    one = seconds(1)
    count = min(MOST_REPEATS, max(2, round(BLOCK_SECONDS / one)))
    return max(0.0, seconds(1 + count) - one) / count


def call_seconds(run: Callable[[], object], call: RemoteCall) -> float:
    """Seconds of work on a device, from its submission to its end."""
    times = []
    for _ in range(ROUNDS + 1):  # the first does not count: it may bring code to the device
        begun = perf_counter()
        run()
        call.ports.device.synchronise()
        times.append(perf_counter() - begun)
    return median(times[1:])
