"""Attention whose workgroups have roles: right in the interpreter and as PTX, and nothing of its ring can be left out."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tests.cases.attention import fed, job, off
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import nvidia_programs, ptx
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16, f32, from_storage
from ztorch.graph import passes
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.grid import attention_role_tiles
from ztorch.lower.plan import KernelStep
from ztorch.lower.rewrites import attention
from ztorch.lower.schedule import IllegalSchedule

HOPPER = TARGETS["cuda:sm_90a"].limits
# Heads, those of keys, queries, keys, size of a head, shape of the mask, causal, dtype; teams and columns of a block.
CASES = {
    "one block": (2, 2, 64, 32, 32, (), False, "bfloat16", 1, 32),
    "one block and a rest": (1, 1, 64, 56, 16, (), False, "float16", 1, 16),
    "many blocks, two panels": (1, 1, 70, 150, 72, (), False, "bfloat16", 2, 64),
    "causal": (2, 1, 70, 70, 16, (), True, "float16", 1, 32),
    "masked, in groups": (4, 2, 24, 40, 24, (2, 1, 1, 40), False, "bfloat16", 1, 16),
    "rows that see nothing": (2, 1, 40, 40, 8, (40, 40), False, "float16", 2, 16),
}


def case(name: str) -> tuple[Job, str]:
    *sizes, teams, block = CASES[name]
    return job(*sizes, more=8), f"grid_attention_roles teams({teams}) block({block}) stages(2)"


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    """In the interpreter, and through PTX."""
    one, schedule = case(name)
    step = plan_of(one.alone("j"), HOPPER)[0].steps[-1]
    schedules = {step.key: schedule}
    assert off(one, interpreted(one, HOPPER, schedules=schedules)[0]) < 4
    [step] = plan_of(one.alone("j"), HOPPER, schedules=schedules)[0].steps
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_90a")))
    [root] = one.graph.roots
    assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 4


FAULTS = {  # replacements in the text of the kernel
    "keys that are not waited for": (r"L\d+_wait: mbarrier\.try_wait\S+ %p, \[%a\], %v\d+; @!%p bra L\d+_wait; \}", "}"),
    "an arrival before the products are done": (r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    "weights without a fence": (r"wgmma\.fence\.sync\.aligned;", ""),
    "results that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "scores that are added to those before": (r"(%da, %db), 0, 1, 1", r"\1, 1, 1, 1"),
    "values the other way round": (r"(\}, %db, 1, 1, 1), 1;", r"\1, 0;"),
    "weights in another order": (r"\{ (%v\d+_0), (%v\d+_1), (%v\d+_2), (%v\d+_3) \}, %db", r"{ \1, \3, \2, \4 }, %db"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_detected(fault: str) -> None:
    one, schedule = case("one block and a rest")
    [step] = plan_of(one.alone("j"), HOPPER)[0].steps
    [step] = plan_of(one.alone("j"), HOPPER, schedules={step.key: schedule})[0].steps
    text = rendered([step.kernel], "sm_90a")
    broken = re.sub(*FAULTS[fault], text)
    assert broken != text
    held, out = buffers_of(step, one)
    [root] = one.graph.roots
    with pytest.raises((PtxError, AssertionError)):
        run(step.kernel, held, parse(broken))
        assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 4


def proposed(size: int, rows: int = 2048, columns: int = 2048, chip: str = "sm_90a", dtype: DType = bf16, causal: bool = False,
             masked: bool = False) -> KernelStep:
    """The kernel of attention that the rules choose."""
    q, k, v = (leaf("input", n, (1, 64, rows if n == "q" else columns, size), dtype) for n in "qkv")
    mask = leaf("input", "m", (1, 1, 1, columns), "bool") if masked else None
    graph = Graph({"y": ops.attention(q, k, v, mask, causal)})
    return plan_of(graph, TARGETS[f"cuda:{chip}"].limits)[0].steps[-1]


@pytest.mark.parametrize(("size", "causal", "masked"), [(128, False, False), (128, True, True)])
def test_nothing_spills_and_products_overlap(size: int, causal: bool, masked: bool) -> None:
    """The exponentials stand between the waits for scores and for results; assemblers would move them."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
    step = proposed(size, causal=causal, masked=masked)
    assert repr(step.schedule) == "grid_attention_roles teams(2) block(128) stages(2)"
    text = rendered([step.kernel], "sm_90a")
    if ptx.reallocates_registers(text) and not nvidia_programs.installed("ptxas"):
        pytest.skip(f"needs ptxas: pip install {nvidia_programs.PACKAGES['ptxas']}")
    code, log = ptx.cubin(text, "sm_90a")
    [[registers, spilled, _]] = ptx.kernel_resources(log).values()
    assert spilled == 0 and registers <= 224 and "serialized" not in log, log
    words = re.findall(r"HGMMA|MUFU\.EX2|DEPBAR\.LE gsb0, 0x[01]", nvidia_programs.disassemble(code))
    scores = words.index("DEPBAR.LE gsb0, 0x1")
    results = words.index("DEPBAR.LE gsb0, 0x0", scores)
    assert words[scores - 16:scores] == ["HGMMA"] * 16
    assert words[scores + 1:results].count("MUFU.EX2") >= 64 and "HGMMA" not in words[scores + 1:results]


