"""Code objects for each chip: linked as ld.lld links them, and their kernels ask for what was
planned, no scratch memory among it. `--update-goldens` writes the figures anew."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.covering import full, share
from tests.cases.jobs import composed, jobs
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.cases.zoo import BATCH, NAMES, small
from tests.machines.rocm.code_object import (
    Section,
    descriptor,
    kernels,
    metadata,
    sections,
    symbols,
)
from tests.machines.rocm.machine import rendered
from tests.parity import plan_of
from ztorch import ops
from ztorch.backends import hip
from ztorch.codegen import amdgcn, assemble
from ztorch.codegen.elf_amdgcn import link
from ztorch.codegen.elf_object import read_object
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, bf16, f16, f32, f64, i32
from ztorch.errors import LinkError, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.lower.passes import launched

CHIPS = tuple(t.chip for t in TARGETS.values() if t.assembler == "amdgcn")
FAST = ("gfx942", "gfx1100")
KINDS = [[t.chip for t in TARGETS.values() if t.assembler == "amdgcn" and t.limits.grid.subgroup == wave]
         for wave in (64, 32)]
GOLDENS = Path(__file__).parent / "goldens.json"
SLACK = 16  # registers more that another version of LLVM may take
every = pytest.mark.parametrize("chip", CHIPS)
chips = pytest.mark.parametrize("chip", [
    pytest.param(c, marks=() if c in FAST else pytest.mark.slow) for c in CHIPS])


def target(chip: str) -> Target:
    return TARGETS[f"rocm:{chip}"]


def _input(name: str, *shape: int, d: DType = f32) -> Value:
    return leaf("input", name, shape, d)


def graphs() -> dict[str, Graph]:
    """Typical kernels; sizes are odd, or large enough for the largest tile."""
    x, w = _input("x", 4096, 4096), _input("w", 4096, 4096)
    narrow, low, bias = _input("a", 33, 217), _input("b", 217, 75), _input("c", 75)
    rows, aligned = _input("r", 128, 1003), _input("s", 4096, 1024)
    return {
        "product": Graph({"y": ops.matmul(x, w)}),
        "product with an epilogue": Graph({"y": ops.relu(ops.matmul(x, w) + _input("v", 4096))}),
        "product transposed": Graph({"y": ops.matmul(ops.transpose(x), w)}),
        **{f"product of {d!r}": Graph({"y": ops.matmul(_input("g", 4096, 4096, d=d),
                                                       _input("h", 4096, 4096, d=d))})
           for d in (f16, bf16, f64)},
        "small product with an epilogue": Graph({"y": ops.relu(ops.matmul(narrow, low) + bias)}),
        "row softmax": Graph({"y": ops.softmax(rows)}),
        "row softmax of vectors": Graph({"y": ops.softmax(aligned)}),
        "column sum": Graph({"y": ops.sum(rows, axis=0)}),
        "column sum of vectors": Graph({"y": ops.sum(aligned, axis=0)}),
        "elementwise gelu": Graph({"y": ops.gelu(rows)}),
    }


def planned(chip: str) -> dict[str, list[Kernel]]:
    return {name: [step.kernel for step in plan_of(graph, target(chip).limits)[0].steps]
            for name, graph in graphs().items()}


@functools.cache
def made(chip: str) -> tuple[bytes, bytes, tuple[tuple[str, Kernel], ...]]:
    """The object and the code object of all of them, and each kernel by its symbol."""
    every = [k for some in planned(chip).values() for k in some]
    text, found = rendered(every, target(chip))
    obj = assemble.assemble(text, target(chip))
    return obj, link(obj), tuple((symbol, k) for (symbol, *_), k in zip(found, every, strict=True))


# -- linking -------------------------------------------------------------------------------------------

LEFT_OUT = {".comment", ".AMDGPU.gpr_maximums"}  # who linked it, and an empty one


def compared(elf: bytes) -> dict[str, tuple]:
    """All that a loader may look at. Where what is never loaded lies in the file is up to the linker,
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
def test_the_linker_does_what_lld_does(chip: str, tmp_path: Path) -> None:
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


def test_what_the_linker_does_not_understand_it_refuses() -> None:
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


@pytest.mark.parametrize("bad", ["this is no instruction", ELSEWHERE], ids=["text", "instruction"])
def test_what_llvm_cannot_do_is_an_error_not_the_end(bad: str) -> None:
    """On a chip without such an instruction LLVM ends its process: not ours."""
    text = rendered([kernel_for("add", f32, 1, i32)[0]], target("gfx1100"))[0]
    with pytest.raises(ZtorchError, match="rocm:gfx1100"):
        amdgcn.assemble(text.replace("  ret void\n", f"  {bad}\n  ret void\n", 1), target("gfx1100"))


