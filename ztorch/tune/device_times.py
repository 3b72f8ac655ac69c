"""Times the launches of a function on a GPU of this machine, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter

import numpy as np

from ztorch.backends.handles import Launch
from ztorch.compile import pipeline
from ztorch.errors import Unsupported
from ztorch.graph.value import Graph
from ztorch.performance.step import FunctionPrediction
from ztorch.runtime.remote import Remote, RemoteCall
from ztorch.work_line import at

BLOCK_SECONDS = 2e-3  # that repeated launches should take, beside which the start does not count
MOST_REPEATS = 200
TURNS = 3  # of which the median counts


def measured(predicted: FunctionPrediction, graph: Graph, device: str) -> FunctionPrediction:
    """A prediction with what a GPU of this machine takes: each kernel, and the whole function on
    random inputs that are there already."""
    name = predicted.name
    call = pipeline.build({name: graph}, device, name).bind(name)
    if not isinstance(call, RemoteCall):
        raise Unsupported(f"{device} runs no recorded launches")
    _fill(call.inputs)
    call()
    whole = _seconds(lambda: call.ports.device.run(call.ports.recording), call)
    kernels = zip(predicted.kernels, launch_seconds(call), strict=True)
    return replace(predicted, measured_seconds=whole, kernels=tuple(
        replace(k, measured_seconds=seconds) for k, seconds in kernels))


def launch_seconds(call: RemoteCall) -> list[float]:
    """Seconds of each launch of a function, from its start to that of the next one, which waits for
    it. Weights are set back afterwards."""
    function, program = call.function, call.program
    assert isinstance(program, Remote)
    weights = program.params
    known: dict[tuple[int, tuple[int, ...]], float] = {}
    seconds: dict[int, float] = {}
    for k, launch in program.launches(function, call.ports.places):
        if k not in seconds:  # else a later turn of a loop
            at(f"measure kernel {k + 1}", k, len(function.launches))
            alike = launch.entry, launch.grid
            if alike not in known:
                known[alike] = _alone(call, program, launch._replace(barrier=True))
            seconds[k] = known[alike]
    program.write_params(weights)
    return [seconds[k] for k in range(len(function.launches))]


def _alone(call: RemoteCall, program: Remote, launch: Launch) -> float:
    device = call.ports.device

    def seconds(count: int) -> float:
        recording = device.record(program.module, (launch,) * count)
        try:
            return _seconds(lambda: device.run(recording), call)
        finally:
            device.drop(recording)

    one = seconds(1)
    count = min(MOST_REPEATS, max(2, round(BLOCK_SECONDS / one)))
    return max(0.0, seconds(1 + count) - one) / count


def _seconds(run: Callable[[], object], call: RemoteCall) -> float:
    times = []
    for _ in range(TURNS + 1):  # the first does not count: it may bring code to the device
        begun = perf_counter()
        run()
        call.ports.device.synchronise()
        times.append(perf_counter() - begun)
    return median(times[1:])


def _fill(inputs: Mapping[str, np.ndarray]) -> None:
    """Random numbers: zeros need less power, so that clocks would be higher."""
    random = np.random.default_rng(0)
    for array in inputs.values():
        if array.dtype.kind == "f":
            array[...] = random.random(array.shape, np.float32)
