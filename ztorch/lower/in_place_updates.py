"""Updates of some rows of a buffer in place: nothing else is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, LoadedIndex, Var
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region


def entry_axes(region: Region) -> list[Var]:
    """A loop for each axis of the updates."""
    [v] = region.members
    return [Var(f"d{k}", n) for k, n in enumerate(v.args[1].shape)]


@contextmanager
def at_position(e: Emitter, region: Region, axes: list[Var]) -> Iterator[Operand]:
    """Yields the target position of an update; the body runs only if it is in range."""
    [v] = region.members
    b = e.b
    place = b.cast(e.within().element(v.args[2], (Index.of(axes[0]),)), dtype=b.index)
    inside = b.and_(b.ge(place, 0), b.lt(place, v.shape[v.attrs["axis"]]))
    with b.if_(inside):
        yield place


def write(e: Emitter, region: Region, axes: list[Var], place: Operand, memory: str) -> None:
    """Stores the element of this scope at its target position."""
    [v] = region.members
    axis = v.attrs["axis"]
    index = [Index() if k == axis else Index.of(a) for k, a in enumerate(axes)]
    x = e.element(v.args[1], index)
    index[axis] = Index.of(LoadedIndex(place, v.shape[axis]))
    e.store(memory, v, flatten(index, v.shape), x)
