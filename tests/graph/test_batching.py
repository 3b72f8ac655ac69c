"""Every op of the registry on a batch of examples: the same results as for each example by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.cases.covering import share
from tests.cases.grouping import together
from tests.cases.samples import Case, cases
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.errors import Unsupported
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import repeated, vectorized
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import REGISTRY, constant, leaf
from ztorch.graph.value import Graph, Op, Value

COUNT = 3
EVERY = [c for c in cases() if c.sample.shapes]
FLOATS = [c for c in EVERY if c.dtype.is_float]


def examples_of(case: Case, which: Sequence[bool]) -> list[list[np.ndarray]]:
    """For each example the arguments of a case; those that `which` names differ."""
    rng = np.random.default_rng(COUNT)
    first = case.arrays()
    rows = [first]
    for k in range(1, COUNT):
        drawn = [case._draw(rng, a.shape, a.dtype.kind) if not isinstance(s, np.ndarray) else
                 np.roll(a, k) for a, s in zip(first, case.sample.shapes, strict=True)]
        rows.append([d if own else a for a, d, own in zip(first, drawn, which, strict=True)])
    return rows


def batches(case: Case) -> list[list[bool]]:
    """Which arguments may differ between examples: all, or each by itself; of those each run takes one
    a sample, another for the next."""
    count = len(case.sample.shapes)
    alone = [[k == n for k in range(count)] for n in range(count)] if count > 1 else []
    return [[True] * count, *share(alone, case.number, max(count, 1))]


def check(roots: Sequence[Value], leaves: Sequence[Value], rows: list[list[np.ndarray]],
          which: Sequence[bool]) -> None:
    """The roots for all examples at once are those of each."""
    many = {v: leaf("input", f"{v.attrs['name']}s", (len(rows), *v.shape), v.dtype)
            for v, own in zip(leaves, which, strict=True) if own}
    known = vectorized(roots, many, len(rows))
    feeds = {many.get(v, v): np.stack(arrays) if v in many else arrays[0]
             for v, arrays in zip(leaves, zip(*rows, strict=True), strict=True)}
    got = evaluate([known[r] if r in known else repeated(r, len(rows)) for r in roots], feeds,
                   oracle=True)
    each = [evaluate(roots, dict(zip(leaves, row, strict=True)), oracle=True) for row in rows]
    for value, want in zip(got, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(value, np.stack(want), rtol=1e-10, atol=1e-11)


@together(of=200)
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_many_examples_at_once(case: Case) -> None:
    for which in batches(case):
        leaves = case.leaves(f64)
        check([case.call(*leaves)], leaves, examples_of(case, which), which)


@together(of=200)
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_gradients_of_many_examples(case: Case) -> None:
    leaves = case.leaves(f64)
    y = case.call(*leaves)
    wrt = [v for v in leaves if v.dtype is f64]
    if not (y.dtype.is_float and wrt):
        return
    slopes = gradients(y, wrt)
    for which in batches(case):
        check(slopes, leaves, examples_of(case, which), which)


@together()
@pytest.mark.parametrize("case", [c for c in FLOATS if c.number == 0], ids=str)
def test_the_gradient_of_many_examples_at_once(case: Case) -> None:
    """Differentiated after it was vectorized: the sum over examples of each one's gradient."""
    leaves = case.leaves(f64)
    y = case.call(*leaves)
    wrt = [v for v in leaves if v.dtype is f64]
    if not (y.dtype.is_float and wrt):
        return
    slopes = gradients(y, wrt)
    rows = examples_of(case, [True] * len(leaves))
    many = {v: leaf("input", "xs", (COUNT, *v.shape), v.dtype) for v in leaves}
    ys = vectorized([y], many, COUNT).get(y, repeated(y, COUNT))
    total = gradients(ys, [many[v] for v in wrt])
    got = evaluate(total, {many[v]: np.stack(arrays) for v, arrays in zip(
        leaves, zip(*rows, strict=True), strict=True)}, oracle=True)
    each = [evaluate(slopes, dict(zip(leaves, row, strict=True)), oracle=True) for row in rows]
    for value, want in zip(got, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(value, np.stack(want), rtol=1e-9, atol=1e-10)


def test_every_primitive_is_tried_or_refuses() -> None:
    primitives = {p.primitive.name for p in REGISTRY.values() if p.primitive is not None}
    seen = set()
    for case in EVERY:
        seen |= {v.op.name for v in Graph({"y": case.call(*case.leaves())}).nodes()}
    assert primitives - seen == {"bitcast", "random_bits", "rounded_to"}


def test_ops_that_samples_do_not_describe() -> None:
    x = leaf("input", "x", (5,), "float32")
    rows = [[np.float32(np.random.default_rng(k).normal(size=5))] for k in range(COUNT)]
    for y in (ops.bitcast(x, "int32"), ops.rounded_to(x, "bfloat16"), ops.stop_gradient(x) * 2):
        xs = leaf("input", "xs", (COUNT, 5), "float32")
        [got] = evaluate([vectorized([y], {x: xs}, COUNT)[y]], {xs: np.stack(rows)[:, 0]})
        want = [evaluate([y], {x: row})[0] for [row] in rows]
        np.testing.assert_array_equal(got, np.stack(want))


def test_values_that_all_examples_share_stay_as_they_are() -> None:
    x, w = leaf("input", "x", (4,), "float32"), leaf("state", "w", (4,), "float32")
    shared = ops.exp(w)
    y = x * shared
    known = vectorized([y, shared], {x: leaf("input", "xs", (COUNT, 4), "float32")}, COUNT)
    assert shared not in known and known[y].shape == (COUNT, 4)


def test_a_product_with_shared_weights_is_one_product() -> None:
    x, w = leaf("input", "x", (4,), "float32"), leaf("state", "w", (4, 2), "float32")
    y = ops.matmul(x, w)
    known = vectorized([y], {x: leaf("input", "xs", (COUNT, 4), "float32")}, COUNT)
    graph = passes.run(Graph({"y": known[y]}))
    [product] = [v for v in graph.nodes() if v.op.kind == "contract"]
    assert product.shape == (COUNT, 2)


def test_random_ops_are_refused() -> None:
    seed, step = leaf("state", "seed", (2,), "uint32"), leaf("state", "step", (), "uint32")
    x = leaf("input", "x", (4,), "float32")
    y = x * ops.random_uniform((4,), seed, step)
    with pytest.raises(Unsupported, match="random_bits"):
        vectorized([y], {x: leaf("input", "xs", (COUNT, 4), "float32")}, COUNT)


def _shifted_grad(o: Any, g: Value, y: Value, x: Value, by: int) -> tuple:
    return (SHIFTED(g, by=-by),)


SHIFTED = Op("shifted", "map", lambda x, by: (x.shape, x.dtype),
             numpy=lambda x, by: np.roll(x, by, 0), grad=_shifted_grad,
             body=lambda e, index, by: e.read(
                 0, ((index[0] - by + e.shape(0)[0]) % e.shape(0)[0], *index[1:])))


def test_an_op_without_a_rule_is_applied_to_each_example() -> None:
    x = leaf("input", "x", (4, 2), "float64")
    y = SHIFTED(x, by=1) * x
    rng = np.random.default_rng(0)
    rows = [[rng.normal(size=(4, 2))] for _ in range(COUNT)]
    check([y, *gradients(y, [x])], [x], rows, [True])
    twice = {x: leaf("input", "xs", (2, 4, 2), "float64")}
    once = vectorized([y], twice, 2)[y]
    xs = leaf("input", "xss", (3, 2, 4, 2), "float64")
    nested = vectorized([once], {twice[x]: xs}, 3)[once]
    data = rng.normal(size=xs.shape)
    np.testing.assert_array_equal(evaluate([nested], {xs: data})[0], np.roll(data, 1, 2) * data)
    total = gradients(nested, [xs])
    want = evaluate(gradients(y, [x]), {x: data[1, 1]})[0]
    np.testing.assert_allclose(evaluate(total, {xs: data})[0][1, 1], want)


def test_no_examples() -> None:
    x = leaf("input", "x", (4, 2), "float64")
    y = ops.max(SHIFTED(x, by=1), axis=0)
    known = vectorized([y], {x: constant(np.zeros((0, 4, 2)))}, 0)
    assert known[y].shape == (0, 2)
