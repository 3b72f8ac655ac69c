"""The body of a kernel as a tree: loops and branches hold their instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ztorch.ir.kernel import Instr


@dataclass(eq=False)
class Nested:
    """An instruction, with those inside it."""

    instr: Instr
    yes: list[Nested] = field(default_factory=list)  # of a loop or an if
    no: list[Nested] = field(default_factory=list)  # after its else
    otherwise: Instr | None = None  # the else
    end: Instr | None = None

    @property
    def has_barrier(self) -> bool:
        """Whether the node contains a barrier."""
        return self.instr.opcode == "barrier" or any(n.has_barrier for n in (*self.yes, *self.no))

    def instructions(self) -> Iterator[Instr]:
        """All instructions in order."""
        yield self.instr
        for n in self.yes:
            yield from n.instructions()
        if self.otherwise is not None:
            yield self.otherwise
        for n in self.no:
            yield from n.instructions()
        if self.end is not None:
            yield self.end


def nested(body: Sequence[Instr]) -> list[Nested]:
    """A flat body as a tree."""
    top: list[Nested] = []
    open_nodes: list[Nested] = []
    into = [top]
    for i in body:
        if i.opcode in ("loop", "if"):
            node = Nested(i)
            into[-1].append(node)
            open_nodes.append(node)
            into.append(node.yes)
        elif i.opcode == "else":
            open_nodes[-1].otherwise = i
            into[-1] = open_nodes[-1].no
        elif i.opcode in ("end_loop", "end_if"):
            open_nodes.pop().end = i
            into.pop()
        else:
            into[-1].append(Nested(i))
    return top
