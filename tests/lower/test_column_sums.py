"""Sums of columns in the epilogues of products: a tile sums its own columns, and one small kernel adds up the tiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import with_units
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run, through_ptx
from tests.parity import GROUPS, SUBGROUPS, Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16, f32, from_storage, to_storage
from ztorch.graph.autodiff import gradients
from ztorch.graph.narrow import ROUNDED
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import GridLimits, Limits
from ztorch.layers.moments import moments_of
from ztorch.lower import column_sums
from ztorch.lower.plan import Plan
from ztorch.lower.rewrites import rematerialization, split_reductions
from ztorch.lower.schedule import IllegalSchedule

MACHINES = {"groups": GROUPS, "subgroups": SUBGROUPS,
            "wide": Limits(0, 16, True, grid=GridLimits(threads=1024, subgroup=32, compute_units=132, load_width=4)),
            "whole": Limits(0, 16, True, grid=GridLimits(load_width=4, scalar_stores_readable_as_vectors=False))}
Shapes = tuple[tuple[int, ...], tuple[int, ...]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size sum columns, and sums of any length have parts."""
    monkeypatch.setattr(column_sums, "COLUMN_SUMS_BYTES", 0)
    monkeypatch.setattr(split_reductions, "REDUCTION_PART_COLUMNS", 8)


def job(shapes: Shapes, d: DType = f32) -> Job:
    """A product or a convolution, something computed from it, and two sums of its columns."""
    x, w = (leaf("input", name, shape, f32) for name, shape in zip("xw", shapes, strict=True))
    narrow = (x, w) if d is f32 else tuple(ROUNDED(v, dtype=d) for v in (x, w))
    y = ops.matmul(*narrow) if x.rank == 2 else ops.conv(*narrow, padding="same")
    z = leaf("input", "z", y.shape, f32)
    y = ops.relu(y + z)
    rows = tuple(range(y.rank - 1))
    rng = np.random.default_rng(3)
    feeds = {v: from_storage(d, to_storage(d, rng.normal(size=v.shape).astype(d.working))).astype(np.float32)
             for v in (x, w, z)}
    return Job(Graph({"y": y, "sum": ops.sum(y, rows), "product": ops.sum(y * z, rows)}), feeds)


def agree(one: Job, got: list[np.ndarray]) -> None:
    """Results are those of float64, but for the rounding of so many additions."""
    (y, *_), want = one.oracle(), one.oracle()
    rows, z = y.size // y.shape[-1], next(a for v, a in one.feeds.items() if v.attrs["name"] == "z")
    sizes = [abs(y) + 8, abs(y).reshape(rows, -1).sum(0) + 8, abs(y * z).reshape(rows, -1).sum(0) + 8]
    for a, b, size in zip(got, want, sizes, strict=True):
        assert (abs(a - b) <= 64 * 2.0**-23 * size).all()


def kernels(plan: Plan) -> list[str]:
    return [part.kernel.name for s in plan.steps for part in s.parts]


PRODUCTS: list[Shapes] = [((300, 24), (24, 40)), ((264, 9), (9, 70)), ((520, 40), (40, 130))]


@together()
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
@pytest.mark.parametrize("limits", MACHINES.values(), ids=MACHINES)
def test_products(limits: Limits, shapes: Shapes) -> None:
    """At sizes where tiles, bands and threads end elsewhere; no other kernel reads the rows."""
    one = job(shapes)
    plan, _ = plan_of(one.alone("j"), limits)
    first, *others = kernels(plan)
    assert "matmul" in first and all(m.size < one.graph.outputs["y"].size
                                     for s in plan.steps[1:] for m in s.kernel.memories)
    assert others
    agree(one, interpreted(one, limits))
    again = interpreted(one, limits, backwards=True)
    assert all((a == b).all() for a, b in zip(again, interpreted(one, limits), strict=True))


IMAGES: Shapes = ((2, 12, 12, 64), (3, 3, 64, 64))
ON_CHIPS: list[tuple[Shapes, DType, str, Limits, str]] = [
    (PRODUCTS[1], f32, "sm_80", TARGETS["cuda:sm_80"].limits, ""),
    (((520, 64), (64, 64)), f16, "sm_80", TARGETS["cuda:sm_80"].limits, "mma"),
    (((520, 64), (64, 72)), bf16, "sm_90a", with_units(2), ""),
    (IMAGES, bf16, "sm_90a", with_units(1), "windows"),
    (((3, 7, 5, 64), (3, 3, 64, 72)), f16, "sm_90a", with_units(2), "windows"),  # patches over edges, two bands
]


@together()
@pytest.mark.parametrize("shapes, d, chip, limits, kind", ON_CHIPS, ids=str)
def test_on_chips(shapes: Shapes, d: DType, chip: str, limits: Limits, kind: str) -> None:
    """In PTX: by threads, by matrices, and by workgroups with roles that have several tiles."""
    one = job(shapes, d)
    names = kernels(plan_of(one.alone("j"), limits)[0])
    assert any(re.search(f"matmul_.*{kind}$", name) for name in names)
    assert not any("matmul" not in name and "relu" in name for name in names)
    agree(one, interpreted(one, limits, by=partial(through_ptx, chip=chip)))


def each(text: str, pattern: str, replacement: str) -> Iterator[str]:
    for m in re.finditer(pattern, text):
        yield text[:m.start()] + m.expand(replacement) + text[m.end():]


