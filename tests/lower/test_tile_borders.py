"""Tiles of convolutions leave out steps along k in the border of the image."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.cases.proposals import AVX2
from tests.parity import HERE, WIDE, Job, Module, interpreted, plan_of
from ztorch.dtypes import f32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.cpu import tile_borders
from ztorch.lower.cpu.left_operand import access_pattern, plain
from ztorch.lower.cpu.tiling import choose
from ztorch.lower.plan import KernelStep
from ztorch.lower.region import without_copies
from ztorch.lower.schedule import ProductSchedule
from ztorch.machines.processors import processor

# The shape of the image, that of the kernel, the stride, and the borders of each axis.
CASES = {
    "volumes": ((2, 5, 6, 8, 6), (3, 3, 3, 6, 16), 1, ((1, 1), (1, 1), (1, 1))),
    "large windows": ((1, 7, 13, 8), (5, 5, 8, 16), 1, ((4, 1), (3, 2))),
    "a stride": ((2, 11, 9, 16), (3, 3, 16, 20), 2, ((1, 1), (1, 0))),
    "one border": ((1, 6, 16, 16), (4, 3, 16, 16), 1, ((3, 0), (1, 1))),
}


def _job(name: str, border: float = 0.0) -> Job:
    """A convolution of an image that is computed, so that its border is stored around it."""
    shape, window, stride, borders = CASES[name]
    random = np.random.default_rng(1)
    x, w = leaf("input", "x", shape, "float32"), leaf("state", "w", window, "float32")
    low, high = ((0, *(pair[k] for pair in borders), 0) for k in (0, 1))
    y = OPS.conv(OPS.pad(x * 2.0, low, high, border), w, stride, "valid", 1)
    return Job(Graph({"y": y}), {v: random.standard_normal(v.shape).astype(np.float32) for v in (x, w)}, name)


def _wanted(name: str, job: Job, border: float = 0.0) -> np.ndarray:
    (x, w), (_, _, stride, borders) = (a.astype(np.float64) for a in job.feeds.values()), CASES[name]
    wide = np.pad(2 * x, ((0, 0), *borders, (0, 0)), constant_values=border)
    *span, _, filters = w.shape
    sizes = [(n - k) // stride + 1 for n, k in zip(wide.shape[1:-1], span, strict=True)]
    y = np.zeros((len(x), *sizes, filters))
    for tap in product(*map(range, span)):
        rows = [slice(t, t + (n - 1) * stride + 1, stride) for t, n in zip(tap, sizes, strict=True)]
        y += wide[(slice(None), *rows)] @ w[tap]
    return y


def _product(job: Job, limits: Limits) -> KernelStep:
    return next(s for s in plan_of(job.alone("j"), limits)[0].steps if isinstance(s.schedule, ProductSchedule))


def _skips(step: KernelStep) -> bool:
    """Whether a loop of its kernel begins at a position of the tile, or at zero."""
    made = {i.dest.id: i.opcode for i in step.kernel.body}
    return any(i.opcode == "loop" and made.get(i.args[0].id) == "max" for i in step.kernel.body)


@pytest.mark.parametrize("name", CASES)
def test_sums_of_windows(name: str) -> None:
    job = _job(name)
    assert any(_skips(_product(job, limits)) for limits in (AVX2, WIDE))
    for limits in (AVX2, WIDE):
        np.testing.assert_allclose(interpreted(job, limits, workers=2)[0], _wanted(name, job), atol=2e-4)
    for level in HERE:
        np.testing.assert_allclose(Module([job], level).run(0, 2)[0], _wanted(name, job), atol=2e-4)


@pytest.mark.parametrize(("rows", "changes"), [
    (1, {}), (3, {}), (8, {}), (4, {"block_rows": 3}), (4, {"block_rows": 5, "block_depth": 7}),
    (4, {"block_rows": 4, "block_depth": 30}), (4, {"block_rows": 4, "block_pack": 1})], ids=str)
def test_any_schedule(rows: int, changes: dict[str, int]) -> None:
    """Tiles of one row of the image or of several; the first tile of a block copies all of k."""
    job = _job("volumes")
    step = _product(job, AVX2)
    assert isinstance(step.schedule, ProductSchedule)
    chosen = replace(step.schedule, tile_rows=rows, tile_vectors=1, **changes)
    got = interpreted(job, AVX2, schedules={step.key: repr(chosen)}, workers=3)
    np.testing.assert_allclose(got[0], _wanted("volumes", job), atol=2e-4)


def test_other_borders_count() -> None:
    job = _job("volumes", border=1.5)
    assert not _skips(_product(job, WIDE))
    np.testing.assert_allclose(interpreted(job, WIDE)[0], _wanted("volumes", job, 1.5), atol=2e-4)


@pytest.mark.parametrize(("name", "axes"), [("volumes", (0, 1)), ("large windows", (0,)), ("a stride", (0,))])
def test_share_of_steps_inside_the_image(name: str, axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_borders, "BORDER_DEPTH", 1)
    shape, window, stride, borders = CASES[name]
    x, w = leaf("input", "x", shape, "float32"), leaf("state", "w", window, "float32")
    [left] = [v.args[0] for v in Graph({"y": OPS.conv(x, w, stride, borders)}).nodes() if v.op.kind == "contract"]
    left, share = without_copies(left), 1.0
    for axis in axes:
        (low, high), n, k = borders[axis], shape[1 + axis], window[axis]
        inside = np.pad(np.ones(n), (low, high))
        share *= np.mean([inside[i:i + k].mean() for i in range(0, n + low + high - k + 1, stride)])
    access = access_pattern(left)
    assert access is not None and 0.5 < share < 1
    assert tile_borders.share_inside(left, access) == pytest.approx(share)


def test_a_part_of_a_panel_takes_whole_lines() -> None:
    """Rows of 8 windows: two tiles of 4 rows and both vectors of a panel, not one of half a panel."""
    access, limits = replace(plain(1024, 3456), period=8), replace(AVX2, processor=processor("zen3"))
    tiles = [choose(1024, 128, 3456, limits, f32, packed=True, access=access, panel=width) for width in (1, 2)]
    assert [(-(-8 // -(-8 // s.tile_rows)), s.tile_vectors) for s in tiles] == [(8, 1), (4, 2)]
