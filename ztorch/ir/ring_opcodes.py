"""The opcodes of rings: a producer's copies of whole tiles, and the mbarriers through which it and
its consumers hand stages of shared memory to each other.

An mbarrier is in shared memory and counts phases. A phase ends when the number of arrivals that the
barrier was initialized with is reached and copies have transferred the expected bytes. A thread
waits for a phase by its parity: 0 for the first, 1 for the second, 0 for the third, and so on.
"""

from __future__ import annotations

from typing import Any

from ztorch.ir.copy_rewritings import nothing

BARRIER = ("mem", "off")
# Of each opcode: operands, meaning, attributes, and other fields of its row.
ROWS: dict[str, tuple[int, str, tuple[str, ...], dict[str, Any]]] = {
    "mbarrier_init": (1, "initialize a barrier whose phases end after `count` arrivals (index)",
                      (*BARRIER, "count"), {}),
    "mbarrier_fence": (0, "barriers that this thread has initialized are visible to copies, after "
                       "a barrier also to other threads", (), {}),
    "mbarrier_arrive": (1, "arrive at a barrier, which ends its phase if it is the last one; at "
                        "that of each workgroup of the `cluster` (index)", (*BARRIER, "cluster"),
                        {}),
    "mbarrier_expect": (1, "arrive, and let the phase wait until copies have transferred `bytes` "
                        "(index)", (*BARRIER, "bytes"), {}),
    "mbarrier_wait": (2, "wait until the phase of a parity has ended; the data of its copies are "
                      "visible then (index, parity)", BARRIER, {}),
    # Coordinates and tuples begin with the innermost axis, along which a box is a line of swizzled
    # memory. Element (x, y, ...) of the source is at source_off + x * pitches[0] + ...
    "copy_tile": (2, "start to copy a box of a read-only global memory to swizzled shared memory, "
                  "counted by a barrier; zeros outside of the extents. With a `cluster` to so "
                  "many workgroups of it that are `apart` from one another (index, index of the "
                  "barrier, coordinates)",
                  ("mem", "off", "source", "source_off", "barriers", "extents", "pitches", "box",
                   "cluster", "apart"), {"variadic": True, "cost": 8}),
    "team_barrier": (0, "a barrier of a fixed team of `count` threads", ("count",), {}),
    "cluster_barrier": (0, "a barrier of all threads of a cluster, which orders their accesses to "
                        "global memory, too", (), {}),
    "grid_barrier": (1, "a barrier of all threads of the launch, whose workgroups must all run at "
                     "once. It is counted in an element that has no other use and is zero before "
                     "the first launch (index)", BARRIER, {"cost": 64}),
    "grid_signal": (1, "what this thread has written, and what others of its workgroup had before "
                    "its last barrier, is visible to the thread that waits for this element, which "
                    "has no other use and is zero before the first launch (index)", BARRIER,
                    {"cost": 64}),
    "grid_wait": (1, "wait until another workgroup signals in an element, which is zero from then "
                  "on. All workgroups must run at once (index)", BARRIER, {"cost": 64}),
    "thread_registers": (0, "the threads of a warpgroup have `count` registers from here on, fewer "
                         "than before or more", ("count", "fewer"),
                         {"via_instr": nothing}),
}
