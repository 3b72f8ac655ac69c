"""Schedules as values: their text, the reasons of refusals, and that none changes results."""

from __future__ import annotations

import random
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases.attention import attention
from tests.cases.covering import full, pairs
from tests.cases.schedules import HOPPER, JOBS, MACHINES, MATRICES, WIDE_GRID, job
from tests.parity import (
    GROUPS,
    HERE,
    SUBGROUPS,
    Job,
    Module,
    agree,
    interpreted,
    plan_of,
)
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.watch import show_plan
from ztorch.dtypes import f16, f32
from ztorch.errors import UnknownName
from ztorch.graph import passes
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.fuse import fuse
from ztorch.lower.nests import nests_of, propose
from ztorch.lower.plan import KernelStep
from ztorch.lower.plan_schedule import PlanSchedule
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import KINDS, IllegalSchedule, Schedule, parse

POWERS = (1, 2, 4, 8, 16, 32, 64)
# Parts of random schedules: legal and illegal numbers.
NUMBERS: dict[str, tuple[int, ...]] = {
    "tile_rows": (1, 2, 3, 5, 6, 8, 16, 24, 32, 64), "tile_vectors": (1, 2, 3, 4, 6),
    "block_rows": (1, 2, 3, 7), "block_columns": (1, 5, 16), "block_depth": (0, 0, 1, 5, 9), "block_pack": (0, 1), "prefetch": (0, 1, 8, 33), "unroll": (1, 2, 3, 4, 8, 16), "places": (1, 2, 3, 5, 8, 9),
    "epilogue_inline": (0, 1), "lanes": POWERS[:5], "share": (0, 1, 2, 3), "parts": (1, 2, 3, 5, 8), "columns": (1, 2, 3, 4, 8),
    "threads": (1, 7, 32, 64, 100, 256), "width": (1, 2, 4), "vectors": (1, 2, 3, 8, 9),
    "team_rows": POWERS, "team_ways": POWERS, "turns_held": (0, 1, 2, 4), "abreast": (1, 2, 3), "edge": (7, 8, 16, 32),
    "tile_columns": (4, 8, 16, 24, 32, 64), "tile_depth": (4, 8, 16, 24, 32), "thread_rows": (1, 2, 3, 4, 8),
    "thread_columns": (1, 2, 3, 4, 8), "subgroups_down": (1, 2, 4), "subgroups_across": (1, 2, 4), "epilogue_bands": (1, 1, 2, 4), "stages": (1, 2, 3),
    "cluster_rows": (1, 2), "cluster_columns": (1, 2), "taps": (1, 3), "patch": ((1, 8, 8),),
    "ways": POWERS[:5], "block": (16, 32, 48, 64), "step": (1, 2, 3), "subgroups": (1, 2, 4), "high": (1, 2), "held": (0, 1),
    "steps": (1, 3, 4), "whole": (0, 1, 2), "tables": (0, 1, 3, 8), "teams": (1, 2, 3, 4, 8), "bands": (1, 2, 3, 4, 8)}


def main_step(one: Job, limits: Limits) -> KernelStep:
    """The last kernel of a job that does more than to copy."""
    steps = plan_of(one.alone("j"), limits)[0].steps
    return [s for s in steps if not re.search(r"/k\d+_(copy|pad)_", s.key)][-1]


def random_schedules(one: Job, limits: Limits, count: int) -> list[Schedule]:
    """Legal schedules of its main kernel, of any kind that it can have."""
    step, rng = main_step(one, limits), random.Random(f"{one.graph.roots[0].shape}{limits.vector_bits}")
    assert step.schedule is not None
    mine = step.schedule
    regions = [r for r in fuse(prepare(passes.run(one.alone("j")), limits)) if r.size]
    region = regions[int(step.key.partition("/k")[2].split("_")[0])]
    legal: list[Schedule] = []
    tried: set[Schedule] = set()
    for _ in range(9000):
        nest = rng.choice(nests_of(region, limits))
        values: dict[str, Any] = {}
        for f in fields(KINDS[nest.kind]):
            if f.name == "order":
                values[f.name] = tuple(rng.sample(range(3), rng.randint(0, 3)))
            elif f.name == "sums":
                like = len(getattr(mine, "sums", (1,)))
                values[f.name] = tuple(rng.choice((1, 2, 3, 4, 8)) for _ in range(like))
            else:
                values[f.name] = rng.choice(NUMBERS[f.name])
        schedule = KINDS[nest.kind](**values)
        known = schedule in tried
        tried.add(schedule)
        if not known and not nest.refusal(schedule, region, limits):
            legal.append(schedule)
            if len(legal) == count:
                break
    return legal


