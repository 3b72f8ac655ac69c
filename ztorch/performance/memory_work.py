"""Counts the cost of the accesses of one workgroup, from the addresses of its threads."""

from __future__ import annotations

import numpy as np

from ztorch.ir.kernel import SWIZZLE_LINE, Instr, Kernel
from ztorch.performance.accesses import (
    LINE,
    SECTOR,
    AccessCost,
    bank_wavefronts,
    matrix_offsets,
    sectors_touched,
)
from ztorch.performance.footprint import Footprint, TouchedSectors, footprint_of_sequence
from ztorch.performance.thread_values import ThreadValues
from ztorch.performance.work import WRITES, Work


def subgroup_rows(x: np.ndarray, subgroup: int) -> np.ndarray:
    """One row for each subgroup; threads that are missing from the last one count as zero.

    >>> subgroup_rows(np.arange(6), 4).tolist()
    [[0, 1, 2, 3], [4, 5, 0, 0]]
    """
    missing = -len(x) % subgroup
    if missing:
        x = np.concatenate([x, np.zeros(missing, x.dtype)])
    return x.reshape(-1, subgroup)


def subgroups_in(active: np.ndarray, subgroup: int) -> np.ndarray:
    """The numbers of the subgroups that have active threads.

    >>> subgroups_in(np.arange(8) == 5, 4).tolist()
    [1]
    """
    return np.flatnonzero(subgroup_rows(active, subgroup).any(axis=1))


# The key of accesses by operands of asynchronous products, which are counted together. The other
# keys are the place of an instruction, or -1 - place for the source of a copy.
ASYNC_OPERANDS = -1_000_000


