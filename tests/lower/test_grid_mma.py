"""Products by mma: chosen where the guard allows, right to what the dtype and k promise, and nothing
but speed depends on it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.jobs import jobs
from tests.cases.products import Make, bound, job, plain, step_of, through_text
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch import Sequential, layers, ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32, f64, from_storage
from ztorch.errors import UnknownName
from ztorch.ir.limits import Limits
from ztorch.lower.grid.mma_tiles import choose
from ztorch.lower.grid.thread_tiles import estimate
from ztorch.lower.passes import launched
from ztorch.lower.plan import KernelStep
from ztorch.lower.schedule import IllegalSchedule

CUDA = [t for t in TARGETS.values() if t.backend == "cuda"]
# One workgroup at a time: else small tiles of many workgroups are the faster way for small products.
EXACT = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).limits
TF32 = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).with_precision("tf32").limits
SIMT = replace(TF32, grid=replace(TF32.grid, mma_shapes=()))
DTYPES = (f16, bf16, f32)
each = pytest.mark.parametrize("d", DTYPES, ids=repr)


def multiplies(one: Job, limits: Limits) -> bool:
    return any(s.kernel.opcodes() & {"mma", "mma_async"} for s in plan_of(one.alone("j"), limits)[0].steps)


SIZES = [(16, 64, 32), (70, 130, 37), (33, 75, 217), (128, 256, 64), (65, 16, 33), (17, 129, 1), (200, 31, 48)]


@each
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products(d: DType, m: int, n: int, k: int) -> None:
    one = job(plain, (m, k), (k, n), d=d)
    assert multiplies(one, TF32)
    (got,), (want,) = interpreted(one, TF32), one.oracle()
    off = np.abs(got.astype(np.float64) - want)
    assert (off <= bound(one, d, k)).all(), off.max()
    if d is f32:  # it was rounded indeed, and is not where nobody allowed it
        assert off.max() > 1e-4 and not multiplies(one, EXACT)


TURNED: list[tuple[Make, tuple, tuple]] = [
    (lambda a, b: ops.matmul(ops.transpose(a), b), (37, 70), (37, 90)),
    (lambda a, b: ops.matmul(a, ops.transpose(b)), (70, 37), (90, 37)),
    (lambda a, b: ops.matmul(ops.transpose(a), ops.transpose(b)), (64, 72), (128, 64)),
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), (3, 40, 72), (3, 40, 33)),
]


@each
@pytest.mark.parametrize("which", range(len(TURNED)))
def test_views_and_batches(d: DType, which: int) -> None:
    make, *shapes = TURNED[which]
    one = job(make, *shapes, d=d)
    assert multiplies(one, TF32)
    (got,), (want,) = interpreted(one, TF32), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 64)).all()


@each
def test_epilogues_are_fused(d: DType) -> None:
    one = job(lambda a, b, c: ops.relu(ops.matmul(a, b) + c), (50, 40), (40, 70), (70,), d=d)
    assert multiplies(one, TF32) and len(plan_of(one.alone("j"), TF32)[0].steps) == 1
    (got,), (want,) = interpreted(one, TF32), one.oracle()
    eps = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-10}[d.name]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=4 * eps * np.abs(want).max())


@each
def test_without_it_results_differ_only_by_rounding(d: DType) -> None:
    one = job(plain, (45, 83), (83, 61), d=d)
    assert multiplies(one, TF32) and not multiplies(one, SIMT)
    (by_mma,), (by_threads,) = interpreted(one, TF32), interpreted(one, SIMT)
    off = np.abs(by_mma.astype(np.float64) - by_threads)
    assert (off <= 2 * bound(one, d, 83)).all()


@each
@pytest.mark.parametrize(("make", "shapes"), [
    (plain, ((70, 37), (37, 130))), (lambda a, b: ops.relu(ops.matmul(a, ops.transpose(b))), ((33, 64), (128, 64))),
    (lambda a, b: ops.matmul(ops.transpose(a), b), ((40, 80), (40, 24))),
    (lambda a, b: ops.relu(ops.matmul(a, b)), ((130, 100), (100, 136)))])
def test_through_ptx(d: DType, make: Make, shapes: tuple) -> None:
    """The same kernel by PTX's layouts: the same bits as with the interpreter's layout."""
    one = job(make, *shapes, d=d)
    [step] = plan_of(one.alone("j"), TF32)[0].steps
    assert "mma" in step.kernel.opcodes()
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_80")))
    np.testing.assert_array_equal(from_storage(d, held[out]), interpreted(one, TF32)[0].reshape(-1))


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "schedule"), [
    (plain, ((200, 72), (72, 120)), bf16, "tile(rows=256, columns=128, depth=64) subgroups(down=4, across=2) stages(2)"),
    (lambda a, b: ops.relu(ops.matmul(a, ops.transpose(b))), ((72, 72), (136, 72)), f16,
     "tile(rows=64, columns=128, depth=64) subgroups(down=1, across=2) stages(3)"),
    (lambda a, b: ops.matmul(ops.transpose(a), b), ((40, 136), (40, 64)), f32,
     "tile(rows=128, columns=64, depth=16) subgroups(down=2, across=1) stages(3)")])
def test_subgroups_with_64_rows_and_columns(make: Make, shapes: tuple, d: DType, schedule: str) -> None:
    """Whose threads have all registers: 128 hold sums. Only if copies pass none."""
    one, text = job(make, *shapes, d=d), f"grid_matrix {schedule} epilogue(bands=2)"
    step = step_of(one, TF32, text)
    assert step.kernel.resident_threads == 256
    (got,), (want,) = interpreted(one, TF32, schedules={step.key: text}), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 136)).all()
    np.testing.assert_array_equal(through_text(one, step, "sm_80"), got.reshape(-1))
    with pytest.raises(IllegalSchedule, match="the sums of a thread take 128 registers"):
        step_of(one, TF32, re.sub(r"stages.\d", "stages(1", text))


@pytest.mark.parametrize(("chip", "tile"), [("sm_80", "256x128"), ("sm_90", "256x128"), ("sm_86", "128x128"), ("sm_120", "128x128")])
def test_they_are_chosen_where_products_are_fast(chip: str, tile: str) -> None:
    """As fast as shared memory can feed others, in every layout; not where strips would pass registers."""
    limits = TARGETS[f"cuda:{chip}"].limits
    for make in (plain, lambda a, b: ops.relu(ops.matmul(ops.transpose(a), ops.transpose(b)))):
        left, right = ((3072, 128), (128, 4096)) if make is plain else ((128, 3072), (4096, 128))
        assert step_of(job(make, left, right, d=f16), limits).kernel.name.endswith(f"{tile}mma")
    stack = job(plain, (2, 3072, 127), (2, 127, 4096), d=f16)  # matrices alone would get longer lines
    assert not step_of(stack, limits).kernel.resident_threads


PADDED = "grid_matrix tile(rows=64, columns=64, depth=32) subgroups(down=2, across=2) stages(3) epilogue(bands=2)"


def staged(d: DType = f16, schedule: str = "") -> tuple[Job, KernelStep]:
    """A product whose strips pass through stages, some of which are used again."""
    one = job(plain, (40, 200), (200, 40), d=d)
    return one, step_of(one, TF32, schedule)


PIPELINE = {
    "a dropped wait": (r"cp.async.wait_group (\d);", lambda m: f"cp.async.wait_group {int(m[1]) + 1};"),
    "no barrier behind the wait": (r"(cp.async.wait_group \d;)\s+bar.sync 0;", r"\1"),
    "a group that does not end": (r"(@!\S+ bra L(\d+)_end; \}[\s\S]*?L\2_end:)\s+cp.async.commit_group;", r"\1"),
    "another stage": (r"(ldmatrix\S+ \{[^}]*\}, \[%a)\]", r"\1+5120]"),
    "another pitch": (r"(and.b32 %l, %l, 7; mad.lo.s32 %a, %l, )80", r"\g<1>96"),
    "copies of half a line": (r"(cp.async.cg.shared.global \[[^]]*\], \[[^]]*\], 16, )%n", r"\g<1>8"),
}


SWIZZLED = {**{name: PIPELINE[name] for name in [*PIPELINE][:3]},
            "lines that are not swizzled": (r"and.b32 %z, %z, 112", "and.b32 %z, %z, 0"),
            "copies of half a line": PIPELINE["copies of half a line"]}


def test_strips_that_copies_bring_are_as_deep_as_swizzled_lines() -> None:
    """Of 16 bits, in tiles of whole lines: no bank is waited for, and each copy brings whole lines."""
    _, step = staged()
    assert repr(step.schedule) == PADDED.replace("depth=32", "depth=64").replace("stages(3)", "stages(2)")
    assert {m.name for m in step.kernel.memories if m.swizzled} == {"strip_a", "strip_b"}
    assert not any(m.swizzled for m in staged(f16, PADDED)[1].kernel.memories)


@together(by="schedule")
@pytest.mark.parametrize(("schedule", "name"), [*((PADDED, n) for n in PIPELINE), *(("", n) for n in SWIZZLED)])
def test_a_broken_pipeline_is_detected(schedule: str, name: str) -> None:
    one, step = staged(f16, schedule)
    text, (old, new) = rendered([step.kernel], "sm_80"), (PIPELINE if schedule else SWIZZLED)[name]
    broken = re.sub(old, new, text, count=name == "lines that are not swizzled")
    assert broken != text
    held, out = buffers_of(step, one)
    with pytest.raises((PtxError, AssertionError)):
        run(step.kernel, held, parse(broken))
        np.testing.assert_array_equal(from_storage(f16, held[out]), interpreted(one, TF32)[0].reshape(-1))


def test_only_copyable_operands_are_staged() -> None:
    """Rows of whole copies, in the dtype of the matrices, on chips that have copies."""
    def stages(one: Job, limits: Limits = TF32) -> int:
        return plan_of(one.alone("j"), limits)[0].steps[-1].schedule.stages  # type: ignore[union-attr]

    assert stages(staged()[0]) == 2 and stages(staged(f32)[0]) == 3
    assert stages(job(plain, (40, 201), (201, 40), d=f16)) == 1  # rows of odd length
    assert stages(job(plain, (64, 16), (16, 64), d=f16)) == 2  # one strip and the copies of none
    narrow = replace(TF32, grid=replace(TF32.grid, asynchronous_copies=False))
    assert stages(staged()[0], narrow) == 1
    for t in CUDA:
        assert t.limits.grid.asynchronous_copies == bool(t.limits.grid.mma_shapes)


def test_special_numbers_stay_in_their_rows() -> None:
    """Zeros beyond the edges meet no number that is not one."""
    one = job(plain, (33, 37), (37, 19), d=f16)
    a, b = one.feeds.values()
    a[5, 3], a[7, 0], b[2, 4] = np.inf, np.nan, -np.inf
    (got,) = interpreted(one, TF32)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


# -- guards -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_only_targets_that_list_it_get_it(target) -> None:
    grid = target.limits.grid
    if grid is None:
        return
    for d in DTYPES:
        one = job(plain, (128, 64), (64, 128), d=d)
        able = [s for s in grid.mma_shapes if s.of in (d, f32)]  # float32 holds every shorter number
        alone = target.on_device({"compute_units": 1})
        assert multiplies(one, alone.with_precision("tf32").limits) == bool(able)
        assert multiplies(one, alone.limits) == any(s.mantissa_bits == 0 for s in able)


def test_the_newer_chips_have_it() -> None:
    assert {t.chip for t in CUDA if not t.limits.grid.mma_shapes and t.assembler == "ptx"} == {"sm_75"}


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 4), (1, 1, 100)])
def test_single_rows_are_left_to_threads(m: int, n: int, k: int) -> None:
    assert not multiplies(job(plain, (m, k), (k, n), d=f16), TF32)


def test_other_dtypes_are_left_to_threads() -> None:
    assert not multiplies(job(plain, (128, 64), (64, 128), d=f64), TF32)


def test_tiles_fit_their_machine() -> None:
    for shape in TF32.grid.mma_shapes:
        for m, n, k in ((16, 8, 16), (64, 1000, 9), (4096, 4096, 4096)):
            for grid in (TF32.grid, replace(TF32.grid, shared_bytes=16 << 10), replace(TF32.grid, threads=64)):
                tile = choose(m, n, k, 1, grid, shape, 1e300)
                assert tile.shared <= grid.shared_bytes and tile.threads <= grid.threads
                assert tile.fragments_down * tile.down * shape.m == tile.rows
                assert tile.fragments_across * tile.across * shape.n == tile.columns and tile.depth % shape.k == 0
        time, _ = estimate(4096, 4096, 4096, 1, TF32.grid, 4, False)
        assert choose(4096, 4096, 4096, 1, TF32.grid, shape, time)
        assert choose(4096, 4096, 4096, 1, TF32.grid, shape, 0.0) is None
    big = job(plain, (4096, 64), (64, 4096), d=f16)
    [step] = plan_of(big.alone("j"), TF32)[0].steps
    shared = sum(m.size * m.dtype.bytes for m in step.kernel.memories if m.space == "shared")
    assert shared <= TF32.grid.shared_bytes and launched(step.kernel)[1][0] == 16 * 32


def test_a_model_that_allows_it() -> None:
    """The choice is the user's: float32 products are mma only by matmul_precision, on every layer."""
    model = Sequential([layers.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(128)])
    functions = model.trace(batch_size=64, optimizer="adam", loss="mse").functions
    target = TARGETS["cuda:sm_80"]
    by_default = compile_functions(functions, target, "m").text
    assert "mma.sync" not in by_default
    assert compile_functions(functions, target.with_precision("float32"), "m").text == by_default
    allowed = compile_functions(functions, target.with_precision("tf32"), "m").text
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in allowed
    old = TARGETS["cuda:sm_75"]
    assert "mma" not in compile_functions(functions, old.with_precision("tf32"), "m").text
    with pytest.raises(UnknownName, match="unknown matmul_precision 'tf23'; did you mean 'tf32'"):
        model.compile("cpu", matmul_precision="tf23")
    first, second = (model.compile("cpu", matmul_precision=p) for p in ("float32", "tf32"))
    data = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    np.testing.assert_array_equal(first.predict(data), second.predict(data))


