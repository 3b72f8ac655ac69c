"""How the threads of a team combine their partial results in a fixed order."""

from __future__ import annotations

from ztorch.dtypes import DType, boolean, storage_dtype
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.grid.teams import Team


class TeamTotals:
    """Totals of the teams of a workgroup, by shuffles within a subgroup and by shared memory."""

    def __init__(self, b: Builder, team: Team, subgroup: int):
        self.b, self.team, self.subgroup = b, team, subgroup
        self.scratch: dict[DType, str] = {}  # the arrays in which threads exchange values

    def of(self, v: Value, x: Operand, t: Operand, row: Operand, share: Operand) -> Operand:
        """The combined value of a team, in every thread."""
        b, ways, sub = self.b, self.team.ways, self.subgroup
        if ways == 1:
            return x
        together = min(ways, sub) if not self.team.by_columns and x.dtype.bits == 32 else 1
        distance = together // 2
        while distance:  # a butterfly: all threads get the same bits
            x = b.emit(v.op.opcode, x, b.shuffle_xor(x, distance))
            distance //= 2
        if together == ways:
            return x
        self._put(t, x)
        b.barrier()
        if together > 1:  # few partial results remain: each thread combines them in the same order
            total = None
            for k in range(ways // together):
                at = self.team.thread(b, row, b.const(k * together, b.index))
                part = self._fetch(at, x)
                total = part if total is None else b.emit(v.op.opcode, total, part)
            assert total is not None
        else:
            distance = ways // 2
            while distance:
                with b.if_(b.lt(share, distance)):
                    other = self._fetch(self.team.thread(b, row, b.add(share, distance)), x)
                    self._put(t, b.emit(v.op.opcode, self._fetch(t, x), other))
                b.barrier()
                distance //= 2
            total = self._fetch(self.team.thread(b, row, b.const(0, b.index)), x)
        b.barrier()  # before the array is reused
        return total

    def _shared(self, x: Operand) -> tuple[str, int]:
        """The memory in which threads exchange a value, and its alignment."""
        stored = storage_dtype(x.dtype)
        if stored not in self.scratch:
            self.scratch[stored] = self.b.memory(f"team_{stored.name}", stored,
                                                 self.team.size * x.lanes, "shared", "rw")
        return self.scratch[stored], x.lanes * stored.bytes if x.lanes > 1 else 0

    def _put(self, thread: Operand, x: Operand) -> None:
        b, (array, align) = self.b, self._shared(x)
        at = b.mul(thread, x.lanes) if x.lanes > 1 else thread
        b.store(array, at, b.cast(x, dtype=storage_dtype(x.dtype)), align=align)

    def _fetch(self, thread: Operand, like: Operand) -> Operand:
        """The value that a thread has stored in the exchange memory."""
        b, (array, align) = self.b, self._shared(like)
        at = b.mul(thread, like.lanes) if like.lanes > 1 else thread
        x = b.load(array, at, lanes=like.lanes, align=align)
        return b.ne(x, 0) if like.dtype is boolean else x
