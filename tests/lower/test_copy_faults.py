"""Faults put into kernels whose threads copy through stages (cp.async, sm_80), of convolutions, their gradients and attention;
those of products are in `test_grid_mma.py`. A wait, a barrier or the end of a group that is dropped, one stage for all and
another pitch are each found by the machine that runs the PTX, or a result is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.cases import attention
from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.covering import pairs
from tests.cases.grouping import together
from tests.cases.products import job
from tests.machines.ptx.parse import PtxError
from tests.machines.ptx.parse import parse as parse_ptx
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, buffers_of, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16, from_storage
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse
from ztorch.ir.text import show
from ztorch.lower.plan import KernelStep

SM_80 = TARGETS["cuda:sm_80"].limits
TILE = "grid_matrix tile(rows=64, columns=32, depth=32) subgroups(down=2, across=1) stages(4) epilogue(bands=2)"
CASES: dict[str, tuple[Callable[[], Job], str]] = {
    "convolution": (lambda: job(same, (1, 5, 6, 32), (3, 3, 32, 32), d=f16), TILE),
    "gradient of images": (lambda: job(of_images, (1, 5, 6, 32), (3, 3, 32, 32), d=f16), TILE),
    "gradient of a kernel": (lambda: job(of_kernel, (3, 6, 8, 8), (3, 6, 8, 32), d=f16), TILE),
    "attention": (lambda: attention.job(1, 1, 32, 100, 16, (), False, "bfloat16"),
                  "grid_attention_matrix subgroups(2) high(1) block(16) stages(3) held(1)"),
    "causal attention": (lambda: attention.job(1, 1, 96, 96, 16, (), True, "float16"),
                         "grid_attention_matrix subgroups(2) high(1) block(16) stages(3) held(0)"),
}
# Barriers behind the last use of strips, whose memory nothing else takes, and behind that of a memory; the end of the
# group of queries, which without it are of the first block's.
SPARE = {("convolution", "a missing barrier"): (1, 5), ("gradient of images", "a missing barrier"): (1, 5),
         ("gradient of a kernel", "a missing barrier"): (1, 5), ("attention", "a missing barrier"): (2,),
         ("causal attention", "a missing barrier"): (1,), ("causal attention", "a group that does not end"): (0,)}


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


def made(name: str) -> tuple[Job, KernelStep]:
    make, schedule = CASES[name]
    one = make()
    graph = one.alone("j")
    [step] = plan_of(graph, SM_80)[0].steps
    [step] = plan_of(graph, SM_80, schedules={step.key: schedule})[0].steps
    assert repr(step.schedule) == schedule
    return one, step


def result(one: Job, step: KernelStep, kernel: Kernel) -> np.ndarray:
    held, out = buffers_of(step, one)
    run(kernel, held, parse_ptx(rendered([kernel], "sm_80")))
    return held[out]


@together()
@pytest.mark.parametrize(("name", "fault"), pairs(list(CASES), list(FAULTS)))
def test_a_fault_is_detected(name: str, fault: str) -> None:
    one, step = made(name)
    want, missed = result(one, step, step.kernel), []
    [root] = one.graph.roots
    numbers = from_storage(root.dtype, want).reshape(root.shape).astype(np.float64)
    np.testing.assert_allclose(numbers, one.oracle()[0], rtol=2e-3, atol=5e-3)
    broken = [*FAULTS[fault](show(step.kernel), step.schedule.stages)]
    for k, text in enumerate(broken):
        try:
            if np.array_equal(result(one, step, parse(text)), want):
                missed.append(k)
        except PtxError:
            pass
    assert broken and missed == [*SPARE.get((name, fault), ())], f"{missed} of {len(broken)}"
