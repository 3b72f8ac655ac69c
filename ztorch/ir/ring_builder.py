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
        """Initialize a barrier. Each of its phases ends after `count` arrivals."""
        self._token("mbarrier_init", self._place(index), mem=mem, off=off, count=count)

    def mbarrier_fence(self) -> None:
        """Order the initialization of barriers before copies and uses by other threads."""
        self._token("mbarrier_fence")

    def mbarrier_arrive(self, mem: str, index: Arg, off: int = 0, cluster: int = 1) -> None:
        """Arrive at a barrier, in each workgroup of a cluster of `cluster` workgroups."""
        self._token("mbarrier_arrive", self._place(index), mem=mem, off=off, cluster=cluster)

    def mbarrier_expect(self, mem: str, index: Arg, nbytes: int, off: int = 0) -> None:
        """Arrive at a barrier, whose phase also waits until copies have transferred `nbytes`."""
        self._token("mbarrier_expect", self._place(index), mem=mem, off=off, bytes=nbytes)

    def mbarrier_wait(self, mem: str, index: Arg, parity: Operand, off: int = 0) -> None:
        """Wait until the phase of a parity has ended."""
        self._token("mbarrier_wait", self._place(index), parity, mem=mem, off=off)

    def copy_tile(self, mem: str, index: Arg, source: str, at: Sequence[Operand],
                  extents: Sequence[int], pitches: Sequence[int], box: Sequence[int],
                  barriers: str, barrier: Arg, off: int = 0, source_off: int = 0,
                  cluster: int = 1, apart: int = 1) -> None:
        """Start to copy a box of the global memory `source` to the swizzled memory `mem`.

        Args:
            mem: The target memory.
            index: The target index, a multiple of the period of the swizzle in elements.
            source: The source memory.
            at: The coordinates of the box in the source, innermost axis first.
            extents: The extents of the source; elements beyond are zero.
            pitches: The strides of the source's axes in elements; the first is 1.
            box: The extents of the box.
            barriers: The barriers that count arrived bytes.
            barrier: The index of the barrier.
            off: Added to the index. Default: 0.
            source_off: The source's first element. Default: 0.
            cluster: Workgroups of the cluster that all receive the box. Default: 1.
            apart: The distance of their numbers. Default: 1.
        """
        self._token("copy_tile", self._place(index), self._place(barrier), *at, mem=mem, off=off,
                    source=source, source_off=source_off, barriers=barriers,
                    extents=tuple(extents), pitches=tuple(pitches), box=tuple(box),
                    cluster=cluster, apart=apart)

    def team_barrier(self, count: int) -> None:
        """Wait for a team of `count` threads of the workgroup."""
        self._token("team_barrier", count=count)

    def cluster_barrier(self) -> None:
        """Wait for all threads of the cluster."""
        self._token("cluster_barrier")

    def grid_barrier(self, mem: str, index: Arg = 0, off: int = 0) -> None:
        """Wait for all threads of the launch, counted in an element of `mem`."""
        self._token("grid_barrier", self._place(index), mem=mem, off=off)

    def grid_signal(self, mem: str, index: Arg, off: int = 0) -> None:
        """Hand what has been written to the thread that waits for an element of `mem`."""
        self._token("grid_signal", self._place(index), mem=mem, off=off)

    def grid_wait(self, mem: str, index: Arg, off: int = 0) -> None:
        """Wait for the signal in an element of `mem`."""
        self._token("grid_wait", self._place(index), mem=mem, off=off)

    def thread_registers(self, count: int, fewer: bool) -> None:
        """Set the registers of the threads of a warpgroup from here on, to fewer than before or to
        more."""
        self._token("thread_registers", count=count, fewer=fewer)

    def _place(self, index: Arg) -> Operand:
        return index if isinstance(index, Operand) else constant(index, self.index)
