"""The kernel of a chain: small kernels that depend on one another, in one launch.

Workgroups meet between two stages: those of a cluster, or those of the whole launch. A stage that
one workgroup computes alone after another such stage needs a barrier of its threads only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Memory, Operand, launch_grid, matching
from ztorch.ir.opcodes import PURE
from ztorch.lower.grid.ahead import Ahead
from ztorch.lower.grid.inlined import Inlined, unrolled
from ztorch.lower.grid.workgroups import threads, where
from ztorch.lower.tuning import CHAIN_AHEAD, CHAIN_UNROLLED

SHARED_KINDS = ("grid", "block")  # of loops, the outer one first
COUNTER = "arrived"  # the memory of the barrier of a launch


@dataclass(frozen=True)
class ChainPart:
    """A kernel of a chain."""

    kernel: Kernel
    memories: Mapping[str, str]  # the names of its global memories in the chain

    @property
    def groups(self) -> int:
        """The workgroups of its own launch."""
        return launch_grid(self.kernel)[0]


def can_be_part(kernel: Kernel) -> bool:
    """Whether a kernel is one loop over workgroups with one over threads in it, along one axis, and
    nothing behind."""
    loops, ends = shared_loops(kernel), dict(matching(kernel.body))
    if [i.attrs["kind"] for i in loops] != [*SHARED_KINDS] or kernel.cluster > 1:
        return False
    grid, block = map(kernel.body.index, loops)
    before = kernel.body[:grid] + kernel.body[grid + 1:block]
    return (ends[grid] == len(kernel.body) - 1 == ends[block] + 1
            and not any(i.attrs.get("axis", 0) for i in loops)
            and all(i.opcode in PURE or i.opcode == "load" for i in before)
            and kernel.workgroup[1:] == (1, 1) and not kernel.resident_threads)


def shared_loops(kernel: Kernel) -> list[Instr]:
    """The loops that workgroups or threads share."""
    return [i for i in kernel.body if i.opcode == "loop" and i.attrs["kind"] in SHARED_KINDS]


def chain_kernel(name: str, parts: Sequence[ChainPart], memories: Sequence[Memory], fixed: set[str],
                 groups: int, cluster: bool) -> Kernel:
    """One kernel that runs all parts on so many workgroups.

    Args:
        name: Its name.
        parts: The kernels, whose workgroups have equally many threads.
        memories: The global memories of the chain. None is declared as one that is only read: the
            assembler of NVIDIA moves loads from such a memory behind barriers.
        fixed: The names of those that no part writes.
        groups: The workgroups of its launch.
        cluster: Whether they are a cluster; if not, and if there are several, the last memory
            counts their barriers.
    """
    kernels = [unrolled(part.kernel, CHAIN_UNROLLED) for part in parts]
    first = kernels[0]
    b = Builder(name, first.index, first.exact)
    b.memories = {m.name: m for m in memories}
    shared = _shared(b, kernels)
    b.cluster = groups if cluster else 1
    with b.loop(0, groups, kind="grid") as g, threads(b, math.prod(first.workgroup)) as t:
        stages = [_Stage(b, part, kernel, shared[k], groups, g, t)
                  for k, (part, kernel) in enumerate(zip(parts, kernels, strict=True))]
        room = CHAIN_AHEAD
        for stage in stages[1:]:
            room -= stage.load_ahead(fixed, room)
        since: list[_Stage] = []  # stages since workgroups have met
        for stage in stages:
            if since and (groups == 1 or all(s.part.groups == 1 for s in (*since, stage))):
                b.barrier()
            elif since:
                b.cluster_barrier() if cluster else b.grid_barrier(COUNTER)
                since = []
            since.append(stage)
            stage.emit()
    return b.kernel()


def _shared(b: Builder, kernels: Sequence[Kernel]) -> list[dict[str, str]]:
    """Declares the shared and local arrays, which parts use one after another, and returns their
    names by those in each kernel."""
    names: list[dict[str, str]] = []
    for kernel in kernels:
        taken: dict[str, str] = {}
        for m in kernel.memories:
            if m.space == "global":
                continue
            name = f"{m.name}_{m.dtype.name}"
            size = max(m.size, b.memories[name].size if name in b.memories else 0)
            b.memories.pop(name, None)
            taken[m.name] = b.memory(name, m.dtype, size, m.space, "rw", swizzled=m.swizzled)
        names.append(taken)
    return names


class _Stage:
    """A part in the kernel of the chain."""

    def __init__(self, b: Builder, part: ChainPart, kernel: Kernel, shared: Mapping[str, str],
                 groups: int, g: Operand, t: Operand):
        self.b, self.part, self.kernel, self.groups, self.g = b, part, kernel, groups, g
        self.grid_counter, block_counter = (i.dest for i in shared_loops(kernel))
        self.body = [i for i in kernel.body if i.attrs.get("kind") not in SHARED_KINDS and not (
            i.opcode == "end_loop" and i.args[0].id in (self.grid_counter.id, block_counter.id))]
        self.new = {block_counter.id: t, self.grid_counter.id: g}
        for v in kernel.variables:
            self.new[v.id] = b.var(v.dtype, v.lanes)
        self.memories = {**part.memories, **shared}
        self.ahead: Ahead | None = None

    def _code(self) -> Inlined:
        return Inlined(self.b, self.new, self.memories)

    @property
    def _condition(self) -> Operand | None:
        """Whether a workgroup has work in this stage; None: each has."""
        count = self.part.groups
        return self.b.lt(self.g, count) if count < self.groups else None

    def load_ahead(self, fixed: set[str], room: int) -> int:
        """Starts the loads that depend on no part, and returns the registers that they take."""
        if self.part.groups > self.groups:
            return 0  # a loop over several workgroups' work
        own = {name for name, common in self.memories.items() if common in fixed}
        ahead = Ahead(self.body, own, room)
        if not ahead.loads:
            return 0
        self.ahead = ahead
        ahead.declare(self.b)
        with where(self.b, self._condition):
            ahead.emit(self.b, self._code())
        return ahead.registers

    def emit(self) -> None:
        """The stage itself."""
        b, count = self.b, self.part.groups
        if count > self.groups:
            with b.loop(self.g, count, self.groups) as n:
                code = self._code()
                code.new[self.grid_counter.id] = n
                for i in self.body:
                    code.add(i)
            return
        with where(b, self._condition):
            if self.ahead is None:
                code = self._code()
                for i in self.body:
                    code.add(i)
            else:
                self.ahead.emit_rest(b, self._code())
