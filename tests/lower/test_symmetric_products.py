"""Symmetric products in blocks: the same bits as whole ones, with fewer multiplications."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, WIDE, Job, Module, plan_of
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites import symmetric_products

ROWS, DEPTH = 45, 19  # odd, and in blocks of 22 and 23
FORMS = {
    "rows": lambda x, y: OPS.matmul(x, OPS.transpose(x)),
    "columns": lambda x, y: OPS.matmul(OPS.transpose(y), y),
    "a symmetric matrix": lambda x, y: _square(OPS.matmul(x, OPS.transpose(x)) * 0.5),
    "a polynomial": lambda x, y: _polynomial(OPS.matmul(x, OPS.transpose(x))),
}
OTHERS = {  # and the multiplications of the largest product
    "any matrix": (lambda x, y: _square(OPS.matmul(x, y)), ROWS**3),
    "two matrices": (lambda x, y: OPS.matmul(x, OPS.transpose(x + 1.0)), ROWS**2 * DEPTH),
    "scaled rows": (lambda x, y: _square(OPS.matmul(x, OPS.transpose(x)) * x[:, :1]), ROWS**3),
}


def _square(x: Value) -> Value:
    return OPS.matmul(x, x)


def _polynomial(x: Value) -> Value:
    return _square(x * -4.775 + _square(x) * 2.0315 - 1.0)


def _job(form: str) -> Job:
    random = np.random.default_rng(1)
    x, y = leaf("input", "x", (ROWS, DEPTH), "float32"), leaf("input", "y", (DEPTH, ROWS), "float32")
    out = (FORMS[form] if form in FORMS else OTHERS[form][0])(x, y)
    feeds = {v: random.normal(size=v.shape).astype(np.float32) / 8 for v in (x, y)}
    graph = Graph({"y": out})
    return Job(graph, {v: feeds[v] for v in graph.leaves("input")}, form)


def _multiplications(job: Job) -> list[int]:
    """Those of each product of the rewritten graph."""
    graph = symmetric_products.with_symmetric_products(job.graph)
    return [v.size * v.args[0].shape[-1] for v in graph.nodes() if v.op.kind == "contract"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric_products, "SYMMETRIC_ROWS", 12)
    monkeypatch.setattr(symmetric_products, "SYMMETRIC_DEPTH", 8)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_have_the_same_bits(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(form)
    whole = [Module([job], level).run(0)[0] for level in HERE]
    before = sum(_multiplications(job))
    monkeypatch.setattr(symmetric_products, "SYMMETRIC_ROWS", 12)
    monkeypatch.setattr(symmetric_products, "SYMMETRIC_DEPTH", 8)
    assert sum(_multiplications(job)) < 0.7 * before
    x = next(iter(job.feeds.values())).astype(np.float64)
    square = x @ x.T if form != "columns" else x.T @ x
    if form == "a symmetric matrix":
        square = (square * 0.5) @ (square * 0.5)
    elif form == "a polynomial":
        inner = square * -4.775 + square @ square * 2.0315 - 1.0
        square = inner @ inner
    for level, expected in zip(HERE, whole, strict=True):
        for threads in (1, 2):
            [got] = Module([job], level).run(0, threads)
            np.testing.assert_allclose(got, square, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(got, got.T)
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", OTHERS)
def test_other_products_stay_whole(form: str, small_blocks: None) -> None:
    assert max(_multiplications(_job(form))) == OTHERS[form][1]


def test_small_ones_stay_whole() -> None:
    job = _job("rows")
    assert _multiplications(job) == [ROWS * ROWS * DEPTH]
    assert sum("matmul" in s.kernel.name for s in plan_of(job.alone("j"), WIDE)[0].steps) == 1
