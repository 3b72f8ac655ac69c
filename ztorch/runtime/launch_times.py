"""Measures the time of each launch of a function on a device."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

from ztorch.backends.handles import Launch
from ztorch.runtime.remote import Remote, RemoteCall
from ztorch.terminal.work_line import at

BLOCK_SECONDS = 2e-3  # duration of repeated launches, long enough to hide the cost of their start
MAX_REPEATS = 200  # launches of one measurement
ROUNDS = 3  # measurements; the result is their median


def launch_seconds(call: RemoteCall) -> list[float]:
    """The seconds of each launch of a function, from its start to the start of the next one, which
    waits for it. Restores the weights afterwards."""
    function, program = call.function, call.program
    assert isinstance(program, Remote)
    weights = program.params
    measured: dict[tuple[int, tuple[int, ...]], float] = {}  # by kernel and grid
    seconds: dict[int, float] = {}
    try:
        for k, launch in program.launches(function, call.ports.places):
            if k not in seconds:  # else it is a later iteration of a loop
                at(f"measure kernel {k + 1}", k, len(function.launches))
                key = launch.entry, launch.grid
                if key not in measured:
                    measured[key] = _seconds(call, program, launch._replace(barrier=True))
                seconds[k] = measured[key]
    finally:  # also after Ctrl-C
        program.write_params(weights)
    return [seconds[k] for k in range(len(function.launches))]


def _seconds(call: RemoteCall, program: Remote, launch: Launch) -> float:
    """The seconds of one launch."""
    device = call.ports.device

    def repeated(count: int) -> float:
        recording = device.record(program.module, (launch,) * count)
        try:
            return call_seconds(lambda: device.run(recording), call)
        finally:
            device.drop(recording)

    single = repeated(1)
    count = min(MAX_REPEATS, max(2, round(BLOCK_SECONDS / single)))
    total = repeated(1 + count)
    if total <= single:  # other work on the machine delayed the single one
        return total / (1 + count)
    return (total - single) / count


def call_seconds(run: Callable[[], object], call: RemoteCall) -> float:
    """The seconds of work on a device, from its submission to its end."""
    times = []
    for _ in range(ROUNDS + 1):  # the first is not counted: it may load code to the device
        start = perf_counter()
        run()
        call.ports.device.synchronize()
        times.append(perf_counter() - start)
    return median(times[1:])
