"""Loads and stores of a launch: their addresses, and errors and races there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tests.machines.ptx import words
from tests.machines.ptx.copies import InFlight
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.parse import (
    BITS,
    Address,
    Instruction,
    Operand,
    Pack,
    PtxError,
    Register,
    Symbol,
)
from tests.machines.ptx.registers import RAW, Registers
from tests.machines.ptx.rings import Rings
from ztorch.ir.races import Detector

if TYPE_CHECKING:
    from tests.machines.ptx.launch_order import LaunchOrder


def starts(valid: np.ndarray, size: int) -> np.ndarray:
    """Where an aligned access of so many bytes reaches none that is not valid."""
    starts = np.zeros(valid.size, bool)
    whole = valid.size // size * size
    starts[:whole:size] = np.logical_and.reduce([valid[at:whole:size] for at in range(size)])
    return starts


class Accesses(Registers):
    """Accesses of global, shared and local memory, and of parameters."""

    memory: GlobalMemory
    parameters: dict[str, int]
    shared: np.ndarray  # bytes, of all blocks
    local: np.ndarray  # bytes, of all threads
    valid: dict[tuple[str, int], np.ndarray]  # where an aligned access of a size is in an array
    through: dict[int, list[np.ndarray | None]]  # bytes read by .nc, and written
    epoch: np.ndarray  # barriers that each thread has passed
    races: Detector | None
    order: LaunchOrder | None
    in_flight: InFlight
    accumulators: set[str]  # of asynchronous products
    rings: Rings

    def access(self, i: Instruction) -> Callable[[np.ndarray | None], None]:
        name, space, *more = i.opcode
        kind = more[-1]
        through, wide = "nc" in more, [m for m in more if m in ("v2", "v4")]
        if more[:-1] != ["nc"] * through + wide or (through and (name, space) != ("ld", "global")):
            raise PtxError(i.text)
        if wide:
            return self.several(i, int(wide[0][1]), BITS[kind] // 8)
        at, x = i.operands[::-1] if name == "ld" else i.operands
        assert isinstance(at, Address)
        if space == "param":
            assert isinstance(at.base, Symbol)
            which = at.base.name
            return lambda live: self.put(x, np.array([self.parameters[which]], np.uint64), live)
        place = self.places_of(i, at, through)
        if name == "ld":
            return self.load(x, kind, place)
        bits = x.bits if isinstance(x, Register) else BITS[kind]
        if bits < BITS[kind]:
            raise PtxError(f"{i.text}: stores more than it has")
        value, raw = self.source(x, bits, i.text), RAW[BITS[kind]]

        def store(live: np.ndarray | None) -> None:
            data, elements = place(live)
            v = value().astype(raw)
            if live is not None:
                v = np.broadcast_to(v, self.threads)[live]
            elif elements.size < v.size:  # all to one place
                elements = np.broadcast_to(elements, v.shape)
            data[elements] = v
        return store

    def base(self, at: Address, bits: int, text: str) -> Callable[[], np.ndarray]:
        """Reads the address before its offset: of a register, or of an array."""
        if isinstance(at.base, Symbol):
            place = self.special(at.base.name, bits)
            return lambda: place
        return self.source(at.base, bits, text)

    def places_of(self, i: Instruction, at: Address, through: bool = False
                  ) -> Callable[[np.ndarray | None], tuple[np.ndarray, np.ndarray]]:
        """The elements that an access reaches, and the memory that they are in."""
        name, space, kind = i.opcode[0], i.opcode[1], i.opcode[-1]
        bits = 64 if space == "global" else 32
        base = self.base(at, bits, i.text)
        size, raw = BITS[kind] // 8, RAW[BITS[kind]]
        offset = np.array(at.offset).astype(RAW[bits])

        def place(live: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
            address = base() + offset
            if live is None and address.size == 1:
                chosen = address
            else:
                if address.size != self.threads:
                    address = np.broadcast_to(address, self.threads)
                chosen = address if live is None else address[live]
            if not chosen.size:
                return np.empty(0, raw), chosen.astype(np.int64)
            if space == "global":
                held, elements = self.memory.reach(chosen, size)
                if through or name != "ld":
                    self.mark(held, elements, size, through)
                if self.order is not None:
                    self.order.touched(live, held, elements, size, name)
                return held.data.view(raw), elements
            return self.inside(space, chosen, live, size, name, raw)

        return place

    def load(self, x: Operand, kind: str, place: Callable) -> Callable[[np.ndarray | None], None]:
        assert isinstance(x, Register)
        widen = words.widening(kind, x.bits)

        def load(live: np.ndarray | None) -> None:
            data, elements = place(live)
            result = widen(data[elements])
            if live is not None:
                spread = np.zeros(self.threads, result.dtype)
                spread[live] = result
                result = spread
            self.put(x, result, live)
        return load

    def several(self, i: Instruction, count: int, size: int) -> Callable[[np.ndarray | None], None]:
        """An aligned load or store of neighbors, as so many of one."""
        at, pack = i.operands[::-1] if i.opcode[0] == "ld" else i.operands
        if not (isinstance(at, Address) and isinstance(pack, Pack)
                and len(pack.parts) == count and count * size <= 16):
            raise PtxError(i.text)
        base = self.base(at, 64 if i.opcode[1] == "global" else 32, i.text)
        plain = tuple(m for m in i.opcode if m not in ("v2", "v4"))
        places = [Address(at.base, at.offset + k * size) for k in range(count)]
        each = [self.access(Instruction(plain, pair if i.opcode[0] == "ld" else pair[::-1],
                                        text=i.text)) for pair in zip(pack.parts, places, strict=True)]

        def together(live: np.ndarray | None) -> None:
            start = base()
            address = start + np.asarray(at.offset).astype(start.dtype)  # modulo the size of addresses
            if live is not None:
                address = np.broadcast_to(address, self.threads)[live]
            if (address % (count * size)).any():
                raise PtxError(f"{self.entry.name}: {i.text}: not aligned")
            for one in each:
                one(live)
        return together

    def mark(self, held: object, elements: np.ndarray, size: int, through: bool) -> None:
        """An address may not be both read through the read-only cache and written."""
        marks = self.through.setdefault(held.base, [None, None])  # type: ignore[attr-defined]
        mine = 0 if through else 1
        if marks[mine] is None:
            marks[mine] = np.zeros(held.nbytes, bool)  # type: ignore[attr-defined]
        first = elements * size
        marks[mine][first] = True
        if marks[1 - mine] is not None and marks[1 - mine][first].any():
            raise PtxError(f"{self.entry.name}: .nc reads what the kernel writes")

    def touched(self, threads: np.ndarray, places: np.ndarray) -> None:
        """Copies of some threads have landed there, which counts as writes."""
        self.products.written(np.repeat(threads, places.shape[1]), places.reshape(-1))
        if self.races is not None:
            each = [np.repeat(x[threads], places.shape[1]) for x in (self.number, self.block, self.epoch)]
            if self.races.write(places.reshape(-1), *each).any():
                raise PtxError(f"{self.entry.name}: a race of a copy that lands")

    def inside(self, space: str, chosen: np.ndarray, live: np.ndarray | None, size: int, how: str,
               raw: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        valid = self.valid[space, size]
        at = chosen.astype(np.int64)
        if at.max() >= valid.size or not valid[at].all():
            raise PtxError(f"{self.entry.name}: {space} memory at {at.min()} to {at.max() + size}")
        owner = self.block if space == "shared" else self.number
        owner = owner if live is None else owner[live]
        at = at + owner * valid.size
        if space == "shared" and self.in_flight.flying[[at, at + size - 1]].any():
            raise PtxError(f"{self.entry.name}: shared memory is touched while a copy to it is in flight")
        if space == "shared" and how == "ld":
            readers = np.arange(self.threads) if live is None else np.flatnonzero(live)
            self.rings.arrived(np.broadcast_to(at, readers.shape)[:, None], readers, "ld")
        if space == "shared" and how != "ld" and self.accumulators:
            writers = self.number if live is None else self.number[live]
            for k in range(size):
                self.products.written(writers, at + k)
        if space == "shared" and self.races is not None:
            who, epoch = (v if live is None else v[live] for v in (self.number, self.epoch))
            if at.shape != who.shape:
                at = np.broadcast_to(at, who.shape)
            notice = {"ld": self.races.read, "st": self.races.write, "atom": self.races.atomic}[how]
            clash = notice(at, who, owner, epoch)
            if clash.any():
                raise PtxError(f"{self.entry.name}: a race on shared memory at {at[clash][0] % valid.size}")
        return (self.shared if space == "shared" else self.local).view(raw), at // size
