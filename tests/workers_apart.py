"""Runs a job as workers may that do not meet inside of loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.parity import Job, plan_of
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr, Kernel, constant
from ztorch.ir.limits import Limits
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.plan import KernelStep, Plan


def of_worker(kernel: Kernel, worker: int, workers: int) -> Kernel:
    """The part of a kernel that one of some workers runs."""
    numbers = {"worker": worker, "workers": workers}
    body = [Instr("add", i.dest, tuple(constant(n, i.dest.dtype) for n in (numbers[i.opcode], 0)))
            if i.opcode in numbers else i for i in kernel.body]
    return replace(kernel, body=tuple(body))


def run_apart(job: Job, limits: Limits) -> list[np.ndarray]:
    """The outputs of a job if each worker runs all kernels up to the next barrier that it does not
    skip before another worker begins."""
    plan, _ = plan_of(job.alone("j"), limits)
    spaces = {"arena": [np.full(plan.arena, 0xEE, np.uint8)],
              "inputs": [v.attrs["fed"].reshape(-1).view(np.uint8) for v in plan.inputs],
              "outputs": [np.zeros(v.nbytes, np.uint8) for _, v in plan.outputs]}
    group: list[tuple[KernelStep, tuple[Location, ...]]] = []

    def meet() -> None:
        for worker in reversed(range(plan.apart)):
            for step, places in group:
                starts = [(spaces[p.space][p.offset], p.start) if p.space in SLOTS else
                          (spaces[p.space][0], p.offset) for p in places]
                memories = [m for m in step.kernel.memories if m.space == "global"]
                interpret(of_worker(step.kernel, worker, plan.apart), {
                    m.name: raw[at:at + p.size].view(m.dtype.numpy)
                    for m, p, (raw, at) in zip(memories, places, starts, strict=True)})
        group.clear()

    before = -1
    for step, places in plan.runs(lambda place: True):
        k = plan.steps.index(step)
        begins = any(loop.first == k and not loop.first <= before < loop.end for loop in plan.loops)
        if begins or (step.barrier and not step.skipped):
            meet()
        group.append((step, places))
        before = k
    meet()
    return [raw.view(np.float32).reshape(v.shape)
            for raw, (_, v) in zip(spaces["outputs"], plan.outputs, strict=True)]


def skipped_inside(plan: Plan) -> list[bool]:
    """Of the barriers in loops, which ones are skipped."""
    return [step.skipped for loop in plan.loops for step in plan.steps[loop.first:loop.end]
            if step.barrier]
