"""The prediction of a kernel whose workgroups are divided among parts, from those of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ztorch.lower.region_kernel import KernelStep
from ztorch.performance.prediction import KernelPrediction


def together(parts: Sequence[KernelPrediction]) -> KernelPrediction:
    """The launch of all parts. They share the GPU, like the kernels of a wave; registers and shared
    memory are those of the whole kernel in each part.

    Args:
        parts: The prediction of each part, in the order of their workgroups.
    """
    longest = max(parts, key=lambda p: p.seconds)
    work_seconds = sum(p.work_seconds for p in parts)
    groups = sum(p.groups for p in parts)
    return replace(
        longest, groups=groups,
        occupancy=sum(p.occupancy * p.groups for p in parts) / groups,
        flops=sum(p.flops for p in parts), peak=max(p.peak for p in parts),
        memory_bytes=sum(p.memory_bytes for p in parts),
        l2_bytes=sum(p.l2_bytes for p in parts),
        shared_traffic=sum(p.shared_traffic for p in parts),
        seconds=max(longest.seconds, work_seconds), work_seconds=work_seconds,
        parts={name: max(p.parts[name] for p in parts) for name in longest.parts},
        accesses=tuple(a for p in parts for a in p.accesses), joined=tuple(parts))


def renamed(prediction: KernelPrediction, step: KernelStep) -> KernelPrediction:
    """The record for a step with the same code and other names."""
    parts = [replace(p, name=part.kernel.name)  # those of a chain are not predicted by themselves
             for p, part in zip(prediction.joined, step.joined, strict=not step.in_turn)]
    return replace(prediction, name=step.kernel.name, joined=tuple(parts))
