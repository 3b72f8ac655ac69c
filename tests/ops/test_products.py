"""Products of vectors and tensors, and sums of products by letters: NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import topological

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(4, 5))


def same(ours: Any, want: Any) -> None:
    [got] = evaluate([ours], {})
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


@together()
@pytest.mark.parametrize(("subscripts", "shapes"), [
    ("ij,jk->ik", ((2, 3), (3, 4))), ("ij,jk", ((2, 3), (3, 4))), ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)), ("ij->ji", ((2, 3),)), ("ba", ((2, 3),)), ("i,j->ij", ((2,), (3,))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))), ("...ij,...jk->...ik", ((2, 3, 4), (4, 5))),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 5))), ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))), ("kj,bik->bij", ((3, 4), (2, 5, 3))),
    ("abc,abc->", ((2, 3, 4), (2, 3, 4))), ("ijk->j", ((2, 3, 4),)),
    ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))), ("iij,jk->ik", ((3, 3, 2), (2, 4))),
    ("i,i,i->i", ((3,), (3,), (3,))), ("...", ((2, 3),)), ("i...,i...", ((2, 3), (2, 3))),
    ("ij,k->k", ((2, 3), (4,))), ("iii->i", ((3, 3, 3),)), ("i j, j k -> i k", ((2, 3), (3, 4))),
    ("...i->...", ((2, 3),)), ("ii,...i->...", ((3, 3), (2, 3))),
    ("bqc,bck,bk->bq", ((2, 3, 4), (2, 4, 5), (2, 5))), ("i,ij,j,jk", ((2,), (2, 3), (3,), (3, 4))),
    ("ij,k,lj,ki->l", ((2, 3), (4,), (5, 3), (4, 2))), (",ij,,ji->", ((), (2, 3), (), (3, 2))),
    ("ai,bi,ci,di,ei,fi,gi,hi,ji,ki->abk", ((2, 2),) * 10)])
def test_einsum_is_numpys(subscripts: str, shapes: tuple) -> None:
    arrays = [RANDOM.normal(size=shape) for shape in shapes]
    same(ops.einsum(subscripts, *map(constant, arrays)), np.einsum(subscripts, *arrays))


@pytest.mark.parametrize("subscripts", ["kj,ik->ij", "ik,kj->ij", "bkj,bik->bij"])
def test_einsum_transposes_only_if_the_result_needs_it(subscripts: str) -> None:
    shapes = [tuple({"b": 3, "i": 4, "j": 5, "k": 6}[c] for c in part)
              for part in subscripts.partition("->")[0].split(",")]
    y = ops.einsum(subscripts, *(leaf("input", f"x{n}", s, f64) for n, s in enumerate(shapes)))
    assert "transpose" not in [v.op.name for v in topological([y])]


@pytest.mark.parametrize(("subscripts", "most"), [
    ("bhqd,bkhd,hd->bhqk", "bhqk"), ("bqc,bck,bk->bq", "bq"), ("bi,ij,bj->b", "bi"),
    ("ij,jk,kl->il", "jl")])
def test_einsum_multiplies_small_operands_first(subscripts: str, most: str) -> None:
    sizes = {"b": 3, "h": 2, "q": 7, "k": 5, "d": 4, "c": 6, "i": 8, "j": 9, "l": 2}
    x = [leaf("input", f"x{n}", tuple(sizes[c] for c in part), f64)
         for n, part in enumerate(subscripts.partition("->")[0].split(","))]
    products = [v for v in topological([ops.einsum(subscripts, *x)])
                if v.op.name in ("mul", "matmul")]
    assert max(v.size for v in products) == np.prod([sizes[c] for c in most])


def test_einsum_gradients_and_lists() -> None:
    a, b = leaf("input", "a", (3, 4), f64), leaf("input", "b", (4, 5), f64)
    arrays = RANDOM.normal(size=(3, 4)), B
    feeds = dict(zip((a, b), arrays, strict=True))
    actual = evaluate(gradients(ops.sum(ops.einsum("ij,jk->k", a, b)), [a, b]), feeds)
    np.testing.assert_allclose(actual[0], np.broadcast_to(B.sum(1), (3, 4)))
    np.testing.assert_allclose(actual[1], np.broadcast_to(arrays[0].sum(0)[:, None], (4, 5)))
    y = ops.einsum("ij,jk->ik", [a, b])
    np.testing.assert_allclose(evaluate([y], feeds)[0], arrays[0] @ B)


def test_products_are_numpys() -> None:
    a, b = constant(A), constant(B)
    same(ops.dot(a, b), np.dot(A, B))
    same(ops.dot(a, b[:, 0]), np.dot(A, B[:, 0]))
    same(ops.inner(a, b[:, 0]), np.inner(A, B[:, 0]))
    same(ops.tensordot(a, a, ((0, 1), (0, 1))), np.tensordot(A, A, ((0, 1), (0, 1))))
    same(ops.tensordot(a, b, 0), np.tensordot(A, B, 0))
    same(ops.kron(a, b), np.kron(A, B))
    same(ops.vecdot(a, a, 0), (A * A).sum(0))
    same(ops.outer(a, b), np.outer(A, B))
    same(ops.cross(a[:, :, :2], constant(np.arange(3.0).reshape(3, 1)), -2),
         np.cross(A[:, :, :2], np.arange(3.0).reshape(1, 3, 1), axis=1))


@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda a, b: ops.einsum("i..j,jk", a, b), ["cannot parse"]),
    (lambda a, b: ops.einsum("ij", a, b), ["got 2 operands", "are for 1"]),
    (lambda a, b: ops.einsum("ij,jk", a, b), ["'ij'", "(2, 3, 4)"]),
    (lambda a, b: ops.einsum("aij,ik", a, b), ["axis i has sizes 3 and 4"]),
    (lambda a, b: ops.einsum("aij,jk->z", a, b), ["no operand has z"]),
    (lambda a, b: ops.einsum("aij,jk->aa", a, b), ["twice"]),
    (lambda a, b: ops.tensordot(a, b, 3), ["axes=3"]),
    (lambda a, b: ops.tensordot(a, b, (1, 0)), ["(1,) and (0,)"]),
    (lambda a, b: ops.vecdot(a, b), ["axis -1"]), (lambda a, b: ops.cross(a, a), ["three"])])
def test_errors_name_the_mismatch(wrong: Callable[..., Any], parts: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        wrong(constant(A), constant(B))
    for part in parts:
        assert part in str(caught.value)
