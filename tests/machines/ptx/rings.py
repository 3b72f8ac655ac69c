"""mbarrier, copies of tiles by tensor maps (cp.async.bulk.tensor), clusters and setmaxnreg, as the PTX ISA has
them. A copy lands when a thread has waited for the phase of its barrier, and not before.

Nothing is shared with the interpreter of the IR, which has the same rules for elements.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.machines.ptx.parse import (
    Address,
    Instruction,
    Literal,
    PtxError,
    Register,
    Symbol,
    TileAddress,
)
from tests.machines.ptx.tensor_maps import TensorMap

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

Work = Callable[[np.ndarray | None], None]
MAPS = 0x7000_0000_0000  # address of the first map among the parameters
WINDOW = 1 << 24  # bytes of the shared memory of one block in the window of a cluster
SWIZZLES = {0: 0, 1: 1, 2: 3, 3: 7}  # lines after which each begins again, less one
FILE = 1 << 16  # registers of a multiprocessor


@dataclass
class Barrier:
    count: int
    owner: int
    epoch: int
    cluster_epoch: int
    pending: int
    fenced: bool = False
    transactions: int = 0  # bytes that are expected and have not come; below zero: came before
    done: int = 0  # phases
    flying: list[tuple[np.ndarray, np.ndarray, int]] = field(default_factory=list)  # places, data, phase


class Rings:
    """The barriers of a launch."""

    def __init__(self, m: Machine):
        self.m = m
        self.at: dict[int, Barrier] = {}  # by the byte of shared memory, that of all blocks in a row
        self.names: dict[int, int] = {}  # a small number for each
        self.seen = np.zeros((m.threads, 0), np.int64)  # phases of each barrier that a thread waited for
        self.brought_by = np.full(m.shared.size, -1, np.int32)
        self.brought_in = np.zeros(m.shared.size, np.int32)
        self.tried = np.zeros(m.threads, bool)
        self.arrivals = np.zeros(m.threads, np.int64)  # at the barrier of the cluster
        self.cluster_epoch = np.zeros(m.threads, np.int64)
        self.elsewhere = np.full(m.threads, -1)  # its epoch when it last reached another block
        self.registers = np.full(m.threads, FILE // m.size // 8 * 8)

    def fail(self, text: str, why: str) -> PtxError:
        return PtxError(f"{self.m.entry.name}: {text}: {why}")

    def finish(self) -> None:
        if any(b.flying for b in self.at.values()):
            raise self.fail("ret", "a copy of a tile is in flight when the kernel ends")
        if (self.elsewhere >= self.cluster_epoch).any():
            raise self.fail("ret", "a block may end while others of its cluster reach it")
        if (self.registers.reshape(-1, self.m.size).sum(1) > FILE).any():
            raise self.fail("setmaxnreg", "asks for more registers than there are: it never returns")

    def barrier(self, thread: int, block: int, address: int, text: str) -> Barrier:
        """The barrier at an address of a block, which a thread may use."""
        far = block != self.m.block[thread]
        place = self.place(block, address, text)
        if place not in self.at:
            raise self.fail(text, f"no barrier at {address}")
        b = self.at[place]
        mine, since = (self.cluster_epoch, b.cluster_epoch) if far else (self.m.epoch, b.epoch)
        if b.owner != thread and (mine[thread] <= since or not b.fenced):
            raise self.fail(text, "no fence and barrier behind mbarrier.init")
        return b

    def place(self, block: int, address: int, text: str) -> int:
        valid = self.m.valid["shared", 8]
        if not (0 <= address < valid.size and valid[address]):
            raise self.fail(text, f"shared memory at {address}")
        return int(block) * valid.size + int(address)

    def settle(self, b: Barrier, text: str) -> None:
        if b.pending < 0:
            raise self.fail(text, "more arrivals than the barrier counts")
        if b.pending == 0 and b.transactions == 0:
            b.done, b.pending = b.done + 1, b.count
        elif b.pending == 0 and b.transactions < 0:
            raise self.fail(text, "more bytes come than expect_tx said")

    def passes(self, i: Instruction, threads: np.ndarray) -> np.ndarray:
        """Which of these threads wait for phases that have ended."""
        address, parity = _address(self.m, i.operands[1], i), self.m.source(i.operands[2], 32, i.text)
        places = np.broadcast_to(address(), self.m.threads)[threads]
        bits = np.broadcast_to(parity(), self.m.threads)[threads] & 1
        keys = [*zip(self.m.block[threads].tolist(), places.tolist(), bits.tolist(), strict=True)]
        each = dict(zip(keys, threads.tolist(), strict=True))
        ended = {key: self.barrier(t, key[0], key[1], i.text).done & 1 != key[2] for key, t in each.items()}
        return np.array([ended[key] for key in keys])

    def ended(self, i: Instruction, threads: np.ndarray) -> None:
        """Data copied in finished phases is visible to the threads that waited for them."""
        places = np.broadcast_to(_address(self.m, i.operands[1], i)(), self.m.threads)[threads]
        every = places.astype(np.int64) + self.m.block[threads] * self.m.valid["shared", 8].size
        for place in set(every.tolist()):
            b, name = self.at[place], self.names[place]
            self.seen[threads[every == place], name] = b.done
            for tile in list(b.flying):
                if tile[2] < b.done:
                    b.flying.remove(tile)
                    self.m.in_flight.flying[tile[0]] = False
                    self.m.shared[tile[0]] = tile[1]
                    self.brought_by[tile[0]], self.brought_in[tile[0]] = name, tile[2]

    def arrived(self, places: np.ndarray, threads: np.ndarray, text: str) -> None:
        """Threads read bytes: they must have waited for the copies that brought them."""
        if not self.at:
            return
        name = self.brought_by[places]
        if ((name >= 0) & (self.seen[threads[:, None], name] <= self.brought_in[places])).any():
            raise self.fail(text, "an operand is read without a wait for the copy that brought it")


def _address(m: Machine, o: object, i: Instruction) -> Callable[[], np.ndarray]:
    if not isinstance(o, Address) or not isinstance(o.base, Register):
        raise PtxError(f"{i.text}: {o} is not an address")
    read, offset = m.source(o.base, 32, i.text), np.uint32(o.offset)
    return lambda: read() + offset


def _active(m: Machine, live: np.ndarray | None) -> np.ndarray:
    return np.arange(m.threads) if live is None else np.flatnonzero(live)


def mbarrier(m: Machine, i: Instruction) -> Work:
    name = ".".join(i.opcode)
    if name == "mbarrier.init.shared::cta.b64":
        where, [count] = _address(m, i.operands[0], i), i.operands[1:]
        assert isinstance(count, Literal)

        def init(live: np.ndarray | None) -> None:
            r = m.rings
            for t in _active(m, live):
                place = r.place(m.block[t], int(np.broadcast_to(where(), m.threads)[t]), i.text)
                if place in r.at:
                    raise r.fail(i.text, "begun twice")
                r.at[place] = Barrier(count.number, int(t), int(m.epoch[t]), int(r.cluster_epoch[t]), count.number)
                r.names[place] = len(r.names)
            r.seen = np.zeros((m.threads, len(r.names)), np.int64)
        return init
    nbytes = 0
    if name == "mbarrier.arrive.expect_tx.shared::cta.b64":
        assert isinstance(i.operands[2], Literal)
        nbytes = i.operands[2].number
    elif name not in ("mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.shared::cluster.b64"):
        raise PtxError(f"{i.text}: unknown")
    if i.operands[0] != Symbol("_"):
        raise PtxError(f"{i.text}: operands")
    where, far = _address(m, i.operands[1], i), "shared::cluster" in i.opcode

    def arrive(live: np.ndarray | None) -> None:
        r, address = m.rings, np.broadcast_to(where(), m.threads)
        for t in _active(m, live):
            block, at = int(m.block[t]), int(address[t])
            if far:
                rank, at = divmod(at, WINDOW)
                block = block // m.entry.cluster * m.entry.cluster + rank - 1
                r.elsewhere[t] = r.cluster_epoch[t]
            b = r.barrier(int(t), block, at, i.text)
            b.pending -= 1
            b.transactions += nbytes
            r.settle(b, i.text)
    return arrive


def mapa(m: Machine, i: Instruction) -> Work:
    d, a, rank = i.operands
    if i.opcode != ("mapa", "shared::cluster", "u32") or not isinstance(rank, Literal) or not (
            0 <= rank.number < m.entry.cluster):
        raise PtxError(f"{i.text}: unknown")
    read = m.source(a, 32, i.text)
    return lambda live: m.put(d, read() + np.uint32((rank.number + 1) * WINDOW), live)


def fence(m: Machine) -> Work:
    def work(live: np.ndarray | None) -> None:
        for b in m.rings.at.values():
            b.fenced |= live is None or bool(live[b.owner])
    return work


def setmaxnreg(m: Machine, i: Instruction) -> Work:
    [count] = i.operands
    if i.opcode[1] not in ("inc", "dec") or i.opcode[2:] != ("sync", "aligned", "u32") or not isinstance(
            count, Literal) or count.number not in range(24, 257, 8):
        raise PtxError(f"{i.text}: operands")

    def work(live: np.ndarray | None) -> None:
        some = np.ones(m.threads, bool) if live is None else live
        whole = some.reshape(-1, 128)
        if (whole.any(1) != whole.all(1)).any():
            raise m.rings.fail(i.text, "not all of a warpgroup get here")
        m.rings.registers[some] = count.number
    return work


def bulk(m: Machine, i: Instruction) -> Work:
    """cp.async.bulk.tensor: boxes in lines of 128 bytes, swizzled by the address in shared memory."""
    result = re.fullmatch(r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global\.tile\.mbarrier::complete_tx::bytes"
                          r"(\.multicast::cluster)?", ".".join(i.opcode))
    if not result or len(i.operands) != 3 + bool(result[2]):
        raise PtxError(f"{i.text}: unknown")
    where, counter, tile = _address(m, i.operands[0], i), _address(m, i.operands[2], i), i.operands[1]
    if not isinstance(tile, TileAddress) or len(tile.at) != int(result[1]):
        raise PtxError(f"{i.text}: operands")
    which, corner = m.source(tile.map, 64, i.text), [m.source(x, 32, i.text) for x in tile.at]
    mask = m.source(i.operands[3], 16, i.text) if result[2] else None

    def work(live: np.ndarray | None) -> None:
        r = m.rings
        for t in _active(m, live):
            def of(x: np.ndarray, t: int = t) -> int:
                return int(np.broadcast_to(x, m.threads)[t])
            number = of(which()) - MAPS
            if number % 128 or not 0 <= number // 128 < len(m.maps):
                raise r.fail(i.text, "no tensor map there")
            chart = m.maps[number // 128]
            if chart.problem() or len(chart.box) != len(corner):
                raise r.fail(i.text, f"a tensor map of other {chart.problem() or 'axes'}")
            data = _box(m, chart, [np.int32(np.uint32(of(c()))).item() for c in corner])
            block, at = int(m.block[t]), of(where())
            if at % 128:
                raise r.fail(i.text, f"a tile at {at}, not a multiple of 128 bytes")
            places = at + np.arange(data.size)
            places = places ^ (places >> 7 & SWIZZLES[chart.swizzle]) << 4
            valid = m.valid["shared", 1]
            if places.max() >= valid.size or not valid[places].all():
                raise r.fail(i.text, f"shared memory at {at} to {at + data.size}")
            cluster = m.entry.cluster
            ranks = [k for k in range(cluster) if of(mask()) >> k & 1] if mask else [block % cluster]
            for rank in ranks:
                other = block // cluster * cluster + rank
                b = r.barrier(int(t), other, of(counter()), i.text)
                there = places + other * valid.size
                if m.in_flight.flying[there].any():
                    raise r.fail(i.text, "a stage is overwritten while a copy to it is in flight")
                if m.products.reading[there].any():
                    raise r.fail(i.text, "shared memory is written while a product in flight reads it")
                m.in_flight.flying[there] = True
                b.flying.append((there, data, b.done))
                b.transactions -= data.size
                r.settle(b, i.text)
    return work


def _box(m: Machine, chart: TensorMap, corner: list[int]) -> np.ndarray:
    """The bytes of a box, line by line; zeros outside."""
    lines = []
    for place in itertools.product(*(range(n) for n in chart.box[:0:-1])):
        at = [c + p for c, p in zip(corner[1:], place[::-1], strict=True)]
        line = np.zeros(chart.box[0] * chart.size, np.uint8)
        low, high = max(0, corner[0]), min(corner[0] + chart.box[0], chart.extents[0])
        if low < high and all(0 <= a < e for a, e in zip(at, chart.extents[1:], strict=True)):
            start = chart.base + sum(a * s for a, s in zip(at, chart.strides, strict=True)) + low * chart.size
            held = m.memory.holding(start, (high - low) * chart.size)
            if held is None:
                raise m.rings.fail("cp.async.bulk.tensor", f"reads at 0x{start:x}, outside of an allocation")
            first = (low - corner[0]) * chart.size
            line[first:first + (high - low) * chart.size] = held.data[
                start - held.base:start - held.base + (high - low) * chart.size]
        lines.append(line)
    return np.concatenate(lines)


def wake(m: Machine, asleep: dict[int, np.ndarray], waiting: dict[int, np.ndarray], some: bool) -> None:
    """Lets threads that stand at a wait go on, by its place: where all of them may, or `some`."""
    for place, mask in list(asleep.items()):
        ready = np.zeros(m.threads, bool)
        ready[mask] = m.passes(m.entry.code[place], np.flatnonzero(mask))
        if (ready == mask).all() or (some and ready.any()):
            waiting[place] = waiting.get(place, np.zeros(m.threads, bool)) | ready
            asleep[place] = mask & ~ready
            if not asleep[place].any():
                del asleep[place]
