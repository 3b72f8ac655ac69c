"""Kernels that are assembled together have the objects that each would have alone."""

from __future__ import annotations

import pytest

from tests.cases.elf_objects import TRIPLES, compiled
from ztorch.codegen.elf.object import Object, read_object
from ztorch.codegen.elf.split import split
from ztorch.codegen.elf.write import object_bytes

# What kernels refer to: nothing, a number, a vector, two vectors of one size, a number that another has too.
BODIES = (
    "store float %x, ptr %p",
    "%y = fadd float %x, 1.5 store float %y, ptr %p",
    "store <4 x float> <float 1.0, float 2.0, float 3.0, float 4.5>, ptr %p",
    "%v = load <4 x float>, ptr %p %w = fadd <4 x float> %v, <float 1.0, float 2.0, float 3.0, float 4.5>"
    " %u = fmul <4 x float> %w, <float 6.0, float 7.0, float 8.0, float 9.0> %y = fadd float %x, 2.5"
    " store <4 x float> %u, ptr %p store float %y, ptr %p",
    "%y = fmul float %x, 2.5 store float %y, ptr %p",
)


def kernel(name: str, body: str, section: str = "") -> str:
    return (f'define hidden void @{name}(ptr %p, float %x) section "{section or ".text." + name}" '
            f"{{ {body} ret void }}\n")


def objects(*texts: str, machine: str) -> dict[str, Object]:
    return split(read_object(compiled("".join(texts), machine)), "kernel")


@pytest.mark.parametrize("machine", TRIPLES)
def test_each_is_as_alone(machine: str) -> None:
    names = [f"kernel{k}" for k in range(len(BODIES))]
    group = objects(*map(kernel, names, BODIES), machine=machine)
    assert list(group) == names
    sizes = []
    for name, body in zip(names, BODIES, strict=True):
        alone = objects(kernel("kernel", body), machine=machine)["kernel"]
        assert object_bytes(group[name]) == object_bytes(alone)
        assert [s.name for s in alone.symbols if s.name] == ["kernel"]
        sizes.append(sum(s.size for s in alone.sections if s.name == ".rodata"))
        again = read_object(object_bytes(alone))
        assert again.relocations == alone.relocations and again.symbols == alone.symbols
        assert [bytes(s.data) for s in again.sections[:len(alone.sections)]] == [
            bytes(s.data) for s in alone.sections]
    assert sizes[3] >= 32 and 0 in sizes


def test_wide_constants() -> None:
    """Those of a whole register of AVX-512 have a section without an entry's size."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLES["x86_64"]).create_target_machine(
        cpu="x86-64", features="+avx512f", opt=1, reloc="pic", codemodel="small")

    def body(first: int) -> str:
        numbers = ", ".join(f"float {first + k * k}.0" for k in range(16))
        return (f"%v = load <16 x float>, ptr %p, align 4 %w = fadd <16 x float> %v, <{numbers}>"
                " store <16 x float> %w, ptr %p, align 4")

    def made(*texts: str) -> dict[str, Object]:
        module = llvm.parse_assembly(f'target triple = "{TRIPLES["x86_64"]}"\n' + "".join(texts))
        return split(read_object(machine.emit_object(module)), "kernel")

    group = made(kernel("kernel0", body(3)), kernel("kernel1", body(4)))
    for k, first in enumerate((3, 4)):
        assert object_bytes(group[f"kernel{k}"]) == object_bytes(made(kernel("kernel", body(first)))["kernel"])
    assert bytes(group["kernel1"].sections[2].data[:8]) == b"\x00\x00\x80\x40\x00\x00\xa0\x40"


def test_those_that_refer_to_something_else_are_left_out() -> None:
    calls = kernel("calls", "call void @other(ptr %p)")
    table = ("@table = internal constant [2 x ptr] [ptr @table, ptr @table]\n"
             + kernel("pointers", "store ptr @table, ptr %p"))
    counter = "@counter = internal global i64 5\n" + kernel("counts", "store i64 7, ptr @counter")
    # A table of distances, as large as a constant and beside the constants.
    cases = " ".join(f"i32 {k}, label %c{k}" for k in range(20))
    blocks = " ".join(f"c{k}: store volatile i32 {k * k}, ptr %p br label %end" for k in range(20))
    switch = kernel("switches", f"%k = load i32, ptr %p switch i32 %k, label %end [ {cases} ] {blocks} end:")
    shared = kernel("one", BODIES[0], ".text.both") + kernel("two", BODIES[0], ".text.both")
    own = kernel("own", BODIES[1])
    made = objects("declare void @other(ptr)\n", calls, table, counter, switch, shared, own, machine="x86_64")
    assert list(made) == ["own"]
