"""Fields that our linker writes into instructions, and targets it cannot reach."""

from __future__ import annotations

import struct

import pytest

from tests.cases.elf_objects import BLOBS, SOURCE, TRIPLES, compiled, linked
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.reloc import AARCH64, MACHINES, X86_64, PatchSite
from ztorch.errors import LinkError


def with_relocation(kind: int, machine: str = "x86_64") -> bytes:
    """The zoo with the number of its first relocation replaced."""
    obj = bytearray(compiled(SOURCE, machine))
    (table,) = struct.unpack_from("<Q", obj, 40)
    for i in range(struct.unpack_from("<H", obj, 60)[0]):
        _, section_type, _, _, offset, *_ = struct.unpack_from("<IIQQQQIIQQ", obj, table + 64 * i)
        if section_type == 4:
            struct.pack_into("<I", obj, offset + 8, kind)
            return bytes(obj)
    raise AssertionError("no relocation")


@pytest.mark.parametrize("machine", TRIPLES)
def test_unknown_relocations_are_refused_with_all_they_are(machine: str) -> None:
    message = r"relocation 10 in '\.text' at 0x[0-9a-f]+ to '[\w.]+': this type is not supported on"
    with pytest.raises(LinkError, match=message):
        link(with_relocation(10, machine), soname="l.so", exports=[], blobs=BLOBS)
    pointer = MACHINES[{"x86_64": 62, "aarch64": 183}[machine]].pointer
    with pytest.raises(LinkError, match=r"read-only memory|outside its section"):
        link(with_relocation(pointer, machine), soname="l.so", exports=[], blobs=BLOBS)


def test_far_targets_are_refused() -> None:
    def huge(size: int) -> dict[str, Blob]:  # whichever comes second is out of reach
        return BLOBS | {name: Blob(None, size, 64, True) for name in ("arena", "moments")}

    with pytest.raises(LinkError, match=r"to '\w+': distance \d+ does not fit 32 bits"):
        linked("x86_64", blobs=huge(3_000_000_000))
    assert len(linked("aarch64", blobs=huge(3_000_000_000))) < 9000
    with pytest.raises(LinkError, match=r"to '\w+': distance \d+ does not fit 21 bits"):
        linked("aarch64", blobs=huge(5_000_000_000))


PATCHES = [
    (X86_64, 2, 0x5000, 0, 0x4000),
    (X86_64, 24, 0x100, 0, (0x100 - 0x1000) & (1 << 64) - 1),
    (AARCH64, 275, 0x7004, 0x90000000, 0xD0000020),  # adrp x0, +6 pages
    (AARCH64, 275, 0x0, 0x90000000, 0xF0FFFFE0),  # adrp x0, -1 page
    (AARCH64, 277, 0x7004, 0x91000000, 0x91001000),  # add x0, x0, #4
    (AARCH64, 286, 0x7010, 0xF9400000, 0xF9400800),  # ldr x0, [x0, #16]
    (AARCH64, 299, 0x7010, 0x3DC00000, 0x3DC00400),  # ldr q0, [x0, #16]
    (AARCH64, 283, 0x2000, 0x94000000, 0x94000400),  # bl +0x1000
    (AARCH64, 282, 0x0, 0x14000000, 0x17FFFC00),  # b -0x1000
    (AARCH64, 280, 0x1008, 0x54000000, 0x54000040),  # b.eq +8
    (AARCH64, 279, 0xFFC, 0x36000000, 0x3607FFE0),  # tbz w0, #0, -4
    (AARCH64, 261, 0x800, 0, 0xFFFFF800),
]


def test_instructions_are_patched_as_the_manuals_say() -> None:
    for machine, kind, target, before, after in PATCHES:
        image = bytearray(before.to_bytes(8, "little"))
        machine.patch(kind, PatchSite(image, 0, 0x1000, target, 0, None))
        assert int.from_bytes(image, "little") == after


def test_distances_up_to_the_last_that_fits() -> None:
    for machine, kind, unit, bits in ((X86_64, 2, 1, 32), (AARCH64, 261, 1, 32), (AARCH64, 283, 4, 26)):
        place, reach = 1 << 40, unit << bits - 1
        for distance in (-reach, reach - unit):
            machine.patch(kind, PatchSite(bytearray(8), 0, place, place + distance, 0, None))
        for distance in (-reach - unit, reach):
            with pytest.raises(ValueError, match=rf"does not fit {bits} bits"):
                machine.patch(kind, PatchSite(bytearray(8), 0, place, place + distance, 0, None))


def test_misaligned_loads_are_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of 8"):
        AARCH64.patch(286, PatchSite(bytearray(8), 0, 0x1000, 0x7004, 0, None))
