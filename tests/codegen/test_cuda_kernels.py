"""Kernels as CUDA C++ are those that are rendered as PTX: the same words, the same schedules, and in the machine code as
many matrix instructions and asynchronous copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.gpu_predictions import KERNELS
from tests.cases.disassembly import disassembled, named, parts
from ztorch import ops
from ztorch.codegen import nvrtc, ptx
from ztorch.codegen.nvidia_programs import disassemble, installed
from ztorch.codegen.render import renderer
from ztorch.codegen.target import Target
from ztorch.codegen.targets import TARGETS
from ztorch.codegen.templates import forms
from ztorch.compile.kernels import Kernels
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.dtypes import ALL, bf16
from ztorch.graph import passes
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.opcodes import OPCODES
from ztorch.machines.chips import chips_of
from ztorch.machines.gpus import gpus_of
from ztorch.performance.step import predict_functions

pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
WORDS = ("HGMMA", "HMMA", "LDSM", "LDGSTS", "UTMALDG")

# The instructions of each kernel of both routes, in the order of `WORDS`. A warp-wide product of sm_80 is 16x8x16.
COUNTS: dict[tuple[str, str], list[tuple[int, ...]]] = {
    ("matrix product 4096, bfloat16", "sm_80"): [(0, 128, 48, 24, 0)],
    ("matrix product 4096, bfloat16", "sm_90a"): [(4, 0, 0, 0, 2)],
    ("matrix product 4096, bfloat16", "sm_100"): [(0, 128, 48, 48, 0)],
    ("matrix product 4096, bfloat16", "sm_120"): [(0, 16, 12, 6, 0)],
    ("matrix product 4096, tf32", "sm_80"): [(0, 64, 0, 24, 0)],
    ("matrix product 4096, float32 in parts", "sm_80"): [(0, 96, 0, 16, 0), (0, 0, 0, 0, 0)],
    ("convolution 3x3, 32x56x56x64, bfloat16", "sm_80"): [(0, 128, 48, 60, 0)],
    ("convolution 3x3, 32x56x56x64, bfloat16", "sm_90a"): [(12, 0, 0, 0, 4)],
    ("convolution 3x3, 32x56x56x64, bfloat16", "sm_100"): [(0, 128, 48, 80, 0)],
    ("convolution 3x3, 32x56x56x64, bfloat16", "sm_120"): [(0, 16, 12, 6, 0)],
    ("convolution 3x3, 32x28x28x128, float32 in parts", "sm_90a"): [(0, 0, 0, 0, 0), (12, 0, 0, 0, 5)],
    ("attention 16x4096x128, bfloat16", "sm_80"): [(0, 128, 80, 32, 0)],
    ("attention 16x4096x128, bfloat16", "sm_90a"): [(32, 0, 0, 0, 6)],
    ("attention 16x4096x128, bfloat16", "sm_100"): [(0, 128, 80, 24, 0)],
    ("attention 16x4096x128, bfloat16", "sm_120"): [(0, 128, 136, 40, 0)],
    ("gradients of attention 16x4096x128, bfloat16", "sm_90a"): [
        (32, 0, 0, 0, 6), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (20, 0, 0, 0, 8), (22, 0, 0, 0, 8)],
    ("softmax 65536x2048", "sm_90a"): [(0, 0, 0, 0, 0)],
    ("layer norm 65536x2048", "sm_80"): [(0, 0, 0, 0, 0)],
    ("Adam, 16 million weights", "sm_90a"): [(0, 0, 0, 0, 0), (0, 0, 0, 0, 0)]}
QUICK = [("matrix product 4096, bfloat16", "sm_80"), ("matrix product 4096, bfloat16", "sm_90a")]


@pytest.mark.parametrize("chip", [c.name for c in chips_of("cuda")])
def test_every_word_of_ptx(chip: str) -> None:
    """So that lowering and tuning, which see only limits and words, make the same kernels of the same schedules."""
    assembly, cpp = TARGETS[f"cuda:{chip}"], TARGETS[f"cuda:c:{chip}"]
    assert cpp.limits == assembly.limits and cpp.converted_dtypes == assembly.converted_dtypes
    for opcode in OPCODES:
        for d in ALL:
            names = forms(opcode, d, d)
            if d.bits >= 32 and d.kind in OPCODES[opcode].kinds and any(n in renderer(assembly).words for n in names):
                assert any(n in renderer(cpp).words for n in names), (opcode, d)


def modules(name: str, target: Target) -> Iterator[tuple[str, str]]:
    """The symbol and the PTX of each kernel."""
    ours = target.with_precision(KERNELS[name].precision)
    graphs = simplify({"f": KERNELS[name].make()}, passes.DEFAULT, Watch())
    plan = plan_functions(graphs, ours, declare_states(graphs, ours), Watch())["f"]
    kernels = Kernels(ours)
    for step in plan.steps:
        kernels.number(step.kernel)
    for kernel in kernels.rendered:
        text = kernels.module([kernel])
        yield kernel["symbol"], nvrtc.ptx_text(text, ours) if ours.assembler == "nvrtc" else text


def counted(text: str, chip: str) -> tuple[tuple[int, ...], int]:
    """The instructions of a kernel's machine code in the order of `WORDS`, and the bytes that it spills."""
    code, log = ptx.cubin(text, chip)
    opcodes: Counter[str] = sum((named(p.opcodes) for p in parts(disassemble(code))), Counter())
    [(_, spilled, _)] = ptx.kernel_resources(log).values()
    assert "serialized" not in log, log
    return tuple(opcodes[word] for word in WORDS), spilled


@disassembled
@pytest.mark.parametrize(("name", "chip"), [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow, id=", ".join(case)) for case in COUNTS])
def test_the_same_machine_code_of_products_and_copies(name: str, chip: str) -> None:
    routes = [list(modules(name, TARGETS[f"cuda:{route}{chip}"])) for route in ("", "c:")]
    assert [symbol for symbol, _ in routes[0]] == [symbol for symbol, _ in routes[1]]
    if any(ptx.reallocates_registers(text) for _, text in routes[0]) and not installed("ptxas"):
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc")
    for route in routes:
        assert [counted(text, chip) for _, text in route] == [(count, 0) for count in COUNTS[name, chip]]


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_the_same_predictions(chip: str) -> None:
    """By the performance model, and with the registers that the assembler reports."""
    x, y = (leaf("input", name, (512, 512), bf16) for name in "xy")
    graph, [gpu, *_] = Graph({"y": ops.softmax(ops.matmul(x, y))}), gpus_of(f"cuda:c:{chip}")
    one, other = (predict_functions({"f": graph}, TARGETS[f"cuda:{route}{chip}"], gpu, assemble=True)["f"]
                  for route in ("", "c:"))
    assert [k.kernel.name for k in one.kernels] == [k.kernel.name for k in other.kernels] and one.kernels
    for ours, theirs in zip(one.kernels, other.kernels, strict=True):
        assert abs(ours.kernel.seconds / theirs.kernel.seconds - 1) < 0.05
