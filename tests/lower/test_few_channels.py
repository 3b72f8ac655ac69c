"""Convolutions of images with few channels by matrix instructions: windows are read from images with wider pixels and
never stored, forward and for gradients of kernels, by the interpreter and by PTX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import Make, bound, job, with_units
from tests.machines.ptx.running import through_ptx
from tests.parity import Job, interpreted, plan_of
from ztorch import Sequential, layers, ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.graph.autodiff import pullback
from ztorch.graph.op import leaf
from ztorch.graph.value import Value
from ztorch.lower.rewrites.few_channels import Pixels, wider, windows_of_image

SM_80 = TARGETS["cuda:sm_80"].on_device({"compute_units": 4}).limits
CHIPS = {"sm_80": SM_80, "sm_90a": with_units(4)}


def forward(_: tuple, **how: Any) -> Make:
    return lambda x, w: ops.relu(ops.conv(x, w, **how))


def of_kernel(size: tuple, **how: Any) -> Make:
    """The gradient of a kernel."""
    def make(x: Value, g: Value) -> Value:
        w = leaf("input", "w", (*size, x.shape[-1], g.shape[-1]), x.dtype)
        return pullback({ops.conv(x, w, **how): g}, [w])[0]

    return make


EVEN = {"stride": 2, "padding": "same"}
# Windows that start at any place of an image, with odd sizes and borders on some sides; sequences and volumes.
CASES: list[tuple[Make, tuple, tuple, DType]] = [
    (forward, (7, 7), (((2, 15, 12, 3), (7, 7, 3, 24)), EVEN), f16),
    (forward, (7, 7), (((1, 16, 14, 3), (7, 7, 3, 64)), {"stride": 2, "padding": ((3, 2), (3, 1))}), bf16),
    (forward, (3, 3), (((1, 13, 11, 3), (3, 3, 3, 16)), {"padding": "same"}), bf16),
    (forward, (3, 3), (((1, 14, 13, 3), (3, 3, 3, 40)), {"stride": (1, 2)}), f16),
    (forward, (5, 3), (((1, 15, 16, 2), (5, 3, 2, 24)), {"dilation": (2, 1), "padding": ((1, 4), (0, 2))}), f16),
    (forward, (9,), (((2, 41, 3), (9, 3, 24)), {"padding": "same", "stride": 2}), f16),
    (forward, (3, 3, 3), (((1, 4, 5, 6, 3), (3, 3, 3, 3, 16)), {"padding": "same"}), bf16),
    (of_kernel, (7, 7), (((2, 15, 12, 3), (2, 8, 6, 24)), EVEN), f16),
    (of_kernel, (7, 7), (((1, 16, 14, 3), (1, 8, 7, 64)), EVEN), bf16),
    (of_kernel, (3, 3), (((1, 13, 11, 3), (1, 13, 11, 16)), {"padding": "same"}), bf16),
    (of_kernel, (9,), (((2, 41, 3), (2, 21, 24)), {"padding": "same", "stride": 2}), f16),
]


@together()
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("make", "size", "how", "d"), CASES)
def test_windows_are_never_stored(make: Make, size: tuple, how: tuple, d: DType, chip: str) -> None:
    shapes, settings = how
    one, limits = job(make(size, **settings), *shapes, d=d), CHIPS[chip]
    (got,), (want,) = interpreted(one, limits), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 1200)).all()
    (by_text,) = interpreted(one, limits, by=lambda kernel, held: through_ptx(kernel, held, chip))
    np.testing.assert_array_equal(by_text, got)
    parts = plan_of(one.alone("j"), limits)[0].parts
    [product] = (s for s in parts if s.schedule.kind in ("grid_matrix", "grid_async"))
    assert product.schedule.stages > 1


@together()
@pytest.mark.parametrize(("make", "shapes"), [
    (forward, ((2, 22, 20, 3), (7, 7, 3, 64))), (of_kernel, ((2, 22, 20, 3), (2, 11, 10, 64)))])
def test_float32_in_parts(make: Callable[..., Make], shapes: tuple) -> None:
    """With nearly all bits."""
    one, limits = job(make((7, 7), **EVEN), *shapes, d=f32), with_units(4, "high")
    (got,), (want,) = interpreted(one, limits), one.oracle()
    (size,) = Job(one.graph, {v: np.abs(x) for v, x in one.feeds.items()}).oracle()
    assert (np.abs(got - want) <= (3 * 2.0**-21 + 500 * 2.0**-24) * (size + 1)).all()
    (by_text,) = interpreted(one, limits, by=lambda kernel, held: through_ptx(kernel, held, "sm_90a"))
    np.testing.assert_array_equal(by_text, got)
    stored = [m.size for s in plan_of(one.alone("j"), limits)[0].parts for m in s.kernel.memories if m.space == "global"]
    assert max(stored) < 2 * 11 * 10 * 147


# -- what is written --------------------------------------------------------------------------------------


def test_a_model_writes_its_images_once() -> None:
    """For the product and for the gradient of the kernel: with four channels and its frame, in 16 bits."""
    model = Sequential([layers.Input((20, 18, 3)), layers.ZeroPadding2D(3), layers.Conv2D(16, 7, 2), layers.ReLU(),
                        layers.GlobalAveragePooling2D(), layers.Dense(4)])
    train = model.trace(4, optimizer="sgd", loss="mse", dtype="mixed_bfloat16").functions["train"]
    steps = plan_of(train, SM_80)[0].parts
    written = [m.size for s in steps for m in s.kernel.memories if m.space == "global" and m.access == "w"]
    assert written.count(4 * 25 * 24 * 4) == 1 and max(written) == 4 * 25 * 24 * 4  # 52,920 elements of windows


def rows(x: Value, size: tuple, **how: Any) -> Value:
    """The windows of an image as rows of a matrix."""
    windows = ops.windows(x, tuple(range(1, x.rank - 1)), size, **how)
    last = x.rank - 1
    return ops.reshape(ops.transpose(windows, (*range(last), *range(last + 1, windows.rank), last)),
                       (math.prod(windows.shape[:last]), math.prod(size) * x.shape[-1]))


@together()
@pytest.mark.parametrize(("size", "how", "pixels"), [
    ((7, 7), {"stride": 2}, Pixels(4, 8)), ((3, 3), {}, Pixels(4, 3)), ((3, 5), {"stride": (3, 1)}, Pixels(4, 5)),
    ((3, 3), {"dilation": (2, 1)}, Pixels(4, 3)),
    ((3, 3), {"dilation": (1, 2)}, None),  # a row of a window is not contiguous
    ((3, 3), {"stride": 3}, None), ((2, 2), {"stride": 2}, None)])  # windows that hardly overlap
def test_how_wide_pixels_are(size: tuple, how: dict, pixels: Pixels | None) -> None:
    windows = windows_of_image(rows(leaf("input", "x", (2, 30, 31, 3), f16), size, **how))
    assert windows is not None and windows.size == size
    assert wider(windows) == pixels


@together()
@pytest.mark.parametrize(("name", "matrix"), [
    ("no image", lambda x: ops.reshape(x, (30, 93))), ("another order", lambda x: rows(ops.transpose(x, (0, 2, 1, 3)), (3, 3))),
    ("channels before places", lambda x: ops.reshape(ops.windows(x, (1, 2), 3), (29 * 28, 27))),
    ("mirrored", lambda x: rows(ops.flip(x, 1), (3, 3))), ("some channels", lambda x: rows(x[..., 1:], (3, 3)))])
def test_what_is_no_window_of_a_whole_image(name: str, matrix: Callable[[Value], Value]) -> None:
    assert windows_of_image(matrix(leaf("input", "x", (1, 31, 30, 3), f16))) is None
