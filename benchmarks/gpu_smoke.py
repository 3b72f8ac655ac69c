"""`python -m benchmarks.gpu --smoke`: in two minutes, whether devices do what programs ask of them.

Each step needs a little more of the driver than the one before. A step that fails says which call
of the driver failed, and the others go on. A step that hangs ends the run with the line of Python
that waits.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from benchmarks.gpu_cases import resident
from benchmarks.gpu_predictions import predicted_seconds
from benchmarks.programs import fill
from benchmarks.report import duration
from ztorch.backends import registry
from ztorch.commands import verify
from ztorch.compile import pipeline
from ztorch.compile.targeting import target_for
from ztorch.dtypes import DType, bf16, f16, f32, from_storage, i32, to_storage
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rounding import bounded
from ztorch.graph.value import Graph, Value
from ztorch.lower import nests
from ztorch.runtime.devices import ListedDevice, library_versions, resolve
from ztorch.runtime.loaded_program import BoundCall
from ztorch.sources.find import find
from ztorch.verify.compare import compare

HANGS = 90.0  # seconds after which a step is taken to hang
STDERR = 2  # the descriptor of standard error
GPU_SIDE = 512  # rows and columns of large matrix products
IMITATED_SIDE = 64  # the same where a processor plays the GPU
REPEATS = 20  # of a call that is timed, of which the median counts


class SmokeStep(NamedTuple):
    """One step: what it asks of the driver, and a call that gives what is worth saying."""

    name: str
    run: Callable[[], str]


def smoke(devices: list[ListedDevice]) -> int:
    """Runs all steps on all devices, prints a line for each; 1 where a step failed."""
    failed = 0
    for d in devices:
        print(f"{d.id}: {d.name} ({d.kind}), {d.chip or 'no chip of ours'}, {d.driver}", flush=True)
        for step in steps(d):
            begun = perf_counter()
            faulthandler.dump_traceback_later(HANGS, exit=True, file=STDERR)
            try:
                said = step.run()
            except Unsupported as lack:
                said, word = str(lack), "lacks "
            except Exception as error:
                said, word = f"{type(error).__name__}: {error}", "FAILED"
                failed = 1
            else:
                word = "ok    "
            finally:
                faulthandler.cancel_dump_traceback_later()
            print(f"  {word} {duration(perf_counter() - begun):>8}  {step.name}"
                  f"{': ' * bool(said)}{' '.join(said.split())}", flush=True)
    return failed


def steps(d: ListedDevice) -> list[SmokeStep]:
    """From a buffer to a step of training; on a GPU also how long things take."""
    several = [SmokeStep("open, allocate, write, copy, read, free", partial(_memory, d)),
               SmokeStep("one kernel", partial(_agree, d, _plus(1))),
               SmokeStep("100 kernels that wait for one another", partial(_chain, d, 100))]
    is_gpu = d.kind != "cpu"
    side = GPU_SIDE if is_gpu else IMITATED_SIDE
    several += [SmokeStep(name, partial(_agree, d, make))
                for name, make in operations(side).items()]
    several.append(SmokeStep("digits_mlp: a prediction and two steps of training",
                             partial(_model, d, "digits_mlp", is_gpu)))
    for library, _ in library_versions(resolve(d.id).backend):
        what, make = CALLED[library]
        several += [SmokeStep(f"{what} of {dtype} by {library}, in a graph",
                              partial(_by_library, d, library, make(side, dtype)))
                    for dtype in (f32, f16, bf16)]
    if is_gpu:
        several += [SmokeStep(f"time of {name}", partial(_timed, d, make))
                    for name, make in TIMED.items()]
    return several


def _input(name: str, *shape: int, dtype: DType = f32) -> Value:
    return leaf("input", name, shape, dtype)


def _plus(count: int) -> Callable[[], Value]:
    def make() -> Value:
        y = _input("x", 1000)
        for _ in range(count):
            y = y + 1.0
        return y

    return make


def _product(n: int, dtype: DType) -> Callable[[], Value]:
    return lambda: OPS.matmul(_input("a", n, n, dtype=dtype), _input("b", n, n, dtype=dtype))


def _convolution(n: int, dtype: DType) -> Callable[[], Value]:
    side = n // 16
    return lambda: OPS.conv2d(_input("x", 16, side, side, side, dtype=dtype),
                              _input("w", 3, 3, side, 64, dtype=dtype))


# What each library computes.
CALLED: Mapping[str, tuple[str, Callable[[int, DType], Callable[[], Value]]]] = {
    "cublaslt": ("matrix product", _product), "cudnn": ("convolution", _convolution)}


def operations(side: int) -> dict[str, Callable[[], Value]]:
    """The operations that are compared with NumPy; `side` is that of large products."""
    return {
        "matrix product of float32, odd sizes": lambda: OPS.matmul(
            _input("a", 67, 129), _input("b", 129, 35)),
        "matrix product of float32, large tiles": _product(side, f32),
        "matrix product of float16 (matrix instructions, over 48 KiB of shared memory on CUDA)":
            _product(side, f16),
        "matrix product of bfloat16": _product(side, bf16),
        "softmax (shared memory and barriers)": lambda: OPS.softmax(_input("x", 33, 1000)),
        "sum in two steps": lambda: OPS.sum(_input("x", 1000, 300), axis=0),
        "convolution": lambda: OPS.conv2d(_input("x", 2, 9, 9, 8), _input("w", 3, 3, 8, 16),
                                          padding="same"),
        "attention": lambda: OPS.attention(*(_input(n, 1, 2, 40, 32) for n in "qkv")),
        "gather of rows": lambda: OPS.take(_input("x", 50, 20), _input("i", 30, dtype=i32),
                                           axis=0),
    }


TIMED: Mapping[str, Callable[[], Value]] = {
    "one launch": _plus(1),
    "a copy of 256 MiB": lambda: _input("x", 1 << 25) * 2.0,
    "a matrix product 4096 of float16": _product(4096, f16),
    "softmax of 65536x2048": lambda: OPS.softmax(_input("x", 1 << 16, 1 << 11)),
}


def _memory(d: ListedDevice) -> str:
    backend, _, ordinal = d.id.partition(":")
    device = registry.open_device(backend, int(ordinal))
    sent, back = np.arange(1 << 18, dtype=np.int32), np.zeros(1 << 18, np.int32)
    source, target = device.alloc(sent.nbytes), device.alloc(sent.nbytes)
    try:
        device.write(source, sent)
        device.copy(source, target, sent.nbytes)
        device.read(target, back)
        np.testing.assert_array_equal(back, sent)
    finally:
        device.free(source)
        device.free(target)
    free, whole = device.memory()
    return f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB free"


def _numbers(graph: Graph) -> dict[Value, np.ndarray]:
    random = np.random.default_rng(0)
    return {v: random.integers(0, 10, v.shape).astype(v.dtype.numpy) if v.dtype.is_int
            else to_storage(v.dtype, random.standard_normal(v.shape).astype(v.dtype.working))
            for v in graph.leaves("input")}


def _agree(d: ListedDevice, make: Callable[[], Value]) -> str:
    """A value on the device beside float64; an error where rounding does not explain it."""
    graph = Graph({"y": make()})
    return _error(graph, pipeline.build({"predict": graph}, d.id, "smoke").bind("predict"))


def _by_library(d: ListedDevice, library: str, make: Callable[[], Value]) -> str:
    """The same where another library computes the one kernel that it can."""
    place, graph = resolve(d.id), Graph({"y": make()})
    target = target_for(place).with_libraries(library_versions(place.backend))
    compiled = partial(pipeline.compile_functions, {"predict": graph}, target, "smoke")
    kernels = (s.region_kernel for s in compiled().plans["predict"].steps)
    keys = [k.key for k in kernels if k and nests.by_library(library, k.region, k.limits)]
    if not keys:
        raise Unsupported(f"{d.id}: {library} does not compute {graph.outputs['y']}")
    called = compiled(schedules=dict.fromkeys(keys, library))
    return _error(graph, pipeline.start(called.spec, called.code, called.params, None,
                                        place.ordinal).bind("predict"))


def _error(graph: Graph, bound: BoundCall) -> str:
    """The largest error of a call."""
    stored = _numbers(graph)
    fill(bound, {v.attrs["name"]: x for v, x in stored.items()})
    y = graph.outputs["y"]
    [(exact, most)] = bounded([y], {v: from_storage(v.dtype, x) for v, x in stored.items()})
    error = float(np.abs(from_storage(y.dtype, bound.outputs["y"]) - exact).max())
    if not error <= most:  # NaN is none
        raise ArithmeticError(f"an error of {error:.1e}, of which rounding explains {most:.1e}")
    return f"error {error:.1e}"


def _chain(d: ListedDevice, count: int) -> str:
    graph = {"predict": Graph({"y": _plus(count)()})}
    place = resolve(d.id)
    compiled = pipeline.compile_functions(graph, target_for(place), "chain", fusion=False)
    bound = pipeline.start(compiled.spec, compiled.code, compiled.params, None,
                           place.ordinal).bind("predict")
    fill(bound, {"x": np.ones(1000, np.float32)})
    np.testing.assert_array_equal(bound.outputs["y"], np.float32(1 + count))
    return f"{len(compiled.plans['predict'].steps)} launches"


def _model(d: ListedDevice, name: str, layers: bool) -> str:
    """A model beside float64; with `layers`, what layers pass to one another as well."""
    checks = list(compare(verify.of_recipe(find(name), d.id, 4), 2, 0, layers))
    for c in checks:
        if not c.passed:
            raise ArithmeticError(f"{c.layer} ({c.part}, kernel {c.kernel}): an error of "
                                  f"{c.error:.1e}, of which rounding explains {c.bound:.1e}")
    return f"{len(checks)} comparisons"


def _timed(d: ListedDevice, make: Callable[[], Value]) -> str:
    """The median of some calls on data that are there, beside what the model predicts."""
    graph = Graph({"y": make()})
    bound = pipeline.build({"predict": graph}, d.id, "smoke").bind("predict")
    fill(bound, {v.attrs["name"]: x for v, x in _numbers(graph).items()})
    run, times = resident(bound), []
    for _ in range(REPEATS):
        begun = perf_counter()
        run()
        times.append(perf_counter() - begun)
    predicted = predicted_seconds({"predict": graph}, d)
    beside = "" if predicted is None else f", predicted {duration(predicted['predict'])}"
    return f"measured {duration(float(np.median(times)))}{beside}"

