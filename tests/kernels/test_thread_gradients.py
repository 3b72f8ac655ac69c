"""Gradients of loops over threads against finite differences, and many examples at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from models.kernels import threads as gallery
from tests.cases.available import COMPUTING
from tests.cases.device_programs import all_agree
from tests.cases.grouping import together
from tests.parity import GROUPS, HERE, Job, Module, agree, interpreted
from ztorch.errors import KernelError, Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import vectorized
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value


@zt.kernel
def tiled_product(a, b):
    """Threads of two axes, and tiles in shared memory that are read again and again."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for (top, left), (i, j) in zt.threads((out.shape[0] // 4, out.shape[1] // 8), (4, 8)):
        ours, theirs = zt.shared((4, 8), a.dtype), zt.shared((8, 8), a.dtype)
        row, column = top * 4 + i, left * 8 + j
        total = 0.0
        for k in range(0, a.shape[1], 8):
            ours[i, j] = a[row, k + j]
            for part in (0, 4):
                theirs[i + part, j] = b[k + i + part, column]
            zt.barrier()
            for d in range(8):
                total += ours[i, d] * theirs[d, j]
            zt.barrier()
        out[row, column] = total
    return out


@zt.kernel
def row_softmax(x):
    """A row a block: the largest and the sum by subgroups of 32; one array written and read."""
    rows, columns = x.shape
    out, scales = np.empty_like(x), np.zeros(rows, x.dtype)
    for row, thread in zt.threads(rows, 32):
        top = -math.inf
        for j in range(thread, columns, 32):
            top = max(top, x[row, j])
        top = zt.subgroup_max(top)
        total = 0.0
        for j in range(thread, columns, 32):
            out[row, j] = math.exp(x[row, j] - top)
            total += out[row, j]
        total = zt.subgroup_sum(total)
        for j in range(thread, columns, 32):
            out[row, j] /= total
        if thread == 0:
            scales[row] = total
    return out, scales


@zt.kernel
def wandering(x, p):
    """Values that must be kept: variables, turns that end early, numbers of other threads, branches."""
    n = x.shape[0]
    out, sums, hits = np.zeros(n, x.dtype), np.full(4, 0.5, x.dtype), np.zeros(4, np.int32)
    for block, thread in zt.threads(n // 32, 32):
        i = block * 32 + thread
        own = zt.shared(32, x.dtype)
        y, at = x[i], p[i]
        for k in range(5):
            if y > 1.5 and k > 1:
                break
            y = y * y * 0.5 + x[(at + k) % n]
            at = (at * 3 + 1) % n
        own[(thread + 5) % 32] = y
        zt.barrier()
        near = zt.shuffle(own[thread] * y, (thread * 5 + 2) % 32)
        while at > n // 2:
            at //= 2
        out[i] = near + x[at] if near > 0 else math.sin(near)
        zt.atomic_add(sums, p[i] % 4, out[i] * y)
        zt.atomic_add(hits, p[i] % 4, 1)
    return out, sums, hits


@zt.kernel
def halves(x):
    """float16: gradients of elements are accumulated in float32."""
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, x.shape[0]):
        out[thread] = x[thread] * x[0] + x[(thread + 1) % x.shape[0]]
    return out


@zt.kernel
def settling(x):
    """A loop without a bound that keeps nothing but how many turns it took."""
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, x.shape[0]):
        y = x[thread]
        while y > 0.25:
            y = y * 0.5
        out[thread] = y
    return out


random = np.random.default_rng(0)
CASES: dict[str, tuple[Any, list[np.ndarray], dict[str, Any]]] = {
    "tiled_product": (tiled_product, [random.normal(size=(8, 16)), random.normal(size=(16, 8))], {}),
    "row_softmax": (row_softmax, [random.normal(size=(2, 40))], {}),
    "wandering": (wandering, [random.uniform(-1, 1, 64), random.integers(0, 64, 64).astype(np.int32)], {}),
    "settling": (settling, [random.uniform(-1, 2, 8)], {}),
    "row_norms": (gallery.row_norms, [random.normal(size=(2, 40))], {"size": 32}),
    "block_sums": (gallery.block_sums, [random.normal(size=70)], {"size": 32}),
}


def values(name: str, floats: str = "float64") -> tuple[list[Value], list[Value], dict[Value, np.ndarray]]:
    """A kernel's result, its arguments, and their arrays."""
    kernel, arrays, options = CASES[name]
    feeds = {leaf("input", n, a.shape, floats if a.dtype.kind == "f" else str(a.dtype)):
             a.astype(floats) if a.dtype.kind == "f" else a
             for n, a in zip(kernel.parameters, arrays, strict=False)}
    y = kernel.trace(kernel.bind([*feeds], options))
    return [*y] if isinstance(y, tuple) else [y], [*feeds], feeds


def loss(ys: list[Value]) -> Value:
    """A number that depends on each element in its own way."""
    parts = [OPS.sum(y * OPS.sin(OPS.reshape(OPS.arange(y.size, dtype=y.dtype.name), y.shape) + 0.5))
             for y in ys if y.dtype.is_float]
    return sum(parts[1:], parts[0])


@together()
@pytest.mark.parametrize("name", CASES)
def test_finite_differences(name: str) -> None:
    ys, inputs, feeds = values(name)
    total = loss(ys)
    x = inputs[0]
    [slope] = evaluate(gradients(total, [x]), feeds)
    places = [tuple(p) for p in np.random.default_rng(1).permutation(list(np.ndindex(*x.shape)))[:6]]
    for at in places:
        ends = []
        for step in (1e-6, -1e-6):
            moved = feeds[x].copy()
            moved[at] += step
            ends.append(evaluate([total], {**feeds, x: moved})[0])
        assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7), at


