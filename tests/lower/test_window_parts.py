"""Convolutions of float32 in parts, whose images are copied as boxes and split in registers: nearly all bits of the
result, forward and for both gradients, by the interpreter and by PTX; and every word is needed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.grouping import together
from tests.cases.products import Make, job, with_units
from tests.cases.ring_kernels import Everywhere
from tests.cases.ring_schedules import played
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run, through_ptx
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.dtypes import f32
from ztorch.graph.autodiff import pullback
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.matrices import parts_with_one
from ztorch.lower.grid.parts import IN_PARTS
from ztorch.lower.grid.window_axes import seen_through
from ztorch.lower.rewrites.split_windows import SplitWindows
from ztorch.lower.schedule import IllegalSchedule

ONE, TWO = with_units(1, "high"), with_units(2, "high")
IMAGES, KERNEL = (2, 8, 8, 32), (3, 3, 32, 64)


def halving(x: Value, w: Value) -> Value:
    return ops.relu(ops.conv(x, w, padding="same", stride=2) + 1)


def valid(x: Value, w: Value) -> Value:
    return ops.conv(x, w)


def of_halving_kernel(x: Value, g: Value) -> Value:
    w = leaf("input", "w", (3, 3, x.shape[-1], g.shape[-1]), x.dtype)
    return pullback({ops.conv(x, w, padding="same", stride=2): g}, [w])[0]


# Patches that fit and that reach over edges; several taps of a window, teams, panels and workgroups that share strips.
CASES: list[tuple[Make, tuple, str, Limits]] = [
    (same, (IMAGES, KERNEL), "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 8, 8)", TWO),
    (same, (IMAGES, KERNEL), "tile(rows=128, columns=64) stages(2) epilogue(bands=2) cluster(rows=1, columns=1) taps(3) patch(1, 8, 8)", ONE),
    (valid, ((2, 11, 9, 64), (4, 2, 64, 72)),
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(1, 16, 4)", TWO),
    (halving, ((3, 12, 12, 32), KERNEL), "tile(rows=64, columns=64) stages(3) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(2, 4, 8)", TWO),
    (of_images, ((2, 7, 5, 64), (3, 3, 40, 64)),
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(3) patch(1, 8, 8)", TWO),
    (of_kernel, ((32, 3, 4, 64), (32, 3, 4, 40)),
     "tile(rows=128, columns=64) stages(3) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 1, 32)", ONE),
    (of_halving_kernel, ((32, 4, 4, 128), (32, 2, 2, 96)),
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=2) taps(1) patch(1, 1, 32)", with_units(4, "high")),
]


def kernel_of(one: Job, limits: Limits, text: str) -> Kernel:
    steps = plan_of(one.alone("j"), limits, schedules=Everywhere(text, "matmul"))[0].steps
    [kernel] = (s.kernel for s in steps if repr(s.schedule) == text)
    return kernel


@together()
@pytest.mark.parametrize(("make", "shapes", "schedule", "limits"), CASES)
def test_nearly_all_bits_are_kept(make: Make, shapes: tuple, schedule: str, limits: Limits) -> None:
    one, chosen = job(make, *shapes, d=f32), Everywhere(f"grid_windows {schedule}", "matmul")
    (got,), (want,) = interpreted(one, limits, schedules=chosen), one.oracle()
    (size,) = Job(Graph({"y": make(*one.feeds)}), {v: np.abs(x) for v, x in one.feeds.items()}).oracle()
    assert (np.abs(got - want) / (size + 1)).max() < 3 * 2.0**-21 + 100 * 2.0**-24
    (by_text,) = interpreted(one, limits, schedules=chosen, by=lambda k, held: through_ptx(k, held, "sm_90a"))
    np.testing.assert_array_equal(by_text, got)
    kernel = kernel_of(one, limits, chosen.text)
    assert played(kernel) == "" == played(kernel, last_first=True)


def test_infinities_stay_what_they_are() -> None:
    """Times numbers with and without a rest, of both signs, zero and infinities of both signs."""
    one = job(same, IMAGES, KERNEL, d=f32)
    x, w = one.feeds.values()
    x[0, 0, 0, 0], x[0, 4, 4, 1], x[1, 2, 6, 2] = np.inf, -np.inf, np.nan
    w[1, 1, 5, 6], w[0, 0, 6, 7], w[1, 1, 0, :4], w[2, 2, 7, 9] = np.inf, -np.inf, (1.0, -2.0, 0.0, 1 / 3), np.nan
    w[1, 1, 0, 5:7], w[1, 1, 1, 8:10], x[1, :2, 3, 5] = (np.inf, -np.inf), (np.inf, -np.inf), (1.0, 0.0)
    with np.errstate(invalid="ignore"):
        (got,), (want,) = interpreted(one, ONE), one.oracle()
        (by_text,) = interpreted(one, ONE, by=lambda k, held: through_ptx(k, held, "sm_90a"))
    np.testing.assert_array_equal(by_text, got)
    assert np.isinf(want).sum() > 300 and np.isnan(want).sum() > 100
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=0, atol=9 * 2.0**-19 * np.abs(want[np.isfinite(want)]).max())


@together()
@pytest.mark.parametrize(("make", "shapes"), [(same, (IMAGES, KERNEL)), (of_kernel, ((32, 3, 4, 32), (32, 3, 4, 16)))])
def test_parts_are_those_of_the_operands(make: Make, shapes: tuple) -> None:
    one = job(make, *shapes, d=f32)
    [v] = (v for v in one.graph.nodes() if v.op.kind == "contract")
    split = SplitWindows(ONE)(v.op(*map(seen_through, v.args)))
    assert split.op is IN_PARTS
    first, rest, got, want = evaluate([*split.args[1:], split, v], one.feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(first, parts_with_one(first)[0])
    assert (np.abs(rest) <= 2.0**-10 * np.abs(first)).all() and rest.any()


# -- faults -----------------------------------------------------------------------------------------------


def each(text: str, pattern: str, replacement: str) -> Iterator[str]:
    for m in re.finditer(pattern, text):
        yield text[:m.start()] + m.expand(replacement) + text[m.end():]


LOADS = r"xor\.b32 %h, %a, (16|32); ld\.shared\.f32 %s, \[%a\]"
FAULTS: dict[str, Callable[[str], Iterator[str]]] = {
    "too few waits": lambda t: each(t, r"wait_group\.sync\.aligned 3;", "wait_group.sync.aligned 9;"),
    "a part in place of another": lambda t: each(t, r", %dc, 1, 1, 1;", ", %db, 1, 1, 1;"),
    "the rest in place of a part": lambda t: each(t, r"\}, %db, 1, 1, 1;", "}, %dc, 1, 1, 1;"),
    "no fence of the parts": lambda t: each(t, r"wgmma\.fence\.sync\.aligned;", ""),
    "rows of no swizzle": lambda t: each(t, r"xor\.b32 %a, %a, %z; \} " + LOADS, r"} xor.b32 %h, %a, \1; ld.shared.f32 %s, [%a]"),
    "another chunk": lambda t: each(t, LOADS, r"xor.b32 %h, %a, 64; ld.shared.f32 %s, [%a]"),
    "no rest": lambda t: each(t, r"sub\.rn\.f32 %r, %s, %r;", "mov.f32 %r, 0f00000000;"),
}


@together()
@pytest.mark.parametrize(("make", "fault", "places"), [
    *((valid, fault, 4) for fault in FAULTS), *((of_kernel, fault, 1) for fault in ("rows of no swizzle", "another chunk"))])
def test_a_fault_is_detected(make: Make, fault: str, places: int) -> None:
    """Some places of it, each alone, where numbers have all parts."""
    shapes, patch = (((1, 8, 10, 32), (1, 3, 32, 64)), "8, 8") if make is valid else (((32, 3, 3, 32), (32, 3, 3, 64)), "1, 1, 32")
    kernel = kernel_of(job(make, *shapes, d=f32), ONE, "grid_windows tile(rows=64, columns=64) stages(2) epilogue(bands=1) "
                       f"cluster(rows=1, columns=1) taps(1) patch({patch})")
    text = rendered([kernel], "sm_90a")
    want, broken = results(kernel, text), [*itertools.islice(FAULTS[fault](text), places)]
    assert len(broken) == places
    for other in broken:
        try:
            got = results(kernel, other)
        except PtxError:
            continue
        assert not np.array_equal(got, want)


def results(kernel: Kernel, text: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    held = {m.name: rng.normal(size=m.size).astype(np.float32) for m in kernel.memories if m.space == "global"}
    run(kernel, held, parse(text))
    return next(held[m.name] for m in kernel.memories if m.access == "w" and m.space == "global")


# -- where they are chosen ----------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize(("make", "shapes", "chip", "precision", "want"), [
    (same, (IMAGES, KERNEL), "sm_90a", "high", "grid_windows"),
    (same, (IMAGES, KERNEL), "sm_90a", "float32", "grid_product"), (same, (IMAGES, KERNEL), "sm_80", "high", "grid_matrix"),
    (same, ((2, 8, 8, 12), (3, 3, 12, 64)), "sm_90a", "high", "grid_matrix"),  # channels that are no lines
    (of_kernel, ((32, 3, 4, 32), (32, 3, 4, 40)), "sm_90a", "high", "grid_windows"),
    (of_kernel, ((8, 6, 8, 32), (8, 6, 8, 40)), "sm_90a", "high", "grid_matrix")])  # too few images for a line
def test_where_they_are_chosen(make: Make, shapes: tuple, chip: str, precision: str, want: str) -> None:
    limits = target(f"cuda:{chip}").with_precision(precision).on_device({"compute_units": 1}).limits
    steps = plan_of(job(make, *shapes, d=f32).graph, limits)[0].steps
    assert [s.schedule.kind for s in steps if s.schedule and "matmul" in s.kernel.name] == [want]


@pytest.mark.parametrize(("old", "new", "why"), [
    (r"1, 1, 32", "1, 4, 8", "must be 32 positions"),
    (".*", "grid_product tile(rows=64, columns=64, depth=8) thread(rows=4, columns=4) epilogue(bands=1) teams(1)",
     "its kinds are grid_windows")])
def test_what_none_can_have(old: str, new: str, why: str) -> None:
    """Other kinds of schedules would read one part."""
    text = ("grid_windows tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) "
            "patch(1, 1, 32)")
    with pytest.raises(IllegalSchedule, match=why):
        kernel_of(job(of_kernel, (32, 3, 4, 32), (32, 3, 4, 40), d=f32), ONE, re.sub(old, new, text, count=1))
