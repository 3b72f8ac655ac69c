"""Estimates or measures the cost of each kernel of a function on this processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from ztorch.codegen.targets import Target
from ztorch.compile.explained import PlannedKernel, planned_kernels
from ztorch.errors import Unsupported
from ztorch.graph.flops import flops
from ztorch.graph.value import Graph
from ztorch.host.processor import usable_cores
from ztorch.lower.cycles import lanes_at_once
from ztorch.lower.insets import stored
from ztorch.lower.kernel_names import dtype_of
from ztorch.lower.region_kernel import KernelStep, RegionKernel
from ztorch.lower.rewrites.recurrence import RECURRENCE
from ztorch.terminal.work_line import at, working
from ztorch.tune.clocks import clock_for
from ztorch.tune.kernel_benchmark import KernelBenchmark
from ztorch.tune.kernel_times import FunctionTimes, KernelTime
from ztorch.tune.peaks import Peaks, measured_peaks

ROUNDS = 7  # measurements of each kernel
VECTOR_PORTS = 4  # that start any vector instruction: no processor of the table has more


def explain_function(title: str, function: str, graph: Graph, target: Target,
                     measure: bool = False, threads: int | None = None) -> FunctionTimes:
    """The cost of each kernel of a function.

    Args:
        title: The name of the function and its model, for display.
        function: The name of the function.
        graph: The graph of the function.
        target: The target to compile for, a processor.
        measure: Whether to run each kernel on this machine. Default: `False`.
        threads: Worker threads. Default `None`: one per core.
    """
    if target.limits.grid is not None or target.emits_source:
        raise Unsupported(f"explain has no cost model for kernels of {target.name!r}; it needs a "
                          "CPU target, such as device='cpu'; `ztorch explain` predicts GPUs")
    if measure:
        clock_for(target)  # raises an error unless this machine runs the target
    count = threads or usable_cores()
    with working(f"explain {title}"):
        planned = planned_kernels({function: graph}, target, threads)[function]
        kernels = tuple(_figures(p, target) for p in planned)
        row = target.limits.processor.name
        if not measure:
            return FunctionTimes(title, target.name, row, kernels, count)
        peaks = cache(lambda workers: measured_peaks(target, workers))
        known: dict[str, tuple[float, float]] = {}
        measured = []
        for number, (p, k) in enumerate(zip(planned, kernels, strict=True)):
            at(f"measure {p.kernel.title}", number, len(planned))
            key = f"{p.kernel.work or number} {k.schedule}"
            if key not in known:
                known[key] = _measured(p.step, k, target, count, peaks)
            seconds, least = known[key]
            measured.append(replace(k, seconds=seconds, least_seconds=least))
        return FunctionTimes(title, target.name, row, tuple(measured), count, peaks(1))


def _measured(step: KernelStep, k: KernelTime, target: Target, threads: int,
              peaks: Callable[[int], Peaks]) -> tuple[float, float]:
    race = KernelBenchmark([step], target, threads)
    [seconds] = race.seconds(ROUNDS)
    # The instructions, as multiply-adds that take as long.
    issued = k.issues * 2 * target.limits.processor.fma_ports / VECTOR_PORTS
    return seconds, peaks(race.workers).seconds(max(k.flops, issued), k.bytes)


def _figures(planned: PlannedKernel, target: Target) -> KernelTime:
    step, kernel = planned.step, planned.kernel
    row, lanes = target.limits.processor, lanes_at_once(target.limits, dtype_of(kernel.region))
    work, issues, nbytes = _flops(kernel), _issues(kernel), _bytes(kernel)
    limits = {
        "compute": work / (2 * row.fma_ports * lanes),
        "issue": issues / (VECTOR_PORTS * lanes),
        "memory": nbytes / (row.l2_bytes_per_cycle if nbytes <= row.l2_bytes else
                            row.outer_bytes_per_cycle)}
    bound = max(limits, key=lambda name: limits[name])
    return KernelTime(
        step.kernel.name, step.kernel.origin, planned.runs, work, issues, nbytes, step.cycles,
        limits[bound], bound, repr(step.schedule), step.tuned, tuple(planned.reasons))


def _flops(kernel: RegionKernel) -> int:
    """The FLOPs of a run. Loops over elements count their work for each element."""
    total = 0
    for v in kernel.region.members:
        if v.op is RECURRENCE:
            total += int(v.attrs["recurrence"].size * v.attrs["recurrence"].work)
        else:
            total += flops(v)
    return total


def _issues(kernel: RegionKernel) -> int:
    """The instructions of a run that compute elements, one for each lane: an exponential has some
    14. Those of products are in the FLOPs."""
    return sum(v.op.cost * (v.args[0] if v.op.kind == "reduce" else v).size
               for v in kernel.region.members
               if v.op.kind in ("map", "reduce") and not v.op.movement and v.args)


def _bytes(kernel: RegionKernel) -> int:
    """The bytes that a run reads and writes, each buffer once. An elementwise op reads no more
    elements than it computes: of an embedding table only the rows that it looks up."""
    region = kernel.region
    total = 0
    for v in dict.fromkeys(kernel.buffers):
        size = v.size
        readers = [m for m in region.members if v in m.args]
        if readers and all(m.op.kind == "map" for m in readers):
            size = min(size, sum(m.size for m in readers))
        if v in kernel.stores and region.in_place:
            size = min(size, *(a.size for m in region.members for a in m.args[1:2]))
        if v in kernel.stores:
            size = min(size, stored(v))
        total += size * v.dtype.bytes
    return total
