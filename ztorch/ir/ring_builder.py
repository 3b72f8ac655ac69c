"""Builds the parts of rings of tiles: copies of tiles, barriers of phases, teams of threads."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.dtypes import u64
from ztorch.ir.expressions import Arg, Expressions
from ztorch.ir.kernel import Memory, Operand, constant


class Rings(Expressions):
    """Appends the instructions of a ring."""

    memories: dict[str, Memory]

    def barriers(self, name: str, count: int) -> str:
        """Declare barriers of phases in shared memory. Returns the name of the memory."""
        assert name not in self.memories, f"memory {name} is declared twice"
        self.memories[name] = Memory(name, u64, count, "shared", "rw")
        return name

    def mbarrier_init(self, mem: str, index: Arg, count: int, off: int = 0) -> None:
        """Begin a barrier. Each of its phases ends after this many arrivals."""
        self._token("mbarrier_init", self._place(index), mem=mem, off=off, count=count)

    def mbarrier_fence(self) -> None:
        """Order the beginning of barriers before copies, and before other threads' use of them."""
        self._token("mbarrier_fence")

    def mbarrier_arrive(self, mem: str, index: Arg, off: int = 0, cluster: int = 1) -> None:
        """Arrive at a barrier; at that of each workgroup of a cluster of so many."""
        self._token("mbarrier_arrive", self._place(index), mem=mem, off=off, cluster=cluster)

    def mbarrier_expect(self, mem: str, index: Arg, nbytes: int, off: int = 0) -> None:
        """Arrive at a barrier, whose phase then lasts until copies have brought so many bytes."""
        self._token("mbarrier_expect", self._place(index), mem=mem, off=off, bytes=nbytes)

    def mbarrier_wait(self, mem: str, index: Arg, parity: Operand, off: int = 0) -> None:
        """Wait until the phase of a parity has ended."""
        self._token("mbarrier_wait", self._place(index), parity, mem=mem, off=off)

    def copy_tile(self, mem: str, index: Arg, source: str, at: Sequence[Operand],
                  extents: Sequence[int], pitches: Sequence[int], box: Sequence[int],
                  barriers: str, barrier: Arg, off: int = 0, source_off: int = 0,
                  cluster: int = 1) -> None:
        """Start to copy a box of the global memory `source` to the swizzled memory `mem`.

        Args:
            mem: The memory that it goes to.
            index: Where in it, a multiple of the elements after which a swizzle repeats.
            source: The memory that it comes from.
            at: Where the box begins in the source, along each axis, the innermost first.
            extents: How long the source is along each axis; elements beyond are zero.
            pitches: How far neighbours along each axis are apart; those along the first are beside
                each other.
            box: How long the box is along each axis.
            barriers: The barriers that count arrived bytes.
            barrier: Which of them.
            off: Added to the index. Default: 0.
            source_off: Where in the source its first element is. Default: 0.
            cluster: Workgroups that the box goes to, all of a cluster. Default: 1.
        """
        self._token("copy_tile", self._place(index), self._place(barrier), *at, mem=mem, off=off,
                    source=source, source_off=source_off, barriers=barriers,
                    extents=tuple(extents), pitches=tuple(pitches), box=tuple(box),
                    cluster=cluster)

    def team_barrier(self, count: int) -> None:
        """Wait for a team of `count` threads of the workgroup."""
        self._token("team_barrier", count=count)

    def cluster_barrier(self) -> None:
        """Wait for all threads of the cluster."""
        self._token("cluster_barrier")

    def thread_registers(self, count: int, fewer: bool) -> None:
        """Let the threads of a warpgroup have so many registers from here on, fewer than before or
        more."""
        self._token("thread_registers", count=count, fewer=fewer)

    def _place(self, index: Arg) -> Operand:
        return index if isinstance(index, Operand) else constant(index, self.index)
