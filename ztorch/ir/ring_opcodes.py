"""The opcodes of rings: a producer's copies of whole tiles, and the barriers of phases by which it
and its consumers hand each other the stages of shared memory.

A barrier is in shared memory and counts phases. A phase ends when as many threads have arrived as
the barrier was begun with, and when copies have brought as many bytes as were expected. Whoever
waits for a phase names its parity: 0 for the first, 1 for the second, and so on.
"""

from __future__ import annotations

from typing import Any

from ztorch.ir.copy_rewritings import nothing

BARRIER = ("mem", "off")
# Of each opcode: operands, meaning, attributes, and other fields of its row.
ROWS: dict[str, tuple[int, str, tuple[str, ...], dict[str, Any]]] = {
    "mbarrier_init": (1, "begin a barrier of phases that `count` arrivals end each (index)",
                      (*BARRIER, "count"), {}),
    "mbarrier_fence": (0, "barriers that this thread has begun are there for copies, behind a "
                       "barrier also for other threads", (), {}),
    "mbarrier_arrive": (1, "arrive at a barrier, which ends its phase if it is the last one; at "
                        "that of each workgroup of the `cluster` (index)", (*BARRIER, "cluster"),
                        {}),
    "mbarrier_expect": (1, "arrive, and let the phase last until copies have brought `bytes` "
                        "(index)", (*BARRIER, "bytes"), {}),
    "mbarrier_wait": (2, "until the phase of a parity has ended; the data of its copies are "
                      "visible (index, parity)", BARRIER, {}),
    # Coordinates and tuples begin with the innermost axis, along which a box is a line of swizzled
    # memory. Element (x, y, ...) of the source is at source_off + x * pitches[0] + ...
    "copy_tile": (2, "start to copy a box of a global memory that is only read to swizzled shared "
                  "memory, which counts at a barrier; zeros outside of the extents. With a "
                  "`cluster` also to its other workgroups (index, index of the barrier, "
                  "coordinates)", ("mem", "off", "source", "source_off", "barriers", "extents",
                                   "pitches", "box", "cluster"), {"variadic": True, "cost": 8}),
    "team_barrier": (0, "`count` threads of a workgroup meet, always the same", ("count",), {}),
    "cluster_barrier": (0, "the threads of all workgroups of a cluster meet", (), {}),
    "thread_registers": (0, "the threads of a warpgroup hold at most `count` registers from here "
                         "on, which are fewer than before, or more", ("count", "fewer"),
                         {"via_whole": nothing}),
}
