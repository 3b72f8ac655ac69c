"""The machine code of NVIDIA's assembler for the loops of main kernels: which instructions do their work, and that none
is there that should not be."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.gpu_predictions import KERNELS
from tests.cases.disassembly import Disassembled, disassembled, named, parts
from ztorch import ops, settings
from ztorch.codegen import nvidia_programs, ptx
from ztorch.codegen.targets import TARGETS
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.pipeline import compile_functions, declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.dtypes import DType, bf16, f32, i32, u32
from ztorch.errors import Unsupported
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.losses import SparseCategoricalCrossentropy
from ztorch.machines.gpus import GPUS
from ztorch.performance.assembled import assembled_resources
from ztorch.performance.walk import work_of

pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")

PRODUCT, CONVOLUTION = "matrix product 4096, bfloat16", "convolution 3x3, 32x56x56x64, bfloat16"
SUMS = ("sum of columns 65536x2048", "sum of rows 65536x2048")
HELD = ("softmax 65536x2048", "layer norm 65536x2048")  # rows that a workgroup's registers hold


@functools.cache
def kernels(name: str, chip: str) -> list[Disassembled]:
    with settings.using(cache=None, cubin=False):
        text = compile_functions({"f": KERNELS[name].make()}, TARGETS[f"cuda:{chip}"], "f").text
    return list(parts(ptx.assembly(text, TARGETS[f"cuda:{chip}"])))


def slow(kernel: Disassembled) -> list[str]:
    """Instructions that no loop should have: local memory, calls, integer divisions (through floats)."""
    memory = [o for o in kernel.opcodes if o.startswith(("LDL", "STL"))]
    return memory + [o for loop in kernel.loops for o in loop if o.startswith(("CALL", "I2F", "BRX"))]


@disassembled
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_120"])
def test_half_of_the_additions_are_written_as_products(chip: str) -> None:
    """Where integers have fewer units than floats; on sm_120 none are."""
    seed, step = leaf("input", "seed", (2,), u32), leaf("input", "step", (), u32)
    with settings.using(cache=None, cubin=False):
        text = compile_functions({"f": Graph({"y": ops.random_bits((4096,), seed, step)})}, TARGETS[f"cuda:{chip}"], "f").text
    opcodes = [o for p in parts(ptx.assembly(text, TARGETS[f"cuda:{chip}"])) for o in p.opcodes]
    products, sums = (sum(o.startswith(name) for o in opcodes) for name in ("IMAD.IADD", "IADD3"))
    [row] = {g.moved_additions for g in GPUS.values() if g.targets[0] == f"cuda:{chip}"}
    assert abs(products / (products + sums) - row) < 0.15


@disassembled
def test_counted_instructions_match_the_assembler() -> None:
    """Of integers, in a kernel of random words and in one of divided places: a little more, and no third
    more: the assembler also shares parts of sums."""
    seed, step = leaf("input", "seed", (2,), u32), leaf("input", "step", (), u32)
    x = leaf("input", "x", (8, 30, 30, 3), f32)
    for graph in (Graph({"y": ops.random_bits((4096,), seed, step)}),
                  Graph({"y": ops.relu(ops.windows(x, (1, 2), 7, 2))})):
        hopper = TARGETS["cuda:sm_90a"]
        plan = plan_functions({"f": graph}, hopper, declare_states({"f": graph}, hopper), Watch())["f"]
        kernels = Kernels(hopper)
        [kernel] = [step.kernel for step in plan.steps]
        kernels.number(kernel)
        listing = ptx.assembly(kernels.module(kernels.rendered), hopper)
        actual = sum(named([o])[word] for [p] in [[*parts(listing)]] for o in p.opcodes
                     for word in ("IMAD", "SHF", "LOP3", "IADD3", "VIADD", "LEA", "ISETP") if ".MOV" not in o)
        words, grid = in_words(kernel, hopper, kernels.words)
        slots = work_of(words, grid, 32).slots
        counted = (slots["int"] + slots["add"]) / (words.workgroup[0] / 32)
        assert 0.9 * actual < counted < 1.33 * actual


@disassembled
@pytest.mark.parametrize("name", [PRODUCT, CONVOLUTION, *SUMS])
def test_loops_do_nothing_slow(name: str) -> None:
    actual = kernels(name, "sm_80")
    assert any(k.loops for k in actual) and not {k.name: slow(k) for k in actual if slow(k)}


@disassembled
@pytest.mark.parametrize("name", [PRODUCT, CONVOLUTION])
def test_products_are_fed_by_asynchronous_copies(name: str) -> None:
    """Tiles go to shared memory beside the matrix instructions, and from there several at a time; on Hopper
    these read shared memory themselves."""
    loops = [named(loop) for k in kernels(name, "sm_80") for loop in k.of_loops("HMMA")]
    assert loops
    for counted in loops:
        assert counted["HMMA"] > counted["LDSM"] > 0 < counted["LDGSTS"]
        assert not {"LDG", "STS", "FFMA"} & counted.keys()
    every = kernels(name, "sm_90a")
    loops = [named(loop) for k in every for loop in k.of_loops("HGMMA")]
    assert loops and not any({"LDG", "STS", "LDSM", "FFMA"} & counted.keys() for counted in loops)
    assert not any({"HMMA", "FFMA"} & named(k.opcodes).keys() or slow(k) for k in every)
    assert any({"LDGSTS", "UTMALDG"} & named(loop).keys() for k in every for loop in k.loops)


@disassembled
@pytest.mark.parametrize("name", SUMS)
def test_sums_read_four_numbers_at_a_time(name: str) -> None:
    loads = [o for k in kernels(name, "sm_80") for loop in k.loops for o in loop if o.startswith("LDG")]
    assert loads and all(".128" in o for o in loads), Counter(loads)


@disassembled
@pytest.mark.parametrize("name", HELD)
def test_rows_are_read_once_into_registers(name: str) -> None:
    """2048 numbers of 128 threads: four loads of four numbers, no loop, and no memory of a thread's own."""
    [kernel] = [k for k in kernels(name, "sm_80") if "LDG" in named(k.opcodes)]
    assert [o for o in kernel.opcodes if o.startswith("LDG")] == ["LDG.E.128.CONSTANT"] * 4
    assert not kernel.loops and not slow(kernel)


