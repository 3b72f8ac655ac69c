"""cp.async: copies from global to shared memory beside which a thread goes on, as the PTX ISA has
them. One lands when its thread waits for its group; nobody may touch its bytes before.

Nothing is shared with the interpreter of the IR, which has the same rule for elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tests.machines.ptx.parse import Address, Instruction, Literal, PtxError, Register

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

Work = Callable[[np.ndarray | None], None]
SIZES = {"ca": (4, 8, 16), "cg": (16,)}


class InFlight:
    """The copies of a launch: of some threads each, with the number of groups that every one of them
    had committed by then."""

    def __init__(self, m: Machine):
        self.m = m
        self.flying = np.zeros(m.shared.size, bool)
        self.groups = np.zeros(m.threads, np.int64)  # that each thread has committed
        self.copies: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def start(self, threads: np.ndarray, places: np.ndarray, data: np.ndarray) -> None:
        self.copies.append((threads, self.groups[threads], places, data))
        self.flying[places] = True

    def wait(self, live: np.ndarray, pending: int) -> None:
        later = []
        for threads, group, places, data in self.copies:
            lands = live[threads] & (group < self.groups[threads] - pending)
            if lands.any():
                self.flying[places[lands]] = False
                self.m.touched(threads[lands], places[lands])
                self.m.shared[places[lands]] = data[lands]
            if not lands.all():
                later.append((threads[~lands], group[~lands], places[~lands], data[~lands]))
        self.copies = later


def cp(m: Machine, i: Instruction) -> Work:
    if i.opcode == ("cp", "async", "commit_group"):
        def commit(live: np.ndarray | None) -> None:
            m.in_flight.groups += 1 if live is None else live
        return commit
    if i.opcode == ("cp", "async", "wait_group"):
        [count] = i.operands
        assert isinstance(count, Literal)
        return lambda live: m.in_flight.wait(
            np.ones(m.threads, bool) if live is None else live, count.number)
    if len(i.opcode) != 5 or i.opcode[:2] != ("cp", "async") or i.opcode[3:] != ("shared", "global"):
        raise PtxError(f"{i.text}: unknown")
    to, origin, size, *read = i.operands
    if not (isinstance(to, Address) and isinstance(origin, Address) and isinstance(size, Literal)
            and isinstance(to.base, Register) and isinstance(origin.base, Register)
            and size.number in SIZES.get(i.opcode[2], ()) and len(read) < 2):
        raise PtxError(f"{i.text}: operands")
    where, source = m.source(to.base, 32, i.text), m.source(origin.base, 64, i.text)
    count, all_of_it = size.number, np.array([size.number], np.uint32)
    reads = m.source(read[0], 32, i.text) if read else lambda: all_of_it

    def work(live: np.ndarray | None) -> None:
        active = np.arange(m.threads) if live is None else np.flatnonzero(live)
        targets, sources, bytes_read = (np.broadcast_to(x, m.threads)[active].astype(np.int64) for x in (
            where() + np.uint32(to.offset), source() + np.uint64(origin.offset), reads()))
        if (targets % count).any() or (sources[bytes_read > 0] % count).any() or (bytes_read > count).any():
            raise PtxError(f"{m.entry.name}: {i.text}: not aligned to {count} bytes")
        whole = np.ones(m.threads, bool) if live is None else live
        for part in range(0, count, 4):
            m.inside("shared", (targets + part).astype(np.uint32), None if live is None else whole, 4, "st",
                     np.dtype(np.uint32))
        stride = m.shared.size // (m.threads // m.size)
        data = np.zeros((len(active), count), np.uint8)
        for n in set(bytes_read.tolist()) - {0}:
            chosen = bytes_read == n
            held, first = m.memory.reach(sources[chosen].astype(np.uint64), n)
            data[chosen, :n] = held.data[first[:, None] * n + np.arange(n)]
        places = (targets + m.block[active] * stride)[:, None] + np.arange(count)
        m.in_flight.start(active, places, data)
    return work
