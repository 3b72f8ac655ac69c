"""Loop nests of elementwise regions: which axes become one loop, and that it makes no difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import HERE, NARROW, Job, agree, compiled, interpreted
from ztorch import ops
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.cpu.elements import merged_axes, propose
from ztorch.lower.fuse import fuse
from ztorch.lower.region import COPY

Function = Any


def x(*shape: int) -> Value:
    return leaf("input", "x", shape, "float32")


def rows(v: Value, size: int, stride: int = 1) -> Value:
    """Windows over the middle axes, channels last."""
    seen = ops.windows(v, (1, 2), size, stride)
    return COPY(ops.transpose(seen, (0, 1, 2, 4, 5, 3)))


def panels(depth: int, columns: int) -> Value:
    """A matrix with each 16 columns in one piece."""
    return COPY(ops.transpose(ops.reshape(x(depth, columns), (depth, columns // 16, 16)),
                              (1, 0, 2)))


# the computation, and the loops over it
CASES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "elementwise": (lambda: ops.exp(x(3, 4, 5)), (60,)),
    "a row for each": (lambda: x(3, 4, 5) + ops.reshape(x(3, 4, 5), (60,))[:5], (12, 5)),
    "windows, some channels": (lambda: rows(x(2, 6, 7, 3), 3), (2, 4, 5, 3, 9)),
    "windows, one channel": (lambda: rows(x(2, 6, 7, 1), 3), (2, 4, 5, 3, 3)),
    "windows side by side": (lambda: rows(x(2, 6, 9, 2), 3, 3), (4, 3, 3, 6)),
    "whole rows": (lambda: COPY(ops.slice(x(4, 6, 7), (0, 2, 0), (1, 1, 1), (4, 3, 7))), (4, 21)),
    # Where a column is in the frame, asked of several channels at once, would be a division.
    "a frame": (lambda: ops.pad(x(2, 5, 6, 3), (0, 1, 1, 0), (0, 1, 1, 0)), (2, 7, 8, 3)),
    "a frame, one channel": (lambda: ops.pad(x(2, 5, 6, 1), (0, 1, 1, 0), (0, 1, 1, 0)), (2, 7, 8)),
    "beside": (lambda: ops.concat(x(3, 4, 5), x(3, 2, 5), axis=1), (3, 6, 5)),
    "numbered": (lambda: COPY(OPS.iota((3, 4, 5), 1, "float32")), (3, 4, 5)),
    "panels, pages apart": (lambda: panels(64, 256), (16, 64, 16)),
    "panels, pages apart, of an odd number": (lambda: panels(64, 272), (17, 64, 16)),
    "long elements and a rest": (lambda: ops.erf(ops.sin(x(3, 130))), (390,)),
    "rows of long elements": (lambda: ops.erf(x(5, 64)) * ops.reshape(x(5, 64), (320,))[:64], (5, 64)),
    "every second element": (lambda: ops.exp(ops.slice(x(5, 141), (0, 1), (1, 2), (5, 70))), (5, 70)),
    "the last is the end": (lambda: COPY(ops.slice(x(129), (0,), (2,), (65,))), (65,)),
    "channels last": (lambda: COPY(ops.transpose(x(2, 19, 5, 7), (0, 2, 3, 1))), (2, 35, 19)),
    "channels first": (lambda: ops.relu(ops.transpose(x(2, 5, 7, 19), (0, 3, 1, 2))), (2, 19, 35)),
    "channels last in a frame": (lambda: ops.pad(
        ops.transpose(x(2, 20, 5, 19), (0, 2, 3, 1)), (0, 1, 2, 0), (0, 1, 1, 0)), (2, 7, 22, 20)),
    "channels first in a frame": (lambda: ops.pad(
        ops.transpose(x(2, 5, 19, 20), (0, 3, 1, 2)), (0, 0, 1, 2), (0, 0, 1, 1)), (2, 20, 7, 22)),
    "one element": (lambda: ops.exp(x(1, 1)), (1,)),
}


@pytest.mark.parametrize("name", CASES)
def test_neighboring_axes_are_one_loop(name: str) -> None:
    make, axes = CASES[name]
    [region] = fuse(Graph({"y": make()}))
    assert merged_axes(region) == axes


@pytest.mark.parametrize(("depth", "columns", "order"), [
    (64, 256, (0, 2, 1)), (64, 272, (0, 1)), (60, 256, (1, 0)), (64, 240, (0, 1))])
def test_contiguous_runs_are_copied_in_reading_order(
        depth: int, columns: int, order: tuple[int, ...]) -> None:
    [region] = fuse(Graph({"y": panels(depth, columns)}))
    assert propose(region, NARROW).order == order


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    graph = Graph({"y": CASES[name][0]()})
    random = np.random.default_rng(2)
    job = Job(graph, {v: random.normal(size=v.shape).astype(np.float32)
                      for v in graph.leaves("input")})
    agree(job, interpreted(job, NARROW, workers=3))
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine))


def test_any_number_of_workers_shares_out_windows() -> None:
    """Some axes are shared, the inner ones are loops of their own."""
    graph = Graph({"y": rows(x(7, 20, 21, 2), 5)})
    array = np.random.default_rng(2).normal(size=(7, 20, 21, 2)).astype(np.float32)
    job = Job(graph, dict.fromkeys(graph.leaves("input"), array))
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(compiled(job, HERE[-1], threads=threads)[0],
                                      job.oracle()[0].astype(np.float32))
