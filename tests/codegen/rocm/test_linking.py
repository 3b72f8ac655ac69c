"""Code objects are linked as lld links them, and unknown input is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.opcodes import kernel_for
from tests.codegen.rocm.planned import CHIPS, FAST, every, made, target
from tests.machines.rocm.code_object import (
    Section,
    sections,
)
from tests.machines.rocm.machine import rendered
from ztorch.codegen import amdgcn, assemble
from ztorch.codegen.elf.amdgcn import link
from ztorch.codegen.elf.object import read_object
from ztorch.dtypes import f32, i32
from ztorch.errors import LinkError, ZtorchError

chips = pytest.mark.parametrize("chip", [
    pytest.param(c, marks=() if c in FAST else pytest.mark.slow) for c in CHIPS])

# -- linking -------------------------------------------------------------------------------------------

LEFT_OUT = {".comment", ".AMDGPU.gpr_maximums"}  # who linked it, and an empty one


def compared(elf: bytes) -> dict[str, tuple]:
    """All that a loader may look at. Where what is never loaded is in the file is up to the linker,
    and names of sections lie where there are fewer."""
    def row(s: Section) -> tuple:
        loaded = bool(s.flags & 2)
        return (s.type, s.flags, s.address, loaded and s.offset, s.link, s.info, s.align, s.entry,
                None if s.name == ".shstrtab" else (s.size, s.data))

    segments = elf[64:64 + 8 * 56]
    return {"": (elf[:40], elf[48:60], segments),
            **{n: row(s) for n, s in sections(elf).items() if n not in LEFT_OUT}}


def lld(obj: bytes, folder: Path) -> bytes:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs a new ld.lld: pip install ziglang")
    (folder / "kernels.o").write_bytes(obj)
    subprocess.run([sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-o", "kernels.hsaco", "kernels.o"],
                   cwd=folder, check=True)
    return (folder / "kernels.hsaco").read_bytes()


@chips
def test_the_linker_equals_lld(chip: str, tmp_path: Path) -> None:
    obj, code, _ = made(chip)
    assert compared(code) == compared(lld(obj, tmp_path))


@pytest.mark.parametrize("count", [1, 2, 4, 5, 11, 60])
def test_with_any_number_of_kernels(count: int, tmp_path: Path) -> None:
    """Hash tables change their shape with it."""
    adding = kernel_for("add", f32, 1, i32)[0]
    obj = assemble.assemble(rendered([adding] * count, target("gfx90a"))[0], target("gfx90a"))
    assert compared(link(obj)) == compared(lld(obj, tmp_path))


@every
def test_equal_text_gives_equal_bytes(chip: str) -> None:
    text = rendered([kernel_for("mul", f32, 1, i32)[0]], target(chip))[0]
    assert amdgcn.assemble(text, target(chip)) == amdgcn.assemble(text, target(chip))


def test_the_linker_refuses_unknown_input() -> None:
    obj = made("gfx942")[0]
    with pytest.raises(LinkError, match="not an ELF object"):
        link(b"MZ" + obj[2:])
    for at, byte in ((18, 62), (7, 0), (8, 1)):  # for x86; of no system; of code object 3
        with pytest.raises(LinkError, match="not an object of AMD's code object version 5"):
            link(obj[:at] + bytes([byte]) + obj[at + 1:])
    named = obj.replace(b"\0.rodata\0", b"\0.r0data\0", 1).replace(b".rela.rodata\0", b".rela.r0data\0", 1)
    with pytest.raises(LinkError, match=r"r0data|descriptors"):
        link(named)
    for cut in range(0, len(obj), 997):
        with pytest.raises(LinkError):
            link(obj[:cut])


def test_a_relocation_ends_with_its_descriptors() -> None:
    obj = assemble.assemble(rendered([kernel_for("add", f32, 1, i32)[0]], target("gfx90a"))[0], target("gfx90a"))
    parts = {s.name: s for s in read_object(obj).sections}
    at = obj.index(bytes(parts[".rela.rodata"].data))
    for offset, fits in ((parts[".rodata"].size - 8, True), (parts[".rodata"].size - 7, False)):
        moved = obj[:at] + offset.to_bytes(8, "little") + obj[at + 8:]
        if fits:
            link(moved)
        else:
            with pytest.raises(LinkError, match=r"a relocation outside '\.rodata'"):
                link(moved)


def test_a_call_of_nothing_is_refused() -> None:
    """Code for a GPU imports nothing."""
    text = rendered([kernel_for("add", f32, 1, i32)[0]], target("gfx90a"))[0]
    calling = text.replace("  ret void\n", "  call void @elsewhere()\n  ret void\n", 1)
    with pytest.raises(LinkError, match="call 'elsewhere'"):
        amdgcn.assemble(calling + "\ndeclare void @elsewhere()\n", target("gfx90a"))


ELSEWHERE = """%none = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> zeroinitializer,
    <4 x half> zeroinitializer, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  store <4 x float> %none, ptr addrspace(1) %m0"""


@pytest.mark.parametrize("bad", ["this is not an instruction", ELSEWHERE], ids=["text", "instruction"])
def test_unsupported_code_is_an_error_and_no_crash(bad: str) -> None:
    """On a chip without such an instruction LLVM ends its process: not ours."""
    text = rendered([kernel_for("add", f32, 1, i32)[0]], target("gfx1100"))[0]
    with pytest.raises(ZtorchError, match="rocm:gfx1100"):
        amdgcn.assemble(text.replace("  ret void\n", f"  {bad}\n  ret void\n", 1), target("gfx1100"))