# -- what kernels ask for ------------------------------------------------------------------------------


@every
def test_metadata_is_what_was_planned(chip: str) -> None:
    _, code, found = made(chip)
    assert hip.whole(code)
    assert metadata(code)["amdhsa.target"] == f"amdgcn-amd-amdhsa--{chip}"
    assert metadata(code)["amdhsa.version"] == [1, 2]  # code object 5
    said, text = kernels(code), sections(code)[".text"]
    assert len(said) == len(found)
    wave = target(chip).limits.grid.subgroup  # type: ignore[union-attr]
    for symbol, kernel in found:
        k, d = said[symbol], descriptor(code, symbol)
        given = [m for m in kernel.memories if m.space == "global"]
        shared = sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "shared")
        assert [(a[".offset"], a[".size"], a[".value_kind"], a[".address_space"]) for a in k[".args"]] == [
            (8 * n, 8, "global_buffer", "global") for n in range(len(given))]
        assert k[".kernarg_segment_size"] == d.arguments == 8 * len(given)
        assert k[".kernarg_segment_align"] == 8
        assert shared <= k[".group_segment_fixed_size"] == d.shared < shared + 64
        assert tuple(k[".reqd_workgroup_size"]) == kernel.workgroup
        assert k[".max_flat_workgroup_size"] == kernel.workgroup[0]
        assert k[".wavefront_size"] == wave and d.wave32 == (wave == 32)
        assert k[".private_segment_fixed_size"] == d.scratch == 0
        assert k[".uniform_work_group_size"] == 1 and not k[".uses_dynamic_stack"]
        assert d.keeps_denormals and d.rounds_to_nearest
        address, size, kind = symbols(code)[symbol]
        assert (d.entry, kind) == (address, 2) and address % 256 == 0
        assert text.address <= address and address + size <= text.address + text.size
        assert launched(kernel)[1][0] * kernel.workgroup[0] < 1 << 32


def figures(code: bytes, symbol: str) -> list[int]:
    k = kernels(code)[symbol]
    return [k[".vgpr_count"], k[".sgpr_count"], k[".group_segment_fixed_size"],
            k[".private_segment_fixed_size"], k[".vgpr_spill_count"] + k[".sgpr_spill_count"]]


@every
def test_figures(chip: str, request: pytest.FixtureRequest) -> None:
    from llvmlite.binding import llvm_version_info

    _, code, listed = made(chip)
    every = iter(listed)
    found = {name: [figures(code, next(every)[0]) for _ in some] for name, some in planned(chip).items()}
    version = ".".join(map(str, llvm_version_info))
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {"chips": {}}
    if request.config.getoption("--update-goldens"):
        goldens = {"LLVM": version, "chips": {**goldens["chips"], chip: found}, "columns": [
            "vector registers", "scalar registers", "shared bytes", "scratch bytes", "spilled registers"]}
        lines = json.dumps(goldens, indent=1, sort_keys=True)
        GOLDENS.write_text(lines + "\n")
    known = goldens["chips"][chip]
    if version == goldens["LLVM"]:
        assert found == known
    assert found.keys() == known.keys()
    for name, some in found.items():
        for (vector, scalar, shared, scratch, spilled), was in zip(some, known[name], strict=True):
            assert vector <= was[0] + SLACK and scalar <= was[1] + SLACK, name
            assert shared == was[2] and not scratch and not spilled, name


def test_a_tile_is_multiplied_without_moving_it() -> None:
    """The inner loop of a product: multiply-adds in place, loads of shared memory, and no copies."""
    chip = target("gfx1100")
    plan, _ = plan_of(Graph({"y": ops.matmul(_input("a", 512, 512), _input("b", 512, 512))}), chip.limits)
    text = rendered([plan.steps[0].kernel], chip)[0]
    amdgcn.assemble(text, chip)  # which LLVM survives, as it must to give its text in this process
    lines = assemble.assembly(text, chip).splitlines()
    first = next(k for k, line in enumerate(lines) if "fmac" in line)
    between = lines[first:next(k for k in range(first, len(lines)) if "s_cbranch" in lines[k])]
    assert sum(line.count("fmac") for line in between) == 32  # of two steps along k
    assert not any("v_mov" in line or "scratch" in line for line in between)


