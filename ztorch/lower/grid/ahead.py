"""Loads that do not depend on a barrier, which can start before it.

The loads of a stage from memories that no stage writes run ahead, with the integers and conditions
that they need. Variables hand their values to the stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ztorch.dtypes import u32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Operand
from ztorch.ir.opcodes import PURE
from ztorch.lower.grid.inlined import Inlined


class Ahead:
    """The loads of a stage that can run ahead.

    Args:
        body: The instructions of the stage within the loops that share out its threads.
        fixed: The memories that nothing writes.
        room: The registers of 32 bits that a thread has for what is loaded.
    """

    def __init__(self, body: Sequence[Instr], fixed: set[str], room: int):
        self.body = body
        self.loads: dict[int, list[Operand]] = {}  # by place: the variables that hand the lanes on
        self.registers = 0  # that these take
        self._needed: set[int] = set()  # places of the instructions that run ahead
        self._made = {i.dest.id: at for at, i in enumerate(body)}
        known: set[int] = set()  # places whose results do not depend on the barrier
        open_at: list[int] = []  # open ifs on conditions that are known; -1: other scopes
        for at, i in enumerate(body):
            early = self._depends_only_on(i, known)
            if i.opcode in ("loop", "if"):
                open_at.append(at if early and i.opcode == "if" and not i.attrs["els"] else -1)
            elif i.opcode in ("end_loop", "end_if"):
                open_at.pop()
            elif not early or -1 in open_at:
                continue
            elif i.opcode in PURE:
                known.add(at)
            elif i.opcode == "load" and i.attrs["mem"] in fixed and len(i.args) == 1:
                size = math.ceil(i.dest.lanes * i.dest.dtype.bytes / u32.bytes)
                if self.registers + size <= room:
                    self.registers += size
                    self.loads[at] = []
                    self._need([at, *open_at])

    def _depends_only_on(self, i: Instr, known: set[int]) -> bool:
        return all(a.kind in ("value", "counter", "const") and (
            a.id not in self._made or self._made[a.id] in known) for a in i.args)

    def _need(self, places: Sequence[int]) -> None:
        for at in places:
            if at not in self._needed:
                self._needed.add(at)
                self._need([self._made[a.id] for a in self.body[at].args if a.id in self._made])

    def declare(self, b: Builder) -> None:
        """Declares the variables. They are zero where a condition does not hold."""
        for at, variables in self.loads.items():
            d = self.body[at].dest
            variables += [b.var(d.dtype, 1, 0) for _ in range(d.lanes)]

    def emit(self, b: Builder, code: Inlined) -> None:
        """The part that runs ahead."""
        ends: list[bool] = []  # for each open scope, whether it is in this part
        for at, i in enumerate(self.body):
            needed = ends.pop() if i.opcode in ("end_loop", "end_if") else at in self._needed
            if i.opcode in ("loop", "if"):
                ends.append(needed)
            if not needed:
                continue
            x = code.add(i)
            for lane, variable in enumerate(self.loads.get(at, ())):
                b.set(variable, b.extract(x, lane) if x.lanes > 1 else x)

    def emit_rest(self, b: Builder, code: Inlined) -> None:
        """The stage, in which the values that were loaded ahead come from variables."""
        for at, i in enumerate(self.body):
            if at not in self.loads:
                code.add(i)
                continue
            lanes = [b.get(v) for v in self.loads[at]]
            code.new[i.dest.id] = lanes[0] if len(lanes) == 1 else b.raw(
                "join", i.dest.dtype, len(lanes), tuple(lanes))
