"""The order of accesses to global memory between the blocks of a launch that meets: a barrier of the launch, by a
counter that is added to with release and read with acquire, or the barrier of a cluster that is the whole launch; and
between two blocks one of which signals to the other.

Blocks that touch the same bytes, one of them writing, race unless all blocks have met in between, or one has waited
for a signal of the other behind its write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tests.machines.ptx import atomics
from tests.machines.ptx.memory import Allocation
from tests.machines.ptx.parse import Address, Entry, Instruction, PtxError, Register
from ztorch.ir.races import Detector

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

ARRIVE = ("atom", "acq_rel", "gpu", "global", "add", "u32")
SIGNAL = ("st", "release", "gpu", "global", "u32")
OBSERVE = ("ld", "acquire", "gpu", "global", "u32")
ORDERED = tuple((order, "gpu") for order in ("acq_rel", "acquire", "release"))
FLIPPED = np.uint32(1 << 31)  # the bit of a counter that changes when all blocks have come
PATIENCE = 64  # reads of a counter that nobody adds to


def counts(entry: Entry) -> bool:
    """Whether blocks wait for one another by a counter."""
    return any(i.opcode in (ARRIVE, OBSERVE, SIGNAL) for i in entry.code)


def signals(entry: Entry) -> bool:
    """Whether blocks signal to one another."""
    return any(i.opcode == SIGNAL for i in entry.code)


def meets(m: Machine) -> bool:
    """Whether the blocks of a launch meet."""
    return counts(m.entry) or 1 < math.prod(m.grid) == m.entry.cluster


class LaunchOrder:
    """What the blocks have touched since they last met."""

    def __init__(self, m: Machine):
        self.m = m
        self.logs: dict[int, Detector] = {}  # by the base of an allocation
        self.unordered = np.zeros(m.threads, bool)  # threads that have written since a barrier of their block
        self.released = np.zeros(math.prod(m.grid), bool)  # blocks that have come
        self.acquired = np.zeros_like(self.released)  # blocks of which a thread has seen that all have come
        self.reads = 0  # of the counter, one after another
        self.before = np.zeros(1, np.uint32)  # the bit that flips, when threads came
        self.counting = False
        # Signals that nobody has waited for, by address: the block and what it has written, by allocation.
        self.given: dict[int, tuple[int, dict[int, np.ndarray]]] = {}
        self.tried: set[tuple[int, int]] = set()  # threads that wait, and for which address

    def fail(self, why: str) -> PtxError:
        return PtxError(f"{self.m.entry.name}: {why}")

    def touched(self, live: np.ndarray | None, held: Allocation, elements: np.ndarray, size: int, how: str) -> None:
        if self.counting:
            return
        threads = self.m.number if live is None else np.flatnonzero(live)
        log = self.logs.setdefault(held.base, Detector(held.nbytes))
        notice = {"ld": log.read, "st": log.write, "atom": log.atomic}[how]
        places = np.broadcast_to(elements * size, threads.shape)
        clash = notice(places, threads, self.m.block[threads], self.m.epoch[threads])
        if clash.any():
            raise self.fail(f"a race of blocks on global memory at {np.broadcast_to(places, clash.shape)[clash][0]}")
        self.unordered[threads] |= how != "ld"

    def arrive(self, threads: np.ndarray) -> None:
        self.come(threads, "comes to the others")
        self.released[self.m.block[threads]] = True

    def come(self, threads: np.ndarray, how: str) -> None:
        """Threads tell others what their blocks have done."""
        for t in threads:
            block = self.m.block == self.m.block[t]
            if self.unordered[block & (self.m.number != t)].any():
                raise self.fail(f"a block {how} before its threads have met: no bar.sync after a store")
        self.reads = 0

    def observe(self, threads: np.ndarray) -> bool:
        """Whether threads see the counter as it is. The first read does not, as it may be too early, so that code
        which does not try again is found."""
        self.reads += 1
        if self.reads > PATIENCE:
            raise self.fail("deadlock: a block waits for others that do not come")
        if self.reads > 1 and self.released.all():
            self.acquired[self.m.block[threads]] = True
        return self.reads > 1

    def signal(self, threads: np.ndarray, addresses: np.ndarray) -> None:
        self.come(threads, "signals")
        for t, address in zip(threads.tolist(), addresses.tolist(), strict=True):
            if address in self.given:
                raise self.fail("a block signals again before another has waited")
            block = int(self.m.block[t])
            self.given[address] = block, {base: log.written_by(t, block, int(self.m.epoch[t]))
                                          for base, log in self.logs.items()}

    def wait(self, threads: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """Which threads see their signals. None does when it reads for the first time, as it may be too early."""
        self.reads += 1
        if self.reads > PATIENCE:
            raise self.fail("deadlock: a block waits for a signal that does not come")
        seen = np.zeros(len(threads), bool)
        for k, pair in enumerate(zip(threads.tolist(), addresses.tolist(), strict=True)):
            t, address = pair
            if pair in self.tried and address in self.given:
                block, written = self.given.pop(address)
                for base, elements in written.items():
                    self.logs[base].hand_over(elements, block, (t, int(self.m.block[t]), int(self.m.epoch[t])))
                self.tried.remove(pair)
                seen[k], self.reads = True, 0
            else:
                self.tried.add(pair)
        return seen

    def barrier(self) -> None:
        """Threads have met in their blocks."""
        self.unordered &= ~self.m.active
        if self.acquired.all():
            self.met()

    def met(self) -> None:
        for log in self.logs.values():
            log.forget()
        self.released[:] = self.acquired[:] = False


def counting(m: Machine, i: Instruction) -> Callable[[np.ndarray | None], None]:
    """The words of a barrier of the launch, and of signals."""
    plain = Instruction((i.opcode[0], *i.opcode[3:]), i.operands, text=i.text)
    if i.opcode not in (ARRIVE, OBSERVE, SIGNAL):
        raise PtxError(f"{i.text}: unknown")
    work = atomics.atom(m, plain) if i.opcode == ARRIVE else m.access(plain)
    signaling, at = signals(m.entry), i.operands[0 if i.opcode == SIGNAL else 1]
    assert isinstance(at, Address)
    base = m.base(at, 64, i.text)

    def step(live: np.ndarray | None) -> None:
        order = m.order or LaunchOrder(m)
        threads = m.number if live is None else np.flatnonzero(live)
        addresses = np.broadcast_to(base() + np.uint64(at.offset), m.threads)[threads]
        if i.opcode == SIGNAL:
            order.signal(threads, addresses)
        order.counting = True
        work(live)
        order.counting = False
        if i.opcode == SIGNAL:
            return
        register = i.operands[0]
        assert isinstance(register, Register)
        number = m.regs[register.key]
        if signaling:
            seen = np.zeros(m.threads, bool)
            seen[threads] = order.wait(threads, addresses)
            m.put(register, np.where(seen, number, 0).astype(number.dtype), live)
        elif i.opcode == ARRIVE:
            order.arrive(threads)
            order.before = number & FLIPPED
        elif not order.observe(threads):
            m.put(register, number & ~FLIPPED | order.before, live)
    return step