@pytest.mark.parametrize(("chip", "d", "word", "count"), [
    ("gfx90a", f32, "v_mfma_f32_16x16x4f32", 32), ("gfx90a", f16, "v_mfma_f32_16x16x4f32", 32),
    ("gfx90a", bf16, "v_mfma_f32_16x16x16bf16_1k", 16), ("gfx942", f16, "v_mfma_f32_16x16x16_f16", 16),
    ("gfx942", f64, "v_mfma_f64_16x16x4_f64", 16), ("gfx1100", f16, "v_wmma_f32_16x16x16_f16", 16),
    ("gfx1201", bf16, "v_wmma_f32_16x16x16_bf16", 16)])
def test_matrices_are_multiplied_without_moving_them(chip: str, d: DType, word: str, count: int) -> None:
    """The inner loop of a product by matrices: sums in place."""
    plan, _ = plan_of(Graph({"y": ops.matmul(_input("a", 4096, 512, d=d), _input("b", 512, 4096, d=d))}),
                      target(chip).limits)
    text = rendered([plan.steps[0].kernel], target(chip))[0]
    amdgcn.assemble(text, target(chip))  # which LLVM survives, as it must to give its text in this process
    lines = assemble.assembly(text, target(chip)).splitlines()
    found = [k for k, line in enumerate(lines) if word in line]
    after = next(k for k in range(found[0], len(lines)) if "s_cbranch" in lines[k])
    assert len(found) == 2 * count == 2 * sum(k < after for k in found)  # in the loop, and of the last strips
    assert not any("v_mov" in line or "accvgpr" in line or "scratch" in line for line in lines[found[0]:after])


# -- everything ----------------------------------------------------------------------------------------


def _clean(code: bytes) -> Iterator[str]:
    """Kernels that keep something in memory of their own."""
    for name, k in kernels(code).items():
        if k[".private_segment_fixed_size"] or k[".vgpr_spill_count"] or k[".sgpr_spill_count"]:
            yield name


@pytest.mark.slow
@every
def test_every_opcode_is_taken(chip: str) -> None:
    """16-bit floats, in whose words chips differ, and some of the other dtypes, in turn; in a full run all."""
    taken = {f16, bf16, *share(ALL, CHIPS.index(chip), len(CHIPS))}
    text, found = rendered([kernel_for(opcode, d, 1, i32)[0] for d in taken for opcode in opcodes_of(d)],
                           target(chip))
    assert len(kernels(amdgcn.assemble(text, target(chip)))) == len(found)


QUICK = ("matmul", "softmax", "conv'", "sort", "where", "attention'", "cumsum")


@pytest.mark.parametrize("chip", [pytest.param(c, marks=() if c in FAST else pytest.mark.full) for c in CHIPS])
def test_a_few_ops_are_taken(chip: str) -> None:
    some = {f"f{k}": jobs()[n][0].alone(f"f{k}") for k, n in enumerate(n for n in QUICK if n in jobs())}
    code = compile_functions(some, target(chip), "ops").code
    assert not list(_clean(code))


@pytest.mark.slow
@every
def test_every_op_is_taken(chip: str) -> None:
    """Each op for one of the chips, in turn, and each third of those that are made of others; in a full
    run each sample of it for a chip of either kind."""
    if full():
        kind = next(chips_of_kind for chips_of_kind in KINDS if chip in chips_of_kind)
        graphs = [job.alone(f"{op}{n}") for op, of_op in jobs().items() for n, job in enumerate(of_op)]
        graphs = graphs[kind.index(chip)::len(kind)]
    else:
        graphs = [job.alone(f"{op}{n}") for k, (op, of_op) in enumerate(jobs().items())
                  if k % len(CHIPS) == CHIPS.index(chip) and not (composed(op) and k // len(CHIPS) % 3)
                  for n, job in enumerate(share(of_op, k, 6))]
    for at in range(0, len(graphs), 60):
        module = {f"j{k}": g for k, g in enumerate(graphs[at:at + 60])}
        assert not list(_clean(compile_functions(module, target(chip), "ops").code))


# Kinds of layers that the models of test_ptx.py are not made of; each model compiles for some device in
# each run of backends/test_zoo.py.
EVERY_RUN = ("digits_cnn", "bert_base", "vae")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), [
    pytest.param(n, CHIPS[k % len(CHIPS)], marks=() if n in EVERY_RUN else pytest.mark.full)
    for k, n in enumerate(NAMES)])
def test_the_zoo_is_taken(name: str, chip: str) -> None:
    recipe = small(name)
    traced = recipe.model.trace(batch_size=BATCH, optimizer=recipe.optimizer, loss=recipe.loss,
                                metrics=recipe.metrics)
    made = compile_functions(traced.functions, target(chip), name)
    assert not list(_clean(made.code)) and len(kernels(made.code)) == len(made.spec.entries)
