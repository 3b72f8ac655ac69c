"""The registers of a launch: reading and writing operands, and instructions that only compute."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.machines.ptx import rings, tensor
from tests.machines.ptx.parse import (
    BITS,
    Entry,
    Instruction,
    Literal,
    Operand,
    Pack,
    PtxError,
    Register,
    Symbol,
)
from tests.machines.ptx.products import Products

RAW = {1: np.dtype(bool), 8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32),
       64: np.dtype(np.uint64)}
ODD = {1: False, 16: 0x7E5A, 32: 0x7FA55A5A, 64: 0x7FF5A5A55A5A5A5A}
WARP = tensor.WARP
Source = Callable[[], np.ndarray]
Grid = tuple[int, int, int]


class Registers:
    """The registers of all threads, each an array of bits."""

    entry: Entry
    grid: Grid
    threads: int  # of the launch
    size: int  # threads of a block
    number: np.ndarray  # of each thread
    block: np.ndarray  # of each thread
    regs: dict[str, np.ndarray]
    places: dict[str, int]  # of arrays in shared and local memory
    products: Products

    @property
    def active(self) -> np.ndarray:
        """Mask of the threads at work."""
        raise NotImplementedError

    def source(self, o: Operand, bits: int, text: str) -> Source:
        """Reads the bits of an operand; a register must have as many."""
        if isinstance(o, Literal):
            if o.bits not in (None, bits) or (o.bits is None and not -(1 << bits) < o.number < 1 << bits):
                raise PtxError(f"{text}: a literal of {bits} bits")
            x = np.array([o.number & ((1 << bits) - 1)], np.uint64).astype(RAW[bits])
            return lambda: x
        if not isinstance(o, Register) or o.bits != bits:
            raise PtxError(f"{text}: {o} is not {bits} bits")
        regs, key = self.regs, o.key

        def read() -> np.ndarray:
            try:
                return regs[key]
            except KeyError:
                if key in self.products.held:
                    if not (self.products.busy(key) & self.active).any():
                        return self.products.held[key]
                    raise PtxError(f"{self.entry.name}: {text}: {key} is read while a product in flight "
                                   "adds to it") from None
                raise PtxError(f"{self.entry.name}: {text}: {key} was never written") from None
        return read

    def put(self, o: Operand, x: np.ndarray, live: np.ndarray | None) -> None:
        assert isinstance(o, Register)
        if live is not None:
            if o.key in self.products.held and self.products.put(o.key, x, live):
                return
            old = self.regs.get(o.key)
            if old is None:
                old = np.array([ODD[o.bits]], RAW[o.bits])
            x = np.where(live, x, old)
        self.regs[o.key] = x

    def plain(self, i: Instruction, meaning: Callable[..., np.ndarray], takes: tuple[int, ...],
              gives: int) -> Callable[[np.ndarray | None], None]:
        d, *args = i.operands
        if len(args) != len(takes) or not isinstance(d, Register) or d.bits != gives:
            raise PtxError(f"{self.entry.name}: {i.text}: operands")
        reads = [self.source(a, bits, i.text) for a, bits in zip(args, takes, strict=True)]

        def work(live: np.ndarray | None) -> None:
            x = meaning(*[r() for r in reads])
            if live is None:
                regs[key] = x
            else:
                self.put(d, x, live)
        regs, key = self.regs, d.key
        return work

    def move(self, i: Instruction) -> Callable[[np.ndarray | None], None]:
        (_, kind), (d, x) = i.opcode, i.operands
        bits = BITS[kind]
        if isinstance(x, Symbol):
            value = self.special(x.name, bits)
            return lambda live: self.put(d, value, live)
        if isinstance(x, Pack):
            halves = [self.source(p, bits // 2, i.text) for p in x.parts]
            wide = RAW[bits]

            def join(live: np.ndarray | None) -> None:
                low, high = (h().astype(wide) for h in halves)
                self.put(d, low | (high << wide.type(bits // 2)), live)
            return join
        read = self.source(x, bits, i.text)
        if isinstance(d, Pack):
            half = RAW[bits // 2]

            def part(live: np.ndarray | None) -> None:
                v = read()
                for p, piece in zip(d.parts, (v, v >> v.dtype.type(bits // 2)), strict=True):
                    self.put(p, piece.astype(half), live)
            return part
        if not isinstance(d, Register) or d.bits != bits:
            raise PtxError(f"{i.text}: operands")
        return lambda live: self.put(d, read(), live)

    def special(self, name: str, bits: int) -> np.ndarray:
        if name in self.entry.maps:
            return np.array([rings.MAPS + 128 * self.entry.maps.index(name)], RAW[bits])
        if name in self.places:
            return np.array([self.places[name]], RAW[bits])
        if name == "%laneid":
            return (self.number % self.size % WARP).astype(RAW[bits])
        if name == "%cluster_ctarank":
            return (self.block % self.entry.cluster).astype(RAW[bits])
        which, axis = name.removeprefix("%").split(".")
        k = "xyz".index(axis)
        extent = self.grid if "cta" in which else self.entry.workgroup
        if which.startswith("n"):
            return np.array([extent[k]], RAW[bits])
        linear = self.block if which == "ctaid" else self.number % self.size
        return (linear // math.prod(extent[:k]) % extent[k]).astype(RAW[bits])

    @staticmethod
    def one(numbers: np.ndarray, live: np.ndarray | None, text: str) -> np.integer:
        """The number that all threads at work have."""
        first, *others = np.unique(numbers if live is None else numbers[live])
        if others:
            raise PtxError(f"{text}: threads differ")
        return first

    def shuffle(self, i: Instruction) -> Callable[[np.ndarray | None], None]:
        d, x, distance, clamp, members = i.operands
        if i.opcode != ("shfl", "sync", "bfly", "b32"):
            raise PtxError(i.text)
        read, *same = (self.source(o, 32, i.text) for o in (x, distance, clamp, members))
        if self.size % WARP:
            raise PtxError(f"{self.entry.name}: a shuffle in a block of {self.size} threads")

        def work(live: np.ndarray | None) -> None:
            apart, last, mask = (numbers[0] if numbers.size == 1 else self.one(numbers, live, i.text)
                                 for numbers in (r() for r in same))
            if (last, mask) != (31, 0xFFFFFFFF):
                raise PtxError(i.text)
            place = np.arange(WARP) ^ int(apart)
            if live is not None:
                some = live.reshape(-1, WARP)
                if (some.any(1) != some.all(1)).any():
                    raise PtxError(f"{self.entry.name}: a shuffle that not all of a warp reach")
            v = np.broadcast_to(read(), self.threads).reshape(-1, WARP)
            self.put(d, v[:, place].reshape(-1), live)
        return work
