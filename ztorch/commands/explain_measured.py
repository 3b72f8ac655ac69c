"""Measures kernels on a GPU of this machine, to compare predictions with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ztorch.compile import pipeline
from ztorch.errors import Unsupported
from ztorch.graph.value import Graph
from ztorch.performance.step import FunctionPrediction
from ztorch.runtime.launch_times import call_seconds, launch_seconds
from ztorch.runtime.remote import RemoteCall


def measured(predicted: FunctionPrediction, graph: Graph, device: str) -> FunctionPrediction:
    """Adds the measured times of each kernel and of the whole function to a prediction. They are
    measured on a GPU of this machine, on random inputs in device memory."""
    name = predicted.name
    call = pipeline.build({name: graph}, device, name).bind(name)
    if not isinstance(call, RemoteCall):
        raise Unsupported(f"{device} runs no recorded launches")
    _fill(call.inputs)
    call()
    seconds_of_call = call_seconds(lambda: call.ports.device.run(call.ports.recording), call)
    kernels = zip(predicted.kernels, launch_seconds(call), strict=True)
    return replace(predicted, measured_seconds=seconds_of_call, kernels=tuple(
        replace(k, measured_seconds=seconds) for k, seconds in kernels))


def _fill(inputs: Mapping[str, np.ndarray]) -> None:
    """Fills inputs with random numbers: with zeros, a GPU needs less power and runs faster."""
    random = np.random.default_rng(0)
    for array in inputs.values():
        if array.dtype.kind == "f":
            array[...] = random.random(array.shape, np.float32)
