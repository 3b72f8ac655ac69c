"""Ops on arrays: arguments and results, compiled once, and on any thread."""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.covering import full
from tests.cases.grouping import together
from tests.cases.jobs import composed
from tests.cases.samples import Case, cases
from ztorch.errors import ShapeError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.value import Value, layer_scope

random = np.random.default_rng(0)
X = random.normal(size=(3, 5)).astype(np.float32)

# -- every op ----------------------------------------------------------------------------------------

# Of ops made of others a third: the example of every op runs below.
FIRST = [c for c in cases("f") if c.number == 0 and c.sample.shapes]
FIRST = [c for k, c in enumerate(FIRST) if full() or not composed(c.public.name) or k % 3 == 0]


@together(of=40)
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_every_op_equals_numpy(case: Case) -> None:
    face = getattr(zt.ops, case.public.name)
    got = face(*case.public.grouped(case.arrays()), **case.sample.attrs)
    got = got[case.public.results.index(case.result)] if case.result else got
    want = case.reference(*case.arrays())
    assert isinstance(got, np.ndarray) and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


def examples() -> Iterator[doctest.DocTest]:
    find = doctest.DocTestFinder(recurse=False).find
    for public in REGISTRY.values():
        face = getattr(zt.ops, public.name)
        names = {**vars(sys.modules[face.__module__]), "np": np, "zt": zt}
        yield from find(face, public.name, globs=names)


@together(of=40)
@pytest.mark.slow
@pytest.mark.parametrize("example", list(examples()), ids=lambda e: e.name)
def test_every_example_runs(example: doctest.DocTest) -> None:
    assert doctest.DocTestRunner().run(example).failed == 0


def test_every_op_has_an_example() -> None:
    assert [p.name for p in REGISTRY.values() if ">>>" not in getattr(zt.ops, p.name).__doc__] == []


def test_the_list_of_ops_is_the_registry() -> None:
    functions = [*zt.ops._OF_TENSORS, "checkpoint", "cond", "scan", "while_loop", "ndim", "shape", "size"]
    assert dir(zt.ops) == sorted([*REGISTRY, *functions])
    with pytest.raises(AttributeError, match="no attribute 'softmx'; did you mean 'softmax'"):
        _ = zt.ops.softmx


# -- arguments ---------------------------------------------------------------------------------------


def test_arrays_combined_with_symbolic_values_are_constants() -> None:
    x = leaf("input", "x", (3, 5), "float32")
    assert isinstance(zt.ops.softmax(x), Value)
    assert isinstance(zt.ops.add(x, X), Value) and isinstance(zt.ops.add(X, x), Value)
    assert isinstance(zt.ops.concat([x, x]), Value)
    with layer_scope("mine"):
        assert isinstance(zt.ops.full((2,), 1.0), Value)
    assert isinstance(zt.ops.full((2,), 1.0), zt.Tensor)


BESIDE: list[tuple[tuple[int, ...], Any]] = [  # a value, and a call that takes arrays beside it
    ((3, 5), lambda o, x: o.matmul(X.T, x)), ((3, 5), lambda o, x: o.gemm(x, X.T, np.eye(3))),
    ((3, 5), lambda o, x: o.gemv(x, X[0])), ((1, 5, 5, 1), lambda o, x: o.conv2d(
        x, np.ones((2, 2, 1, 3)))),
    ((3, 5), lambda o, x: o.take(x, np.array([2, 0]), axis=1)),
    ((3, 5), lambda o, x: o.gather(x, [1, 1], axis=0)), ((3, 5), lambda o, x: o.take(x, 2, axis=1)),
    ((3, 5), lambda o, x: o.scatter_add(x, np.array([0, 2]), X[:2], axis=0)),
    ((3, 5), lambda o, x: o.take_along_axis(x, np.zeros((3, 1), np.int64))),
    ((3, 5), lambda o, x: o.concat(x, X)), ((3, 5), lambda o, x: o.concat([X, x], axis=0)),
    ((3, 5), lambda o, x: o.layer_norm(x, np.ones(5), np.zeros(5))),
    ((3, 5), lambda o, x: o.attention(x, x, x, mask=np.tri(3, dtype=bool))),
    ((3, 5), lambda o, x: o.where(X > 0, x, 0.0)), ((3, 5), lambda o, x: o.maximum(x, 0.25)),
    ((3,), lambda o, x: o.searchsorted(np.array([-1.0, 0.0, 1.0]), x)),
]


@pytest.mark.parametrize(("shape", "call"), BESIDE)
def test_arrays_and_values_give_the_same_results(shape: tuple[int, ...],
                                                 call: Any) -> None:
    array = np.random.default_rng(3).normal(size=shape)
    x = leaf("input", "x", shape, "float64")
    [got] = evaluate([call(zt.ops, x)], {x: array})
    np.testing.assert_allclose(got, call(zt.ops, array), rtol=1e-12)


def test_only_float_values_set_the_dtype_of_float_arrays() -> None:
    x, ids = leaf("input", "x", (3,), "float32"), leaf("input", "i", (3,), "int32")
    assert zt.ops.add(x, np.ones(3)).dtype.long == "float32"
    assert zt.ops.take(np.array([0.5, 1.5]), ids).dtype.long == "float64"
    with pytest.raises(ShapeError, match="int32 and float64 do not mix"):
        zt.ops.add(ids, np.array([0.5, 1.5, 2.5]))


