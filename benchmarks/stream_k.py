"""What shared tiles (stream-K) gain on an H200, predicted: `python -m benchmarks.stream_k`.

Both columns are predictions of kernels that the compiler makes: with whole tiles, and parts along k
where that is faster (split-K), and with tiles that workgroups share. The last column tells whether
the rules choose shared tiles; if they do not, it is the schedule that the tuner would try.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ztorch import ops
from ztorch.codegen.targets import Target, target
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.pipeline import declare_states, plan_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import bf16
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.region_kernel import KernelStep
from ztorch.machines.gpus import gpu
from ztorch.performance.prediction import predict_kernel
from ztorch.performance.step import predict_functions
from ztorch.tune.candidates import other_kinds

# Rows, columns and k: few rows, those of `benchmarks.gpu_predictions`, and large ones.
SHAPES = (
    (64, 4096, 4096), (96, 4096, 4096), (128, 4096, 4096), (384, 4096, 4096), (256, 8192, 4096),
    (320, 1280, 5120), (512, 768, 3072), (640, 2560, 2560), (640, 5120, 1280), (8192, 512, 1024),
    (4096, 4096, 512), (768, 3072, 4096), (1024, 1024, 1024), (2560, 2560, 2560),
    (4096, 4096, 4096), (5120, 5120, 5120))
KIND = "grid_stream"
ROW, TARGET = gpu("H200"), target("cuda:sm_90a")


class Compared(NamedTuple):
    """A product with whole tiles, and with shared ones."""

    schedule: str  # of the whole tiles
    seconds: float
    stream_schedule: str  # of the shared tiles; empty: it has none
    stream_seconds: float
    chosen: bool  # whether the rules choose shared tiles


def _without_signals(t: Target) -> Target:
    """The same target, whose workgroups cannot signal to one another."""
    assert t.limits.grid is not None
    return replace(t, limits=replace(t.limits, grid=replace(t.limits.grid, launch_barriers=False)))


def _steps(functions: dict[str, Graph], t: Target) -> list[KernelStep]:
    """The kernel that multiplies, and the one that adds up parts along k if there are any."""
    return plan_functions(functions, t, declare_states(functions, t), Watch())["y"].steps


def _seconds(functions: dict[str, Graph], t: Target) -> float:
    """Of a call, behind the start of the first launch."""
    return predict_functions(functions, t, ROW, cached=False)["y"].seconds - ROW.step_us * 1e-6


def compare(m: int, n: int, k: int) -> Compared:
    """The time of a product of bfloat16 with whole tiles, and with shared ones."""
    a, b = leaf("input", "a", (m, k), bf16), leaf("input", "b", (k, n), bf16)
    functions = {"y": Graph({"y": ops.matmul(a, b)})}
    without = _without_signals(TARGET)
    step, *sums = _steps(functions, TARGET)
    seconds, schedule = _seconds(functions, without), repr(_steps(functions, without)[0].schedule)
    assert step.schedule is not None and step.region_kernel is not None
    if step.schedule.kind == KIND:
        return Compared(schedule, seconds, repr(step.schedule), _seconds(functions, TARGET), True)
    others = [s for s in other_kinds(step.region_kernel, step.schedule) if s.kind == KIND]
    if sums or not others:
        return Compared(schedule, seconds, "", 0.0, False)
    other = step.region_kernel.with_schedule(others[0]).step()
    kernel, grid = in_words(other.kernel, TARGET, Kernels(TARGET).words)
    shared = predict_kernel(kernel, grid, ROW).seconds + ROW.launch_us * 1e-6
    return Compared(schedule, seconds, repr(others[0]), shared, False)


def main() -> None:
    """Prints a row for each shape."""
    print("| rows x columns x k | whole tiles, or parts | shared tiles | chosen |")
    print("| --- | --- | --- | --- |")
    for shape in SHAPES:
        c = compare(*shape)
        stream = f"{c.stream_seconds * 1e6:.1f} us" if c.stream_schedule else "–"
        print(f"| {' x '.join(map(str, shape))} | {c.seconds * 1e6:.1f} us | {stream} | "
              f"{'shared' if c.chosen else ''} |")


if __name__ == "__main__":
    main()
