"""Faults put into kernels whose threads copy through stages (cp.async, sm_80), of convolutions, of attention and of the
gradients of both; those of products are in `test_grid_mma.py`. A wait, a barrier or the end of a group that is dropped, one
stage for all and another pitch are each found by the machine that runs the PTX, or a result is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

from tests import parity
from tests.cases import attention
from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.covering import pairs
from tests.cases.grouping import together
from tests.cases.products import job
from tests.machines.ptx.parse import PtxError
from tests.machines.ptx.parse import parse as parse_ptx
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, interpreted, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse
from ztorch.ir.text import show
from ztorch.lower.rewrites import attention_gradients

SM_80 = TARGETS["cuda:sm_80"].limits
TILE = "grid_matrix tile(rows=64, columns=32, depth=32) subgroups(down=2, across=1) stages(4) epilogue(bands=2)"
GRADIENTS = "grid_attention_gradient_matrix subgroups(2) high(1) block(16) stages(3) held(1)"


def gradients() -> Job:
    """Those of attention: of queries by one kernel, and of keys and values by another. Each workgroup has five blocks."""
    graph, _ = attention.attention(1, 1, 75, 70, 16, dtype="float16", batch=1, more=8)
    return Job(graph, attention.fed(graph))


CASES: dict[str, tuple[Callable[[], Job], str]] = {
    "convolution": (lambda: job(same, (1, 5, 6, 32), (3, 3, 32, 32), d=f16), TILE),
    "gradient of images": (lambda: job(of_images, (1, 5, 6, 32), (3, 3, 32, 32), d=f16), TILE),
    "gradient of a kernel": (lambda: job(of_kernel, (3, 6, 8, 8), (3, 6, 8, 32), d=f16), TILE),
    "attention": (lambda: attention.job(1, 1, 32, 100, 16, (), False, "bfloat16"),
                  "grid_attention_matrix subgroups(2) high(1) block(16) stages(3) held(1)"),
    "causal attention": (lambda: attention.job(1, 1, 96, 96, 16, (), True, "float16"),
                         "grid_attention_matrix subgroups(2) high(1) block(16) stages(3) held(0)"),
    "gradients of keys and values": (gradients, GRADIENTS),
    "gradient of queries": (gradients, GRADIENTS),
}
# Barriers behind the last use of strips, whose memory nothing else takes, and behind that of a memory; the end of the
# group of queries, which without it are of the first block's.
SPARE = {("convolution", "a missing barrier"): (1, 5), ("gradient of images", "a missing barrier"): (1, 5),
         ("gradient of a kernel", "a missing barrier"): (1, 5), ("attention", "a missing barrier"): (2,),
         ("causal attention", "a missing barrier"): (1,), ("causal attention", "a group that does not end"): (0,),
         ("gradients of keys and values", "a missing barrier"): (2,), ("gradient of queries", "a missing barrier"): (2,)}


def each(text: str, pattern: str, replacement: str | Callable[[re.Match], str] = "") -> Iterator[str]:
    """The text with each match replaced, one at a time."""
    for m in re.finditer(pattern, text, re.MULTILINE):
        yield text[:m.start()] + (replacement(m) if callable(replacement) else m.expand(replacement)) + text[m.end():]


def one_stage(text: str, stages: int) -> Iterator[str]:
    """In the loop, the first stage in place of that which the number of a strip leads to."""
    begun = text.index("copies_wait")
    return (text[:begun] + loop for loop in each(text[begun:], rf"= rem (%\d+), {stages}$", r"= mul \1, 0"))


FAULTS: dict[str, Callable[[str, int], Iterator[str]]] = {
    "a dropped wait": lambda text, _: each(text, r"^ *copies_wait pending=\d+\n"),
    "a missing barrier": lambda text, _: each(text, r"^ *barrier\n"),
    "a group that does not end": lambda text, _: each(text, r"^ *copies_commit\n"),
    "one stage for all": one_stage,
    "another pitch": lambda text, _: (
        re.sub(rf"(mma_load {name}\[.*pitch=)(\d+)", lambda m: f"{m[1]}{int(m[2]) + 8}", text)
        for name in dict.fromkeys(re.findall(r"mma_load (\w+)", text))),
}


class Made(NamedTuple):
    """A kernel with its buffers before and after it ran."""

    kernel: Kernel
    stages: int
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def for_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradients, "ATTENTION_GRADIENT_COLUMNS", 0)


def made(name: str) -> Made:
    """The kernel of a case that has its schedule, the last one of keys, run as PTX as all others are."""
    make, schedule = CASES[name]
    one, ran = make(), list[Made]()
    steps = plan_of(one.alone("j"), SM_80)[0].parts
    kind = schedule.split()[0]
    schedules = {s.key: schedule for s in steps if s.schedule.kind == kind}
    stages = {s.kernel.name: s.schedule.stages for s in plan_of(one.alone("j"), SM_80, schedules=schedules)[0].parts
              if repr(s.schedule) == schedule}

    def play(kernel: Kernel, buffers: dict[str, np.ndarray], *_: int, **__: int) -> None:
        before = {n: a.copy() for n, a in buffers.items()}
        run(kernel, buffers, parse_ptx(rendered([kernel], "sm_80")))
        if kernel.name in stages:
            ran.append(Made(kernel, stages[kernel.name], before, {n: a.copy() for n, a in buffers.items()}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "interpret", play)
        results = interpreted(one, SM_80, schedules=schedules)
    for got, want in zip(results, one.oracle(), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=5e-3)
    return ran[0 if "queries" in name else -1]


def same_result(case: Made, text: str) -> bool:
    """Whether a kernel in place of another does the same."""
    buffers, kernel = {n: a.copy() for n, a in case.before.items()}, parse(text)
    run(kernel, buffers, parse_ptx(rendered([kernel], "sm_80")))
    return all(np.array_equal(a, case.after[n]) for n, a in buffers.items())


@together()
@pytest.mark.parametrize(("name", "fault"), pairs(list(CASES), list(FAULTS)))
def test_a_fault_is_detected(name: str, fault: str) -> None:
    case, missed = made(name), []
    broken = [*FAULTS[fault](show(case.kernel), case.stages)]
    for k, text in enumerate(broken):
        try:
            if same_result(case, text):
                missed.append(k)
        except PtxError:
            pass
    assert broken and missed == [*SPARE.get((name, fault), ())], f"{missed} of {len(broken)}"