@together()
@pytest.mark.parametrize(("pattern", "spare"), [(r"bar\.sync [^;]*;", {1, 3, 7}), (r"st\.global\.f32 [^;]*;", set())],
                         ids=["a dropped barrier", "a dropped store"])
def test_a_fault_is_detected(pattern: str, spare: set[int]) -> None:
    """Each barrier of the tile and each store of a partial sum is needed, apart from the barriers before the strips and
    the bands of another tile, of which there is none, and from that before totals: lines are not padded here, so each
    thread stores its totals where it read elements itself."""
    one, limits = job(((72, 8), (8, 20))), TARGETS["cuda:sm_80"].limits
    step = plan_of(one.alone("j"), limits)[0].steps[0]
    text = "grid_product tile(rows=64, columns=32, depth=16) thread(rows=4, columns=2) epilogue(bands=1) teams(1)"
    step = plan_of(one.alone("j"), limits, schedules={step.key: text})[0].steps[0]

    def results(text: str) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        held = {m.name: rng.normal(size=m.size).astype(np.float32)
                for m in step.kernel.memories if m.space == "global"}
        run(step.kernel, held, parse(text))
        return held

    text = rendered([step.kernel], "sm_80")
    want, broken = results(text), [*each(text, pattern, "")]
    assert len(broken) > 2
    missed = []
    for k, other in enumerate(broken):
        try:
            got = results(other)
        except PtxError:
            continue
        if all(np.array_equal(got[name], want[name]) for name in want):
            missed.append(k)
    assert set(missed) == spare, (len(broken), missed)


def test_sums_that_wait_for_the_product_are_apart() -> None:
    """Differences from a mean of the same product need all its tiles."""
    x, w = leaf("input", "x", (520, 16), f32), leaf("input", "w", (16, 32), f32)
    moments = moments_of(ops.matmul(x, w), (0,))
    plan, _ = plan_of(Graph({"mean": moments.mean, "variance": moments.variance}), MACHINES["wide"])
    assert "sum" not in kernels(plan)[0]
    rng = np.random.default_rng(0)
    one = Job(Graph({"variance": moments.variance}), {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, w)})
    np.testing.assert_allclose(interpreted(one, MACHINES["wide"])[0], one.oracle()[0], rtol=1e-5)


def test_an_epilogue_that_reads_much_is_apart() -> None:
    """It is one kernel then, with its sums."""
    x, w = leaf("input", "x", (520, 16), f32), leaf("input", "w", (16, 32), f32)
    y = ops.matmul(x, w)
    others = [leaf("input", f"z{k}", y.shape, f32) for k in range(5)]
    for z in others:
        y = y * z
    rng = np.random.default_rng(0)
    one = Job(Graph({"y": y, "sum": ops.sum(y, 0)}), {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, w, *others)})
    names = kernels(plan_of(one.alone("j"), MACHINES["wide"])[0])
    assert "sum" not in names[0] and len(names) == 3
    for a, b in zip(interpreted(one, MACHINES["wide"]), one.oracle(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_a_schedule_has_no_more_tiles_than_parts() -> None:
    one = job(((512, 16), (16, 32)))
    step = plan_of(one.alone("j"), MACHINES["groups"])[0].steps[0]
    smaller = re.sub(r"rows=\d+", "rows=8", repr(step.schedule), count=1).replace("thread(rows=8", "thread(rows=4")
    with pytest.raises(IllegalSchedule, match="sums columns of 64 tiles"):
        plan_of(one.alone("j"), MACHINES["groups"], schedules={step.key: smaller})


def test_the_gradient_of_a_bias_needs_no_pass() -> None:
    """Also where the gradient of an activation is between."""
    x, w, g = (leaf("input", n, s, f32) for n, s in (("x", (600, 24)), ("w", (24, 40)), ("h", (600, 40))))
    slope = ops.where(ops.less(g, 0.0), 0.0, ops.matmul(x, w))
    plan, _ = plan_of(Graph({"slope": slope, "bias": ops.sum(slope, 0)}), MACHINES["wide"])
    assert [("matmul" in name) for name in kernels(plan)] == [True, False]




def test_epilogues_compute_again_what_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a batch norm: the kernel of its statistics stores no differences from a number near the mean."""
    monkeypatch.setattr(rematerialization, "REMATERIALIZE_BYTES", 0)
    x, w, v, slope = (leaf("input", n, s, f32) for n, s in (
        ("x", (528, 16)), ("w", (16, 32)), ("v", (32, 24)), ("slope", (528, 24))))
    moments = moments_of(ops.matmul(x, w), (0,))
    y = ops.relu((moments.shifted - moments.apart) * ops.rsqrt(moments.variance + 1e-3))
    loss = ops.sum(ops.matmul(y, v) * slope)
    graph = Graph({"loss": loss, **{f"d{k}": g for k, g in enumerate(gradients(loss, [x, w, v]))}})
    rng = np.random.default_rng(2)
    one = Job(graph, {a: rng.normal(size=a.shape).astype(np.float32) for a in (x, w, v, slope)})
    plan, _ = plan_of(one.alone("j"), MACHINES["wide"])
    assert any("matmul" in name and "sum" in name for name in kernels(plan))
    moving = next(s.kernel for s in plan.steps if s.kernel.name.startswith("k2_sum"))
    assert all(m.size < 528 * 32 for m in moving.memories if m.access != "r" and m.space == "global")
    for got, want in zip(interpreted(one, MACHINES["wide"]), one.oracle(), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 * abs(want).max())