def test_where_it_is_chosen() -> None:
    """On chips with such products and copies, where there are columns enough and heads are as long as measured."""
    assert proposed(128, dtype=f16).schedule.kind == "grid_attention_roles"
    for step in (proposed(128, chip="sm_90"), proposed(128, chip="sm_80"), proposed(128, columns=512), proposed(64)):
        assert step.schedule.kind == "grid_attention_matrix"


@pytest.mark.parametrize(("change", "why"), [
    ("teams(0)", "must be 1 to"), ("block(24)", "multiple of 16"), ("block(512)", "at most 256"), ("stages(1)", "at least 2"),
    ("block(256)", "a thread takes"), ("stages(4)", "it shares")])
def test_illegal_schedules(change: str, why: str) -> None:
    q, k, v = (leaf("input", n, (2, 256, 128), bf16) for n in "qkv")
    graph = Graph({"y": ops.attention(q, k, v)})
    [step] = plan_of(graph, HOPPER)[0].steps
    parts = ["teams(2)", "block(128)", "stages(2)"]
    changed = [change if p.split("(")[0] == change.split("(")[0] else p for p in parts]
    with pytest.raises(IllegalSchedule, match=why):
        plan_of(graph, HOPPER, schedules={step.key: " ".join(["grid_attention_roles", *changed])})


@pytest.mark.parametrize(("limits", "kind", "columns"), [
    (HOPPER, "roles", 288), (TARGETS["cuda:sm_80"].limits, "matrix", 96),
    (TARGETS["cuda:sm_80"].without_tensor_cores().limits, "attention", 96)], ids=["roles", "matrix", "threads"])
def test_a_plain_softmax_of_rows_with_a_masked_start(limits: Limits, kind: str, columns: int,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks of which a row sees nothing, at either end: its largest score is minus infinity so far."""
    monkeypatch.setattr(attention, "ATTENTION_SHARE", 0)
    for name in ("ATTENTION_ROLES_COLUMNS", "ATTENTION_ROLES_SIZE"):
        monkeypatch.setattr(attention_role_tiles, name, 0)
    q, k, v = (leaf("input", n, (16 if n == "q" else columns, 16), f16) for n in "qkv")
    seen = leaf("input", "seen", (columns,), "bool")
    scores = ops.where(seen, ops.cast(ops.matmul(q, ops.transpose(k)), f32) * 0.25, -math.inf)
    graph = passes.run(Graph({"y": ops.matmul(ops.cast(ops.softmax(scores), f16), v)}))
    feeds = fed(graph)
    feeds[next(x for x in feeds if x.attrs["name"] == "seen")][:] = abs(np.arange(columns) - columns // 2) < 9
    one = Job(graph, feeds)
    assert [s.schedule.kind.split("_")[-1] for s in plan_of(graph, limits)[0].steps] == [kind]
    assert off(one, interpreted(one, limits)[0]) < 4
