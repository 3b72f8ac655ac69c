"""Runs AMD's machine code instruction by instruction in tinygrad's emulator, whose meaning of each
instruction comes from AMD's own documents: a second opinion on the code that LLVM and our linker make.

The emulator is in tinygrad's repository, not in its wheel. `ZTORCH_TINYGRAD=FOLDER` names a checkout;
clang must be on the PATH. An instruction is compiled when it is met first, which takes most of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import re
import struct
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.machines.rocm.code_object import descriptor, kernels
from ztorch.codegen import amdgcn
from ztorch.codegen.targets import Target
from ztorch.machines.chips import chips_of

FOLDER = os.environ.get("ZTORCH_TINYGRAD", "")
# The emulator's names of families: it has one for both of CDNA.
FAMILIES = {c.name: "cdna" if c.family.startswith("cdna") else c.family for c in chips_of("rocm")}
LOADED = 1  # the type of a segment that is in memory
SHARED_UNIT = 512  # bytes of shared memory that a descriptor counts in


@functools.cache
def emulator() -> Any:
    """The emulator's module, with the instructions that it lacks."""
    if not FOLDER:
        pytest.skip("needs a checkout of tinygrad's repository: ZTORCH_TINYGRAD=FOLDER")
    os.environ.setdefault("DEV", "CPU")
    sys.path.insert(0, FOLDER)
    from test.mockgpu.amd import emu  # type: ignore[import-not-found]

    # It rounds subnormal numbers to zero; the descriptors of our kernels ask to keep them.
    emu._MXCSRContext = contextlib.nullcontext
    decoded = emu._decode_at
    emu._decode_at = lambda pc, family: _added(emu, pc, family) or decoded(pc, family)
    return emu


