"""Products whose workgroups share tiles: right to what the dtype and k promise, with the same bits on every machine, and
every signal, barrier and place of a part is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import (
    Make,
    bound,
    job,
    plain,
    step_of,
    through_text,
    transposed,
    with_units,
)
from tests.cases.ring_kernels import Everywhere, shared_tiles
from tests.cases.ring_schedules import played
from tests.machines.ptx.parse import PtxError
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.errors import InterpretError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.lower.grid import stream_tiles
from ztorch.lower.schedule import IllegalSchedule
from ztorch.tune import candidates

ALONE = "cluster(rows=1, columns=1)"
# Units, and tiles x stages x bands x cluster x rounds of whole tiles.
CASES: list[tuple[Make, tuple, DType, int, str]] = [
    # a tile of three workgroups, two of two, and one that one workgroup has alone
    (plain, ((64, 328), (328, 72)), f16, 5, f"tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(0)"),
    (transposed, ((192, 136), (64, 136)), bf16, 2, f"tile(rows=64, columns=64) stages(3) epilogue(bands=1) {ALONE} whole(0)"),
    # two teams, ragged edges, and whole tiles behind the shares
    (transposed, ((320, 136), (56, 136)), f16, 2, f"tile(rows=128, columns=64) stages(2) epilogue(bands=2) {ALONE} whole(1)"),
    (transposed, ((320, 72), (64, 72)), f16, 2, f"tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(2)"),
    # pairs of workgroups, and an empty tile
    (transposed, ((320, 72), (128, 72)), f16, 4,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) whole(0)"),
    # pairs that wait while others still multiply their shares
    (plain, ((320, 392), (392, 8)), bf16, 8,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) whole(0)"),
    # a batch, and float32 truncated to tf32
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), ((3, 136, 64), (3, 136, 64)), f16, 2,
     f"tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(0)"),
    (transposed, ((72, 132), (64, 132)), f32, 3, f"tile(rows=64, columns=64) stages(2) epilogue(bands=2) {ALONE} whole(0)"),
]


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "units", "schedule"), CASES)
def test_products(make: Make, shapes: tuple, d: DType, units: int, schedule: str) -> None:
    one, limits, text = job(make, *shapes, d=d), with_units(units), f"grid_stream {schedule}"
    limits = replace(limits, product_mantissa_bits=10) if d is f32 else limits
    step = step_of(one, limits, text)
    assert repr(step.schedule) == text
    (got,), (want,) = interpreted(one, limits, schedules={step.key: text}), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 400)).all()
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))


SHARED = f"grid_stream tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(0)"
UNITS = with_units(3)


def fused() -> Job:
    """Two tiles of five strips for three workgroups, and an epilogue."""
    return job(lambda a, b, c: ops.relu(ops.matmul(a, ops.transpose(b)) + c), (128, 328), (64, 328), (64,), d=f16)


def test_parts_are_added_in_the_order_of_their_strips() -> None:
    """1 and 2**24 are 2**24 in float32, so that minus 2**24 is 0; in any other order 1 would be left."""
    one = job(transposed, (64, 384), (64, 384), d=f16)  # a tile of three workgroups with two strips each
    a, b = one.feeds.values()
    a[:], b[:] = 0, 512
    a[:, 0], b[:, 0], a[:, 128:192], a[:, 256:320] = 1, 1, 512, -512
    step = step_of(one, UNITS, SHARED)
    (got,) = interpreted(one, UNITS, schedules={step.key: SHARED})
    assert not got.any()
    assert not through_text(one, step).any()


FAULTS = {  # replacements in the text
    "no signal": (r"st\.release\.gpu\.global\.u32 \[%a\], 1;", ""),
    "no release": (r"st\.release\.gpu\.", "st."),
    "no acquire": (r"ld\.acquire\.gpu\.", "ld."),
    "no wait": (r"@%p bra L\d+_signal;", ""),
    "no team before a signal or behind a wait": (r"bar\.sync 1, 128;", ""),
    "another part": (r"(ld\.global\.v4\.f32 \{[^}]*\}, \[%a)\+\d+\*4\]", r"\1]"),
}


@together()
@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_share_is_detected(name: str) -> None:
    one = fused()
    step = step_of(one, UNITS, SHARED)
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(
            through_text(one, step, "sm_90a", *FAULTS[name]), interpreted(one, UNITS, schedules={step.key: SHARED})[0].reshape(-1))


def without(kernel: Kernel, opcode: str) -> Kernel:
    return replace(kernel, body=tuple(i for i in kernel.body if i.opcode != opcode))


def test_a_missing_step_is_detected() -> None:
    one = fused()
    kernel = step_of(one, UNITS, SHARED).kernel
    for opcode, why in (("grid_signal", "waits for the signal signals"), ("grid_wait", "race on parts_of_sums"),
                        ("team_barrier", "race on")):
        with pytest.raises(InterpretError, match=rf"kernel \w+, instruction \d+ \(\w+\): .*{why}"):
            interpret(without(kernel, opcode), buffers_of(step_of(one, UNITS, SHARED), one)[0], subgroup=32)
    ring = shared_tiles(2, 1, 3, 1, 4, 5)
    assert not played(ring)
    assert "deadlock: " in played(without(ring, "grid_signal"))
    assert "signals" in played(without(ring, "grid_wait"))


def test_signals_and_parts_have_places() -> None:
    """Kernels use the same memory for parts one after another, and have signals of their own, which are zero at first."""
    x, w = (leaf("input", n, (640, 640), f16) for n in "xw")
    y = Graph({"y": ops.matmul(ops.exp(ops.matmul(x, w)), w), "z": ops.matmul(w, x)})
    text = f"grid_stream tile(rows=128, columns=128) stages(2) epilogue(bands=1) {ALONE} whole(0)"

    class Products(dict):
        def get(self, key: str, default: object = None) -> object:
            return text if "matmul" in key else default

    plan, params = plan_of(y, with_units(12), schedules=Products({"": text}))
    steps = [s for s in plan.steps if s.schedule and s.schedule.kind == "grid_stream"]
    assert len(steps) == 3 and all(s.barrier for s in steps[1:])
    parts, signals = ([s.locations[-n] for s in steps] for n in (2, 1))
    assert len({p.offset for p in parts}) == 1 and len({s.offset for s in signals}) == 3
    zeros = dict(params.constants)
    assert all(s.size == 48 and not zeros[s.offset].any() for s in signals)
    assert all(s.writes[-2:] == (True, True) for s in steps)


@together()
@pytest.mark.parametrize(("schedule", "why"), [
    (f"tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(1)", "leaves no tile to share"),
    (f"tile(rows=64, columns=64) stages(2) epilogue(bands=1) {ALONE} whole(-1)", r"whole\(-1\) leaves no tile"),
    (f"tile(rows=64, columns=64) stages(1) epilogue(bands=1) {ALONE} whole(0)", r"stages\(1\) must be"),
    ("tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=4, columns=1) whole(0)", "may not all run at once"),
], ids=str)
def test_refusals(schedule: str, why: str) -> None:
    with pytest.raises(IllegalSchedule, match=why):
        step_of(fused(), UNITS, f"grid_stream {schedule}")
    with pytest.raises(IllegalSchedule, match="the tiles fill whole rounds"):
        step_of(fused(), with_units(2), SHARED)
    with pytest.raises(IllegalSchedule, match="too few strips to share"):
        step_of(job(transposed, (64, 64), (64, 64), d=f16), UNITS, SHARED)
    assert UNITS.grid is not None
    older = replace(UNITS, grid=replace(UNITS.grid, launch_barriers=False))
    with pytest.raises(IllegalSchedule, match="no signals between workgroups"):
        step_of(fused(), older, SHARED)


def kinds(m: int, n: int, k: int) -> list[str]:
    a, b = leaf("input", "a", (m, k), bf16), leaf("input", "b", (k, n), bf16)
    steps = plan_of(Graph({"y": ops.matmul(a, b)}), TARGETS["cuda:sm_90a"].limits)[0].steps
    return [s.schedule.kind for s in steps if s.schedule]


def test_where_they_are_chosen() -> None:
    """Where whole tiles leave units idle in the last round, and in place of parts along k."""
    assert kinds(2560, 2560, 2560) == kinds(128, 4096, 4096) == ["grid_stream"]
    assert kinds(4096, 4096, 4096) == kinds(1024, 1024, 1024) == ["grid_roles"]
    assert kinds(512, 768, 3072) == ["grid_roles", "grid_rows"]
    for t in TARGETS.values():
        if t.limits.grid and t.limits.grid.tile_copies:
            assert t.limits.grid.launch_barriers


def test_the_tuner_tries_them() -> None:
    """Also where the rules do not choose them, and with other numbers of whole tiles."""
    a, b = leaf("input", "a", (768, 4096), bf16), leaf("input", "b", (4096, 3072), bf16)
    [step] = plan_of(Graph({"y": ops.matmul(a, b)}), TARGETS["cuda:sm_90a"].limits)[0].steps
    assert step.schedule is not None and step.schedule.kind == "grid_roles" and step.region_kernel is not None
    [other] = [s for s in candidates.other_kinds(step.region_kernel, step.schedule) if s.kind == "grid_stream"]
    assert isinstance(other, stream_tiles.GridStreamSchedule)
    fields = [f for stage in candidates.stages(other) for f in stage]
    assert {"tile_rows", "tile_columns", "cluster_rows", "stages", "whole"} <= {*fields}
    small = replace(other, tile_rows=64, tile_columns=64, cluster_rows=1, whole=0)
    tried = candidates.alternatives(step.region_kernel.with_schedule(small), small, ("whole",))
    assert {s.whole for s in tried if isinstance(s, stream_tiles.GridStreamSchedule)} == {1, 2, 3, 4}  # 576 tiles of 132 workgroups


def test_products_in_a_loop() -> None:
    """Its iterations use the same signals and places of parts, one after another."""
    x, w = leaf("input", "x", (64, 200), f16), leaf("input", "w", (200, 200), f16)
    rng = np.random.default_rng(1)
    feeds = {v: rng.normal(size=v.shape).astype(np.float16) / 16 for v in (x, w)}
    last, _ = ops.scan(lambda c, _: (ops.matmul(c, w), None), x, length=3)
    one = Job(Graph({"y": last}), feeds)
    limits, text = with_units(3), SHARED.replace("columns=64", "columns=128")
    plan, _ = plan_of(one.alone("j"), limits, schedules=Everywhere(text, "matmul"))
    assert plan.loops and "grid_stream" in {s.schedule.kind for s in plan.steps if s.schedule}
    (got,), (want,) = interpreted(one, limits, schedules=Everywhere(text, "matmul")), one.oracle()
    assert np.abs(want).max() > 0.05
    np.testing.assert_allclose(got.astype(np.float64), want, atol=2**-9 * np.abs(want).max())