@pytest.mark.parametrize("name", ["matmul", "conv'", "attention'"])
def test_ops_that_multiply(name: str) -> None:
    """All samples of an op and their gradients, where every product may be mma."""
    for one in jobs()[name]:
        (got, want) = interpreted(one, TF32), one.oracle()
        for g, w in zip(got, want, strict=True):
            finite = np.abs(w[np.isfinite(w)]) if w.dtype.kind == "f" else np.abs(w)
            np.testing.assert_allclose(g.astype(np.float64), w, rtol=0, atol=4e-3 * max(1.0, *finite.ravel(), 1.0))


@together()
@pytest.mark.parametrize(("chip", "stages", "alone"), [("sm_80", 2, False), ("sm_86", 2, True), ("sm_120", 2, True)])
def test_copies_through_stages_before_more_workgroups(chip: str, stages: int, alone: bool) -> None:
    """With one stage, strips would wait in registers."""
    grid = TARGETS[f"cuda:{chip}"].limits.grid
    shape = next(s for s in grid.mma_shapes if s.of is bf16 and s.into is f32)
    tile = choose(4096, 4096, 4096, 1, grid, shape, math.inf).staged(grid, 4096)
    assert (tile.rows, tile.columns, tile.stages) == (128, 128, stages) and tile.swizzled
    assert (tile.shared > grid.shared_share(tile.threads)) == alone