class Emulated:
    """The kernels of a code object in memory; see `machine.Hosted`."""

    def __init__(self, code: bytes, chip: str):
        self.code, self.family = code, FAMILIES[chip]
        at, = struct.unpack_from("<Q", code, 32)
        size, count = struct.unpack_from("<HH", code, 54)
        segments = [struct.unpack_from("<IIQQQQQ", code, at + k * size) for k in range(count)]
        loaded = [s for s in segments if s[0] == LOADED]
        self._memory = mmap.mmap(-1, max(s[3] + s[6] for s in loaded))
        for _, _, offset, address, _, in_file, _ in loaded:
            self._memory[address:address + in_file] = code[offset:offset + in_file]
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def launch(self, name: str, grid: Sequence[int], block: Sequence[int], pointers: Sequence[int]) -> None:
        entry = descriptor(self.code, name)
        named = [a for a in kernels(self.code)[name][".args"] if a[".value_kind"] == "global_buffer"]
        assert len(named) == len(pointers), f"{name} has {len(named)} arguments, not {len(pointers)}"
        arguments = (ctypes.c_uint64 * max(1, len(pointers)))(*pointers)
        place = ctypes.addressof(arguments)
        units = -(-entry.shared // SHARED_UNIT)
        registers = None  # the emulator's own order of them
        if entry.properties & 1:  # four registers of scratch memory come first
            registers = [0, 0, 0, 0, place & 0xFFFFFFFF, place >> 32]
        emulator().run_asm(self._base + entry.entry, 0, *grid, *block, place,
                           entry.rsrc2 & ~(0x1FF << 15) | units << 15, entry.scratch, self.family, registers)


@functools.lru_cache(maxsize=8)
def emulated(text: str, target: Target) -> Emulated:
    emulator()
    return Emulated(amdgcn.assemble(text, target), target.chip)


# -- instructions that the emulator lacks ------------------------------------------------------------------


class Wave:
    """The registers of a wave as arrays."""

    def __init__(self, emu: Any, family: str, scalars: Any, vectors: Any):
        lanes = emu._wave_size(family)
        self.scalars = np.frombuffer((ctypes.c_uint32 * emu.SGPR_COUNT).from_address(_address(scalars)), np.uint32)
        self.vectors = np.frombuffer((ctypes.c_uint32 * (256 * lanes)).from_address(_address(vectors)),
                                     np.uint32).reshape(256, lanes)
        low = emu.EXEC_LO.offset
        mask = int(self.scalars[low]) | (int(self.scalars[low + 1]) << 32 if lanes == 64 else 0)
        self.active = np.array([mask >> k & 1 for k in range(lanes)], bool)
        self._pc = emu.PC_LO_IDX, emu.PC_HI_IDX

    def skip(self, size: int) -> None:
        low, high = self._pc
        pc = (int(self.scalars[low]) | int(self.scalars[high]) << 32) + size
        self.scalars[low], self.scalars[high] = pc & 0xFFFFFFFF, pc >> 32


def _address(x: Any) -> int:
    return int(getattr(x, "value", x))


def _number(register: Any) -> int:
    number = getattr(register, "offset", register)
    return number - 256 if number >= 256 else number


def _swizzled(wave: Wave, inst: Any, shared: int) -> None:
    pattern = inst.offset1 << 8 | inst.offset0
    assert not pattern >> 15, "a swizzle of quads"
    lanes = np.arange(len(wave.active))
    low = (((lanes & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)
    origin = (lanes & ~31) | low
    x = np.where(wave.active[origin], wave.vectors[_number(inst.addr)][origin], 0)
    wave.vectors[_number(inst.vdst)][wave.active] = x[wave.active]


def _words_loaded(wave: Wave, inst: Any, shared: int) -> None:
    """Lanes that are off read nothing; the emulator's own word reads where they point."""
    count = int(re.search(r"B(\d+)$", _name(inst))[1]) // 32  # type: ignore[index]
    memory = (ctypes.c_uint32 * 16384).from_address(shared)
    places = wave.vectors[_number(inst.addr)].copy()
    for lane in np.flatnonzero(wave.active):
        first = (int(places[lane]) + (inst.offset1 << 8 | inst.offset0)) // 4
        for k in range(count):
            wave.vectors[_number(inst.vdst) + k, lane] = memory[first + k]


def _halves_loaded(wave: Wave, inst: Any, shared: int) -> None:
    """16 bits into one half of a register, whose other half stays."""
    memory = (ctypes.c_uint8 * 65536).from_address(shared)
    places, shift = wave.vectors[_number(inst.addr)].copy(), 16 if _name(inst).endswith("_HI") else 0
    for lane in np.flatnonzero(wave.active):
        at = int(places[lane]) + (inst.offset1 << 8 | inst.offset0)
        old = int(wave.vectors[_number(inst.vdst), lane])
        new = memory[at] | memory[at + 1] << 8
        wave.vectors[_number(inst.vdst), lane] = old & ~(0xFFFF << shift) | new << shift


def _nothing(wave: Wave, inst: Any, shared: int) -> None:
    """A cache is emptied or written back, and this machine has none."""


ADDED: dict[str, Callable[[Wave, Any, int], None]] = {
    r".*SWIZZLE.*": _swizzled,
    r"DS_(LOAD|READ)_B(32|64|128)": _words_loaded,
    r"DS_(LOAD|READ)_U16_D16(_HI)?": _halves_loaded,
    r"GLOBAL_(INV|WB|WBINV)": _nothing,
}
BUFFER_INV = (bytes.fromhex("0000ace0"), bytes.fromhex("0000b0e0"))  # buffer_gl0_inv, buffer_gl1_inv of RDNA 3


def _name(inst: Any) -> str:
    return str(getattr(inst, "op", "")).rpartition(".")[2].upper()


def _added(emu: Any, pc: int, family: str) -> Any:
    """The emulator's `_decode_at` for an instruction of ours; None for any other."""
    raw = bytes((ctypes.c_char * 16).from_address(pc).raw)
    if family == "rdna3" and raw[:4] in BUFFER_INV:
        inst, word = SimpleNamespace(op="INV", size=lambda: 8), _nothing
    else:
        inst = emu.decode_inst(raw, family)
        result = next((w for pattern, w in ADDED.items() if re.fullmatch(pattern, _name(inst))), None)
        if result is None:
            return None
        word = result

    def run(scalars: Any, vectors: Any, shared: Any) -> None:
        wave = Wave(emu, family, scalars, vectors)
        word(wave, inst, _address(shared))
        wave.skip(inst.size())

    registers_and_shared = [0, 1, 3]
    return (SimpleNamespace(arg=SimpleNamespace(globals=registers_and_shared)), SimpleNamespace(fxn=run)), inst
