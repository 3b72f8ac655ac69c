"""The buffer of each value, its name, and the values that a kernel reads from others' buffers."""

from __future__ import annotations

from ztorch.graph.threads import THREADS_RESULT, first_of
from ztorch.graph.value import Value
from ztorch.lower.index import Index
from ztorch.lower.insets import content_before
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, real_reads, view_of
from ztorch.lower.rewrites.histories import carry_of
from ztorch.lower.rewrites.recurrence import RECURRENCE, RECURRENCE_RESULT, buffer_reads


def buffers_of(region: Region) -> list[Value]:
    """The values that a region stores. For a loop this includes the loop itself, which represents
    the arena of its body."""
    return [*region.members[:1], *region.stores] if region.kind == "loop" else region.stores


def memory_of(v: Value) -> Value:
    """The value whose buffer v shares. The last value of a carry and its stacks (`histories.py`)
    share the buffer of its first value; thread programs write in place; an inset shares the buffer
    of its border or of the first inset."""
    if (before := content_before(v)) is not None:
        return memory_of(before)
    if v.op is THREADS_RESULT:
        return first_of(v.args[0], v.attrs["index"])
    if v.op.kind == "result" and (carry := carry_of(v)) is not None:
        return v.args[0].args[carry]
    return v


def label(v: Value) -> str:
    """The name of a buffer in pictures: layer:op."""
    return f"{v.layer}:{v.op.name}" if v.layer else v.op.name


def reads_at(region: Region, v: Value) -> list[tuple[Value, Index]]:
    """The values that a member of a region reads, each with the position; -1 if it reads all."""
    if v.op.kind in ("result", "threads_result", "attention_result") or (
            v.op is RECURRENCE_RESULT):
        return []
    if v.op is RECURRENCE:  # no element may write over values that all elements read
        return [(source, at if at.mentions(region.outer) or region.size == 1 else
                 Index((), -1)) for source, at in buffer_reads(v, region.outer)]
    if v.op.kind not in ("attention", "attention_gradient", "contract", "convolution",
                         "loop", "scatter", "threads", "winograd"):
        return real_reads(v, region.index(v))
    bases = []
    for a in v.args:  # a product reads all over its operands; so do loops and threads
        if base := view_of(a, unflatten(Index(), a.shape)):
            bases.append((base[0], Index((), -1)))
    return bases
