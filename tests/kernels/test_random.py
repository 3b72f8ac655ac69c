"""Random kernels: the same results as plain Python, translated and on every machine."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest

from tests.cases.available import COMPUTING
from tests.cases.covering import full
from tests.cases.device_programs import all_agree
from tests.cases.grouping import together
from tests.kernels.random_overlaps import OverlapWriter
from tests.kernels.random_planes import PlaneWriter
from tests.kernels.random_sources import Writer, arguments, random_kernel
from tests.kernels.random_strides import StridedWriter
from tests.kernels.random_threads import random_thread_kernel, thread_arguments
from tests.kernels.random_values import WideWriter
from tests.parity import HERE, NARROW, C, Job, Module, agree, interpreted
from ztorch import ops
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value

# ZTORCH_RANDOM_KERNELS=1000 has that many run on each machine, for half an hour or so.
COMPILED = int(os.environ.get("ZTORCH_RANDOM_KERNELS", 0)) or (40 if full() else 10)
TRANSLATED = max(COMPILED, 1000 if full() else 120)  # kernels that are compared with plain Python
THREADED = max(COMPILED // 2, 200 if full() else 24)  # kernels of threads
WIDE = max(COMPILED // 2, 300 if full() else 24)  # kernels of slices, pairs and ops
OTHERS = (WideWriter, StridedWriter, OverlapWriter, PlaneWriter)
FIRST = int(os.environ.get("ZTORCH_RANDOM_FIRST", 0))  # added to each seed, for kernels not seen yet
TOGETHER = 60  # kernels of one program
ONCE_WRONG = (75, 187, 3811, 5201, 5786, 5926, 80084)  # that no longer are


def _job(seed: int, floats: str, writer: type[Writer] = Writer) -> Job:
    """A random kernel as a graph, with arguments."""
    kernel, _ = random_kernel(seed, writer)
    arrays = [a.astype(floats) if a.dtype.kind == "f" else a for a in arguments(seed)]
    inputs = {n: leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xyp", arrays, strict=True)}
    results = kernel.trace(inputs)
    feeds: dict[Value, np.ndarray] = dict(zip(inputs.values(), arrays, strict=True))
    return Job(Graph({f"y{k}": y for k, y in enumerate(results)}), feeds, f"random kernel {seed} {writer.__name__}")


SEEDS = [*((seed, Writer) for seed in range(FIRST, FIRST + TRANSLATED)),
         *((seed, writer) for seed in range(FIRST, FIRST + WIDE) for writer in OTHERS)]


@together(by=lambda seed, writer: str(seed % 4))
@pytest.mark.parametrize(("seed", "writer"), SEEDS)
def test_translated(seed: int, writer: type[Writer]) -> None:
    kernel, source = random_kernel(seed, writer)
    arrays = arguments(seed)
    inputs = [leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xyp", arrays, strict=True)]
    results = evaluate(kernel.trace(dict(zip("xyp", inputs, strict=True))),
                       dict(zip(inputs, arrays, strict=True)))
    for y, expected in zip(results, kernel.debug(*arrays), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-9, err_msg=source)


@together(by=lambda seed, writer: writer.__name__)
@pytest.mark.parametrize(("seed", "writer"), [
    (seed, writer) for seed, writer in SEEDS if seed - FIRST < WIDE and (
        writer is not Writer or seed % 4 < 3)])  # loops with bounds that are data need max_steps
def test_gradients(seed: int, writer: type[Writer]) -> None:
    """Along a direction, beside finite differences."""
    kernel, source = random_kernel(seed, writer)
    arrays, random, h = arguments(seed), np.random.default_rng(seed), 1e-6
    inputs = [leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xyp", arrays, strict=True)]
    results = kernel.trace(dict(zip("xyp", inputs, strict=True)))
    weights = {k: random.normal(size=y.shape) for k, y in enumerate(results) if y.dtype.is_float}
    total = functools.reduce(ops.add, [ops.sum(results[k] * constant(w)) for k, w in weights.items()])
    way = [random.normal(size=a.shape) for a in arrays[:2]]
    near = [kernel.debug(*(a + s * h * d for a, d in zip(arrays, way, strict=False)), arrays[2]) for s in (1, -1)]
    ends = [sum((ys[k] * w).sum() for k, w in weights.items()) for ys in near]
    slopes = evaluate(gradients(total, inputs[:2]), dict(zip(inputs, arrays, strict=True)))
    slope = sum((g * d).sum() for g, d in zip(slopes, way, strict=True))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=2e-4, atol=2e-4, err_msg=source)


def _thread_job(seed: int, floats: str) -> Job:
    """A random kernel of threads as a graph, with arguments."""
    arrays = thread_arguments(seed, floats)
    inputs = {n: leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xp", arrays, strict=True)}
    results = random_thread_kernel(seed)[0].trace(inputs)
    feeds: dict[Value, np.ndarray] = dict(zip(inputs.values(), arrays, strict=True))
    return Job(Graph({f"y{k}": y for k, y in enumerate(results)}), feeds, f"random threads {seed}")


@together(by=lambda seed: str(seed % 4))
@pytest.mark.parametrize("seed", range(FIRST, FIRST + THREADED))
def test_threads(seed: int) -> None:
    """The interpreter plays all threads at once and finds races; plain Python one by one."""
    kernel, source = random_thread_kernel(seed)
    job = _thread_job(seed, "float64")
    for y, expected in zip(evaluate(job.graph.roots, job.feeds),
                           kernel.debug(*thread_arguments(seed, "float64")), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-9, err_msg=source)


@functools.cache
def _jobs(floats: str) -> list[Job]:
    seeds = dict.fromkeys([*range(FIRST + 5000, FIRST + 5000 + COMPILED), *ONCE_WRONG])
    return [*(_job(seed, floats) for seed in seeds),
            *(_job(seed, floats, writer) for seed in range(FIRST, FIRST + COMPILED // 2) for writer in OTHERS),
            *(_thread_job(seed, floats) for seed in range(FIRST, FIRST + COMPILED // 2))]


def _floats(machine: str) -> str:
    """Among many kernels, some take another branch where a float32 is rounded otherwise."""
    return "float32" if COMPILED <= TOGETHER or machine == "webgpu" else "float64"


@pytest.mark.timeout(3600 if COMPILED > TOGETHER else 300)
@pytest.mark.parametrize("level", [HERE[-1], *(pytest.param(n, marks=pytest.mark.slow) for n in (*HERE[:-1], *C))])
def test_compiled(level: str) -> None:
    jobs = _jobs(_floats(level))
    for first in range(0, len(jobs), TOGETHER):
        module = Module(jobs[first:first + TOGETHER], level)
        for k, job in enumerate(jobs[first:first + TOGETHER]):
            agree(job, module.run(k), terms=50)


@pytest.mark.slow
def test_interpreted() -> None:
    """With checks of bounds, races and reads of uninitialized elements."""
    for job in _jobs("float64"):
        agree(job, interpreted(job, NARROW, workers=2), terms=50)


@pytest.mark.slow
@pytest.mark.timeout(3600 if COMPILED > TOGETHER else 300)
@pytest.mark.parametrize("backend", COMPUTING)
def test_on_devices(backend: str) -> None:
    jobs = _jobs(_floats(backend))
    some = jobs if COMPILED > TOGETHER else jobs[::2]
    for first in range(0, len(some), TOGETHER):
        all_agree(backend, some[first:first + TOGETHER])
