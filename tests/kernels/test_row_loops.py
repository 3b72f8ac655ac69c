"""Rows whose inner loops have data-dependent bounds: the same results as plain Python, and gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING
from tests.cases.device_programs import all_agree
from tests.cases.gallery import leaves_of
from tests.parity import GROUPS, HERE, NARROW, C, Job, Module, agree, interpreted
from ztorch.errors import KernelError
from ztorch.graph.thread_kernel import kernel_of
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.ir.limits import Limits
from ztorch.ir.verify import verify
from ztorch.lower.cpu.vectorized_loops import vectorize_loops
from ztorch.lower.cpu.workgroup_loops import workgroups_as_loops

STARTS = np.array([0, 4, 4, 9, 11, 12], np.int32)
X = np.random.default_rng(0).normal(size=12)
PLACES = np.random.default_rng(1).integers(0, 3, 12).astype(np.int32)


@zt.kernel
def transposed(x, starts, places):
    out = np.zeros(3, x.dtype)
    for r in zt.grid(starts.shape[0] - 1):
        for k in range(starts[r], starts[r + 1]):
            out[places[k]] += x[k] * (r + 1)
    return out


@zt.kernel
def in_order(x, starts, places):
    out = np.zeros(3, x.dtype)
    for r in range(starts.shape[0] - 1):
        for k in range(starts[r], starts[r + 1]):
            out[places[k]] = out[places[k]] * 0.5 + x[k]
    return out


@zt.kernel
def counted(x, starts, places):
    counts, low = np.zeros(3, np.int32), np.full(3, 10, np.int32)
    for r in range(starts.shape[0] - 1):
        for k in range(starts[r], starts[r + 1]):
            counts[places[k]] += 1
            low[places[k]] = min(low[places[k]], r)
    return counts, low


@zt.kernel
def backwards(x, starts, places):
    out, scale = np.zeros_like(x), x.sum()
    for r, half in zt.grid(starts.shape[0] - 1, 2):
        for k in range(starts[r + 1] - 1 - half, starts[r] - 1, -2):
            out[k] = x[starts[r] + starts[r + 1] - 1 - k] * scale
    return out


@zt.kernel
def whole(x, starts, places):
    total, best, rows = 0.25, -math.inf, 0
    for r in range(starts.shape[0] - 1):
        part = 0.0
        for k in range(starts[r], starts[r + 1]):
            if part > 1.0:
                break
            part += abs(x[k])
        total = total * 0.5 + part
        best = max(best, part)
        rows += 1
    return total, best, rows


def row_sum(x, first, last):
    total = 0.0
    for k in range(first, last):
        total += x[k]
    return total


@zt.kernel
def at_the_top(x, starts, places):
    out, total = np.zeros(4, x.dtype), 1.0
    for k in range(starts[1], starts[3]):
        out[places[k]] = x[k]
        total *= x[k]
    for r in range(3, 1, -1):
        out[r] += row_sum(x, starts[r], starts[r + 1])
    return out, total


@zt.kernel
def outside(x, starts, places):
    """Reads beyond an end give the end; writes there are dropped."""
    out = np.zeros_like(x)
    for r in zt.grid(starts.shape[0] - 1):
        for k in range(starts[r] - 3, starts[r] + 12):
            if r == 3:
                out[k] = x[k + 1]
    return out


@zt.kernel
def in_lanes(x, starts, places):
    """Turns that a processor computes in lanes: sums of all kinds, single elements, neighbors."""
    rows = starts.shape[0] - 1
    out, sums, tops, bits = np.zeros_like(x), np.empty(rows), np.empty(rows), np.empty(rows, np.int32)
    for r in zt.grid(rows):
        total, top, low, bit = 0.0, -math.inf, 1.0, 5
        for k in range(starts[r], starts[r + 1]):
            total -= x[places[k]] * x[max(k - 1, 0)] + k
            top = max(top, x[k])
            low *= x[k]
            bit ^= (places[k] + k) * 3 + r
        for k in range(starts[r], starts[r + 1] - 1):
            out[k] = math.exp(x[k] - top)
            total += out[k]
        sums[r], tops[r], bits[r] = total + low, top, bit
    return out, sums, tops, bits


EVERY: list[Any] = [transposed, in_order, counted, backwards, whole, at_the_top, in_lanes]


def job(kernel: Any, floats: str = "float32") -> Job:
    arrays = [X.astype(floats), STARTS, PLACES]
    leaves = leaves_of(arrays)
    results = kernel.trace(dict(zip(("x", "starts", "places"), leaves, strict=True)))
    parts = results if isinstance(results, tuple) else (results,)
    return Job(Graph({f"y{k}": y for k, y in enumerate(parts)}),
               dict(zip(leaves, arrays, strict=True)), kernel.__name__)


@zt.kernel
def downwards(x):
    """Loops that end at a counter, down and up, and variables that keep values of the last turn."""
    out, at, counts = np.zeros(6, x.dtype), 0, np.zeros(6, np.int32)
    for i in range(6):
        for k in range(5, i, -1):
            out[i] += x[k] * (k - i)
        for k in range(i, 6):
            counts[i] += k
        at = i * 2 - 1
    return out, counts, x[at]


def test_loops_that_end_at_a_counter_and_values_of_the_last_iteration() -> None:
    for ours, plain in zip(downwards(X), downwards.debug(X), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-12)


@zt.kernel
def carried(x):
    """A number that all turns of a loop change, which goes down."""
    out, total = np.zeros(4, x.dtype), 0.0
    for i in range(4):
        for k in range(5, i, -1):
            total = total * 0.5 + x[k]
        out[i] = total
    return out


def test_numbers_are_carried_through_loops_that_count_down() -> None:
    np.testing.assert_allclose(carried(X), carried.debug(X), rtol=1e-12)


def test_plain_python_matches_the_graph() -> None:
    for kernel in EVERY:
        expected = kernel.debug(X, STARTS, PLACES)
        parts = expected if isinstance(expected, tuple) else (expected,)
        for got, want in zip(job(kernel, "float64").oracle(), parts, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=kernel.__name__)


@pytest.mark.parametrize("machine", ["workers", "groups", HERE[-1], *C, *COMPUTING])
def test_on_every_machine(machine: str) -> None:
    jobs = [job(kernel) for kernel in (*EVERY, outside)]
    if machine in COMPUTING:
        all_agree(machine, jobs)
        return
    module = None if machine in ("workers", "groups") else Module(jobs, machine)
    for k, one in enumerate(jobs):
        got = module.run(k, threads=2) if module else interpreted(
            one, NARROW if machine == "workers" else GROUPS, workers=2)
        agree(one, got, terms=20)


def test_turns_in_lanes_follow_the_rules() -> None:
    """What they read and write is inside of arrays, and was written before; nothing lives across barriers."""
    one = job(in_lanes)
    [node] = [v for v in one.graph.nodes() if v.op.kind == "threads"]
    kernel = replace(workgroups_as_loops(kernel_of(node.attrs["program"])), exact=False)
    assert not any(m.name.startswith("thread_") for m in kernel.memories)
    lanes = vectorize_loops(kernel, Limits(512, 32, True, mask_registers=True))
    loads = [i for i in lanes.body if i.opcode == "load" and i.dest.lanes > 1]
    assert {i.dest.lanes for i in loads} == {4, 16}  # a gather takes single elements
    assert {(i.dest.lanes, len(i.args)) for i in loads} == {(4, 1), (4, 2), (16, 2)}, "rests are masked"
    verify(lanes)
    results = []
    for k in (kernel, lanes):
        buffers = {m.name: one.feeds[a].copy() if a in one.feeds else np.zeros(m.size, m.dtype.numpy)
                   for m, a in zip(k.memories, node.args, strict=False)}
        interpret(k, buffers, races=False)
        results.append(buffers)
    for name in results[0]:
        np.testing.assert_allclose(results[1][name], results[0][name], rtol=1e-5)
    exact = vectorize_loops(replace(kernel, exact=True), Limits(512, 32, True))
    assert exact.variables == kernel.variables  # sums keep their order there


def test_outside_of_arrays() -> None:
    [got] = job(outside, "float64").oracle()
    want = np.zeros(12)
    want[6:] = X[[*range(7, 12), 11]]
    np.testing.assert_array_equal(got, want)


def test_explain_says_how_rows_run() -> None:
    explanations = {k.__name__: k.explain(X, STARTS, PLACES) for k in EVERY}
    assert "5 iterations at once, each as long as its data says" in explanations["transposed"]
    assert "5 iterations at once" in explanations["counted"]  # sums of integers are the same in any order
    assert "iterations in order: out is read here and written in another iteration" in explanations["in_order"]
    assert "iterations in order: total is from outside of it" in explanations["whole"]
    assert "iterations in order: their number depends on data" in explanations["at_the_top"]
    assert "10 iterations at once" in explanations["backwards"]


def test_gradients() -> None:
    """Beside finite differences: sums scattered by rows, and rows in order with a bound."""
    x, starts, places = (zt.tensor(a) for a in (X, STARTS, PLACES))
    way, step = np.random.default_rng(2).normal(size=12), 1e-6
    bounded = zt.kernel(max_steps=8)(whole.function)
    for kernel, first in ((transposed, lambda y: y), (backwards, lambda y: y),
                          (bounded, lambda y: y[0])):
        slope = zt.grad(lambda x, k=kernel, f=first: zt.ops.sum(f(k(x, starts, places)) ** 2))(x)
        ends = [np.sum(np.square(first(kernel.debug(X + h * way, STARTS, PLACES))))
                for h in (step, -step)]
        np.testing.assert_allclose(slope.numpy() @ way, (ends[0] - ends[1]) / (2 * step), rtol=1e-7)
    with pytest.raises(zt.errors.Unsupported, match=r"max_steps=100"):
        zt.grad(lambda x: whole(x, starts, places)[0])(x)


def test_threads_read_numbers_from_outside() -> None:
    @zt.kernel
    def scaled(x, eps):
        out, total = np.empty_like(x), x.sum()
        for block, thread in zt.threads(3, 4):
            out[block * 4 + thread] = x[block * 4 + thread] * eps / total
        return out

    np.testing.assert_allclose(scaled(X, 0.5), X * 0.5 / X.sum())
    slope = zt.grad(lambda eps: zt.ops.sum(scaled(zt.tensor(X), eps) ** 2))(zt.tensor(0.5))
    np.testing.assert_allclose(slope.numpy(), (X / X.sum()) @ (X / X.sum()), rtol=1e-5)


def test_what_rows_cannot() -> None:
    @zt.kernel
    def products(x, starts):
        out = np.ones(3, x.dtype)
        for r in zt.grid(starts.shape[0] - 1):
            for k in range(starts[r], starts[r + 1]):
                out[k % 3] *= x[k]
        return out

    with pytest.raises(KernelError, match="cannot be combined by mul from many at once; use range"):
        products(X, STARTS)

    @zt.kernel
    def slices(x, starts):
        out = np.zeros(starts.shape[0] - 1, x.dtype)
        for r in range(starts.shape[0] - 1):
            for k in range(starts[r], starts[r + 1]):
                out[r] += x[:k].sum()
        return out

    with pytest.raises(KernelError, match="a row whose loops depend on data takes one element, no slice"):
        slices(X, STARTS)
