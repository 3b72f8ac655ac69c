"""Kernels that users write for threads: the thread program becomes the kernel, unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.errors import Unsupported
from ztorch.graph.thread_kernel import GROUPS_MAX
from ztorch.graph.thread_kernel import emit as emit_program
from ztorch.graph.thread_program import ThreadProgram
from ztorch.graph.threads import THREADS
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower.region import COPY, Region, is_view
from ztorch.lower.schedule import ThreadSchedule


def threads_on_buffers(v: Value) -> Value:
    """The node with arguments that are in buffers. Arrays that it writes are copied first."""
    program: ThreadProgram = v.attrs["program"]
    args = tuple(COPY(a) if array.written or is_view(a) else a
                 for a, array in zip(v.args, program.arrays, strict=True))
    return Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)


def written_first(region: Region) -> Sequence[Value]:
    """The arrays that the threads of a region overwrite; empty for other regions."""
    if region.kind != "threads":
        return ()
    node = region.members[0]
    return node.args[len(node.args) - len(node.attrs["program"].written):]


def propose(region: Region, limits: Limits) -> ThreadSchedule:
    """The schedule that the kernel declares. Raises `Unsupported` if the machine cannot run it."""
    program = _program(region)
    s = ThreadSchedule(program.blocks, program.threads)
    grid = limits.grid
    if grid is not None:
        for size, most, noun in (
                (program.threads, grid.threads, "threads in a block"),
                (program.shared_bytes, grid.shared_bytes, "bytes of shared memory"),
                (len(program.arrays), grid.max_buffers, "arrays")):
            if size > most:
                raise Unsupported(f"a kernel asks for {size} {noun}, but this device has at most "
                                  f"{most}; use fewer, or another device")
    return s


def refusal(s: ThreadSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    program = _program(region)
    declared = ThreadSchedule(program.blocks, program.threads)
    return "" if s == declared else f"the kernel itself declares {declared!r}"


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: ThreadSchedule) -> None:
    """The program of the region."""
    node, program = region.members[0], _program(region)
    names = {a.name: memory[v] for a, v in zip(program.arrays, node.args, strict=True)}
    grid = limits.grid
    if grid is None:
        emit_program(b, program, names, program.blocks)
    else:
        emit_program(b, program, names, min(grid.max_groups, GROUPS_MAX), grid.subgroup)


def _program(region: Region) -> ThreadProgram:
    node = region.members[0]
    assert node.op is THREADS
    program: ThreadProgram = node.attrs["program"]
    return program