def job(name: str) -> Job:
    """The results of a kernel for three examples, and the gradients by all floats."""
    ys, inputs, feeds = values(name, "float32")
    floats = [x for x in inputs if x.dtype.is_float]
    roots = [*ys, *gradients(loss(ys), floats)]
    examples = {floats[0]: leaf("input", "many", (3, *floats[0].shape), "float32")}
    known = vectorized(roots, examples, 3)
    many = np.stack([feeds[floats[0]] * scale for scale in (1, 0.5, -1)]).astype(np.float32)
    feeds = {**{v: a for v, a in feeds.items() if v is not floats[0]}, examples[floats[0]]: many}
    return Job(Graph({f"y{k}": known[v] for k, v in enumerate(roots) if v in known}), feeds, name)


JOBS = [job(name) for name in CASES if name != "settling"]


@together()
@pytest.mark.parametrize("name", ["wandering", "tiled_product"])
def test_many_examples_are_each_by_itself(name: str) -> None:
    ys, inputs, feeds = values(name)
    roots = [*ys, *gradients(loss(ys), inputs[:1])]
    scales = np.array([1.0, 0.5])
    many = leaf("input", "many", (2, *inputs[0].shape), "float64")
    known = vectorized(roots, {inputs[0]: many}, 2)
    got = evaluate([known[v] for v in roots if v in known], {
        **feeds, many: np.stack([feeds[inputs[0]] * s for s in scales])})
    for k, s in enumerate(scales):
        want = evaluate([v for v in roots if v in known], {**feeds, inputs[0]: feeds[inputs[0]] * s})
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-9, atol=1e-9)


def test_on_an_interpreted_grid() -> None:
    for one in JOBS:
        agree(one, interpreted(one, GROUPS, workers=2), terms=200)


@pytest.mark.parametrize("level", [HERE[-1]])
def test_on_workers(level: str) -> None:
    module = Module(JOBS, level)
    for k, one in enumerate(JOBS):
        agree(one, module.run(k, 2), terms=200)


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPUTING)
def test_on_devices(backend: str) -> None:
    all_agree(backend, JOBS)


def test_on_tensors() -> None:
    x = np.linspace(0.5, 2, 8).astype(np.float16)
    slope = zt.grad(lambda x: zt.ops.sum(halves(x)))(zt.tensor(x)).numpy()
    want = x[0] + 1.0 + np.where(np.arange(8) == 0, x.sum(dtype=np.float64), 0)
    assert slope.dtype == np.float16
    np.testing.assert_allclose(slope, want, rtol=2e-3)
    rows = random.normal(size=(3, 70)).astype(np.float32)
    np.testing.assert_allclose(zt.vmap(gallery.block_sums)(zt.tensor(rows)).numpy(),
                               [gallery.block_sums.debug(row) for row in rows], rtol=1e-5)


# -- without a gradient ------------------------------------------------------------------------------


@zt.kernel
def unbounded(x):
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, x.shape[0]):
        y = x[thread]
        while y < 100:
            y = y * y
        out[thread] = y
    return out


@zt.kernel
def taken_in_turns(x):
    out, taken = np.zeros(x.shape[0], x.dtype), np.zeros(1, np.int32)
    for _, thread in zt.threads(1, x.shape[0]):
        place = zt.atomic_add(taken, 0, 1)
        out[place] = x[thread]
    return out


@pytest.mark.parametrize("kernel, said", [
    (unbounded, r"`while y < 100:` has no gradient: its iterations are not known while compiling"),
    (taken_in_turns, r"`place = zt.atomic_add\(taken, 0, 1\)` has no gradient: its result depends on the order"),
    (gallery.extent, r"only zt.atomic_add of floats has one; attach .* zt.custom_gradient")],
    ids=lambda p: p if isinstance(p, str) else p.source.name)
def test_missing_gradients_are_named(kernel: Any, said: str) -> None:
    x = leaf("input", "x", (32,), "float32")
    y = kernel.trace(kernel.bind([x], {}))
    with pytest.raises(Unsupported, match=said):
        gradients(OPS.sum(y[0] if isinstance(y, tuple) else y), [x])


# -- threads of several axes -------------------------------------------------------------------------


def test_threads_of_several_axes_match_plain_python() -> None:
    a, b = (x.astype(np.float32) for x in CASES["tiled_product"][1])
    np.testing.assert_allclose(tiled_product(a, b), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tiled_product.debug(a, b), a @ b, rtol=1e-4, atol=1e-5)

    @zt.kernel
    def places(x):
        out = np.zeros((2, 3, 4, 2), np.int32)
        for block, (i, j, k) in zt.threads(2, (3, 4, 2)):
            out[block, i, j, k] = block * 1000 + i * 100 + j * 10 + k
        return out

    want = np.fromfunction(lambda b, i, j, k: b * 1000 + i * 100 + j * 10 + k, (2, 3, 4, 2))
    np.testing.assert_array_equal(places(np.ones(1)), want)
    np.testing.assert_array_equal(places.debug(np.ones(1)), want)

    @zt.kernel
    def wrong(x):
        out = np.zeros(4, x.dtype)
        for _, (i, j) in zt.threads(1, 4):
            out[i] = x[j]
        return out

    with pytest.raises(KernelError, match=r"\(i, j\) stands for 1 axes; zt.threads gives a number for a size"):
        wrong(np.ones(4))
