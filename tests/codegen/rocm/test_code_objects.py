"""Code objects for each chip: linked as ld.lld links them, and their kernels request the planned resources and no
scratch memory. `--update-goldens` writes the figures anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.covering import full, share
from tests.cases.jobs import composed, jobs
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.cases.zoo import BATCH, NAMES, small
from tests.codegen.rocm.planned import CHIPS, FAST, every, input_value, made, planned, target
from tests.machines.rocm.code_object import (
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
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, bf16, f16, f32, f64, i32
from ztorch.graph.value import Graph
from ztorch.lower.passes import launched

KINDS = [[t.chip for t in TARGETS.values() if t.assembler == "amdgcn" and t.limits.grid.subgroup == wave]
         for wave in (64, 32)]
GOLDENS = Path(__file__).parent / "goldens.json"
SLACK = 16  # registers more that another version of LLVM may take


# -- resources of kernels ------------------------------------------------------------------------------


@every
def test_metadata_matches_the_plan(chip: str) -> None:
    _, code, actual = made(chip)
    assert hip.is_complete(code)
    assert metadata(code)["amdhsa.target"] == f"amdgcn-amd-amdhsa--{chip}"
    assert metadata(code)["amdhsa.version"] == [1, 2]  # code object 5
    entries, text = kernels(code), sections(code)[".text"]
    assert len(entries) == len(actual)
    wave = target(chip).limits.grid.subgroup  # type: ignore[union-attr]
    for symbol, kernel in actual:
        k, d = entries[symbol], descriptor(code, symbol)
        parameters = [m for m in kernel.memories if m.space == "global"]
        shared = sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "shared")
        assert [(a[".offset"], a[".size"], a[".value_kind"], a[".address_space"]) for a in k[".args"]] == [
            (8 * n, 8, "global_buffer", "global") for n in range(len(parameters))]
        assert k[".kernarg_segment_size"] == d.arguments == 8 * len(parameters)
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
    actual = {name: [figures(code, next(every)[0]) for _ in some] for name, some in planned(chip).items()}
    version = ".".join(map(str, llvm_version_info))
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {"chips": {}}
    if request.config.getoption("--update-goldens"):
        goldens = {"LLVM": version, "chips": {**goldens["chips"], chip: actual}, "columns": [
            "vector registers", "scalar registers", "shared bytes", "scratch bytes", "spilled registers"]}
        lines = json.dumps(goldens, indent=1, sort_keys=True)
        GOLDENS.write_text(lines + "\n")
    known = goldens["chips"].get(chip)
    assert known, f"{GOLDENS.name} has no figures of {chip}: run with --update-goldens"
    if version == goldens["LLVM"]:
        assert actual == known
    assert actual.keys() == known.keys()
    for name, some in actual.items():
        for (vector, scalar, shared, scratch, spilled), was in zip(some, known[name], strict=True):
            assert vector <= was[0] + SLACK and scalar <= was[1] + SLACK, name
            assert shared == was[2] and not scratch and not spilled, name


def test_a_tile_is_multiplied_without_moving_it() -> None:
    """The inner loop of a product: multiply-adds in place, loads of shared memory, and no copies."""
    chip = target("gfx1100")
    plan, _ = plan_of(Graph({"y": ops.matmul(input_value("a", 512, 512), input_value("b", 512, 512))}), chip.limits)
    text = rendered([plan.steps[0].kernel], chip)[0]
    amdgcn.assemble(text, chip)  # which LLVM survives, as it must to give its text in this process
    lines = assemble.assembly(text, chip).splitlines()
    first = next(k for k, line in enumerate(lines) if "fmac" in line)
    between = lines[first:next(k for k in range(first, len(lines)) if "s_cbranch" in lines[k])]
    assert sum(line.count("fmac") for line in between) == 512  # eight steps along k of 8 x 8 numbers
    assert not any("v_mov" in line or "scratch" in line for line in between)


@pytest.mark.parametrize(("chip", "d", "word", "count"), [
    ("gfx90a", f32, "v_mfma_f32_16x16x4f32", 64), ("gfx90a", f16, "v_mfma_f32_16x16x4f32", 64),
    ("gfx90a", bf16, "v_mfma_f32_16x16x16bf16_1k", 32), ("gfx942", f16, "v_mfma_f32_16x16x16_f16", 32),
    ("gfx942", f64, "v_mfma_f64_16x16x4_f64", 16), ("gfx1100", f16, "v_wmma_f32_16x16x16_f16", 16),
    ("gfx1201", bf16, "v_wmma_f32_16x16x16_bf16", 16)])
def test_matrices_are_multiplied_without_moving_them(chip: str, d: DType, word: str, count: int) -> None:
    """The inner loop of a product by matrices: sums in place."""
    plan, _ = plan_of(Graph({"y": ops.matmul(input_value("a", 4096, 512, d=d), input_value("b", 512, 4096, d=d))}),
                      target(chip).limits)
    text = rendered([plan.steps[0].kernel], target(chip))[0]
    amdgcn.assemble(text, target(chip))  # which LLVM survives, as it must to give its text in this process
    lines = assemble.assembly(text, target(chip)).splitlines()
    actual = [k for k, line in enumerate(lines) if word in line]
    after = next(k for k in range(actual[0], len(lines)) if "s_cbranch" in lines[k])
    assert len(actual) == 2 * count == 2 * sum(k < after for k in actual)  # in the loop, and of the last strips
    assert not any("v_mov" in line or "accvgpr" in line or "scratch" in line for line in lines[actual[0]:after])


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_addresses_beyond_four_gigabytes_have_64_bits(chip: str) -> None:
    """An element's byte offset is computed in 32 bits where they hold that of the last element, and nowhere else."""
    for n in ((1 << 30) + 64, 1 << 30, (1 << 30) + 64):  # the text of an instruction is kept for the next kernel
        [step] = plan_of(Graph({"y": ops.exp(input_value("x", n))}), target(chip).limits)[0].steps
        text = rendered([step.kernel], target(chip))[0]
        offsets = re.findall(r"mul nuw i32 \S+, (\d+)", text)
        assert all((n - 1) * int(size) < 1 << 32 for size in offsets)
        wide = re.findall(r"getelementptr float, ptr addrspace\(1\) %m\d, i32 %", text)  # extended to 64 bits
        assert (len(offsets), len(wide)) == ((2, 0) if n == 1 << 30 else (0, 2))
        assert len(kernels(amdgcn.assemble(text, target(chip)))) == 1


