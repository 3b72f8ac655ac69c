"""The quantities that are counted for one workgroup of a kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ztorch.ir.kernel import Instr
from ztorch.performance.accesses import AccessCost
from ztorch.performance.footprint import Footprint

FREE = frozenset({  # opcodes without a machine instruction: they name a register or a constant
    "get", "set", "extract", "join", "splat", "iota", "bitcast", "grid_id", "block_id",
    "end_loop", "end_if", "else", "copies_commit", "mma_commit"})
LOOP_SLOTS = 3  # overhead of a trip of a loop, in instructions: add, compare, branch
SPLIT_INTEGERS = 5  # instructions to split a float32, besides a subtraction: a test, two of bits,
#                     and two that choose zero for what is infinite
WRITES = frozenset({"store", "scatter", "mma_store"})
ACCESSES = WRITES | {"load", "gather", "mma_load", "copy_async", "copy_tile"}


def splits(i: Instr) -> bool:
    """Whether an instruction loads a matrix whose elements it splits."""
    f = i.dest.fragment
    return i.opcode == "mma_load" and f is not None and f.role != "c" and f.shape.split


class WorkPath(NamedTuple):
    """The way through a part of a kernel."""

    trips: dict[int, float]  # of each loop, by place
    taken: dict[int, tuple[bool, bool]]  # branches of each `if`


@dataclass
class Work:
    """The work of one workgroup. Slots are instructions that a subgroup issues."""

    slots: Counter[str] = field(default_factory=Counter)  # by pipe: f32, int, add, special ...
    matrix_flops: Counter[str] = field(default_factory=Counter)  # by dtype of operands, or tf32
    flops: float = 0.0  # of all threads; a multiply-add counts as two
    accesses: dict[int, AccessCost] = field(default_factory=dict)  # by place in the kernel
    footprint: Footprint = field(default_factory=dict)  # of global memories
    made_here: set[str] = field(default_factory=set)  # memories written before they are read
    trips: dict[int, float] = field(default_factory=dict)  # of each loop, by place
    # Of loops whose trips differ, by place: the trip counts and the branches of each trip.
    each_trip: dict[int, list[WorkPath]] = field(default_factory=dict)
    taken: dict[int, tuple[bool, bool]] = field(default_factory=dict)  # branches of each `if`
    loop_slots: dict[int, Counter[str]] = field(default_factory=dict)  # opcodes in one trip
    loop_runs: Counter[int] = field(default_factory=Counter)  # total trips of each loop, by place
    async_flops: Counter[str] = field(default_factory=Counter)  # of asynchronous products
    fused: frozenset[int] = frozenset()  # results of instructions that are fused into others
    copies_pending: int = 0  # groups of copies in flight during a wait for others

    def is_free(self, i: Instr) -> bool:
        """Whether an instruction emits no machine instruction."""
        return i.opcode in FREE or i.dest.id in self.fused

    @property
    def main_loop(self) -> int | None:
        """The place of the loop that issues most instructions, not counting its inner loops."""
        return max(self.loop_slots, default=None,
                   key=lambda at: self.loop_slots[at].total() * self.loop_runs[at])

    @property
    def mix(self) -> Counter[str]:
        """How often each opcode occurs in a trip of the main loop; empty if there is no loop."""
        at = self.main_loop
        return Counter() if at is None else self.loop_slots[at]