# Each job on a processor and on one with workgroups, in turn, and products on all; in a full run all.
PROCESSORS = [m for m, limits in MACHINES.items() if limits.grid is None]
GRIDS = [m for m, limits in MACHINES.items() if limits.grid is not None and m != "matrices"]
CHOSEN = [*pairs([*JOBS], PROCESSORS, [("product", m) for m in PROCESSORS]),
          *pairs([*JOBS], GRIDS, [("product", m) for m in GRIDS]),
          *(pytest.param(j, "matrices") for j in ("product", "batch of products", "windows"))]
CASES = [pytest.param(*p.values, id="{} on {}".format(*p.values), marks=p.marks) for p in CHOSEN]


@pytest.mark.parametrize(("name", "machine"), CASES)
def test_no_schedule_changes_results(name: str, machine: str) -> None:
    """On the interpreter: products add up in one order whatever their tiles are, so on a processor
    their bits are the same, unless teams share out the order; everything else is as close as ever."""
    one, limits = JOBS[name], MACHINES[machine]
    if machine == "matrices":  # numbers that rounding to ten bits leaves as they are
        one = Job(one.graph, {v: np.round(a * 8) / 8 for v, a in one.feeds.items()})
    step = main_step(one, limits)
    usual = interpreted(one, limits)
    actual = random_schedules(one, limits, 3)
    assert actual, "no other schedule is legal"
    for schedule in actual:
        got = interpreted(one, limits, schedules={step.key: schedule}, workers=2 if limits.grid is None else 1)
        agree(one, got, terms=300)
        if getattr(schedule, "teams", 1) == 1 and schedule.kind in (
                "product", "elements", "transpose", "recurrence", "grid_elements", "grid_product", "grid_recurrence"):
            np.testing.assert_array_equal(got[0], usual[0], repr(schedule))


def test_threads_that_share_a_row_of_one_element() -> None:
    """Only one of them adds it."""
    one = job(lambda x: ops.softmax(x, axis=-1) + ops.sum(x, axis=-1, keepdims=True), (16, 1))
    key = main_step(one, GROUPS).key
    agree(one, interpreted(one, GROUPS, schedules={key: "grid_rows team(rows=4, ways=8) width(1) turns(held=0)"}))


COMPILED = [t for t in ("scalar", "avx2", "neon") if t in HERE]


# Products, whose schedules are most, on both levels; the other jobs on one of them in turn.
@pytest.mark.parametrize(("name", "target"), pairs([*JOBS], COMPILED, [("product", t) for t in COMPILED]))
def test_no_schedule_changes_results_of_compiled_code(name: str, target: str) -> None:
    one, limits = JOBS[name], TARGETS[target].limits
    stem = main_step(one, limits).key.partition("/")[2]
    result = random_schedules(one, limits, 8 if full() else 4)
    module = Module([one] * (1 + len(result)), target,
                    schedules={f"j{k}/{stem}": s for k, s in enumerate(result, 1)})
    usual = module.run(0)[0]
    for k, schedule in enumerate(result, 1):
        for threads in (1, 3):
            got = module.run(k, threads)
            agree(one, got, terms=300)
            if schedule.kind in ("product", "elements", "transpose", "recurrence"):
                np.testing.assert_array_equal(got[0], usual, repr(schedule))


@pytest.mark.parametrize("machine", MACHINES)
def test_proposed_schedules_are_legal_and_can_be_replayed(machine: str) -> None:
    limits = MACHINES[machine]
    for one in JOBS.values():
        plan, _ = plan_of(one.alone("j"), limits)
        asked = {s.key: repr(s.schedule) for s in plan.parts}
        again, _ = plan_of(one.alone("j"), limits, schedules=asked)
        assert [s.kernel for s in again.steps] == [s.kernel for s in plan.steps]
        shown = show_plan(plan)
        assert all(f"{key}: {text}" in shown for key, text in asked.items())


@given(st.data())
def test_schedules_equal_their_text(data: st.DataObject) -> None:
    cls = KINDS[data.draw(st.sampled_from([k for k in KINDS if k]))]
    number = st.integers(0, 1 << 20)
    schedule = cls(**{f.name: data.draw(st.lists(number, max_size=4).map(tuple) if "tuple" in str(f.type)
                                        else number) for f in fields(cls)})
    assert parse(repr(schedule)) == schedule and parse(f"  {schedule!r}\n") == schedule
    if not issubclass(cls, PlanSchedule):  # of a function, which has no tile
        assert re.fullmatch(r"(mma|async|roles|windows|x|\d)*\d(mma|async|roles|stream|windows|openblas|onednn)*|cublaslt|cudnn", schedule.tile(8))


