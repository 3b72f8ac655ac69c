"""The rest of a row beyond what registers hold: threads keep its values in shared memory between
the passes of a reduction. Each thread reads only what it has stored itself."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.dtypes import storage_dtype
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.held_rows import Handed
from ztorch.lower.index import Index, Var


def arrays(values: Sequence[Handed]) -> list[list[Handed]]:
    """Values that share an array each: one begins in the pass that is the last to read the one
    before, which a thread reads first."""
    shared: list[list[Handed]] = []
    for h in sorted(values, key=lambda h: h.first):
        for users in shared:
            before = users[-1]
            if before.last <= h.first and before.value.dtype == h.value.dtype:
                users.append(h)
                break
        else:
            shared.append([h])
    return shared


def rest_bytes(values: Sequence[Handed], elements: int) -> int:
    """Shared memory for the rest of a row."""
    return elements * sum(storage_dtype(h.value.dtype).bytes for h, *_ in arrays(values))


class RowRest:
    """The values of the elements of a row from the `first` on."""

    def __init__(self, b: Builder, values: Sequence[Handed], first: int, elements: int,
                 full: dict[Var, Index]):
        self.b, self.first, self.full = b, first, full
        self.array: dict[Handed, str] = {}  # the name of the one of each value
        for k, users in enumerate(arrays(values) if elements else ()):
            stored = storage_dtype(users[0].value.dtype)
            name = b.memory(f"rest{k}", stored, elements, "shared", "rw")
            self.array |= dict.fromkeys(users, name)
        self.stored: set[Handed] = set()

    def fetch(self, e: Emitter, at: Operand, p: int) -> None:
        """Gives the scope of element `at` what earlier passes have stored."""
        for h, array in self.array.items():
            if h in self.stored and h.first < p <= h.last:
                x = self.b.load(array, self.b.sub(at, self.first))
                if h.value in e.members:
                    e.here[h.value] = x
                else:
                    e.known[h.value, h.at.replace(self.full), None] = x

    def keep(self, e: Emitter, at: Operand, p: int) -> None:
        """Stores what pass p has computed for later ones. A value that depends on a condition is
        read or computed again."""
        for h, array in self.array.items():
            x = e.here.get(h.value) or e.known.get((h.value, h.at.replace(self.full), None))
            if h.first == p and x is not None:
                self.b.store(array, self.b.sub(at, self.first), x)
                self.stored.add(h)
