"""Where a buffer of a step lies: a slot of inputs or outputs, params or the arena."""

from __future__ import annotations

from dataclasses import dataclass, replace

SLOTS = ("inputs", "outputs", "carries")  # spaces whose buffers have numbers


@dataclass(frozen=True)
class Location:
    """The location of a buffer: a part of a slot of the inputs or outputs, or an offset in params
    or arena. While the body of a loop is placed by itself, its carries are slots, too."""

    space: str  # inputs, outputs, carries, params or arena
    offset: int  # in bytes, in the first iteration of all enclosing loops; or the slot's number
    size: int  # in bytes
    start: int = 0  # its first byte in the slot, in the first iteration of all enclosing loops
    strides: tuple[int, ...] = ()  # bytes per iteration of each enclosing loop, outer first

    def overlaps(self, other: Location) -> bool:
        """Whether the two share a byte in the same iteration."""
        if self.space != other.space:
            return False
        if self.space in SLOTS and self.offset != other.offset:
            return False
        begin, others = (p.start if p.space in SLOTS else p.offset for p in (self, other))
        return begin < others + other.size and others < begin + self.size

    def distance(self, other: Location) -> int:
        """The bytes from the other one, in the same space or slot, to this one."""
        slot = self.space in SLOTS
        return self.start - other.start if slot else self.offset - other.offset

    def moved(self, distance: int, more: int = 0) -> Location:
        """The location `distance` bytes on, with `more` bytes."""
        if self.space in SLOTS:
            return replace(self, start=self.start + distance, size=self.size + more)
        return replace(self, offset=self.offset + distance, size=self.size + more)