NO_SCHEDULES = [
    ("", "no schedule of kind ''"),
    ("elemnts lanes(8)", "no schedule of kind 'elemnts'.*did you mean 'elements'"),
    ("transpose", r"lacks lanes\(...\)"),
    ("elements lanes(8) order() share(0) tile(rows=3)", r"there is no tile\(rows=...\); use lanes"),
    ("transpose lanes(eight)", "takes integers"),
    ("transpose lanes(8", r"expected directive\(argument=number, ...\) in place of 'lanes\(8'"),
    ("transpose lanes(8) !", "in place of '!'"),
]


def test_text_that_is_not_a_schedule() -> None:
    for text, message in NO_SCHEDULES:
        with pytest.raises(IllegalSchedule, match=message):
            parse(text)


AVX2 = TARGETS["avx2"].limits
PRODUCT = "product tile(rows=6, vectors=2) block(rows=1, depth=0, pack=0) prefetch(0) unroll(4) epilogue(inline=1)"


REFUSED = [
    ("product", AVX2, {"tile_rows": 8, "tile_vectors": 3}, r"tile\(rows=8, vectors=3\) takes 28 vector registers of 16"),
    ("product", AVX2, {"tile_rows": 17}, r"tile\(rows=17\) must be one of 1, 2, .*16 for these 19 rows"),
    ("product", AVX2, {"tile_vectors": 8, "tile_rows": 1}, r"between 1 and the 7 of a row"),
    ("product", AVX2, {"unroll": 17}, r"unroll\(...\) must be between 1 and 16, not 17"),
    ("product", AVX2, {"epilogue_inline": 2}, "between 0 and 1, not 2"),
    ("product", AVX2, {"block_depth": 4}, r"block\(depth=4\) needs block\(rows=...\) of 2 or more"),
    ("product", AVX2, {"block_depth": 14, "block_rows": 2}, r"block\(depth=...\) must be between 0 and 13, not 14"),
    ("windows", AVX2, {"tile_rows": 9}, r"tile\(rows=9\) must be one of"),
    ("elements", AVX2, {"lanes": 3}, r"lanes\(3\) must be a power of two, 32 at most"),
    ("elements", AVX2, {"lanes": 64}, "32 at most on this target"),
    ("elements", AVX2, {"order": (0, 0)}, r"order\(0, 0\) must name each of \d axes once"),
    ("elements", AVX2, {"share": 9}, r"share\(9\) must be between 1 and"),
    ("depthwise", AVX2, {"places": 9}, r"places\(9\) must be between 1 and 8"),
    ("depthwise", AVX2, {"lanes": 1}, "it sums no overlapping windows, or has one lane"),
    ("kernel gradient", AVX2, {"steps": 10}, r"steps\(10\) must be between 1 and 9"),
    ("softmax", AVX2, {"sums": (4,)}, r"takes a number for each of \d passes, not 1"),
    ("softmax", AVX2, {"columns": 2}, "since lanes do not run along columns"),
    ("sums of columns", AVX2, {"sums": (2,)}, "since lanes do not run along the rows"),
    ("sums of columns", AVX2, {"columns": 9}, "must be between 1 and 8"),
    ("elements", GROUPS, {"threads": 65}, r"threads\(65\) must be between 1 and 64"),
    ("elements", WIDE_GRID, {"width": 3}, r"width\(3\) must be a power of two up to the 4"),
    ("softmax", SUBGROUPS, {"team_rows": 1, "team_ways": 4}, "4 threads, and they exchange values in subgroups of 8"),
    ("softmax", GROUPS, {"team_rows": 3}, r"team\(rows=3\) must be a power of two"),
    ("softmax", GROUPS, {"team_rows": 64, "team_ways": 2, "turns_held": 0}, "has 128 threads of 64"),
    ("softmax", SUBGROUPS, {"team_rows": 1, "team_ways": 256, "width": 1, "turns_held": 1}, "256 threads hold 88 parts of a row"),
    ("product", GROUPS, {"tile_rows": 9, "thread_rows": 2}, r"tile\(rows=...\) must be a multiple of 2, not 9"),
    ("product", GROUPS, {"tile_rows": 64, "tile_columns": 64, "thread_rows": 1, "thread_columns": 1},
     "takes 4096 threads of 64"),
    ("product", MATRICES, {"tile_depth": 12}, r"tile\(depth=...\) must be a multiple of 8, not 12"),
    ("product", MATRICES, {"tile_columns": 1024}, "registers of 255"),
]


