"""The NumPy definition of rings: phase barriers, copies of tiles, and the roles they synchronize.

A copy lands when a thread waits for the phase of the barrier that counts it, and not before. From
its start until then no thread may touch its destination, and it may not overwrite the operands of a
product in flight; a thread that reads the copied data must itself have waited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.lockstep import Watched
from ztorch.ir.registers import Registers, Step
from ztorch.ir.roles import Role, Roles


@dataclass
class TileInFlight:
    """A copy of a tile to one workgroup, in flight."""

    store: Watched
    places: np.ndarray
    data: np.ndarray
    barrier: int  # the barrier that counts it
    phase: int  # the phase of that barrier


class PhaseBarriers:
    """The barriers of one memory, those of all workgroups one after the other."""

    def __init__(self, size: int, threads: int):
        self.count = np.zeros(size, np.int64)  # arrivals that end a phase; 0: not initialized
        self.pending = np.zeros(size, np.int64)  # of them, those still missing
        self.expected = np.zeros(size, np.int64)  # bytes, in this phase
        self.transferred = np.zeros(size, np.int64)
        self.done = np.zeros(size, np.int64)  # phases that have ended
        self.owner = np.zeros(size, np.int64)  # the thread that initialized it
        self.epoch = np.zeros(size, np.int64)  # barriers that the thread had passed by then
        self.cluster_epoch = np.zeros(size, np.int64)  # cluster barriers that it had passed
        self.fenced = np.zeros(size, bool)
        self.waited_for = np.zeros((threads, size), np.int64)  # phases, by each thread
        self.in_flight: list[TileInFlight] = []

    def advance(self) -> bool:
        """End the complete phases; False if more bytes were transferred than were expected."""
        ended = (self.count > 0) & (self.pending == 0)
        if (self.transferred > self.expected)[ended].any():
            return False
        ended &= self.transferred == self.expected
        self.done[ended] += 1
        self.pending[ended] = self.count[ended]
        self.expected[ended] = self.transferred[ended] = 0
        return True


class RingSteps(Registers):
    """Registers, and closures for the instructions of rings."""

    def __init__(self, kernel: Kernel, *launch: Any):
        super().__init__(kernel, *launch)
        self.roles = Roles()
        self.rings: dict[str, PhaseBarriers] = {}
        self.cluster_epoch = np.zeros_like(self.number)  # of each thread
        self.reached_others = np.full(self.threads, -1)  # the same, when last arriving elsewhere
        self.team: np.ndarray | None = None  # the threads of team_barrier
        for i in kernel.body:
            if i.opcode == "mbarrier_init":
                size = self.stores[i.attrs["mem"]].data.size
                self.rings.setdefault(i.attrs["mem"], PhaseBarriers(size, self.threads))
            if i.opcode == "copy_tile":
                store = self.stores[i.attrs["mem"]]
                store.filled_by = np.zeros(store.data.size, np.int64)
                store.filled_in = np.zeros(store.data.size, np.int64)
                store.in_flight_to = np.zeros(store.data.size, bool)
        self.ring_of = {i.attrs["mem"]: i.attrs["barriers"] for i in kernel.body
                        if i.opcode == "copy_tile"}

    def finish(self) -> None:
        """Check that no copy is in flight when the kernel ends."""
        end = len(self.kernel.body) - 1
        for ring in self.rings.values():
            if ring.in_flight:
                raise self.fail(end, f"the kernel ends while a copy to "
                                     f"{ring.in_flight[0].store.spec.name} is in flight")
        if (self.reached_others >= self.cluster_epoch[:, 0]).any():
            raise self.fail(end, "a workgroup may end while others of its cluster reach it: there "
                                 "is no cluster_barrier after the last arrival")

    def side_by_side(self, at: int, condition: int, yes: list[Step], no: list[Step]) -> Step:
        """Both branches of an `if` whose threads wait for each other."""
        def step() -> None:
            c = np.broadcast_to(self.regs[condition], (self.threads, 1))
            masks = [c & self.present(), ~c & self.present()]
            if self.roles.current is not None:
                raise self.fail(at, "roles are nested in a role")
            self.roles.run(self, [Role(mask, steps) for mask, steps in zip(
                masks, (yes, no), strict=True) if mask.any()])
        return step

    # -- barriers --------------------------------------------------------------------------------

    def _each(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (self.threads, 1))[:, 0]

    def _barriers(self, at: int, instr: Instr, key: int, mem: str, off: int = 0,
                  ) -> tuple[PhaseBarriers, np.ndarray, np.ndarray]:
        """The barriers that the active threads refer to, and the numbers of these threads."""
        if mem not in self.rings:
            raise self.fail(at, f"{mem} holds no barriers: none is ever initialized")
        places, _ = self.reach(at, self.stores[mem], self.regs[key] + off, None)
        active = np.flatnonzero(self._each(self.present()))
        return self.rings[mem], self._each(places)[active].astype(np.int64), active

    def _usable(self, at: int, ring: PhaseBarriers, places: np.ndarray, threads: np.ndarray,
                elsewhere: bool = False) -> None:
        """Check that barriers were initialized, visibly to these threads."""
        if not ring.count[places].all():
            raise self.fail(at, "the barrier was never initialized (mbarrier_init)")
        if not ring.fenced[places].all():
            raise self.fail(at, "there is no mbarrier_fence after the mbarrier_init")
        epoch, since = ((self.cluster_epoch, ring.cluster_epoch) if elsewhere else
                        (self.epoch, ring.epoch))
        unknown = (ring.owner[places] != threads) & (epoch[threads, 0] <= since[places])
        if unknown.any():
            raise self.fail(at, "race: there is no barrier after the mbarrier_init")

    def _elsewhere(self, at: int, threads: np.ndarray, places: np.ndarray, size: int,
                   cluster: int, apart: int = 1) -> list[np.ndarray]:
        """The same indices in the memory of workgroups of a cluster that are `apart` from one
        another, the first workgroup first; only the workgroup's own indices if it is 1."""
        if cluster == 1:
            return [places]
        if (count := len(self.group) // self.size) % cluster:
            raise self.fail(at, f"{count} workgroups are no multiple of the cluster of {cluster}")
        group, reached = self.group[threads, 0], cluster * apart
        first = group // reached * reached + group % apart
        return [places + (first + k * apart - group) * size for k in range(cluster)]

    def _mbarrier_init(self, at: int, instr: Instr) -> Step:
        key, attrs = self.key(instr.args[0]), instr.attrs

        def step() -> None:
            ring, places, threads = self._barriers(at, instr, key, attrs["mem"], attrs["off"])
            if ring.count[places].any() or len(set(places.tolist())) < len(places):
                raise self.fail(at, "the barrier is initialized twice")
            ring.count[places] = ring.pending[places] = attrs["count"]
            ring.owner[places] = threads
            ring.epoch[places] = self.epoch[threads, 0]
            ring.cluster_epoch[places] = self.cluster_epoch[threads, 0]
        return step

    def _mbarrier_fence(self, at: int, instr: Instr) -> Step:
        def step() -> None:
            active = self._each(self.present())
            for ring in self.rings.values():
                ring.fenced |= active[ring.owner] & (ring.count > 0)
        return step

    def _mbarrier_arrive(self, at: int, instr: Instr) -> Step:
        key, attrs = self.key(instr.args[0]), instr.attrs
        cluster, nbytes = attrs.get("cluster", 1), attrs.get("bytes", 0)

        def step() -> None:
            ring, own, threads = self._barriers(at, instr, key, attrs["mem"], attrs["off"])
            size = self.stores[attrs["mem"]].spec.size
            for places in self._elsewhere(at, threads, own, size, cluster):
                self._usable(at, ring, places, threads, cluster > 1)
                np.subtract.at(ring.pending, places, 1)
                np.add.at(ring.expected, places, nbytes)
                if (ring.pending[places] < 0).any():
                    raise self.fail(at, "more threads arrive in a phase than the barrier counts")
            if cluster > 1:
                self.reached_others[threads] = self.cluster_epoch[threads, 0]
            self._advance(at, ring)
        return step

    _mbarrier_expect = _mbarrier_arrive

    def _advance(self, at: int, ring: PhaseBarriers) -> None:
        if not ring.advance():
            raise self.fail(at, "copies transfer more bytes than mbarrier_expect expects")
        self.roles.offer(self)

    def _mbarrier_wait(self, at: int, instr: Instr) -> Step:
        key, parity, attrs = *map(self.key, instr.args), instr.attrs

        def step() -> None:
            ring, places, threads = self._barriers(at, instr, key, attrs["mem"], attrs["off"])
            self._usable(at, ring, places, threads)
            bits = self._each(self.regs[parity])[threads] & 1
            lacking = ring.expected[places] - ring.transferred[places]
            bytes_missing = (f", for which {lacking.max()} bytes are not in flight"
                    if lacking.max() > 0 else "")
            waits = (f"instruction {at} waits for barrier {attrs['mem']}"
                     f"[{int(places[0]) % self.stores[attrs['mem']].spec.size}]{bytes_missing}")
            self.roles.until(self, lambda: bool(((ring.done[places] & 1) != bits).all()), waits,
                             lambda message: self.fail(at, message))
            ring.waited_for[threads, places] = ring.done[places]
            self._land(at, ring, places)
        return step

    # -- copies ----------------------------------------------------------------------------------

    def _copy_tile(self, at: int, instr: Instr) -> Step:
        attrs, (to, barrier, *corner) = instr.attrs, map(self.key, instr.args)
        target, source = self.stores[attrs["mem"]], self.stores[attrs["source"]]
        cluster, apart, size = attrs["cluster"], attrs["apart"], target.spec.size
        # The outermost axis first: the lines of the target are contiguous.
        offsets = np.indices(attrs["box"][::-1]).reshape(len(attrs["box"]), -1)[::-1]

        def step() -> None:
            ring, own, threads = self._barriers(at, instr, barrier, attrs["barriers"])
            first, _ = self.reach(at, target, self.regs[to] + (
                attrs["off"] + np.array([0, offsets.shape[1] - 1])), None)
            first = np.broadcast_to(first, (self.threads, 2))[threads, 0]
            barriers = len(ring.count) // max(1, len(self.group) // self.size)
            counters = self._elsewhere(at, threads, own, barriers, cluster, apart)
            targets = self._elsewhere(at, threads, first, size, cluster, apart)
            for n, thread in enumerate(threads):
                place = [int(self._each(self.regs[c])[thread]) + o for c, o in zip(
                    corner, offsets, strict=True)]
                inside = np.logical_and.reduce([
                    (x >= 0) & (x < e) for x, e in zip(place, attrs["extents"], strict=True)])
                flat = attrs["source_off"] + sum(
                    x * p for x, p in zip(place, attrs["pitches"], strict=True))
                data = np.where(inside, source.data[np.where(inside, flat, 0)],
                                np.zeros(1, source.data.dtype))
                for at_barrier, begin in zip(counters, targets, strict=True):
                    self._usable(at, ring, at_barrier[n:n + 1], threads[n:n + 1], cluster > 1)
                    self._start(at, ring, int(at_barrier[n]), target, int(begin[n]), data)
            self._advance(at, ring)
        return step

    def _start(self, at: int, ring: PhaseBarriers, barrier: int, store: Watched, begin: int,
               data: np.ndarray) -> None:
        places = begin + np.arange(len(data))
        assert store.in_flight_to is not None
        reading = store.reading is not None and store.reading[places].any()
        if store.in_flight_to[places].any() or reading:
            why = "a product in flight reads it" if reading else "a copy to it is in flight"
            raise self.fail(at, f"{store.spec.name}[{begin % store.spec.size}] is overwritten "
                                f"while {why}: nothing has waited for it")
        store.in_flight_to[places] = True
        ring.transferred[barrier] += data.nbytes
        ring.in_flight.append(TileInFlight(store, places, data, barrier, int(ring.done[barrier])))

    def _land(self, at: int, ring: PhaseBarriers, barriers: np.ndarray) -> None:
        waited, left = set(barriers.tolist()), []
        for tile in ring.in_flight:
            if tile.barrier not in waited or tile.phase >= ring.done[tile.barrier]:
                left.append(tile)
                continue
            store, places = tile.store, tile.places
            assert store.in_flight_to is not None and store.known is not None
            assert store.filled_by is not None and store.filled_in is not None
            store.in_flight_to[places], store.known[places] = False, True
            store.data[places] = tile.data
            store.filled_by[places], store.filled_in[places] = tile.barrier + 1, tile.phase
        ring.in_flight = left

    def arrived(self, at: int, store: Watched, places: np.ndarray, active: np.ndarray) -> None:
        assert store.filled_by is not None and store.filled_in is not None
        waited_for = self.rings[self.ring_of[store.spec.name]].waited_for
        elements = places[active]
        barrier = store.filled_by[elements] - 1
        threads = np.broadcast_to(np.flatnonzero(active)[:, None], elements.shape)
        if ((barrier >= 0) & (waited_for[threads, barrier] <= store.filled_in[elements])).any():
            raise self.fail(at, f"{store.spec.name} is read by a thread that has not waited for "
                                "the copy that wrote it")

    # -- teams -----------------------------------------------------------------------------------

    def _team_barrier(self, at: int, instr: Instr) -> Step:
        count = instr.attrs["count"]

        def step() -> None:
            active = self._each(self.present())
            masks = active.reshape(-1, self.size)
            if not np.isin(masks.sum(1), (0, count)).all():
                raise self.fail(at, f"divergent: not the {count} threads of a team get here")
            team = masks.any(0)
            if self.team is not None and (team != self.team).any():
                raise self.fail(at, "other threads met here before: there is one team only")
            self.team = np.asarray(team)
            self.epoch = self.epoch + self.present()
        return step

    def _thread_registers(self, at: int, instr: Instr) -> Step:
        return lambda: self.together(at, self.subgroup * 4, "warpgroup")