class Lender:
    """An array that only speaks DLPack."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_anything_that_holds_an_array() -> None:
    torch = references.torch()
    want = zt.ops.exp(X)
    for source in (torch.tensor(X), Lender(X), X.astype(">f4"), X[::-1][::-1], X.T.copy().T):
        np.testing.assert_array_equal(zt.ops.exp(source), want)
    np.testing.assert_array_equal(zt.ops.exp([0.0, 1.0]), np.exp([0.0, 1.0]))
    assert zt.ops.exp(0.0) == 1.0 and zt.ops.exp(np.float32(0)).dtype == np.float32
    np.testing.assert_array_equal(zt.ops.flip(X[:, ::2]), X[:, ::2][::-1, ::-1])


def test_an_array_that_lends_itself_is_not_changed() -> None:
    source = X.copy()
    first = zt.ops.neg(source)
    kept = first.copy()
    zt.ops.neg(source * 2)
    np.testing.assert_array_equal(source, X)
    np.testing.assert_array_equal(first, kept)  # each result has its own memory


STRONG = [np.array([3, 5], t) for t in ("bool", "uint8", "int8", "int32", "uint32", "int64",
                                        "float16", "float32", "float64")]
WEAK = [True, 2, 2.5]


@together(of=27)
@pytest.mark.parametrize("a", STRONG, ids=lambda a: str(a.dtype))
@pytest.mark.parametrize("b", [*STRONG, *WEAK], ids=lambda b: str(getattr(b, "dtype", b)))
def test_dtypes_mix_as_in_numpy(a: np.ndarray, b: Any) -> None:
    for got, want in ((zt.ops.equal(a, b), np.equal(a, b)),
                      (zt.ops.where(a == a, a, b), np.where(a == a, a, b)),
                      (zt.ops.where(a != a, a, b), np.where(a != a, a, b))):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_numbers_only() -> None:
    assert zt.ops.add(1, 2).dtype == np.int64 and zt.ops.add(1, 2) == 3
    assert zt.ops.mul(1.5, 2).dtype == np.float64 and zt.ops.mul(1.5, 2) == 3.0
    np.testing.assert_array_equal(zt.ops.clip(np.arange(4), 0.5, 2.5), [0.5, 1.0, 2.0, 2.5])
    assert zt.ops.sqrt(np.arange(4)).dtype == np.float64  # as NumPy's


def test_numbers_that_become_tensors_do_so_each_time() -> None:
    for number in (True, False):
        assert zt.ops.cast(number, "float32") == float(number)
        np.testing.assert_array_equal(zt.ops.stack([number, True]), [number, True])
        a, b = zt.ops.broadcast_arrays(number, [1, 2])
        np.testing.assert_array_equal(a, [number, number])
        np.testing.assert_array_equal(b, [1, 2])


def test_floats_share_a_dtype_and_indices_keep_theirs() -> None:
    assert zt.ops.matmul(X, X.T.astype(np.float64)).dtype == np.float64
    assert zt.ops.take(X, np.array([0, 2]), axis=0).dtype == np.float32
    assert zt.ops.scatter_add(X, np.array([1]), np.ones((1, 5))).dtype == np.float64
    np.testing.assert_array_equal(zt.ops.take(X, 2, axis=0), X[2])
    assert zt.ops.searchsorted(np.arange(4.0), 2) == 2


def test_bfloat16() -> None:
    ml = pytest.importorskip("ml_dtypes")
    x = X.astype(ml.bfloat16)
    got = zt.ops.mul(x, 3.0)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x * ml.bfloat16(3))
    assert zt.ops.add(x, X).dtype == np.float32
    assert zt.ops.cast(X, "bfloat16").dtype == x.dtype


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(Unsupported, match="NumPy has no bfloat16; pip install ml_dtypes"):
        zt.ops.cast(X, "bfloat16")


def test_attributes_may_be_numpys() -> None:
    np.testing.assert_array_equal(zt.ops.sum(X, axis=np.int64(1)), zt.ops.sum(X, axis=1))
    assert zt.ops.reshape(X, np.array([5, 3])).shape == (5, 3)
    assert zt.ops.cast(X, np.float64).dtype == np.float64
    np.testing.assert_array_equal(zt.ops.slice_by(X, (slice(None, None, 2), 1)), X[::2, 1])


def test_several_results() -> None:
    values, places = zt.ops.top_k(X, 2)
    np.testing.assert_array_equal(values, -np.sort(-X, -1)[:, :2])
    np.testing.assert_array_equal(np.take_along_axis(X, places, -1), values)


def test_nothing_and_scalars() -> None:
    assert zt.ops.exp(np.zeros((0, 3))).shape == (0, 3)
    assert zt.ops.sum(np.zeros((0, 3))) == 0 and zt.ops.sum(X).shape == ()
    np.testing.assert_array_equal(zt.ops.zeros_like(X), np.zeros_like(X))
    for name in ("mean", "var", "std"):  # as NumPy's, which warns as well
        assert np.isnan(getattr(zt.ops, name)(np.zeros((3, 0)), axis=1)).all()