class MemoryWork:
    """Adds accesses to the work of a workgroup.

    Args:
        kernel: The kernel of one thread.
        values: The values of its integers.
        subgroup: Threads that run in lockstep.
        work: The counts to add to.
    """

    def __init__(self, kernel: Kernel, values: ThreadValues, subgroup: int, work: Work):
        self.values, self.subgroup, self.work = values, subgroup, work
        self.threads = values.threads
        self.memories = {m.name: m for m in kernel.memories}
        self.accessed: set[tuple[str, bool]] = set()  # global memories; whether they were written
        self.wavefronts: dict[tuple, tuple[int, int]] = {}  # results of `bank_wavefronts`

    def access(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        """Counts an access; a copy is one of its target and one of its source."""
        if i.opcode == "copy_async":
            size = self.memories[i.attrs["mem"]].dtype.bytes * i.attrs["elements"]
            inside = self.values.column(i.args[2])
            reading = active if inside is None else active & inside.astype(bool)
            self._reach(at, i, i.attrs["mem"], self._places(i, 0, "mem", "off"), size, active,
                        weight)
            return self._reach(-1 - at, i, i.attrs["source"],
                               self._places(i, 1, "source", "source_off"), size, reading, weight)
        if i.opcode == "copy_tile":
            return self._reach_tile(at, i, active, weight)
        m = self.memories[i.attrs["mem"]]
        if i.opcode in ("mma_load", "mma_store"):
            return self._reach_matrix(at, i, active, weight)
        writes = i.opcode in WRITES
        lanes = i.args[1].lanes if writes else i.dest.lanes
        masks = i.args[1 + writes:]
        mask = self.values.column(masks[0]) if masks else None
        live = active if mask is None else active & mask.astype(bool)
        places = self._places(i, 0, "mem", "off")
        if not writes:
            self.values.from_memory(i, self.values.of(i.args[0]))
        if i.opcode in ("load", "store"):
            return self._reach(at, i, m.name, places, m.dtype.bytes * lanes, live, weight)
        indices = self.values.of(i.args[0])
        columns = [places] if indices is None else [
            np.broadcast_to(x, (self.threads,)).astype(np.int64) * m.dtype.bytes
            for x in (indices + i.attrs["off"]).T]
        return footprint_of_sequence(
            self._reach(at, i, m.name, c, m.dtype.bytes, live, weight) for c in columns)

    def from_shared(self, mem: str, nbytes: float, weight: float) -> None:
        """Adds the shared-memory traffic of an asynchronous product's operands. There are no
        conflicts, since both are swizzled."""
        cost = self.work.accesses.setdefault(ASYNC_OPERANDS, AccessCost(mem, "shared", "mma_async"))
        cost.requests += weight
        cost.wavefronts += weight * nbytes / LINE
        cost.least_wavefronts += weight * nbytes / LINE

    def _places(self, i: Instr, argument: int, mem: str, off: str) -> np.ndarray:
        """The address of each thread; where unknown, each thread gets a different sector."""
        index = self.values.column(i.args[argument])
        size = self.memories[i.attrs[mem]].dtype.bytes
        if index is None:
            return np.arange(self.threads, dtype=np.int64) * SECTOR
        return (index + i.attrs[off]) * size

    def _reach(self, at: int, i: Instr, mem: str, places: np.ndarray, size: int,
               active: np.ndarray, weight: float) -> Footprint:
        addresses, live = (subgroup_rows(x, self.subgroup) for x in (places, active))
        return self._count(at, i.opcode, mem, addresses, size, live, weight)

    def _reach_matrix(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        """Counts the accesses to a matrix that a subgroup loads or stores together."""
        fragment = (i.dest if i.opcode == "mma_load" else i.args[1]).fragment
        assert fragment is not None
        m = self.memories[i.attrs["mem"]]
        by_chunks = i.attrs["align"] >= 16 and fragment.dtype.bits == 16 and m.space == "shared"
        pairs = fragment.role == "c" and not i.attrs["transposed"] and (
            i.attrs["align"] >= 2 * m.dtype.bytes)
        offsets, size = matrix_offsets(fragment, i.attrs["pitch"], i.attrs["transposed"], by_chunks,
                                       m.dtype.bytes if pairs else 0)
        places = subgroup_rows(self._places(i, 0, "mem", "off"), self.subgroup)
        firsts = places[subgroups_in(active, self.subgroup), 0]
        addresses = (firsts[:, None, None] + offsets).reshape(-1, offsets.shape[1])
        self.values.values[i.dest.id] = None
        return self._count(at, i.opcode, m.name, addresses, size,
                           np.ones_like(addresses, bool), weight)

    def _reach_tile(self, at: int, i: Instr, active: np.ndarray, weight: float) -> Footprint:
        """Counts the accesses of a box that one thread copies. It bypasses the load-store units,
        but occupies the shared memory of each workgroup that receives it."""
        attrs, size = i.attrs, self.memories[i.attrs["source"]].dtype.bytes
        corner = [self.values.column(a) for a in i.args[2:]]
        thread = int(np.flatnonzero(active)[0])
        lines = np.zeros(1, np.int64)
        for n, (x, extent, pitch) in enumerate(zip(corner, attrs["extents"], attrs["pitches"],
                                                   strict=True)):
            place = (0 if x is None else int(x[thread])) + np.arange(attrs["box"][n])
            place = place[(place >= 0) & (place < extent)] * pitch
            lines = (lines[:, None] + place).reshape(-1)
        sectors = np.unique((lines + attrs["source_off"]) * size // SECTOR)
        cost = self.work.accesses.setdefault(
            at, AccessCost(attrs["source"], "global", i.opcode))
        cost.sectors += weight * len(sectors)
        self.from_shared(attrs["mem"], float(np.prod(attrs["box"])) * size * attrs["cluster"],
                         weight)
        self.accessed.add((attrs["source"], False))
        return {(attrs["source"], False): TouchedSectors(sectors, float(len(sectors)))} if len(
            sectors) else {}

    def _count(self, at: int, opcode: str, mem: str, addresses: np.ndarray, size: int,
               active: np.ndarray, weight: float) -> Footprint:
        """Adds requests to the cost of an access: a row of addresses is one request."""
        m = self.memories[mem]
        cost = self.work.accesses.setdefault(at, AccessCost(mem, m.space, opcode))
        cost.requests += weight * int(active.any(axis=1).sum())
        if m.space == "shared":
            if m.swizzled:  # the chunks of a line are permuted
                line = addresses // SWIZZLE_LINE
                addresses = addresses ^ (line % 8 * 16)
            wavefronts, least = self._wavefronts(addresses, size, active)
            cost.wavefronts += weight * wavefronts
            cost.least_wavefronts += weight * least
            return {}
        if m.space == "local":
            return {}
        different, sectors, lines = sectors_touched(addresses, size, active)
        cost.sectors += weight * sectors
        cost.lines += weight * lines
        writes = opcode in WRITES
        if writes and (mem, False) not in self.accessed:
            self.work.made_here.add(mem)
        self.accessed.add((mem, writes))
        if not len(different):
            return {}
        return {(mem, writes): TouchedSectors(different, float(len(different)))}

    def _wavefronts(self, addresses: np.ndarray, size: int, active: np.ndarray) -> tuple[int, int]:
        """The result of `bank_wavefronts`, cached. Whole lines added to all addresses do not change
        it."""
        pattern = addresses - addresses.min() // LINE * LINE
        key = size, pattern.shape, pattern.tobytes(), active.tobytes()
        if key not in self.wavefronts:
            self.wavefronts[key] = bank_wavefronts(pattern, size, active)
        return self.wavefronts[key]