@disassembled
def test_slow_instructions_are_found() -> None:
    """A division by what a loop reads, and an array that is read at a place which it finds."""
    text = """.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 at, .param .u32 n) {
.reg .u32 %r<9>; .reg .u64 %d<5>; .reg .pred %p; .local .u32 own[64];
ld.param.u64 %d1, [at]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u64 %d2, own;
again: ld.global.u32 %r4, [%d1]; div.u32 %r5, %r1, %r4; and.b32 %r6, %r5, 63; mul.wide.u32 %d3, %r6, 4;
add.u64 %d4, %d2, %d3; ld.local.u32 %r7, [%d4]; st.local.u32 [%d4], %r4; add.u32 %r3, %r3, %r7;
add.u64 %d1, %d1, 4; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1; @%p bra again;
st.global.u32 [%d1], %r3; ret; }
"""
    [kernel] = parts(ptx.assembly(text, TARGETS["cuda:sm_80"]))
    assert kernel.name == "k" and named(slow(kernel)).keys() == {"LDL", "STL", "I2F"}


@pytest.mark.parametrize(("name", "call"), [("nvdisasm", lambda: nvidia_programs.disassemble(b"")),
                                            ("ptxas", lambda: nvidia_programs.assemble_with_ptxas("", "sm_90a"))])
def test_without_a_program(name: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_programs, "installed", lambda name: "")
    with pytest.raises(Unsupported, match=f"pip install {nvidia_programs.PACKAGES[name]}"):
        call()


def test_a_gradient_of_few_channels_spills_nothing() -> None:
    """Of a convolution of 1 x 1 with strides: 64 sums of a thread, and 24 loads that no vector holds."""
    x, g = leaf("input", "x", (32, 56, 56, 64), f32), leaf("input", "g", (32, 28, 28, 128), f32)
    rows = 32 * 28 * 28
    y = ops.matmul(ops.transpose(ops.reshape(x[:, ::2, ::2], (rows, 64))), ops.reshape(g, (rows, 128)))
    target, graphs = TARGETS["cuda:sm_90a"], {"y": Graph({"y": y})}
    [product, _] = plan_functions(graphs, target, declare_states(graphs, target), Watch())["y"].steps
    assert product.kernel.name.endswith("64x64")
    assert assembled_resources({0: product.kernel}, target)[0].spilled == 0


@pytest.mark.parametrize(("m", "n", "k", "dtype", "chip", "tile"), [
    (26912, 64, 128, bf16, "sm_75", "64x64"), (4099, 1030, 77, f32, "sm_75", "64x64"),
    (30522, 768, 4096, f32, "sm_90", "128x128"), (4096, 30522, 768, f32, "sm_90", "128x128")], ids=str)
def test_edges_of_products_spill_nothing(m: int, n: int, k: int, dtype: DType, chip: str, tile: str) -> None:
    """Threads test each of their rows once, or each column if all rows are inside, not before each store."""
    x, w = leaf("input", "x", (m, k), dtype), leaf("input", "w", (n, k), dtype)
    target, graphs = TARGETS[f"cuda:{chip}"], {"y": Graph({"y": ops.matmul(x, ops.transpose(w))})}
    [product] = plan_functions(graphs, target, declare_states(graphs, target), Watch())["y"].steps
    assert product.kernel.name.endswith(tile)
    assert assembled_resources({0: product.kernel}, target)[0].spilled == 0


@pytest.mark.parametrize(("chip", "words", "ways", "turns"), [
    ("sm_75", 32000, 512, 48), ("sm_75", 44000, 256, 112), ("sm_100", 30522, 512, 48), ("sm_120", 32000, 512, 48)])
def test_a_loss_over_a_long_vocabulary_spills_nothing(chip: str, words: int, ways: int, turns: int) -> None:
    """With all 32,000 words in registers, 125 of each thread, 40 to 88 bytes spilled; shared memory holds the rest."""
    x, y = leaf("input", "x", (4096, words), f32), leaf("input", "y", (4096,), i32)
    loss = ops.mean(SparseCategoricalCrossentropy(from_logits=True)(y, x))
    target, graph = TARGETS[f"cuda:{chip}"], Graph({"loss": loss, "slope": gradients(loss, [x])[0]})
    graphs = simplify({"y": graph}, passes.DEFAULT, Watch())
    steps = plan_functions(graphs, target, declare_states(graphs, target), Watch())["y"].steps
    kernels = {n: step.kernel for n, step in enumerate(steps)}
    assert all(used.spilled == 0 for used in assembled_resources(kernels, target).values())
    assert any(f"ways={ways}) width(1) turns(held={turns})" in repr(step.schedule) for step in steps)
