"""Where the tuner gets the times of kernels from: this processor, a device of this machine, or the
performance model, which needs no device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ztorch.codegen import ptx
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.tuned_files import MOST_SECONDS, machine_of, usual_threads
from ztorch.errors import Unsupported
from ztorch.host import detect
from ztorch.host import processor as this_processor
from ztorch.ir.kernel import Kernel
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.machines.backends import computes
from ztorch.machines.gpus import Gpu, gpus_of
from ztorch.performance.assembled import assembled_resources
from ztorch.performance.prediction import predict_kernel
from ztorch.tune.device_benchmark import device_seconds
from ztorch.tune.kernel_benchmark import KernelBenchmark

MEASURED_SHARE = 0.97  # a schedule replaces the rules' if it takes at most this share of its time
PREDICTED_SHARE = 0.9  # the same by the model, which is less certain
ROUNDS = 7  # measurements of the schedules of a stage
FINAL_ROUNDS = 21  # measurements of the fastest schedule and the rules' schedule


class Clock(ABC):
    """Tells the times of a kernel by several schedules.

    Args:
        target: The target of the kernels.
    """

    predicted = False  # whether nothing is run
    most = 10  # schedules of a stage, the most promising ones
    share = MEASURED_SHARE
    threads = 0  # that share a kernel, by which its file is known; 0: those of a GPU
    runs_programs = False  # whether whole programs can be timed here, too

    def __init__(self, target: Target):
        self.target = target

    @property
    def machine(self) -> str:
        """The machine for which the times are right, as files name it."""
        return machine_of(self.target, self.predicted)

    @abstractmethod
    def seconds(self, kernel: RegionKernel, schedules: Sequence[Schedule],
                rounds: int) -> list[float]:
        """The seconds of a run by each schedule."""


class ProcessorClock(Clock):
    """Runs kernels on this processor.

    Args:
        target: The target, which this machine must run.
        threads: The worker threads of the program; None: one per core.
    """

    runs_programs = True

    def __init__(self, target: Target, threads: int | None):
        _need_this_machine(target)
        super().__init__(target)
        self.threads = usual_threads(threads)

    def seconds(self, kernel: RegionKernel, schedules: Sequence[Schedule],
                rounds: int) -> list[float]:
        steps = [kernel.with_schedule(s).step() for s in schedules]
        return KernelBenchmark(steps, self.target, self.threads).seconds(rounds)


class DeviceClock(Clock):
    """Runs kernels on a device.

    Args:
        target: The target of the device.
        ordinal: The number of the device.
    """

    most = 12

    def __init__(self, target: Target, ordinal: int):
        super().__init__(target)
        self._ordinal = ordinal

    def seconds(self, kernel: RegionKernel, schedules: Sequence[Schedule],
                rounds: int) -> list[float]:
        return [device_seconds(kernel.with_schedule(s).step(), self.target, self._ordinal)
                for s in schedules]


class PredictedClock(Clock):
    """Predicts the times of kernels on a GPU from their code.

    Args:
        target: The target of the kernels.
        gpu: The GPU.
    """

    predicted, most, share = True, 12, PREDICTED_SHARE

    def __init__(self, target: Target, gpu: Gpu):
        super().__init__(target)
        self._gpu = gpu
        self._words = Kernels(target).words

    def seconds(self, kernel: RegionKernel, schedules: Sequence[Schedule],
                rounds: int) -> list[float]:
        return [self._predicted(kernel.with_schedule(s).step().kernel, rounds == FINAL_ROUNDS)
                for s in schedules]

    def _predicted(self, kernel: Kernel, final: bool) -> float:
        """The seconds of a kernel. In the final comparison the assembler, where there is one,
        tells registers and spills."""
        nbytes = sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "global")
        registers = None
        if final and ptx.assembles(self.target):
            try:
                resources = assembled_resources({0: kernel}, self.target).get(0)
            except Unsupported:  # the assembler is missing, or refuses the kernel
                resources = None
            if resources is not None:
                if resources.spilled:
                    return MOST_SECONDS
                registers = resources.registers
        in_target_words, grid = in_words(kernel, self.target, self._words)
        return predict_kernel(in_target_words, grid, self._gpu, registers=registers,
                              cached=nbytes <= self._gpu.l2_bytes).seconds


def clock_for(target: Target, threads: int | None = None, ordinal: int | None = None) -> Clock:
    """The clock of a target: the machine itself where it runs here, else the performance model.

    Args:
        target: The target.
        threads: The worker threads on a processor; None: one per core. Default: `None`.
        ordinal: The number of the device. Default: `None`, if there is none.

    Raises:
        Unsupported: This machine does not run the target, and there is no model of its chips.

    Examples:
        >>> from ztorch.codegen.targets import target
        >>> clock_for(target("cuda:sm_90a")).machine
        'cuda:sm_90a, 132 units, 23 bits, predicted'
    """
    grid = target.limits.grid
    if grid is None:
        return ProcessorClock(target, threads)
    if ordinal is not None and not computes(target.backend):
        raise Unsupported(f"{target.name!r} computes nothing, so nothing can be measured")
    if ordinal is not None:
        return DeviceClock(target, ordinal)
    rows = gpus_of(target.name)
    if not rows:
        raise Unsupported(f"schedules for {target.name!r} can neither be measured here nor be "
                          "predicted; name a device, such as 'cpu', or a chip, such as "
                          "'cuda:sm_90a'")
    return PredictedClock(target, next((g for g in rows if g.units == grid.compute_units), rows[0]))


def _need_this_machine(target: Target) -> None:
    """Raises an error unless this machine runs the target, a processor's."""
    if target.emits_source:
        raise Unsupported(f"schedules are not measured for {target.name!r}; tune for 'cpu' or a "
                          "level of it, such as 'cpu:avx2'")
    if not this_processor.features().issuperset(target.required_features) or (
            target.arch != this_processor.architecture()):
        raise Unsupported(f"this machine does not run {target.name}, so nothing can be measured "
                          "for it; tune on a machine that does, and use `ztorch tune export`")
    if target.limits.processor != detect.detected():
        raise Unsupported(f"this processor is not {target.limits.processor.name}; tune for 'cpu' "
                          "or a level of it, such as 'cpu:avx2'")