def refused(name: str, limits: Limits, change: dict[str, Any], why: str) -> None:
    one = JOBS[name]
    step = main_step(one, limits)
    assert step.schedule is not None
    with pytest.raises(IllegalSchedule, match=why) as caught:
        plan_of(one.alone("j"), limits, schedules={step.key: replace(step.schedule, **change)})
    assert str(caught.value).startswith(f"{step.key} cannot have the schedule {step.schedule.kind} ")


def test_a_tile_of_one_register_too_many() -> None:
    refused("product", AVX2, {"tile_rows": 7, "tile_vectors": 2}, "takes 17 vector registers of 16")


def test_schedules_that_a_kernel_cannot_have() -> None:
    for name, limits, change, why in REFUSED:
        refused(name, limits, change, why)


def test_schedules_of_unknown_kernels() -> None:
    graphs = {"f": JOBS["product"].alone("f")}
    with pytest.raises(UnknownName, match=r"did you mean '(f/)?k0_matmul_maximum_f32'"):
        compile_functions(graphs, TARGETS["avx2"], "m", schedules={"f/k0_matmul_maximum_f64": PRODUCT})
    with pytest.raises(IllegalSchedule, match="its kinds are product"):
        compile_functions(graphs, TARGETS["avx2"], "m", schedules={"k0_matmul_maximum_f32": "transpose lanes(8) abreast(1)"})


def test_a_schedule_from_outside_is_compiled() -> None:
    graphs = {"f": JOBS["product"].alone("f")}
    made = compile_functions(graphs, TARGETS["avx2"], "m", schedules={
        "k0_matmul_maximum_f32": PRODUCT.replace("rows=6, vectors=2", "rows=2, vectors=4")})
    [step] = made.plans["f"].steps
    assert step.kernel.name == "k0_matmul_maximum_f32_2x32" and "k0_matmul_maximum_f32_2x32" in made.text
    usual = compile_functions(graphs, TARGETS["avx2"], "m")
    assert usual.plans["f"].steps[0].kernel.name != step.kernel.name and usual.text != made.text


def test_equal_regions_with_other_schedules_are_other_kernels() -> None:
    x, w = leaf("input", "x", (20, 32), f32), leaf("input", "w", (32, 32), f32)
    y = ops.matmul(ops.matmul(x, w), w)
    keys = [s.key for s in plan_of(Graph({"y": y}), AVX2)[0].steps]
    first, second = plan_of(Graph({"y": y}), AVX2, schedules={keys[1]: PRODUCT.replace("rows=6", "rows=2")})[0].steps
    assert first.kernel.name.endswith("x16") and second.kernel.name.endswith("_2x16")
    assert first.kernel.body != second.kernel.body


def test_rules_propose_for_every_kind_of_region() -> None:
    graphs = [(one.alone("j"), limits) for one in JOBS.values() for limits in MACHINES.values()]
    halves = Graph({"y": ops.matmul(*(leaf("input", n, (256, 256), f16) for n in "ab"))})
    large = Graph({"y": ops.matmul(*(leaf("input", n, (2560, 2560), f16) for n in "ab"))})
    scores = Graph({"y": ops.attention(*(leaf("input", n, (16, 8192, 8), f32) for n in "qkv"))})
    short = Graph({"y": ops.attention(*(leaf("input", n, (2, 64, 16), f16) for n in "qkv"))})
    trained, _ = attention(1, 1, 16, 128, 16, dtype="float16", more=0)
    kinds = set()
    windows, narrow = (Graph({"y": ops.conv(leaf("input", "a", (1, 18, 18, n), f16), leaf(
        "input", "b", (3, 3, n, 64), f16))}) for n in (64, 32))
    wide = Graph({"y": ops.conv(leaf("input", "a", (1, 34, 34, 64), f32), leaf("state", "b", (3, 3, 64, 64), f32))})
    deep = Graph({"y": ops.conv(leaf("input", "a", (8, 58, 58, 64), f32), leaf("input", "b", (3, 3, 64, 64), f32))})
    for graph, limits in [*graphs, (deep, HOPPER), (halves, HOPPER), (large, TARGETS["cuda:sm_90a"].limits), (windows, HOPPER), (narrow, HOPPER), (scores, GROUPS), (short, HOPPER),
                          (trained, HOPPER), (trained, TARGETS["cuda:sm_80"].limits), (wide, TARGETS["avx2"].limits)]:
        for region in fuse(prepare(passes.run(graph), limits)):
            kinds.add(propose(region, limits).schedule.kind)
    # one is that of a function, one is said by the kernel, no rule proposes the third yet, and libraries are measured
    libraries = {k for k, s in KINDS.items() if s.library}
    assert kinds == {k for k in KINDS if k} - {"plan", "threads", "grid_attention_roles"} - libraries
