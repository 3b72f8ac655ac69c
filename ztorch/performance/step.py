"""Predicts the time of a function of a program: that of its launches, some of which overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.tuned_schedules import chooser
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.lower.joined_kernel import group_count
from ztorch.lower.plan import KernelStep, Plan
from ztorch.machines.gpus import EARLY_EDGES, Gpu
from ztorch.performance.assembled import KernelResources, assembled_resources
from ztorch.performance.joined import renamed, together
from ztorch.performance.prediction import KernelPrediction, predict_kernel


@dataclass(frozen=True)
class LaunchPrediction:
    """The predicted launches of a kernel in a function."""

    kernel: KernelPrediction  # one launch of it
    launches: int  # in one call of the function
    waits: bool  # whether it waits for the kernels before it
    measured_seconds: float | None = None  # of one launch on a GPU of this machine, if measured


@dataclass(frozen=True)
class FunctionPrediction:
    """The predicted time of one call of a function, with its inputs on the GPU."""

    name: str  # of the function
    gpu: Gpu  # that it runs on
    cached: bool  # whether all data of the program fit into the shared cache
    kernels: tuple[LaunchPrediction, ...]  # in order
    early: bool = False  # whether kernels may launch before the kernels they wait for have ended
    measured_seconds: float | None = None  # of a call on a GPU of this machine, if measured

    @property
    def launches(self) -> int:
        """Launches of one call."""
        return sum(k.launches for k in self.kernels)

    @property
    def flops(self) -> float:
        """Floating-point operations of one call."""
        return sum(k.launches * k.kernel.flops for k in self.kernels)

    @property
    def memory_bytes(self) -> float:
        """Bytes that one call reads from memory or writes to it."""
        return sum(k.launches * k.kernel.memory_bytes for k in self.kernels)

    @property
    def moved_bytes(self) -> float:
        """Bytes that one call moves between the units and their shared cache."""
        return sum(k.launches * k.kernel.l2_bytes for k in self.kernels)

    @property
    def waves(self) -> int:
        """The number of groups of launches, each of which waits for the previous group."""
        return sum(wave[0].launches for wave in self._waves())

    @property
    def gaps(self) -> float:
        """Seconds of one call in which the GPU is idle before a launch."""
        waves = self._waves()
        return 1e-6 * (self.gpu.step_us + sum(
            wave[0].launches * (self.gpu.early_launch_us if self.early and (
                0 < len(before) * len(wave) <= EARLY_EDGES
                and not any(k.kernel.at_once for k in (*before, *wave))) else self.gpu.launch_us)
            for before, wave in zip([[], *waves], waves, strict=False)))

    @property
    def seconds(self) -> float:
        """Seconds of one call. Kernels of a wave share the GPU, which starts one after another."""
        return self.gaps + sum(
            max(k.launches for k in wave) * max(
                max(k.kernel.seconds for k in wave), sum(k.kernel.work_seconds for k in wave),
                (len(wave) - 1) * self.gpu.branch_us * 1e-6 + min(k.kernel.seconds for k in wave))
            for wave in self._waves())

    @property
    def floor(self) -> float:
        """The least seconds of one call, by its FLOPs at the peak rate of each kernel's matrix
        instructions, or of threads where it has none, or by its bytes at the rate of a copy."""
        least = sum(k.launches * k.kernel.flops / k.kernel.peak for k in self.kernels)
        return max(least, self.memory_bytes / self.gpu.copy_rate)

    def _waves(self) -> list[list[LaunchPrediction]]:
        waves: list[list[LaunchPrediction]] = []
        for k in self.kernels:
            if k.waits or not waves:
                waves.append([])
            waves[-1].append(k)
        return waves

    def to_json(self) -> dict[str, Any]:
        """The record as data."""
        return {
            "function": self.name, "gpu": self.gpu.name, "cached": self.cached,
            "seconds": self.seconds, "measured_seconds": self.measured_seconds,
            "launches": self.launches, "waves": self.waves,
            "launch_gaps": self.gaps, "flops": self.flops, "memory_bytes": self.memory_bytes,
            "moved_bytes": self.moved_bytes,
            "kernels": [{**k.kernel.to_json(), "launches": k.launches, "waits": k.waits,
                         "measured_seconds": k.measured_seconds} for k in self.kernels]}


def predict_functions(functions: Mapping[str, Graph], target: Target, gpu: Gpu, *,
                      assemble: bool = False, cached: bool | None = None,
                      optional: tuple[str, ...] = passes.DEFAULT,
                      tuned: bool = False) -> dict[str, FunctionPrediction]:
    """The predicted time of the functions of a program on a GPU, which need not be installed.

    Args:
        functions: The graph of each function, by name.
        target: The target to compile for.
        gpu: The GPU that runs it.
        assemble: Whether to get the registers from NVIDIA's assembler instead of an estimate.
            Default: `False`.
        cached: Whether the operands of kernels are in the shared cache. Default: `None`, if the
            whole program fits into it.
        optional: The graph passes to run. Default: `passes.DEFAULT`.
        tuned: Whether schedules that `tune` found replace those of the rules. Default: `False`.

    Examples:
        >>> from ztorch import ops
        >>> from ztorch.codegen.targets import target
        >>> from ztorch.dtypes import f16
        >>> from ztorch.graph.op import leaf
        >>> from ztorch.machines.gpus import gpu
        >>> x, w = (leaf("input", name, (256, 256), f16) for name in "xw")
        >>> predicted = predict_functions({"y": Graph({"y": ops.matmul(x, w)})},
        ...                               target("cuda:sm_80"), gpu("A100"))["y"]
        >>> predicted.launches, predicted.flops == 2 * 256**3
        (1, True)
    """
    watch = Watch()
    params = declare_states(functions, target)
    plans = plan_functions(simplify(functions, optional, watch), target, params, watch,
                           chooser=chooser(target) if tuned else None)
    if cached is None:
        io = [v.size * v.dtype.bytes for plan in plans.values() for v in plan.inputs]
        arena = max(plan.arena for plan in plans.values())
        cached = params.size + arena + sum(io) <= gpu.l2_bytes
    kernels = _Predictions(target, gpu, cached)
    if assemble:
        kernels.resources = assembled_resources(
            {id(step.kernel.body): step.kernel for plan in plans.values() for step in plan.steps},
            target)
    early = bool(dict(target.frame_data).get("early"))
    return {name: FunctionPrediction(name, gpu, cached, kernels.of(plan), early)
            for name, plan in plans.items()}


class _Predictions:
    """The kernels of a program; those that share a body are predicted once."""

    def __init__(self, target: Target, gpu: Gpu, cached: bool):
        self.target, self.gpu, self.cached = target, gpu, cached
        self.words = Kernels(target).words
        self.predictions: dict[int, KernelPrediction] = {}  # by the id of the body
        self.resources: Mapping[int, KernelResources] = {}  # likewise

    def of(self, plan: Plan) -> tuple[LaunchPrediction, ...]:
        return tuple(LaunchPrediction(self._kernel(step), count, step.barrier or k == 0)
                     for k, (step, count) in enumerate(
                         zip(plan.steps, plan.run_counts(), strict=True)))

    def _kernel(self, step: KernelStep) -> KernelPrediction:
        body = id(step.kernel.body)
        if body not in self.predictions:
            self.predictions[body] = self._predict(step)
        return renamed(self.predictions[body], step)

    def _predict(self, step: KernelStep) -> KernelPrediction:
        kernel, grid = in_words(step.kernel, self.target, self.words)
        resources = self.resources.get(id(step.kernel.body))
        predict = partial(predict_kernel, kernel, grid, self.gpu, cached=self.cached,
                          registers=resources.registers if resources else None,
                          spilled=resources.spilled if resources else None)
        if not step.joined or step.in_turn:
            return predict()
        ends = [*accumulate(group_count(part.kernel) for part in step.joined)]
        return together([predict(part=range(first, end)) for first, end in pairwise([0, *ends])])
