"""Gradients of attention by workgroups with roles: right in the interpreter and as PTX; no part of a ring can be left out.
With dropout, they draw the random numbers of the forward pass again."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests import parity
from tests.cases.attention import TRAINED, attention, dropped, fed, trained
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, agree, close, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import nvidia_programs, ptx
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16, f16
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.narrow import products_of
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.kernel import Kernel
from ztorch.lower.plan import KernelStep
from ztorch.lower.rewrites import attention_gradients
from ztorch.lower.schedule import IllegalSchedule
from ztorch.ops.random import FEW_ROUNDS, NUMPY_WORDS, threefry

HOPPER = TARGETS["cuda:sm_90a"].limits


@pytest.fixture(autouse=True)
def for_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradients, "ATTENTION_GRADIENT_COLUMNS", 0)


def schedules_of(one: Job, block: int = 32) -> dict[str, str]:
    """Small blocks, so that there are several."""
    return {s.key: f"grid_attention_gradient teams(1) block({block}) stages(2)" for s in gradient_steps(one.alone("j"))}


def gradient_steps(graph: Graph) -> list[KernelStep]:
    return [s for s in plan_of(graph, HOPPER)[0].parts if s.schedule.kind == "grid_attention_gradient"]


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str) -> None:
    one = trained(name)
    assert len(gradient_steps(one.alone("j"))) == 2
    agree(one, interpreted(one, HOPPER, schedules=schedules_of(one)))


def test_scores_far_below_zero() -> None:
    """Lines outside of the matrix have scores of zero, whose exponentials are infinite beside such numbers."""
    one = trained("two blocks and a rest, two panels")
    for v, x in one.feeds.items():
        if v.attrs["name"] in "qk":
            one.feeds[v] = ((np.abs(x) + 4) * (1 if v.attrs["name"] == "q" else -1)).astype(np.float16)
    assert _scores(one).max() < -88.8  # exp(88.8) is infinite in float32
    agree(one, interpreted(one, HOPPER, schedules=schedules_of(one)))


def test_rows_that_see_nothing_and_have_no_rule() -> None:
    """NaN in the gradients of all values and in no others, as written: these kernels would store it elsewhere."""
    q, k, v = (leaf("input", n, (1, 1, 40, 16), f16) for n in "qkv")
    mask = leaf("input", "mask", (1, 1, 40, 40), "bool")
    scores = ops.where(mask, ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))), -np.inf)
    e = ops.exp(scores - ops.stop_gradient(ops.max(scores, -1, True)))
    y = ops.matmul(e * (1.0 / ops.sum(e, -1, True)), v)
    graph = passes.run(Graph(dict(zip(("y", "dq", "dk", "dv"), [y, *gradients(ops.sum(y), [q, k, v])], strict=True))))
    one = Job(graph, fed(graph))
    one.feeds[next(v for v in one.feeds if v.attrs["name"] == "mask")][..., 7, :] = False
    assert [np.isnan(x).sum() for x in interpreted(one, HOPPER)] == [16, 0, 0, 640]


def _scores(one: Job) -> np.ndarray:
    q, k = (next(x for v, x in one.feeds.items() if v.attrs["name"] == n).astype(np.float32) for n in "qk")
    return np.asarray(q @ k.swapaxes(-1, -2) * q.shape[-1]**-0.5)


def play_ptx(monkeypatch: pytest.MonkeyPatch, pattern: str = "", replacement: str = "") -> None:
    """Kernels run as PTX, those of gradients with a change in the text."""
    def play(kernel: Kernel, buffers: dict, *_: int, **__: int) -> None:
        text = rendered([kernel], "sm_90a")
        if pattern and "attention_gradient" in kernel.name:
            broken = re.sub(pattern, replacement, text)
            assert broken != text
            text = broken
        run(kernel, buffers, parse(text))

    monkeypatch.setattr(parity, "interpret", play)


@pytest.mark.parametrize("name", ["two blocks and a rest, two panels", "causal, in groups", "dropped"])
def test_gradients_as_ptx(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trained(name)
    schedules = schedules_of(one)
    play_ptx(monkeypatch)
    agree(one, interpreted(one, HOPPER, schedules=schedules))


FAULTS = {  # replacements in the text of the kernels
    "lines that are not waited for": (r"L\d+_wait: mbarrier\.try_wait\S+ %p, \[%a\], %v\d+; @!%p bra L\d+_wait; \}", "}"),
    "scores that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    "products that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "operands without a fence": (r"wgmma\.fence\.sync\.aligned;", ""),
    "lines that stay a column": (r"(\}, %db, 1, 1, 1), 1;", r"\1, 0;"),
    "products that are added to those before": (r"(%da, %db), 0, 1, 1", r"\1, 1, 1, 1"),
    "weights in another order": (r"\{ (%v\d+_0), (%v\d+_1), (%v\d+_2), (%v\d+_3) \}, %db", r"{ \1, \3, \2, \4 }, %db"),
    "stages that are not given back": (r"mbarrier\.arrive\.shared\S+ _?[^;]*;", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_detected(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trained("two blocks and a rest, two panels")
    schedules = schedules_of(one, 16)
    play_ptx(monkeypatch, *FAULTS[fault])
    with pytest.raises((PtxError, AssertionError)):
        agree(one, interpreted(one, HOPPER, schedules=schedules))


# -- dropout ---------------------------------------------------------------------------------------------------------

def shown_masks(keys: int = 48) -> tuple[Job, np.ndarray]:
    """Weights that are all equal, times the unit matrix, and their gradients by it: where they are not zero is where
    weights are not dropped. And that place, computed by NumPy."""
    q, k, v, dy = (leaf("input", n, (1, 2, keys, size), f16) for n, size in (("q", 16), ("k", 16), ("v", keys), ("dy", keys)))
    y = dropped(q, k, v, 0.25)
    graph = passes.run(Graph(dict(zip(("y", "dq", "dk", "dv"), [y, *gradients(ops.sum(y * dy), [q, k, v])], strict=True))))
    feeds = fed(graph)
    for x in feeds:
        if x.attrs["name"] in ("v", "dy"):
            feeds[x] = np.broadcast_to(np.eye(keys, dtype=np.float16), x.shape).copy()
        elif x.attrs["name"] == "q":
            feeds[x] = np.zeros_like(feeds[x])
    seed, step = (next(feeds[x] for x in feeds if x.attrs["name"] == n) for n in ("seed", "step"))
    position = np.arange(2 * keys * keys, dtype=np.uint32)
    words, _ = threefry(NUMPY_WORDS, (seed[:1], seed[1:] ^ np.uint32(3)), (position, np.broadcast_to(step, position.shape)),
                        FEW_ROUNDS)
    return Job(graph, feeds), (words >= 1 << 30).reshape(1, 2, keys, keys)


def masks_are_equal() -> None:
    one, kept = shown_masks()
    assert 0.7 < kept.mean() < 0.8
    y, _, _, dv = interpreted(one, HOPPER, schedules=schedules_of(one))
    np.testing.assert_array_equal(y != 0, kept)
    np.testing.assert_array_equal(dv != 0, np.swapaxes(kept, -1, -2))


def test_the_same_weights_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(gradient_steps(shown_masks()[0].alone("j"))) == 2
    play_ptx(monkeypatch)
    masks_are_equal()


DROPOUT_FAULTS = {
    "another rate": (r"setp\.ge\.u32 (%v\d+, %v\d+), 1073741824", r"setp.ge.u32 \1, 1074741824"),
    "another random number": (r"(shl\.b32 %v\d+, %v\d+), 17;", r"\1, 16;"),
    "weights that are not dropped": (r"selp\.f32 (%v\d+), (%v\d+), 0f00000000, %v\d+;", r"mov.b32 \1, \2;"),
}


@pytest.mark.parametrize("fault", DROPOUT_FAULTS)
def test_a_fault_of_dropout_is_detected(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play_ptx(monkeypatch, *DROPOUT_FAULTS[fault])
    with pytest.raises(AssertionError):
        masks_are_equal()


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_operands_rounded_to_16_bits(rate: float) -> None:
    """Mixed precision: results are stored in 16 bits where they are read so, and in float32 elsewhere."""
    with products_of(f16):
        graph, _ = attention(2, 2, 40, 40, 16, dtype="float32", more=8, batch=1, rate=rate)
        squares = {f"square of {n}": ops.matmul(v, ops.transpose(v, (0, 1, 3, 2))) for n, v in graph.outputs.items()}
    one = Job(passes.run(Graph(graph.outputs | squares)), fed(graph))
    steps = gradient_steps(one.alone("j"))
    assert [sorted(m.dtype.name for m in s.kernel.memories if m.space == "global" and "w" in m.access) for s in steps] == [
        ["f16", "f32"], ["f16", "f16", "f32", "f32"]]
    for got, want in zip(interpreted(one, HOPPER, schedules=schedules_of(one)), one.oracle(), strict=True):
        close(got, want, f16)


def training(size: int, causal: bool = False, columns: int = 2048, rate: float = 0.0) -> Graph:
    q, k, v, slope = (leaf("input", n, (1, 16, columns, size), bf16) for n in ("q", "k", "v", "slope"))
    y = dropped(q, k, v, rate, causal=causal) if rate else ops.attention(q, k, v, causal=causal)
    slopes = gradients(ops.sum(y * slope), [q, k, v])
    return Graph({"y": y, **{f"d{n}": g for n, g in zip("qkv", slopes, strict=True)}})


@pytest.mark.parametrize(("size", "causal", "rate"), [
    (128, False, 0.0), (128, True, 0.0), (64, True, 0.0), (64, True, 0.1), (128, False, 0.1)])
def test_nothing_spills(size: int, causal: bool, rate: float) -> None:
    if not nvidia_programs.installed("ptxas"):
        pytest.skip(f"needs ptxas: pip install {nvidia_programs.PACKAGES['ptxas']}")
    steps = plan_of(training(size, causal, rate=rate), HOPPER)[0].parts
    for step in (s for s in steps if s.schedule.kind in ("grid_attention_gradient", "grid_attention_roles")):
        code, log = ptx.cubin(rendered([step.kernel], "sm_90a"), "sm_90a")
        [[_, spilled, _]] = ptx.kernel_resources(log).values()
        assert spilled == 0 and "serialized" not in log and "ignored" not in log, log
        words = re.findall(r"HGMMA|MUFU\.EX2", nvidia_programs.disassemble(code))
        assert words.count("HGMMA") >= 2 * size // 16 and "MUFU.EX2" in words


def test_scores_are_not_stored() -> None:
    """No buffer has a number for each query and key, and each number of a row is computed once."""
    plan = plan_of(training(64, columns=1024), HOPPER)[0]
    assert max(m.size for s in plan.steps for m in s.kernel.memories) < 16 * 1024 * 1024
    assert [s.schedule.kind.startswith("grid_attention") for s in plan.parts].count(True) == 3


def test_other_gradients_are_left() -> None:
    """Scores that something else reads, and weights that are no plain softmax."""
    q, k, v, slope = (leaf("input", n, (1, 1, 64, 32), bf16) for n in ("q", "k", "v", "slope"))
    weights = ops.attention_weights(q, k)
    for y, more in ((ops.matmul(weights + weights * weights, v), {}), (ops.attention(q, k, v), {"w": weights})):
        slopes = gradients(ops.sum(y * slope), [q, k, v])
        graph = passes.run(Graph({"y": y, **more, **{f"d{n}": g for n, g in enumerate(slopes)}}))
        assert not gradient_steps(graph)


@pytest.mark.parametrize("target", ["cuda:sm_75", "rocm:gfx942", "vulkan"])
def test_targets_without_such_copies(target: str) -> None:
    steps = plan_of(training(64), TARGETS[target].limits)[0].parts
    assert not any(s.schedule.kind.startswith("grid_attention_gradient") for s in steps)


@pytest.mark.parametrize(("change", "why"), [
    ("teams(0)", "must be 1 to"), ("block(24)", "multiple of 16"), ("stages(1)", "at least 2"), ("block(64)", "a thread takes"),
    ("stages(9)", "it shares")])
def test_illegal_schedules(change: str, why: str) -> None:
    graph = training(128)
    step = gradient_steps(graph)[-1]
    parts = [change if p.split("(")[0] == change.split("(")[0] else p for p in ("teams(2)", "block(48)", "stages(2)")]
    with pytest.raises(IllegalSchedule, match=why):
        plan_of(graph, HOPPER, schedules={step.key: " ".join(["grid_attention_gradient", *parts])})
