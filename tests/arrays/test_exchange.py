"""Tensors from arrays and to them: NumPy, PyTorch, DLPack, buffers, pickles; and who shares memory."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.dtypes import ALL, bf16
from ztorch.errors import ConfigError, DataError, ShapeError, UnknownName
from ztorch.host.memory import aligned

pytestmark = pytest.mark.usefixtures("by_numpy")

NUMPYS = [d for d in ALL if d is not bf16]


def placed(a: np.ndarray) -> np.ndarray:
    """A copy at an address that compiled code reads in place."""
    block: np.ndarray = aligned(a.nbytes).view(a.dtype).reshape(a.shape)
    block[...] = a
    return block


# -- from NumPy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", NUMPYS, ids=str)
def test_round_trips_of_every_dtype(d: Any) -> None:
    a = np.array([[0, 1, 2], [3, 100, 1]]).astype(d.numpy)
    x = zt.tensor(a)
    assert (x.dtype, x.shape, x.size, x.nbytes, x.ndim, x.device) == (d, (2, 3), 6, a.nbytes, 2, "cpu")
    np.testing.assert_array_equal(x.numpy(), a, strict=True)
    np.testing.assert_array_equal(np.asarray(x), a, strict=True)
    assert x.tolist() == a.tolist()


def readonly(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


FORMS: list[tuple[str, Any]] = [
    ("as it is", lambda a: a), ("read-only", readonly), ("F order", np.asfortranarray),
    ("swapped bytes", lambda a: a.astype(a.dtype.newbyteorder())),
    ("backwards", lambda a: a[::-1, ::-1].copy()[::-1, ::-1]),
    ("every second", lambda a: np.repeat(a, 2, 1)[:, ::2]),
    ("broadcast", lambda a: np.broadcast_to(a[:1], a.shape)),
    ("unaligned", lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)),
    ("at an odd element", lambda a: placed(np.concatenate([[0], a.ravel()]).astype(a.dtype))[1:].reshape(a.shape)),
    ("placed", placed), ("transposed", lambda a: placed(a.T.copy()).T),
    ("matrix", lambda a: a.view(np.matrix)),
]


@together()
@pytest.mark.parametrize(("form", "make"), FORMS, ids=[f for f, _ in FORMS])
@pytest.mark.parametrize("take", [zt.tensor, zt.asarray, lambda a: zt.tensor(0, "int8") + a,
                                  zt.from_dlpack], ids=["tensor", "asarray", "operand", "dlpack"])
def test_arrays_of_every_form(form: str, make: Any, take: Any) -> None:
    a = make(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    if form == "swapped bytes" and take is zt.from_dlpack:
        pytest.skip("NumPy does not lend it")
    np.testing.assert_array_equal(take(a).numpy(), np.asarray(a))


def bfloat16s(a: np.ndarray) -> np.ndarray:
    return placed(a.astype(pytest.importorskip("ml_dtypes").bfloat16))


@pytest.mark.parametrize("make", [placed, bfloat16s, lambda a: placed(a.astype(bool))])
def test_data_that_changes_never_changes_a_tensor(make: Any) -> None:
    a = make(np.arange(4.0))
    before = a.copy()
    first = [zt.tensor(a), zt.tensor(a, dtype="float32"), zt.asarray(a, copy=True)]
    pending = zt.ops.where(zt.tensor([True] * 4), a, a)
    inner = zt.compiled(lambda x: zt.ops.where(x > 0.0, a, a))
    called = inner(zt.tensor([1.0] * 4))
    a[...] = 1
    for x in first:
        np.testing.assert_array_equal(np.asarray(x.numpy(), np.float32), before.astype(np.float32))
    np.testing.assert_array_equal(pending.numpy(), before)
    np.testing.assert_array_equal(called.numpy(), before)
    np.testing.assert_array_equal(inner(zt.tensor([1.0] * 4)).numpy(), before)


def test_asarray_shares_memory_if_possible() -> None:
    a = placed(np.zeros(3, np.float32))
    shared = zt.asarray(a, copy=False)
    a[1] = 5
    assert shared.tolist() == [0, 5, 0]
    assert np.shares_memory(shared.numpy(), a) and not np.shares_memory(zt.tensor(a).numpy(), a)
    assert zt.asarray(shared, copy=False) is not None
    torn = np.zeros(13, np.uint8)[1:].view(np.float32)  # its elements begin at odd bytes
    for wrong in (lambda: zt.asarray(a, "float64", copy=False), lambda: zt.asarray(torn, copy=False),
                  lambda: zt.asarray([1.0], copy=False), lambda: zt.asarray(a[::-1], copy=False)):
        with pytest.raises(ConfigError, match="cannot be shared"):
            wrong()
    np.testing.assert_array_equal(zt.asarray(a[1:], copy=False).numpy(), a[1:])
    np.testing.assert_array_equal(zt.asarray(torn).numpy(), torn)


def test_shared_memory_outlives_its_array() -> None:
    a = placed(np.arange(1000.0))
    x = zt.asarray(a)
    del a
    others = [placed(np.full(1000, 9.0)) for _ in range(20)]
    assert x[999].item() == 999.0 and len(others) == 20


# -- from lists and numbers --------------------------------------------------------------------------


@together()
@pytest.mark.parametrize(("data", "d"), [
    (1, "int64"), (1.5, "float32"), (True, "bool"), ([1, 2], "int64"), ([[1.0], [2.0]], "float32"),
    ([], "float32"), ([True, 2], "int64"), (np.float64(2), "float64"), (np.array(2.5), "float64"),
    ([np.float64(1)], "float32"), (range(3), "int64"), (1 << 63, "uint64"), (memoryview(b"ab"), "uint8"),
    (bytearray(b"ab"), "uint8"),
])
def test_numbers_and_lists(data: Any, d: str) -> None:
    x = zt.tensor(data)
    assert x.dtype.long == d
    np.testing.assert_array_equal(x.numpy(), np.asarray(data).astype(d), strict=True)


def test_lists_of_tensors() -> None:
    x = zt.tensor([1.0, 2.0])
    assert zt.tensor([x, x + 1]).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert zt.tensor(x, dtype="int32").dtype.long == "int32"


def test_large_integers_are_exact() -> None:
    top = (1 << 64) - 1
    assert zt.tensor([0, top], dtype="uint64").tolist() == [0, top]
    assert zt.full(2, (1 << 62) + 1).tolist() == [(1 << 62) + 1] * 2


@together()
@pytest.mark.parametrize(("wrong", "kind", "words"), [
    (lambda: zt.tensor("a"), DataError, "array of <U1"), (lambda: zt.tensor(None), DataError, "object"),
    (lambda: zt.Tensor(1j), DataError, "complex128"), (lambda: zt.tensor([[1], [1, 2]]), DataError, "not an array"),
    (lambda: zt.tensor(1 << 70), DataError, "object"), (lambda: zt.tensor([300], "int8"), DataError, "int8 cannot hold"),
    (lambda: zt.tensor([-1], "uint8"), DataError, "uint8 cannot hold"),
    (lambda: zt.tensor(1, "float31"), UnknownName, "did you mean 'float16' or 'float32'"),
    (lambda: zt.tensor(1, device="gpu"), UnknownName, "unknown device 'gpu'"),
    (lambda: zt.tensor(np.ma.masked_array([1.0], [True])), DataError, "masked"),
    (lambda: zt.tensor(np.array(["2020"], "M8[D]")), DataError, "datetime64"),
    (lambda: zt.full(2, "a"), DataError, "takes a number"), (lambda: zt.full(2, 300, "int8"), DataError, "300 does not fit int8"),
    (lambda: zt.zeros(-1), ShapeError, "negative"), (lambda: zt.zeros(2.0), ShapeError, "a shape is"),
    (lambda: zt.zeros("a"), ShapeError, "a shape is"), (lambda: zt.from_dlpack([1]), DataError, "from_dlpack takes"),
])
def test_wrong_data_is_named(wrong: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        wrong()


def test_filled() -> None:
    cases = [(zt.zeros((2, 3)), np.zeros((2, 3), np.float32)), (zt.ones(2, "int8"), np.ones(2, np.int8)),
             (zt.full((), True), np.array(True)), (zt.full(2, -0.0), np.full(2, -0.0, np.float32)),
             (zt.full(2, np.int8(3)), np.full(2, 3)), (zt.full((0, 2), 2.5), np.zeros((0, 2), np.float32)),
             (zt.full(2, np.inf, "float64"), np.full(2, np.inf)), (zt.full(2, 2.5, "int32"), np.full(2, 2, np.int32)),
             (zt.zeros(np.array([2, 1])), np.zeros((2, 1), np.float32)), (zt.empty(np.int64(2)), np.zeros(2, np.float32))]
    for got, want in cases:
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        np.testing.assert_array_equal(np.signbit(got.astype("float64").numpy()), np.signbit(want.astype(float)))


def test_filled_with_many_numbers_by_few_programs(builds: list[str]) -> None:
    assert [zt.full(2, k + 0.5)[0].item() for k in range(5)] == [k + 0.5 for k in range(5)]
    assert len(builds) <= 2


# -- to NumPy ----------------------------------------------------------------------------------------


def test_numpy_shares_memory_and_cannot_be_written() -> None:
    x = zt.tensor([1.0, 2.0])
    view = x.numpy()
    assert np.shares_memory(view, x.numpy()) and not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 3
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True
    mine = np.array(x)
    mine[0] = 3
    assert x.tolist() == [1.0, 2.0] and np.shares_memory(np.asarray(x), view)
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError):
        np.asarray(x, np.int8, copy=False)


def test_a_view_keeps_memory_alive() -> None:
    x = zt.tensor(np.arange(1000.0))
    view = x.numpy()[500:]
    del x
    gc.collect()
    others = [zt.tensor(np.full(1000, -1.0)) for _ in range(5)]
    assert view[0] == 500.0 and view[-1] == 999.0 and len(others) == 5


def test_python_numbers() -> None:
    assert int(zt.tensor([2.5])) == 2 and float(zt.tensor(3)) == 3.0 and bool(zt.tensor([[0.5]]))
    assert not zt.tensor(False) and [1, 2, 3][zt.tensor(1)] == 2 and type(zt.tensor(True).item()) is bool
    assert type(zt.tensor(1).item()) is int and type(zt.tensor(1.0).item()) is float
    assert len(zt.zeros((3, 2))) == 3 and f"{zt.tensor(1.25):.1f}" == "1.2" and f"{zt.tensor([1.0])}" == "[1.]"
    for wrong, kind in ((lambda: int(zt.tensor([1, 2])), ShapeError), (lambda: bool(zt.zeros(0)), ShapeError),
                        (lambda: bool(zt.ones(2)), ShapeError), (lambda: len(zt.tensor(1)), ShapeError),
                        (lambda: [1][zt.tensor(0.0)], TypeError), (lambda: zt.ones(2).item(), ShapeError),
                        (lambda: f"{zt.ones(2):.1f}", ValueError)):
        with pytest.raises(kind):
            wrong()


def test_how_tensors_are_shown() -> None:
    assert repr(zt.tensor([[1.0, 2.5]])) == "tensor([[1. , 2.5]], dtype=float32, device='cpu')"
    assert repr(zt.zeros((0, 3))) == "tensor([], shape=(0, 3), dtype=float32, device='cpu')"
    assert repr(zt.zeros(0)) == "tensor([], dtype=float32, device='cpu')"
    assert zt.tensor([[1.0, 2.5]])._repr_html_() == (
        "<div><code>tensor of float32, shape (1, 2), on cpu</code></div>"
        "<table><tr><td>1</td><td>2.5</td></tr></table>")
    assert zt.zeros((100, 3))._repr_html_().count("<tr>") == 9
    assert ">[[[0., 0.]]]</pre>" in zt.zeros((1, 1, 2))._repr_html_()
    assert str(zt.tensor([1, 2])) == "[1 2]" and repr(zt.zeros((0, 2))).startswith("tensor([], ")
    seen: list[str] = []
    zt.compiled(lambda x: (x, seen.append(repr(x) + str(x)))[0])(zt.ones(2))
    assert seen == ["<tensor float32[2] of a function that is being compiled>" * 2]


def test_copies_and_pickles() -> None:
    x = zt.tensor([[1.0, -0.0], [np.nan, 3.0]]) * 1.0  # pending
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert y is not x and y.dtype is x.dtype and y.shape == x.shape
        np.testing.assert_array_equal(y.numpy().view(np.uint32), x.numpy().view(np.uint32))
    assert pickle.loads(pickle.dumps(zt.zeros((0, 3)))).shape == (0, 3)


def test_tensors_are_objects_with_identity() -> None:
    x, y = zt.tensor([1.0, 2.0]), zt.tensor([1.0, 5.0])
    assert (x == y).tolist() == [True, False] and (x != y).tolist() == [False, True]
    assert (x == 1).tolist() == [True, False] and operator.eq(1, x).tolist() == [True, False]
    assert {x: 1}[x] == 1 and hash(x) != hash(y) and x is not y
    assert not operator.eq(x, None) and operator.ne(x, None)
    assert [None, x].index(None) == 0 and 2.0 in x and 3 not in x
    alive = weakref.ref(x.node)
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 asks objects for their buffer")
def test_a_tensor_is_a_buffer_that_can_only_be_read() -> None:
    x = zt.tensor([[1.0, 2.0], [3.0, 4.0]]) * 2
    view = memoryview(x)
    assert view.readonly and view.shape == (2, 2) and view.tolist() == [[2.0, 4.0], [6.0, 8.0]]
