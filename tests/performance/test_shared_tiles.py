"""Products whose workgroups share tiles: their machine code, and what the model says of their time."""

from __future__ import annotations

import functools

import pytest

from tests.cases.disassembly import disassembled, named, parts
from ztorch import ops
from ztorch.codegen import ptx
from ztorch.codegen.nvidia_programs import PACKAGES, installed
from ztorch.codegen.targets import target
from ztorch.compile.kernels import Kernels, in_words
from ztorch.compile.pipeline import declare_states, plan_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import bf16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.kernel import Kernel
from ztorch.machines.gpus import gpu
from ztorch.performance.assembled import assembled_resources
from ztorch.performance.prediction import KernelPrediction, predict_kernel

H200, HOPPER = gpu("H200"), target("cuda:sm_90a")
LARGE, FEW_ROWS = (2560, 2560, 2560), (128, 4096, 4096)


@functools.cache
def kernel(m: int, n: int, k: int) -> Kernel:
    """The kernel that the rules choose."""
    a, b = leaf("input", "a", (m, k), bf16), leaf("input", "b", (k, n), bf16)
    functions = {"y": Graph({"y": ops.matmul(a, b)})}
    [step] = plan_functions(functions, HOPPER, declare_states(functions, HOPPER), Watch())["y"].steps
    assert step.schedule is not None and step.schedule.kind == "grid_stream"
    return step.kernel


@functools.cache
def predicted(m: int, n: int, k: int) -> KernelPrediction:
    words, grid = in_words(kernel(m, n, k), HOPPER, Kernels(HOPPER).words)
    return predict_kernel(words, grid, H200)


@pytest.mark.skipif(not installed("ptxas"), reason=f"needs ptxas: pip install {PACKAGES.get('ptxas')}")
def test_they_spill_nothing() -> None:
    used = assembled_resources({0: kernel(*LARGE), 1: kernel(*FEW_ROWS)}, HOPPER)
    assert [r.spilled for r in used.values()] == [0, 0] and used[0].registers <= 168


@disassembled
def test_the_main_loop_only_multiplies() -> None:
    """Parts are written and read outside of it, four numbers at a time."""
    rendered = Kernels(HOPPER)
    rendered.number(kernel(*FEW_ROWS))
    [code] = parts(ptx.assembly(rendered.module(rendered.rendered), HOPPER))
    loops = [named(loop) for loop in code.of_loops("HGMMA")]
    assert loops and not any({"LDG", "LD", "STG", "ST", "STS", "LDL", "STL"} & loop.keys() for loop in loops)
    assert not {"LDL", "STL"} & named(code.opcodes).keys()
    wide = [o for o in code.opcodes if o.startswith(("LDG", "LD.E")) and ".128" in o]
    assert len(wide) >= 192 // 8  # sums of a thread


@pytest.mark.parametrize("shape", [LARGE, FEW_ROWS], ids=str)
def test_all_units_have_equal_shares(shape: tuple[int, int, int]) -> None:
    """Their multiply-adds at the clock that they hold take as long as those of the whole product on all units, and they wait for one
    another's parts: so the time is no less than that, and no more than a third longer by rates of the shared cache."""
    p, (m, n, k) = predicted(*shape), shape
    least = 2.0 * m * n * k / H200.matrix_rate("bf16") / H200.held_share
    assert p.groups == H200.units and p.at_once
    assert p.parts["tensor cores"] == pytest.approx(least, rel=0.02)  # shares differ by a strip
    meeting = (H200.signal_cycles + H200.l2_cycles) / H200.clock_of(p.groups)
    assert max(least, p.parts["l2"]) <= p.seconds <= 1.33 * max(least, p.parts["l2"]) + meeting


def test_parts_are_bytes_of_the_shared_cache() -> None:
    """Each workgroup writes less than one part and reads as many as there are; memory has none of the reads."""
    p = predicted(*FEW_ROWS)
    read = sum(a.sectors for a in p.accesses if a.mem == "parts_of_sums" and a.opcode == "load")
    assert read * 32 == 2 * 64 * 192 * f32.bytes  # of the first workgroup: a tile has three shares
    b = 4096 * 4096 * bf16.bytes
    assert p.memory_bytes < 1.5 * b + 2 * 132 * 64 * 192 * f32.bytes