# -- everything ----------------------------------------------------------------------------------------


def _clean(code: bytes) -> Iterator[str]:
    """Kernels that keep something in separate memory."""
    for name, k in kernels(code).items():
        if k[".private_segment_fixed_size"] or k[".vgpr_spill_count"] or k[".sgpr_spill_count"]:
            yield name


@pytest.mark.slow
@every
def test_every_opcode_is_accepted(chip: str) -> None:
    """16-bit floats, in whose words chips differ, and some of the other dtypes, in turn; in a full run all."""
    taken = {f16, bf16, *share(ALL, CHIPS.index(chip), len(CHIPS))}
    text, actual = rendered([kernel_for(opcode, d, 1, i32)[0] for d in taken for opcode in opcodes_of(d)],
                            target(chip))
    assert len(kernels(amdgcn.assemble(text, target(chip)))) == len(actual)


QUICK = ("matmul", "softmax", "conv'", "sort", "where", "attention'", "cumsum")


@pytest.mark.parametrize("chip", [pytest.param(c, marks=() if c in FAST else pytest.mark.full) for c in CHIPS])
def test_a_few_ops_are_accepted(chip: str) -> None:
    some = {f"f{k}": jobs()[n][0].alone(f"f{k}") for k, n in enumerate(n for n in QUICK if n in jobs())}
    code = compile_functions(some, target(chip), "ops").code
    assert not list(_clean(code))


@pytest.mark.slow
@every
def test_every_op_is_accepted(chip: str) -> None:
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
def test_the_zoo_is_accepted(name: str, chip: str) -> None:
    recipe = small(name)
    traced = recipe.model.trace(batch_size=BATCH, optimizer=recipe.optimizer, loss=recipe.loss,
                                metrics=recipe.metrics)
    made = compile_functions(traced.functions, target(chip), name)
    assert not list(_clean(made.code)) and len(kernels(made.code)) == len(made.spec.entries)
