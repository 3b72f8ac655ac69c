"""The buffer of each value, and its name."""

from __future__ import annotations

from ztorch.graph.threads import THREADS_RESULT, first_of
from ztorch.graph.value import Value
from ztorch.lower.insets import content_before
from ztorch.lower.region import Region
from ztorch.lower.rewrites.histories import carry_of


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
