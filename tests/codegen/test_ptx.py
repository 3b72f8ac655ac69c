"""Every kernel is PTX that NVIDIA's own assembler takes, for every chip, and a handful need no more
registers than they did: `--update-goldens` writes the figures anew."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.cases.async_products import multiplying
from tests.cases.covering import full, pairs, share
from tests.cases.jobs import composed, jobs
from tests.cases.matrices import products
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.cases.zoo import BATCH, NAMES, small
from tests.machines.ptx.running import rendered
from tests.parity import plan_of
from ztorch import ops, settings
from ztorch.codegen import ptx
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, bf16, f16, f32
from ztorch.errors import Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.machines.chips import chips_of

nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
CHIPS = tuple(c.name for c in chips_of("cuda"))
SOME = ("sm_75", "sm_90", "sm_120")
GOLDENS = Path(__file__).parent / "goldens" / "ptx.json"
SLACK = 16  # registers more that another version of the assembler may take


def in_one_module(chip: str) -> Target:
    """The row of a chip, with all kernels of a program in one text, which is assembled sooner."""
    return replace(TARGETS[f"cuda:{chip}"], one_module_per_kernel=False)


def in_part(chips: Iterable[str]) -> list:
    """Each run takes the oldest and the newest of them, and those of SOME."""
    chips = list(chips)
    return [pytest.param(c, marks=() if c in (*SOME, chips[0], chips[-1]) else pytest.mark.full) for c in chips]


# -- figures -----------------------------------------------------------------------------------------


def _input(name: str, *shape: int) -> Value:
    return leaf("input", name, shape, f32)


def graphs() -> dict[str, Graph]:
    """Typical kernels; sizes are odd, or large enough for the largest tile."""
    x, w = _input("x", 4096, 4096), _input("w", 4096, 4096)
    narrow, small_w, bias = _input("a", 33, 217), _input("b", 217, 75), _input("c", 75)
    rows, aligned = _input("r", 128, 1003), _input("s", 4096, 1024)
    halves, half_w = (leaf("input", n, (4096, 4096), f16) for n in "hg")
    return {
        "product 4096 of float16": Graph({"y": ops.matmul(halves, half_w)}),
        "product 4096 of float16, transposed": Graph({"y": ops.matmul(halves, ops.transpose(half_w))}),
        "product 4096": Graph({"y": ops.matmul(x, w)}),
        "product 4096 with an epilogue": Graph({"y": ops.relu(ops.matmul(x, w) + _input("v", 4096))}),
        "product transposed": Graph({"y": ops.matmul(ops.transpose(x), w)}),
        "small product with an epilogue": Graph({"y": ops.relu(ops.matmul(narrow, small_w) + bias)}),
        "row softmax": Graph({"y": ops.softmax(rows)}),
        "row softmax of vectors": Graph({"y": ops.softmax(aligned)}),
        "column sum": Graph({"y": ops.sum(rows, axis=0)}),
        "column sum of vectors": Graph({"y": ops.sum(aligned, axis=0)}),
        "elementwise gelu": Graph({"y": ops.gelu(rows)}),
    }


def figures(log: str) -> list[list[int]]:
    """Registers, bytes spilled and bytes of shared memory of each kernel, as the assembler says."""
    return [list(kernel) for kernel in ptx.kernel_resources(log).values()]


@pytest.mark.parametrize("chip", in_part(CHIPS))
def test_figures(chip: str, pytestconfig: pytest.Config) -> None:
    actual = {}
    for name, graph in graphs().items():
        plan, _ = plan_of(graph, TARGETS[f"cuda:{chip}"].limits)
        actual[name] = [figures(ptx.cubin(rendered([step.kernel], chip), chip)[1])[0]
                        for step in plan.steps]
    version = ".".join(map(str, nvjitlink.version()))
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {"chips": {}}
    if pytestconfig.getoption("--update-goldens"):
        goldens = {"nvJitLink": version, "columns": ["registers", "spilled bytes", "shared bytes"],
                   "chips": {**goldens["chips"], chip: actual}}
        GOLDENS.write_text(json.dumps(goldens, indent=1, sort_keys=True) + "\n")
    known = goldens["chips"].get(chip)
    assert known, f"{GOLDENS.name} has no figures of {chip}: run with --update-goldens"
    if version == goldens["nvJitLink"]:
        assert actual == known
    assert actual.keys() == known.keys()
    for name, kernels in actual.items():
        for (registers, spilled, shared), (were, spilt, had) in zip(kernels, known[name], strict=True):
            assert registers <= were + SLACK and spilled <= spilt and shared == had, name


@pytest.mark.slow
@pytest.mark.parametrize("chip", in_part(
    t.chip for t in TARGETS.values() if t.assembler == "ptx" and t.limits.grid.mma_shapes))
def test_matrix_products_are_accepted(chip: str) -> None:
    """Every shape and layout, from shared memory and not; and whole products, without spills."""
    target = TARGETS[f"cuda:{chip}"].with_precision("tf32")
    shapes = target.limits.grid.mma_shapes
    kernels = [products(s, turned, space, align) for s in shapes for turned in product((False, True), repeat=3)
               for space, align in (("shared", 16), ("shared", 0), ("global", 0))]
    assert len(figures(ptx.cubin(rendered(kernels, chip), chip)[1])) == len(kernels)
    for d in (f16, bf16, f32):
        x, w, v = (leaf("input", n, s, d) for n, s in (("x", (1000, 999)), ("w", (999, 1001)), ("v", (1001,))))
        plan, _ = plan_of(Graph({"y": ops.relu(ops.matmul(x, w) + v)}), target.limits)
        [step] = plan.steps
        text = rendered([step.kernel], chip)
        assert "mma.sync" in text
        [[registers, spilled, shared]] = figures(ptx.cubin(text, chip)[1])
        assert registers * step.kernel.workgroup[0] <= 1 << 16 and not spilled and shared <= 48 * 1024


OPCODES_OF_HOPPER = {0x9F0: "HGMMA", 0xFAE: "LDGSTS", 0x983: "LDL", 0x387: "STL", 0x943: "CALL", 0x944: "CALL",
                     0x5B4: "UTMALDG", 0x3B4: "UTMALDG", 0x5A7: "SYNCS", 0x9A7: "SYNCS"}


def machine_code(cubin: bytes) -> Counter[str]:
    """How often instructions of interest occur: of each 16 bytes of code the lowest 12 bits say which it is."""
    sections, (size, count) = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<HH", cubin, 58)
    result: Counter[str] = Counter()
    for k in range(count):
        _, kind, flags, _, start, length = struct.unpack_from("<IIQQQQ", cubin, sections + k * size)
        if kind == 1 and flags & 4:  # bytes of the program, executed
            result.update(OPCODES_OF_HOPPER.get(word & 0xFFF, "") for (word,) in struct.iter_unpack(
                "<Q8x", cubin[start:start + length]))
    return result


def test_asynchronous_products_are_accepted() -> None:
    """Every layout and a few widths, and whole products, also with an epilogue that divides: nothing is
    spilled, called or put into local memory, and nothing makes the assembler wait for each product."""
    kernels = [multiplying(d, columns, *turned, teams=1) for d, columns, turned in (
        (f16, 64, (False, False)), (f16, 128, (False, True)), (bf16, 192, (True, False)), (bf16, 256, (True, True)))]
    code, log = ptx.cubin(rendered(kernels, "sm_90a"), "sm_90a")
    assert all(not spilled for _, spilled, _ in figures(log)) and "C75" not in log
    assert machine_code(code)["HGMMA"] >= 4 * len(kernels)
    x, w, v = (leaf("input", n, s, f16) for n, s in (("x", (4096, 1000)), ("w", (1000, 4096)), ("v", (4096,))))
    epilogues: list[Callable[[Value], Value]] = [lambda y: y, lambda y: ops.gelu(y + v) / ops.sqrt(y * y + v)]
    limits = TARGETS["cuda:sm_90a"].limits
    for tile_copies, copied_by in ((False, {"LDGSTS"}), (True, {"UTMALDG", "SYNCS"})):
        grid = replace(limits.grid, tile_copies=tile_copies)
        plans = [plan_of(Graph({"y": e(ops.matmul(x, w))}), replace(limits, grid=grid))[0] for e in epilogues]
        kernels = [step.kernel for p in plans for step in p.steps]
        code, log = ptx.cubin(rendered(kernels, "sm_90a"), "sm_90a")
        actual, threads = machine_code(code), max(k.workgroup[0] for k in kernels)
        # This assembler ignores setmaxnreg (C7504), so each thread keeps its initial number of registers.
        assert all(not spilled and registers * threads <= 1 << 16 for registers, spilled, _ in figures(log))
        assert set(re.findall(r"C7\d+", log)) <= {"C7504"}
        assert actual["HGMMA"] >= 8 and not {"LDL", "STL", "CALL"} & actual.keys()
        assert {n for n in ("LDGSTS", "UTMALDG", "SYNCS") if actual[n] > 3} == copied_by


# -- acceptance --------------------------------------------------------------------------------------


# Chips differ in their words for 16-bit floats, so the oldest and newest take these in each run.
@pytest.mark.parametrize(("chip", "d"), pairs(
    CHIPS, ALL, [(c, d) for c in ("sm_75", "sm_120") for d in (f16, bf16)]), ids=str)
def test_every_opcode_is_accepted(chip: str, d: DType) -> None:
    """Each run takes each dtype for one chip, a full run for all."""
    kernels = [kernel_for(opcode, d, 1)[0] for opcode in opcodes_of(d)]
    code, log = ptx.cubin(rendered(kernels, chip), chip)
    assert code.startswith(b"\x7fELF") and len(figures(log)) == len(kernels)


def _modules(every: list[Graph], size: int = 60) -> Iterator[dict[str, Graph]]:
    for at in range(0, len(every), size):
        yield {f"j{k}": g for k, g in enumerate(every[at:at + size])}


@pytest.mark.slow
@pytest.mark.parametrize("chip", SOME)
def test_every_op_is_accepted(chip: str) -> None:
    """Each op for one of the chips, in turn, and each third of those that are made of others; in a full
    run each sample of it."""
    turn = SOME.index(chip)
    graphs = [job.alone(f"{op}{n}") for k, (op, of_op) in enumerate(jobs().items())
              if full() or (k % len(SOME) == turn and not (composed(op) and k // len(SOME) % 3)) for n, job in enumerate(share(of_op, k, 6))]
    for module in _modules(graphs[turn::len(SOME)] if full() else graphs):
        made = compile_functions(module, in_one_module(chip), "ops")
        assert len(figures(ptx.cubin(made.text, chip)[1])) == len(made.spec.entries)


QUICK = ("matmul", "softmax", "conv'", "sort", "where", "attention'", "cumsum")


@pytest.mark.parametrize("chip", SOME)
def test_a_few_ops_are_accepted(chip: str) -> None:
    every = [jobs()[name][0].alone(name.replace("'", "_")) for name in QUICK]
    for module in _modules(every):
        made = compile_functions(module, in_one_module(chip), "ops")
        for registers, spilled, _ in figures(ptx.cubin(made.text, chip)[1]):
            assert registers <= 255 and not spilled


# Chips of one vocabulary differ in little but their names: the oldest and newest stand for them. Other
# models are made of the same kinds of layers, and compile for other devices in backends/test_zoo.py.
EVERY_RUN = {("digits_cnn", "sm_75"), ("digits_cnn", "sm_90"), ("lstm_classifier", "sm_75"),
             ("tiny_gpt", "sm_75"), ("text_classifier", "sm_120")}
ZOO = [pytest.param(name, chip, marks=() if (name, chip) in EVERY_RUN else pytest.mark.full)
       for k, name in enumerate(NAMES)
       for chip in (CHIPS if name == "digits_cnn" else (("sm_75", "sm_120")[k % 2],))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), ZOO)
def test_the_zoo_is_accepted(name: str, chip: str) -> None:
    recipe = small(name)
    traced = recipe.model.trace(batch_size=BATCH, optimizer=recipe.optimizer, loss=recipe.loss,
                                metrics=recipe.metrics)
    made = compile_functions(traced.functions, in_one_module(chip), name)
    for registers, spilled, shared in figures(ptx.cubin(made.text, chip)[1]):
        assert registers <= 255 and not spilled and shared <= 48 * 1024


def test_refused_text_says_where_and_why() -> None:
    text = rendered([kernel_for("add", f32, 1)[0]], "sm_80").replace("add.rn.f32", "add.frob.f32")
    with pytest.raises(Unsupported, match=r"(?s)nvJitLink refuses PTX for sm_80: .*line \d+; error.*frob"):
        ptx.cubin(text, "sm_80")


def test_registers_leave_room_for_the_groups_of_a_unit() -> None:
    """The assembler alone would take more for this product, and a unit would have one workgroup."""
    a, b = (leaf("input", n, (4096, 4096), f16) for n in "ab")
    [step] = plan_of(Graph({"y": ops.matmul(a, b)}), TARGETS["cuda:sm_75"].limits)[0].steps
    text = rendered([step.kernel], "sm_75")
    bare = re.sub(r"\.minnctapersm 2\s", "", text)
    assert bare != text and step.kernel.workgroup == (256, 1, 1)
    taken, alone = (ptx.kernel_resources(ptx.cubin(t, "sm_75")[1])["k0"] for t in (text, bare))
    assert 2 * 256 * taken[0] <= 1 << 16 < 2 * 256 * alone[0] and taken[1] == 0


def test_a_kernel_that_spills_shares_a_unit_with_fewer_groups() -> None:
    """64 sums of a thread do not fit the 80 registers that six workgroups of 128 threads leave it; another kernel of
    the module keeps its room."""
    a, b = (leaf("input", n, (4096, 4096), f32) for n in "ab")
    schedule = "grid_product tile(rows=64, columns=128, depth=8) thread(rows=8, columns=8) epilogue(bands=1) teams(1)"
    graph, target = Graph({"y": ops.matmul(a, b)}), TARGETS["cuda:sm_80"]
    [step] = plan_of(graph, target.limits, schedules={"alone/k0_matmul_f32": schedule})[0].steps
    assert step.kernel.workgroup == (128, 1, 1)
    groups = iter((6, 3))
    text, count = re.subn(r"(minnctapersm) \d+", lambda m: f"{m[1]} {next(groups)}", rendered([step.kernel] * 2, "sm_80"))
    assert count == 2
    roomy, code, log = ptx.without_spills(text, "sm_80")
    (few, spilled, _), (more, *_) = (ptx.kernel_resources(log)[name] for name in ("k0", "k1"))
    left, others = (int(n) for n in re.findall(r"minnctapersm (\d+)", roomy))
    assert spilled == 0 and 80 < few <= more and 3 < left < 6 and others == 3
    assert roomy == text.replace("minnctapersm 6", f"minnctapersm {left}")
    with settings.using(cubin=True):
        assert ptx.assemble(text, target) == roomy.encode() + b"\0" + code
