"""Convolutions of 3 x 3 windows that are transformed, against the product that they take the place of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.winograd import BOUND, CASES, convolutions, right
from tests.parity import HERE, NARROW, Job, Module, interpreted, plan_of
from tests.workers_apart import of_worker
from ztorch import Sequential, ops
from ztorch import layers as L
from ztorch.codegen.targets import TARGETS
from ztorch.compile.explained import planned_kernels
from ztorch.dtypes import DType, f16, f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.interpret import interpret
from ztorch.lower.region_kernel import KernelStep
from ztorch.lower.rewrites import winograd


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it does not pay: small shapes."""
    monkeypatch.setattr(winograd, "TRANSFORM_GAIN", 1e9)
    monkeypatch.setattr(winograd, "TRANSFORM_CHANNELS", 1)


def kernels(y: Value, limits: Any) -> list[str]:
    return [s.key for s in plan_of(Graph({"y": y}), limits)[0].steps]


@pytest.mark.parametrize(("target", "share"), [
    *((t, 0.0) for t in HERE if TARGETS[t].limits.vector_bits), (HERE[-1], 1.0)])
def test_odd_sizes_on_any_number_of_threads(target: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step in a kernel of its own, or all in one."""
    monkeypatch.setattr(winograd, "TRANSFORM_KERNEL_SHARE", share)
    one = convolutions()
    module = Module([one], target)
    steps = plan_of(one.alone("j0"), TARGETS[target].limits)[0].steps
    assert sum("tiles" in s.key for s in steps) == len(CASES)
    usual = module.run(0, 1)
    right(one, usual)
    for threads in (2, 3):
        for got, wanted in zip(module.run(0, threads), usual, strict=True):
            np.testing.assert_array_equal(got, wanted)


def frozen(shape: tuple[int, ...], filters: int) -> list[KernelStep]:
    """The kernels of a convolution whose kernel never changes."""
    x, kernel = leaf("input", "x", shape, f32), leaf("state", "k", (3, 3, shape[-1], filters), f32)
    functions = {"predict": Graph({"y": ops.conv(x, kernel, padding="same")})}
    return [p.step for p in planned_kernels(functions, TARGETS["avx512"])["predict"]]


@pytest.mark.parametrize("shape", [(2, 8, 16, 16), (1, 19, 23, 16), (3, 4, 9, 17)])
def test_tiles_in_blocks(shape: tuple[int, ...]) -> None:
    """Two blocks of 8 tiles, two of 15, and three of 3, on one to three workers."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape).astype(np.float32)
    layer = L.Conv2D(19, 3, padding="same")
    model = Sequential([L.Input(shape[1:]), layer])
    [step] = frozen(shape, 19)
    assert max(m.size for m in step.kernel.memories if m.space == "global") <= winograd.POINTS * shape[-1] * 19
    results = [model.compile("cpu", batch_size=shape[0], threads=n).predict(x) for n in (1, 2, 3)]
    kernel, wide = layer.get_weights()[0], np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = sum(wide[:, i:i + shape[1], j:j + shape[2]] @ kernel[i, j] for i in range(3) for j in range(3))
    assert np.abs(results[0] - exact).max() <= BOUND * np.abs(exact).max()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_workers_share_points_where_the_kernel_is_large() -> None:
    """The second of two workers computes half of the points of all tiles."""
    tiles = frozen((1, 8, 8, 128), 64)[0].kernel
    image = np.random.default_rng(7).standard_normal(8 * 8 * 128).astype(np.float32)
    alone, second = (np.full(winograd.POINTS * 4 * 128, np.nan, np.float32) for _ in range(2))
    interpret(tiles, {"m0": image, "m1": alone})
    interpret(of_worker(tiles, 1, 2), {"m0": image, "m1": second})
    half = len(alone) // 2
    assert np.isnan(second[:half]).all()
    np.testing.assert_array_equal(second[half:], alone[half:])


def test_gradients() -> None:
    one = convolutions(training=True)
    steps = plan_of(one.alone("j0"), TARGETS[HERE[-1]].limits)[0].steps
    assert sum("kernel_slopes" in s.key for s in steps) == len(CASES)
    module = Module([one], HERE[-1])
    usual = module.run(0, 2)
    right(one, usual)
    for got, wanted in zip(module.run(0, 3), usual, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_gradients_of_many_tiles_are_sums_of_parts() -> None:
    """A sum over 4,160 tiles in one chain of additions has twice the error."""
    rng = np.random.default_rng(7)
    arrays = (1, 256, 260, 3), (1, 256, 260, 5)
    x, slopes = (leaf("input", name, shape, f32) for name, shape in zip(("x", "s"), arrays, strict=True))
    kernel = leaf("input", "k", (3, 3, 3, 5), f32)
    [slope] = gradients(ops.sum(ops.conv(x, kernel, padding="same") * slopes), [kernel])
    one = Job(Graph({"y": slope}), {v: rng.standard_normal(v.shape).astype(np.float32) for v in (x, slopes)})
    steps = plan_of(one.alone("j0"), TARGETS[HERE[-1]].limits)[0].steps
    assert sum("matmul" in s.key for s in steps) == 3
    right(one, Module([one], HERE[-1]).run(0, 1))


def test_without_multiply_add() -> None:
    """On the interpreter, which finds reads outside of a buffer."""
    for one in (convolutions(), convolutions(True, CASES[2:4])):
        right(one, interpreted(one, NARROW))


def test_blocks_with_masked_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for AVX-512, on any machine."""
    monkeypatch.setattr(winograd, "TRANSFORM_KERNEL_SHARE", 1.0)
    one = convolutions(cases=CASES[1::3])
    right(one, interpreted(one, TARGETS["avx512"].limits))


def test_what_is_not_transformed() -> None:
    def conv(shape: tuple[int, ...], window: tuple[int, ...], d: DType = f32, **how: Any) -> list[str]:
        y = ops.conv(leaf("input", "x", shape, d), leaf("state", "k", window, d), **how)
        return [k for k in kernels(y, TARGETS["avx2"].limits) if "tiles" in k]

    usual = (1, 12, 12, 8), (3, 3, 8, 8)
    assert conv(*usual) and conv(*usual, padding="same")
    assert not conv(*usual, stride=2) and not conv(*usual, dilation=2) and not conv(*usual, d=f64)
    assert not conv(*usual, d=f16) and not conv((1, 12, 12, 8), (3, 3, 4, 8), groups=2)
    assert not conv((1, 12, 12, 8), (1, 3, 8, 8)) and not conv((1, 12, 12, 8), (5, 5, 8, 8))
    assert not conv((1, 12, 8), (3, 8, 8))
    y = ops.conv(leaf("input", "x", usual[0], f32), leaf("state", "k", usual[1], f32))
    for limits in (TARGETS["avx2"].with_precision("exact").limits, TARGETS["c"].limits, TARGETS["opencl"].limits):
        assert not any("tiles" in k for k in kernels(y, limits))


def test_windows_of_few_rows_are_copied() -> None:
    """Of 7 x 7 positions, tiles of 8 lanes would have 7 rows of one vector each."""
    def copies(side: int) -> int:
        y = ops.conv(leaf("input", "x", (1, side, side, 64), f32), leaf("state", "k", (3, 3, 64, 128), f32))
        return sum("rows_copy" in k for k in kernels(y, TARGETS["avx2"].with_precision("exact").limits))

    assert copies(9) and not copies(14)


def test_only_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def taken(batch: int, side: int, channels: int, filters: int) -> bool:
        y = ops.conv(leaf("input", "x", (batch, side, side, channels), f32),
                     leaf("state", "k", (3, 3, channels, filters), f32), padding="same")
        return any("tiles" in k for k in kernels(y, TARGETS["avx512"].limits))

    assert taken(1, 56, 64, 64) and taken(8, 7, 512, 512)
    assert not taken(1, 7, 512, 512)  # the kernel at all points is larger than all that it saves
    assert not taken(1, 56, 3, 64) and not taken(1, 128, 16, 16)

    def slopes_taken(batch: int, side: int, channels: int, filters: int) -> bool:
        x, kernel = leaf("input", "x", (batch, side, side, channels), f32), leaf(
            "input", "k", (3, 3, channels, filters), f32)
        [slope] = gradients(ops.sum(ops.square(ops.conv(x, kernel, padding="same"))), [kernel])
        return any("kernel_slopes" in k for k in kernels(slope, TARGETS["avx512"].limits))

    assert slopes_taken(8, 56, 64, 64) and slopes_taken(8, 7, 512, 512)
    assert not slopes_taken(1, 7, 512, 512) and not slopes_taken(8, 56, 3, 64)
