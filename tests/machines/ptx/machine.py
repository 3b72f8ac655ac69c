"""Runs PTX in NumPy: all threads of a launch at once, to the bit as PTX defines it.

A register is an array of bits, one number a thread or one for all. Threads that part at a branch
wait where they are behind the others: those with the least place in the code go first, so that
code with loops and ifs inside one another comes together again where it should.

What PTX leaves to the machine (division by zero, registers never written) gives odd numbers, and
what would be an error or a race there is one here: accesses out of bounds or misaligned, barriers
and shuffles that not all threads reach, shared memory that two threads touch without a barrier in
between, `.nc` loads of what the kernel writes, and float arithmetic that could be contracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.machines.ptx import atomics, copies, early, launch_order, products, rings, tensor, words
from tests.machines.ptx.accesses import Accesses, starts
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.parse import Array, Entry, Instruction, Literal, PtxError
from tests.machines.ptx.registers import Grid
from tests.machines.ptx.tensor_maps import TensorMap
from ztorch.ir.races import Detector

CONTROL = ("bra", "ret", "bar")
WAITS = (("mbarrier", "try_wait", "parity", "shared::cta", "b64"), ("barrier", "cluster", "wait", "acquire"))
DYNAMIC = 227 << 10  # the most bytes of shared memory that a launch can ask for
GAP = 256  # bytes between shared arrays


def launch(entry: Entry, grid: Grid, pointers: list[int], memory: GlobalMemory,
           races: bool = True, shared: int = 0, maps: Sequence[TensorMap] = ()) -> None:
    """One launch, from the first instruction to the last thread's return, with so many bytes of
    shared memory beside what the entry declares."""
    if len(maps) != len(entry.maps) or math.prod(grid) % entry.cluster:
        raise PtxError(f"{entry.name} takes {len(entry.maps)} tensor maps, and clusters of {entry.cluster}")
    if len(pointers) != len(entry.parameters):
        raise PtxError(f"{entry.name} takes {len(entry.parameters)} pointers, not {len(pointers)}")
    key = grid, races, shared
    machine = entry.machines.pop(key, None) or Machine(entry, *key)
    machine.begin(pointers, memory, maps)
    with np.errstate(all="ignore"):
        machine.run()
    entry.machines[key] = machine  # for the next launch: reading the code takes a while


def check(entry: Entry) -> None:
    """Raises `PtxError` for an instruction that the machine does not know."""
    machine = Machine(entry, (1, 1, 1), False, DYNAMIC)
    for i in entry.code:
        if i.opcode[0] not in CONTROL and i.opcode not in WAITS:
            machine.step(i)


class Machine(Accesses):
    """The code of an entry as functions, for launches of one grid."""

    def __init__(self, entry: Entry, grid: Grid, races: bool, shared: int):
        self.entry, self.grid, self.detects = entry, grid, races
        dynamic = {"dynamic": Array("shared", 1024, shared)} if shared else {}
        self.memories = entry.arrays | dynamic
        self.size = math.prod(entry.workgroup)
        self.threads = math.prod(grid) * self.size
        self.number = np.arange(self.threads)
        self.block = self.number // self.size
        self.regs: dict[str, np.ndarray] = {}
        # Registers of asynchronous products: their accumulators and their left operands.
        self.accumulators, self.lefts = products.registers(entry.code)
        self.arrays()
        self.labels = frozenset(entry.labels.values())
        self.pieces = {at: self.piece(at) for at in sorted({0, *self.labels})}

    def begin(self, pointers: list[int], memory: GlobalMemory, maps: Sequence[TensorMap] = ()) -> None:
        """As it is before a launch: nothing of the one before is left."""
        self.complete, self.maps = memory, maps
        self.memory = early.NotYet(self.entry) if early.waits(self.entry) else memory
        self.parameters = dict(zip(self.entry.parameters, pointers, strict=True))
        self.epoch = np.zeros(self.threads, np.int64)
        self.mask: np.ndarray | None = None  # of the threads at work; None: all
        self.regs.clear()
        self.through: dict[int, list[np.ndarray | None]] = {}  # bytes read by .nc, and written
        self.shared.fill(0xFF)
        self.local.fill(0xFF)
        self.races = Detector(self.shared.size) if self.detects and self.shared.size else None
        self.in_flight = copies.InFlight(self)
        self.products = products.Products(self)
        self.rings = rings.Rings(self)
        self.order = launch_order.LaunchOrder(self) if self.detects and launch_order.meets(self) else None

    def arrays(self) -> None:
        self.places: dict[str, int] = {}
        totals = {"shared": 0, "local": 0}
        for name, a in self.memories.items():
            at = -(-totals[a.space] // a.align) * a.align
            self.places[name] = at
            totals[a.space] = -(-(at + a.size + GAP) // GAP) * GAP
        blocks = math.prod(self.grid)
        self.shared = np.empty(blocks * totals["shared"], np.uint8)
        self.local = np.empty(self.threads * totals["local"], np.uint8)
        valid = {s: np.zeros(n, bool) for s, n in totals.items()}
        for name, a in self.memories.items():
            valid[a.space][self.places[name]:self.places[name] + a.size] = True
        # Where an aligned access of so many bytes is inside of an array.
        self.valid = {(s, size): starts(v, size) for s, v in valid.items() for size in (1, 2, 4, 8)}

    # -- the order of threads ------------------------------------------------------------------------

    def piece(self, at: int) -> tuple[list[Callable[[], None]], int]:
        """The instructions from a leader to the next control, and where that stands."""
        steps, code = [], self.entry.code
        while at < len(code) and code[at].opcode[0] not in CONTROL and code[at].opcode not in WAITS:
            steps.append(self.step(code[at]))
            at += 1
            if at in self.labels or code[at - 1].opcode[:2] == ("mbarrier", "arrive"):
                break
        return steps, at

    def run(self) -> None:
        waiting: dict[int, np.ndarray] = {}
        code, at, left = self.entry.code, 0, self.threads
        everyone = np.ones(self.threads, bool)
        asleep: dict[int, np.ndarray] = {}  # by the wait that they stand at
        while True:
            spinning = self.order is not None and self.order.reads > 1  # on what others signal
            rings.wake(self, asleep, waiting, some=spinning)
            if self.mask is not None and not self.mask.any():
                rings.wake(self, asleep, waiting, some=not waiting)
                if not waiting:
                    raise PtxError(f"{self.entry.name}: deadlock: " + "; ".join(
                        f"{code[place].text} of {mask.sum()} threads" for place, mask in asleep.items()))
                at = min(waiting)
                self.mask = waiting.pop(at)
            if waiting:
                first = min(waiting)
                if first < at:
                    waiting[at] = waiting.get(at, ~everyone) | self.active
                    self.mask, at = waiting.pop(first), first
                elif first == at:
                    self.mask = waiting.pop(first) | self.active
                if self.mask is not None and self.mask.all():
                    self.mask = None
            if at not in self.pieces:
                self.pieces[at] = self.piece(at)
            steps, at = self.pieces[at]
            for step in steps:
                step()
            if at >= len(code):
                raise PtxError(f"{self.entry.name} runs over its end")
            i = code[at]
            if (i.opcode[0] not in CONTROL and i.opcode not in WAITS) or (waiting and min(waiting) <= at):
                continue
            if i.opcode in WAITS:
                here = np.flatnonzero(self.active)
                if not self.wait(i, here):
                    asleep[at] = asleep.get(at, ~everyone) | self.active
                    self.mask = ~everyone
                else:
                    at += 1
                continue
            if i.opcode[0] == "bar":
                self.barrier(i)
                at += 1
                continue
            taken = self.guard(i)
            if i.opcode[0] == "ret":
                assert taken is True
                left -= int(self.active.sum())
                if not left:
                    return self.rings.finish()
                if not waiting and not asleep:
                    raise PtxError(f"{self.entry.name}: threads got lost")
                self.mask = ~everyone
                continue
            target = self.entry.labels[i.operands[0].name]  # type: ignore[union-attr]
            if taken is True:
                at = target
            elif taken is False:
                at += 1
            else:
                waiting[target] = waiting.get(target, ~everyone) | taken
                self.mask = self.active & ~taken
                at += 1

    def passes(self, i: Instruction, threads: np.ndarray) -> np.ndarray:
        """Which of the threads that stand at a wait may go on."""
        if i.opcode == WAITS[0]:
            return self.rings.passes(i, threads)
        cluster = self.size * self.entry.cluster
        everyone = self.rings.arrivals.reshape(-1, cluster).min(1)
        ready: np.ndarray = everyone[threads // cluster] >= self.rings.arrivals[threads]
        return ready

    def wait(self, i: Instruction, threads: np.ndarray) -> bool:
        """A wait, if it ends. One for a phase says at first that it has not, as it may, so that code which
        does not try again is found."""
        r, flag = self.rings, i.operands[0] if i.operands else None
        if i.guard is not None:
            raise PtxError(i.text)
        if flag is not None and not r.tried[threads].all():
            self.put(flag, np.zeros(1, bool), self.mask)
            r.tried[threads] = True
            return True
        if not self.passes(i, threads).all():
            return False
        if flag is None:
            self.epoch = self.epoch + self.active
            r.cluster_epoch[threads] += 1
            if self.order is not None and self.mask is None:
                self.order.met()
            return True
        r.tried[threads] = False
        r.ended(i, threads)
        self.put(flag, np.ones(1, bool), self.mask)
        return True

    @property
    def active(self) -> np.ndarray:
        return np.ones(self.threads, bool) if self.mask is None else self.mask

    def guard(self, i: Instruction) -> np.ndarray | bool:
        """Which active threads an instruction is for: True where all, False where none."""
        if i.guard is None:
            return True
        p = self.regs[i.guard.key] ^ i.unless
        if p.size == 1:
            return bool(p[0])
        p = p if self.mask is None else p & self.mask
        count = int(p.sum())
        if not count:
            return False
        return True if count == (self.threads if self.mask is None else int(self.mask.sum())) else p

    def barrier(self, i: Instruction) -> None:
        team = len(i.operands) == 2 and i.operands[0] == Literal(1) and isinstance(i.operands[1], Literal)
        if i.opcode != ("bar", "sync") or (i.operands != (Literal(0),) and not team) or i.guard:
            raise PtxError(i.text)
        if team:
            here = self.active.reshape(-1, self.size).sum(1)
            if not np.isin(here, (0, i.operands[1].number)).all():  # type: ignore[union-attr]
                raise PtxError(f"{self.entry.name}: {i.text}: {here.max()} threads of a team reach it")
        elif self.mask is not None:
            some = self.mask.reshape(-1, self.size)
            if (some.any(1) != some.all(1)).any():
                raise PtxError(f"{self.entry.name}: a barrier that not all threads of a block reach")
        self.epoch = self.epoch + self.active
        if self.order is not None:
            self.order.barrier()

    def arrive(self, live: np.ndarray | None) -> None:
        """Threads say that they have come to the barrier of their cluster."""
        self.rings.arrivals += 1 if live is None else live

    # -- instructions --------------------------------------------------------------------------------------

    def step(self, i: Instruction) -> Callable[[], None]:
        work = self.work(i)
        if i.guard is None:
            return lambda: work(self.mask)

        def guarded() -> None:
            taken = self.guard(i)
            if taken is True:
                work(self.mask)
            elif taken is not False:
                work(taken)
        return guarded

    def work(self, i: Instruction) -> Callable[[np.ndarray | None], None]:
        name = i.opcode[0]
        if i.opcode[1:3] in launch_order.ORDERED:
            return launch_order.counting(self, i)
        if name in ("ld", "st"):
            return self.access(i)
        if name == "atom":
            return atomics.atom(self, i)
        if name == "mov":
            return self.move(i)
        if name == "cvta":
            return self.plain(i, lambda x: x, (64,), 64)
        if name == "shfl":
            return self.shuffle(i)
        if name == "griddepcontrol":
            return early.griddepcontrol(self, i)
        if name in ("mma", "ldmatrix"):
            return getattr(tensor, name)(self, i)
        if name == "cp":
            return (rings.bulk if "bulk" in i.opcode else copies.cp)(self, i)
        if name in ("mbarrier", "mapa", "setmaxnreg"):
            return getattr(rings, name)(self, i)
        if i.opcode == ("fence", "mbarrier_init", "release", "cluster"):
            return rings.fence(self)
        if i.opcode == ("barrier", "cluster", "arrive", "release"):
            return self.arrive
        if name in ("wgmma", "fence"):
            return getattr(products, name)(self, i)
        meaning, takes, gives = words.meaning(i)
        return self.plain(i, meaning, takes, gives)
