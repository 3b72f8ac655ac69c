"""wgmma: products of the four warps of a warpgroup, beside which threads go on, as the PTX ISA has them:
where descriptors say that operands lie, and what has to be fenced and waited for.

Written from the tables of the PTX ISA: nothing is shared with the templates, or with the interpreter of
the IR, which has the same rules for elements and variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.machines.ptx.parse import Instruction, Literal, Pack, PtxError, Register
from ztorch.dtypes import bf16, from_storage

if TYPE_CHECKING:
    from tests.machines.ptx.machine import Machine

WARPGROUP, ROWS, DEPTH = 128, 64, 16  # of elements of 16 bits; half as deep of 32
SWIZZLE_128 = 1  # bits 62 and 63 of a descriptor
Work = Callable[[np.ndarray | None], None]


@dataclass
class Product:
    """A product of some warpgroups that not all of their threads have waited for."""

    threads: np.ndarray  # mask of those that have not
    groups: np.ndarray  # that each thread had committed when it began
    keys: list[str]  # its accumulators
    places: np.ndarray  # bytes of shared memory that it reads, by thread
    lefts: list[str]  # registers of its left operand, if it is not in shared memory


class Products:
    """The products of a launch."""

    def __init__(self, m: Machine):
        self.m = m
        self.groups = np.zeros(m.threads, np.int64)  # that each thread has committed
        self.flying: list[Product] = []
        self.held: dict[str, np.ndarray] = {}  # accumulators that products in flight add to
        self.unfenced_sums: dict[str, np.ndarray] = {}  # of these, masks of threads that wrote them without a fence
        self.fenced: dict[str, np.ndarray] = {}  # values of accumulators and left operands at the last fence
        self.lent: dict[str, np.ndarray] = {}  # registers of left operands of products in flight
        self.reading = np.zeros(m.shared.size, np.int32)  # products in flight that read a byte
        self.unfenced = np.zeros(m.shared.size, np.int32)  # 1 + the thread that wrote a byte
        self.readers = m.threads  # numbers that no thread has

    def written(self, threads: np.ndarray, places: np.ndarray) -> None:
        """Some threads write bytes of shared memory."""
        if self.reading[places].any():
            raise PtxError(f"{self.m.entry.name}: shared memory is written while a product in flight reads it")
        self.unfenced[places] = threads + 1

    def busy(self, key: str) -> np.ndarray:
        """Mask of the threads with a product in flight that adds to an accumulator."""
        return np.logical_or.reduce([p.threads for p in self.flying if key in p.keys])

    def put(self, key: str, x: np.ndarray, live: np.ndarray) -> bool:
        """Writes an accumulator of threads that have waited, while those of other warpgroups are in flight; False
        if theirs are, too."""
        if (self.busy(key) & live).any():
            return False
        self.held[key] = np.where(live, x, self.held[key])
        self.unfenced_sums[key] = self.unfenced_sums.get(key, False) | live
        return True

    def fence(self, live: np.ndarray) -> None:
        self.fenced.update((key, x) for key, x in self.m.regs.items()
                           if key in self.m.accumulators or key in self.m.lefts)
        self.unfenced_sums = {key: mask & ~live for key, mask in self.unfenced_sums.items()}

    def read(self, places: np.ndarray, threads: np.ndarray) -> None:
        """A product of whole warpgroups reads bytes: nobody else may write them without a barrier."""
        if self.m.races is not None:
            team = np.cumsum(np.ones(len(threads), np.int64)) // WARPGROUP + self.readers
            self.readers += len(threads)
            each = [np.repeat(x, places.shape[1]) for x in (
                team, self.m.block[threads], self.m.epoch[threads])]
            if self.m.races.read(places.reshape(-1), *each).any():
                raise PtxError(f"{self.m.entry.name}: a race of a product that reads shared memory")

    def wait(self, live: np.ndarray, pending: int) -> None:
        for p in self.flying:
            done = p.threads & live & (p.groups < self.groups - pending)
            if done.any():
                np.subtract.at(self.reading, p.places[done].reshape(-1), 1)
                self.read(p.places[done], np.flatnonzero(done))
                p.threads &= ~done
        self.flying = [p for p in self.flying if p.threads.any()]
        lent = {key for p in self.flying for key in p.lefts}
        for key in self.lent.keys() - lent:
            if self.m.regs.get(key) is not self.lent.pop(key):
                raise PtxError(f"{self.m.entry.name}: {key} was written while a product in flight reads it")
        busy = {key for p in self.flying for key in p.keys}
        for key in self.held.keys() - busy:
            if key in self.m.regs:
                raise PtxError(f"{self.m.entry.name}: {key} was written while a product in flight adds to it")
            self.m.regs[key] = self.held.pop(key)
            if not self.unfenced_sums.pop(key, np.zeros(1, bool)).any():
                self.fenced[key] = self.m.regs[key]


def registers(code: Sequence[Instruction]) -> tuple[set[str], set[str]]:
    """Those that products add to, and those of their left operands."""
    packs = [i.operands[:2] for i in code if i.opcode[:2] == ("wgmma", "mma_async")]
    sums, lefts = ({r.key for pair in packs if isinstance(pair[k], Pack) for r in pair[k].parts} for k in (0, 1))
    return sums, lefts


def fence(m: Machine, i: Instruction) -> Work:
    if i.opcode != ("fence", "proxy", "async", "shared::cta"):
        raise PtxError(f"{i.text}: unknown")

    def work(live: np.ndarray | None) -> None:
        unfenced = m.products.unfenced
        places = np.flatnonzero(unfenced)
        mine = True if live is None else live[unfenced[places] - 1]
        unfenced[places] = np.where(mine, 0, unfenced[places])
    return work


def _everyone(m: Machine, live: np.ndarray | None) -> np.ndarray:
    return np.ones(m.threads, bool) if live is None else live


def wgmma(m: Machine, i: Instruction) -> Work:
    if i.opcode == ("wgmma", "fence", "sync", "aligned"):
        return lambda live: m.products.fence(_everyone(m, live))
    if i.opcode == ("wgmma", "commit_group", "sync", "aligned"):
        def commit(live: np.ndarray | None) -> None:
            m.products.groups += 1 if live is None else live
        return commit
    if i.opcode == ("wgmma", "wait_group", "sync", "aligned"):
        [count] = i.operands
        assert isinstance(count, Literal)
        return lambda live: m.products.wait(_everyone(m, live), count.number)
    return _product(m, i)


def _product(m: Machine, i: Instruction) -> Work:
    match = re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(8|16)\.f32\.(b?f16|tf32)\.(b?f16|tf32)",
                         ".".join(i.opcode))
    if not match or match[3] != match[4] or not 8 <= int(match[1]) <= 256 or int(match[1]) % 8 or (
            (match[2] == "8") != (match[3] == "tf32")):
        raise PtxError(f"{i.text}: unknown")
    columns, of, size = int(match[1]), match[3], 4 if match[3] == "tf32" else 2
    d, a, b, *flags = i.operands
    if not isinstance(d, Pack) or len(d.parts) != columns // 2 or any(r.type != "f32" for r in d.parts):
        raise PtxError(f"{i.text}: the accumulators are not {columns // 2} registers of float32")
    numbers = [f.number for f in flags if isinstance(f, Literal)]
    held = isinstance(a, Pack)  # the left operand is in registers, and cannot be transposed
    count = 3 if of == "tf32" else 4 if held else 5  # float32 cannot be transposed
    if len(flags) != count or len(numbers) != count or numbers[1:3] != [1, 1] or {numbers[0], *numbers[3:]} - {0, 1}:
        raise PtxError(f"{i.text}: operands")
    if not isinstance(a, Pack | Register) or not isinstance(b, Register):
        raise PtxError(f"{i.text}: operands")
    lefts = [r.key for r in a.parts] if isinstance(a, Pack) else []
    if held and (len(lefts) != 4 or any(r.bits != 32 for r in a.parts)):
        raise PtxError(f"{i.text}: the left operand is not 4 registers of 32 bits")
    transposed = [False, False] if of == "tf32" else [bool(n) for n in numbers[3:]]
    sides = [(m.source(b, 64, i.text), columns, transposed[-1])]
    if not held:
        sides.insert(0, (m.source(a, 64, i.text), ROWS, transposed[0]))
    keys = [r.key for r in d.parts]
    thread = np.arange(WARPGROUP)
    r = np.arange(columns // 2)
    row = 16 * (thread // 32)[:, None] + (thread % 32 // 4)[:, None] + 8 * (r // 2 % 2)
    column = 8 * (r // 4) + 2 * (thread % 4)[:, None] + r % 2

    whole = m.size // WARPGROUP * WARPGROUP  # the last threads of a block may be no warpgroup
    teams = m.number.reshape(-1, m.size)[:, :whole].reshape(-1, WARPGROUP)

    def work(live: np.ndarray | None) -> None:
        active = _everyone(m, live)
        here = active[teams]
        if (here.any(1) != here.all(1)).any() or here.sum() != active.sum():
            raise PtxError(f"{m.entry.name}: {i.text}: not all of a warpgroup get here")
        awake, threads = here[:, 0], np.flatnonzero(active)
        matrices, places = [], []
        for read, length, along_lines in sides:
            descriptors = np.broadcast_to(read(), m.threads)[teams[awake]]
            if (descriptors != descriptors[:, :1]).any():
                raise PtxError(f"{m.entry.name}: {i.text}: descriptors differ within a warpgroup")
            at = np.stack([_addresses(int(x), length, along_lines, size, f"{m.entry.name}: {i.text}")
                           for x in descriptors[:, 0]])
            raw, bytes_read = _read(m, at, size, threads, i.text)
            matrices.append(_floats(raw, of))
            places.append(bytes_read)
        if held:
            matrices.insert(0, _floats(_left(m, lefts, teams, of, i.text), of)[awake])
        m.products.read(np.concatenate(places, 1), threads)
        both = np.zeros((m.threads, sum(p.shape[1] for p in places)), np.int64)
        both[threads] = np.concatenate(places, 1)
        np.add.at(m.products.reading, both[threads].reshape(-1), 1)
        product = np.zeros((len(teams), ROWS, columns))
        product[awake] = matrices[0] @ matrices[1].swapaxes(1, 2)
        for n, key in enumerate(keys):
            total = _taken(m, key, active, i.text)
            before = np.broadcast_to(total, m.threads).view(np.float32).astype(np.float64) if numbers[0] else 0.0
            more = np.zeros(m.threads)
            more[teams] = product[:, row[:, n], column[:, n]]
            new = (before + more).astype(np.float32).view(np.uint32)
            m.products.held[key] = np.where(active, new, total)
        m.products.flying.append(Product(active.copy(), m.products.groups.copy(), keys, both, lefts))
    return work


def _floats(raw: np.ndarray, of: str) -> np.ndarray:
    if of == "tf32":  # the lower 13 bits are ignored
        return (raw & 0xFFFFE000).view(np.float32).astype(np.float64)
    return (from_storage(bf16, raw) if of == "bf16" else raw.view(np.float16)).astype(np.float64)


def _left(m: Machine, keys: list[str], teams: np.ndarray, of: str, text: str) -> np.ndarray:
    """The left operands of all warpgroups: two elements of each of four registers of a thread, or one of tf32."""
    matrices = np.zeros((len(teams), ROWS, DEPTH), np.uint16)
    whole = np.zeros((len(teams), ROWS, DEPTH // 2), np.uint32)
    thread = np.arange(WARPGROUP)
    for r, key in enumerate(keys):
        if key not in m.regs:
            raise PtxError(f"{m.entry.name}: {text}: {key} was never written")
        if m.products.fenced.get(key) is not m.regs[key]:
            raise PtxError(f"{m.entry.name}: {text}: {key} was written, and there was no wgmma.fence since")
        if m.products.lent.setdefault(key, m.regs[key]) is not m.regs[key]:
            raise PtxError(f"{m.entry.name}: {text}: {key} was written while a product in flight reads it")
        held = np.broadcast_to(m.regs[key], m.threads).astype(np.uint32)[teams]
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (r % 2)
        whole[:, row, thread % 4 + 4 * (r // 2)] = held
        column = 2 * (thread % 4) + 8 * (r // 2)
        for half in (0, 1):
            matrices[:, row, column + half] = held >> 16 * half & 0xFFFF
    return whole if of == "tf32" else matrices


def _taken(m: Machine, key: str, active: np.ndarray, text: str) -> np.ndarray:
    """An accumulator, which is gone until somebody has waited for the product."""
    held = m.products.held
    if key in m.regs:
        if key in held:
            raise PtxError(f"{m.entry.name}: {text}: {key} was written while a product in flight adds to it")
        if m.products.fenced.get(key) is not m.regs[key]:
            raise PtxError(f"{m.entry.name}: {text}: {key} was written, and there was no wgmma.fence since")
        held[key] = m.regs.pop(key)
    if key not in held:
        raise PtxError(f"{m.entry.name}: {text}: {key} was never written")
    if (m.products.unfenced_sums.get(key, False) & active).any():
        raise PtxError(f"{m.entry.name}: {text}: {key} was written, and there was no wgmma.fence since")
    return held[key]


def _addresses(descriptor: int, length: int, along_lines: bool, size: int, text: str) -> np.ndarray:
    """Where the elements (place along m or n, step along k) lie: canonical layouts of 128 bytes."""
    start, far, eight = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    if descriptor >> 62 != SWIZZLE_128 or descriptor & ~(3 << 62 | 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32):
        raise PtxError(f"{text}: a descriptor 0x{descriptor:x} that is not one of 128 bytes")
    if start >> 7 & 7:
        raise PtxError(f"{text}: an operand at {start}, where lines of a swizzle do not repeat")
    place, k = np.indices((length, DEPTH * 2 // size))
    if along_lines:
        at = start + place % 64 * 2 + place // 64 * far + k % 8 * 128 + k // 8 * eight
    else:
        if start % 128 + DEPTH * 2 > 128:
            raise PtxError(f"{text}: steps along k beyond a line")
        at = start + place % 8 * 128 + place // 8 * eight + k * size
    return at ^ (at >> 7 & 7) << 4


def _read(m: Machine, at: np.ndarray, size: int, threads: np.ndarray,
          text: str) -> tuple[np.ndarray, np.ndarray]:
    """The elements of a size at addresses, and their bytes by thread."""
    valid = m.valid["shared", size]
    if at.max() >= valid.size or not valid[at].all():
        raise PtxError(f"{m.entry.name}: {text}: shared memory at {at.min()} to {at.max() + size}")
    at = at + m.block[threads[::WARPGROUP]][:, None, None] * valid.size
    places = np.stack([at + n for n in range(size)], -1).reshape(len(threads), -1)
    if m.in_flight.flying[places].any():
        raise PtxError(f"{m.entry.name}: {text}: a copy to an operand is in flight")
    m.rings.arrived(places, threads, text)
    if m.products.unfenced[places].any():
        raise PtxError(f"{m.entry.name}: {text}: an operand was written, and there was no fence.proxy.async since")
    return m.shared.view(np.uint16 if size == 2 else np.uint32)[at // size], places
