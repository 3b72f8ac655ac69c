"""Gradients of attention by matrix instructions of subgroups (sm_80): right in the interpreter and as PTX, for all chips
without spills, and no scores in memory. Faults of their copies are in `test_copy_faults.py`."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests import parity
from tests.cases.attention import TRAINED, attention, dropped, fed, trained
from tests.cases.grouping import together
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Arrays, Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import nvidia_programs, ptx
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.kernel import Kernel
from ztorch.lower.plan import KernelStep
from ztorch.lower.rewrites import attention_gradients
from ztorch.lower.schedule import IllegalSchedule

KIND = "grid_attention_gradient_matrix"
SM_80 = TARGETS["cuda:sm_80"].limits
SCHEDULES = ("subgroups(2) high(1) block(16) stages(2) held(0)", "subgroups(1) high(2) block(32) stages(3) held(1)")


@pytest.fixture(autouse=True)
def for_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradients, "ATTENTION_GRADIENT_COLUMNS", 0)


def gradient_steps(graph: Graph, chip: str = "sm_80") -> list[KernelStep]:
    return [s for s in plan_of(graph, TARGETS[f"cuda:{chip}"].limits)[0].parts if s.schedule.kind == KIND]


def results(one: Job, schedule: str) -> Arrays:
    """Both kernels have the schedule."""
    steps = gradient_steps(one.alone("j"))
    assert len(steps) == 2
    return interpreted(one, SM_80, schedules={s.key: f"{KIND} {schedule}" for s in steps})


def in_float64(one: Job, causal: bool) -> Arrays:
    """The result and its gradients by NumPy alone, for heads that share no keys."""
    q, k, v, dy = (next(a.astype(np.float64) for x, a in one.feeds.items() if x.attrs["name"] == n)
                   for n in ("q", "k", "v", "dy"))
    scale = q.shape[-1]**-0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y, slopes = weights @ v, dy @ v.swapaxes(-1, -2)
    change = weights * (slopes - (dy * y).sum(-1, keepdims=True)) * scale
    return [y, change @ k, change.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy]


@together(by="schedule")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", [n for n, c in TRAINED.items() if c[4] < 72])
def test_gradients(name: str, schedule: str) -> None:
    one = trained(name)
    agree(one, results(one, schedule))


def play_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(kernel: Kernel, buffers: dict, *_: int, **__: int) -> None:
        run(kernel, buffers, parse(rendered([kernel], "sm_80")))

    monkeypatch.setattr(parity, "interpret", play)


@together(by="size")
@pytest.mark.parametrize(("queries", "keys", "size", "causal", "schedule"), [
    (37, 51, 24, False, SCHEDULES[0]), (51, 51, 16, True, SCHEDULES[1]), (1 + 64, 33, 64, False, SCHEDULES[0]),
    (33, 17, 128, False, "subgroups(2) high(1) block(16) stages(2) held(9)")])
def test_as_ptx_against_numpy(queries: int, keys: int, size: int, causal: bool, schedule: str,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd numbers of queries and keys."""
    graph, _ = attention(1, 1, queries, keys, size, causal=causal, dtype="float16", batch=1, more=0)
    one = Job(graph, fed(graph))
    play_ptx(monkeypatch)
    for got, want in zip(results(one, schedule), in_float64(one, causal), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=2.0**-9 * max(1.0, abs(want).max()))


@pytest.mark.parametrize("name", ["two blocks and a rest, two panels", "causal, in groups", "dropped, rows that see nothing"])
def test_as_ptx(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that the rules choose."""
    one = trained(name)
    assert len(gradient_steps(one.alone("j"))) == 2
    play_ptx(monkeypatch)
    agree(one, interpreted(one, SM_80))


def test_keys_that_no_query_sees() -> None:
    """More keys than queries, the last of which start no block at all: their gradients are zero."""
    graph, _ = attention(1, 1, 20, 100, 16, causal=True, dtype="float16", batch=1, more=0)
    one = Job(graph, fed(graph))
    got = results(one, SCHEDULES[0])
    agree(one, got)
    unseen = np.abs(one.oracle()[2]).max(-1)[0, 0] == 0
    np.testing.assert_array_equal(got[2][0, 0][unseen], 0)


def training(size: int, causal: bool = False, columns: int = 2048, rate: float = 0.0, masked: bool = False) -> Graph:
    q, k, v, slope = (leaf("input", n, (1, 16, columns, size), bf16) for n in ("q", "k", "v", "slope"))
    seen = leaf("input", "seen", (1, 1, columns, columns), "bool") if masked else None
    y = dropped(q, k, v, rate, seen, causal) if rate else ops.attention(q, k, v, seen, causal)
    slopes = gradients(ops.sum(y * slope), [q, k, v])
    return passes.run(Graph({"y": y, **{f"d{n}": g for n, g in zip("qkv", slopes, strict=True)}}))


@pytest.mark.parametrize(("chip", "size", "causal", "rate", "masked"), [
    ("sm_80", 128, False, 0.0, False), ("sm_86", 128, True, 0.0, False), ("sm_89", 64, False, 0.1, False),
    ("sm_120", 64, True, 0.0, True)])
def test_nothing_spills(chip: str, size: int, causal: bool, rate: float, masked: bool) -> None:
    """Matrices are copied while threads continue, loaded eight by eight, and multiplied by tensor cores."""
    if not nvidia_programs.installed("ptxas"):
        pytest.skip(f"needs ptxas: pip install {nvidia_programs.PACKAGES['ptxas']}")
    steps = gradient_steps(training(size, causal, rate=rate, masked=masked), chip)
    assert len(steps) == 2
    for step in steps:
        code, log = ptx.cubin(rendered([step.kernel], chip), chip)
        [[registers, spilled, _]] = ptx.kernel_resources(log).values()
        assert spilled == 0 and registers <= 255, (repr(step.schedule), registers, spilled)
        assert {*re.findall(r"HMMA|LDGSTS|LDSM|LDL|STL", nvidia_programs.disassemble(code))} == {"HMMA", "LDGSTS", "LDSM"}


def test_scores_are_not_stored() -> None:
    """No buffer has a number for each query and key: the largest ones are operands and results."""
    plan = plan_of(training(64, columns=1024), SM_80)[0]
    assert max(m.size for s in plan.steps for m in s.kernel.memories) == 16 * 1024 * 64


def test_where_it_is_chosen() -> None:
    """On chips that copy asynchronously, but for those whose teams do it."""
    for chip in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
        assert len(gradient_steps(training(64, columns=256), chip)) == 2
    for chip in ("sm_75", "sm_90a"):
        assert not gradient_steps(training(64, columns=256), chip)


@pytest.mark.parametrize(("change", "why"), [
    ("subgroups(40)", "1 to 32"), ("high(0)", "at least 1"), ("block(24)", "multiple of 16"), ("stages(1)", "at least 2"),
    ("held(17)", "must be 0 to 16"), ("block(48)", "a thread takes 258 registers of 234"), ("stages(9)", "it shares")])
def test_illegal_schedules(change: str, why: str) -> None:
    graph = training(128)
    step = gradient_steps(graph)[-1]
    parts = [change if p.split("(")[0] == change.split("(")[0] else p for p in
             ("subgroups(8)", "high(1)", "block(32)", "stages(2)", "held(12)")]
    with pytest.raises(IllegalSchedule, match=re.escape(why)):
        plan_of(graph, SM_80, schedules={step.key: " ".join([KIND, *parts])})
