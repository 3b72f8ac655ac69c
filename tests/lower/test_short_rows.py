"""Rows shorter than a vector are computed in blocks: the same numbers as those of NumPy, to the bit,
whatever the number of rows, columns and threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.proposals import proposed, x
from tests.parity import HERE, Job, Module, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.text import show

random = np.random.default_rng(21)
BIAS = np.abs(random.normal(size=17))

# Ops on images (images, rows, columns, colors), and their meaning.
CASES: dict[str, tuple[Callable[[Value], Value], Callable[[np.ndarray], np.ndarray]]] = {
    "mirrored": (lambda x: OPS.flip(x, 2), lambda x: x[:, :, ::-1]),
    "colors reversed": (lambda x: OPS.flip(x, 3), lambda x: x[..., ::-1]),
    "channels last": (
        lambda x: OPS.transpose(OPS.reshape(x, (x.shape[0], x.shape[3], *x.shape[1:3])), (0, 2, 3, 1)),
        lambda x: x.reshape(x.shape[0], x.shape[3], *x.shape[1:3]).transpose(0, 2, 3, 1)),
    "without the last color": (lambda x: x[..., :-1], lambda x: x[..., :-1]),
    "repeated": (lambda x: OPS.repeat(x, 2, 2), lambda x: x.repeat(2, 2)),
    "a sum per color": (
        lambda x: x + constant(np.trunc(9 * BIAS[:x.shape[3]]).astype(x.dtype.numpy)),
        lambda x: x + np.trunc(9 * BIAS[:x.shape[3]]).astype(x.dtype)),
    "in place": (lambda x: OPS.maximum(OPS.flip(x * x, 2), x), lambda x: np.maximum((x * x)[:, :, ::-1], x)),
    "compared": (lambda x: x > x[..., :1], lambda x: x > x[..., :1]),
}


def job_of(name: str, shape: tuple[int, ...], dtype: str) -> tuple[Job, np.ndarray]:
    op, meaning = CASES[name]
    x = leaf("input", "x", shape, dtype)
    data = np.trunc(10 * np.abs(random.normal(size=shape))).astype(dtype)
    return Job(Graph({"y": op(x)}), {x: data}), meaning(data)


SHAPES = [((2, 3, 37, 3), "float32"), ((90, 2, 9, 5), "float32"), ((1, 2, 7, 7), "int32"),
          ((2, 2, 33, 4), "float16"), ((1, 2, 70, 3), "uint8")]


@together()
@pytest.mark.parametrize("level", HERE[1:])
@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_blocks_of_rows(shape: tuple[int, ...], dtype: str, level: str) -> None:
    jobs, wanted = zip(*(job_of(name, shape, dtype) for name in CASES), strict=True)
    module = Module(list(jobs), level)
    for k, (name, want) in enumerate(zip(CASES, wanted, strict=True)):
        for threads in (1, 3):
            np.testing.assert_array_equal(module.run(k, threads)[0], want, name)


@together()
@pytest.mark.parametrize("level", HERE[1:])
@pytest.mark.parametrize("columns", [17, 20, 31])
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_short_rows_inside_a_border(columns: int, dtype: str, level: str) -> None:
    """They are written into the padded image, whose rows have gaps between them."""
    data = np.trunc(3 * random.uniform(size=(1, 18, columns, 1))).astype(dtype)
    x = leaf("input", "x", data.shape, dtype)
    padded = OPS.pad(x + x, (0, 1, 2, 0), (0, 1, 2, 0))
    y = OPS.sum(OPS.windows(padded, (1, 2), (3, 4)), axis=(-2, -1))
    wide = np.pad(data + data, [(0, 0), (1, 1), (2, 2), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 4), (1, 2))
    [got] = Module([Job(Graph({"y": y}), {x: data})], level).run(0)
    np.testing.assert_array_equal(got, windows.sum((-2, -1), dtype=dtype))


@pytest.mark.parametrize("name", ["mirrored", "colors reversed", "channels last", "a sum per color"])
def test_vectors_are_whole(name: str) -> None:
    """No lane is idle, and no element is gathered."""
    job, _ = job_of(name, (2, 4, 48, 3), "float32")
    plan, _ = plan_of(job.graph, TARGETS["avx2"].limits)
    text = "".join(show(step.kernel) for step in plan.steps)
    stores = [line for line in text.splitlines() if " store " in f" {line.strip()}"]
    assert len(stores) == 3 and "gather" not in text, text
    assert not any("mask" in line for line in stores), text


@together()
@pytest.mark.parametrize("level", HERE[1:])
@pytest.mark.parametrize(("block", "channels"), [(4, 48), (2, 20), (3, 9), (2, 72)])
def test_blocks_of_pixels(block: int, channels: int, level: str) -> None:
    """Images from blocks of pixels, and back, without gathers."""
    shape, depth = (2, 5, 7, channels), channels // block**2
    x, data = leaf("input", "x", shape, "float32"), random.normal(size=shape).astype(np.float32)
    y = OPS.depth_to_space(x, block)
    want = data.reshape(2, 5, 7, block, block, depth).transpose(0, 1, 3, 2, 4, 5).reshape(y.shape)
    jobs = [Job(Graph({"y": y + 1.0}), {x: data}), Job(Graph({"y": OPS.space_to_depth(y * 2.0, block)}), {x: data})]
    module = Module(jobs, level)
    for threads in (1, 3):
        np.testing.assert_array_equal(module.run(0, threads)[0], want + 1)
        np.testing.assert_array_equal(module.run(1, threads)[0], 2 * data)
    plan, _ = plan_of(jobs[0].graph, TARGETS["avx2"].limits)
    assert "gather" not in "".join(show(step.kernel) for step in plan.steps)


def test_short_rows_are_reduced_in_short_vectors() -> None:
    """Half of the lanes where they hold a row; sums and extremes are NumPy's at each level."""
    assert [proposed(OPS.sum(x(512, n), axis=1)).split()[1] for n in (3, 4, 5, 9)] == [
        "lanes(4)", "lanes(4)", "lanes(8)", "lanes(8)"]
    data = {n: random.normal(size=(90, n)).astype(np.float32) for n in (2, 3, 4, 5, 8)}
    leaves = {n: leaf("input", "x", a.shape, "float32") for n, a in data.items()}
    jobs = [Job(Graph({"y": OPS.sum(OPS.exp(v), axis=1), "z": OPS.max(v, axis=1)}), {v: data[n]})
            for n, v in leaves.items()]
    for level in HERE[1:]:
        module = Module(jobs, level)
        for k, a in enumerate(data.values()):
            sums, most = module.run(k, 1)
            np.testing.assert_allclose(sums, np.exp(a.astype(np.float64)).sum(1), rtol=1e-6)
            np.testing.assert_array_equal(most, a.max(1))


@together()
@pytest.mark.parametrize("level", HERE[1:])
@pytest.mark.parametrize("channels", [1, 3, 8, 33])
def test_rows_at_looked_up_places(channels: int, level: str) -> None:
    """One index for all channels reads them as they lie, without gathers."""
    x, at = leaf("input", "x", (2, 11, channels), "float32"), leaf("input", "at", (2, 7, 1), "int32")
    data = random.normal(size=x.shape).astype(np.float32)
    places = random.integers(-3, 14, at.shape).astype(np.int32)  # those outside are clamped
    y = OPS.take_along_axis(x, at, 1)
    want = np.take_along_axis(data, places.clip(0, 10), 1)
    module = Module([Job(Graph({"y": y + 1.0}), {x: data, at: places})], level)
    for threads in (1, 3):
        np.testing.assert_array_equal(module.run(0, threads)[0], want + 1)
    plan, _ = plan_of(Graph({"y": y}), TARGETS["avx2"].limits)
    assert channels == 1 or "gather" not in "".join(show(step.kernel) for step in plan.steps)
