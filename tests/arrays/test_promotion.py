"""Shapes and dtypes of operators, methods and NumPy's functions on tensors: those of NumPy 2."""

from __future__ import annotations

import enum
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import dtypes
from ztorch.errors import DataError, ShapeError, Unsupported, ZtorchError

pytestmark = pytest.mark.usefixtures("by_numpy")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64"]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
             operator.lt, operator.ge, operator.eq, operator.ne, operator.and_, operator.or_, operator.xor,
             operator.lshift, operator.rshift]
FUNCTIONS = [np.power, np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.maximum,
             np.minimum, np.greater, np.logical_and, np.bitwise_xor, np.left_shift, np.square,
             np.sign, np.isnan, np.logical_not]
REFUSED = ("bool", "bool")  # sums and products of bools, which NumPy takes for "or" and "and"
OF_FLOATS = [np.exp, np.sqrt, np.sin, np.arctan, np.log10, np.hypot, np.arctan2, np.logaddexp]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def dtype_of(function: Callable[..., Any], *args: Any) -> str:
    """The dtype of a result; "error" if there is none."""
    try:
        result = function(*args)
    except (TypeError, OverflowError, ZtorchError):
        return "error"
    return str(getattr(result.dtype, "long", result.dtype))


@together(of=8)
@pytest.mark.parametrize("function", [*OPERATORS, *FUNCTIONS], ids=lambda f: f.__name__)
def test_dtypes(function: Any) -> None:
    """Nothing is computed: dtypes are known when an op is recorded."""
    arrays = {d: np.array([1, 0]).astype(d) for d in DTYPES}
    unary = isinstance(function, np.ufunc) and function.nin == 1
    for a, x in arrays.items():
        if unary:
            assert dtype_of(function, zt.tensor(x)) in (dtype_of(function, x), "error"), a
            continue
        for b, y in [*arrays.items(), ("True", True), ("2", 2), ("2.5", 2.5), ("float64()", np.float64(2))]:
            want = dtype_of(function, x, y)
            got = {dtype_of(function, zt.tensor(x), zt.tensor(y) if hasattr(y, "shape") else y),
                   dtype_of(function, zt.tensor(x), y)}
            turned = {dtype_of(function, y, zt.tensor(x))}
            if a == "bool" and b in ("bool", "True") and got == {"error"}:
                continue  # arithmetic on bools is refused, by name
            assert got == {want}, (a, b)
            assert turned == {dtype_of(function, y, x)}, (b, a)


@pytest.mark.parametrize("function", OF_FLOATS, ids=lambda f: f.__name__)
def test_functions_of_floats(function: Any) -> None:
    """Integers of 8 bits become float16, those of 16 float32, wider ones float64."""
    for a in DTYPES:
        x = np.array([1, 1]).astype(a)
        want = function(*(x,) * function.nin)
        result = function(*(zt.tensor(x),) * function.nin)
        assert isinstance(result, zt.Tensor) and result.dtype.long == str(want.dtype), a
        np.testing.assert_allclose(result.numpy(), want, rtol=2e-3 if want.dtype == np.float16 else 1e-6)


def test_functions_of_floats_that_numpy_lacks() -> None:
    for a, want in (("int8", "float16"), ("bool", "float16"), ("uint16", "float32"), ("int32", "float64")):
        assert zt.ops.rsqrt(zt.tensor(np.array([1, 1]).astype(a))).dtype.long == want
        assert zt.ops.erf(zt.tensor(np.array([1, 1]).astype(a))).dtype.long == want


def test_comparisons_with_numbers_beyond_the_dtype() -> None:
    for d in ("uint8", "int8", "int64", "uint64"):
        limits = np.iinfo(d)
        a = np.array([limits.min, 0, limits.max], d)
        for number in (limits.max + 1, limits.min - 1, limits.max, limits.min, 1 << 80, -(1 << 80)):
            for function in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
                want = function(a, number)
                np.testing.assert_array_equal(function(zt.tensor(a), number).numpy(), want, strict=True)
                np.testing.assert_array_equal(function(number, zt.tensor(a)).numpy(), function(number, a))
    x = zt.tensor(np.array([[1, 2]], np.uint8))
    assert zt.compiled(lambda t: t < 300)(x).tolist() == [[True, True]]
    assert zt.ops.equal(x, 300).tolist() == zt.ops.equal(300, x).tolist() == [[False, False]]
    assert zt.ops.less(np.array([1], np.uint8), -1).tolist() == [False]
    assert (x.reshape(2)[:1] + 1 == 300).tolist() == [False]


def test_shifts_by_any_count() -> None:
    for d in ("int8", "uint8", "int32", "int64", "uint64"):
        a = np.array([5, 127, 1, 0, 100, 3, 77, 3], d)
        a = np.concatenate([a, ~a])
        counts = np.array([0, 1, 7, 8, 31, 32, 63, 100] * 2, d)
        for function in (np.left_shift, np.right_shift):
            np.testing.assert_array_equal(function(zt.tensor(a), zt.tensor(counts)).numpy(),
                                          function(a, counts), strict=True)
            for count in (0, 7, 8, 64, 70, 100):
                np.testing.assert_array_equal(function(zt.tensor(a), count).numpy(), function(a, count))


def test_values_of_operators() -> None:
    a, b = np.array([[7, -7, 6]], np.int32), np.array([[2], [-3]], np.int32)
    f, g = a / 2.0, b * 1.5
    for function in OPERATORS[:13]:
        for x, y in ((a, b), (f, g)) if function not in OPERATORS[10:13] else ((a, b),):
            want = function(x, y)
            for got in (function(zt.tensor(x), zt.tensor(y)), function(x, zt.tensor(y)),
                        function(zt.tensor(x), y)):
                assert isinstance(got, zt.Tensor), function
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-15, err_msg=function.__name__)
    t = zt.tensor(a)
    np.testing.assert_array_equal((t << 1 >> 2).numpy(), a << 1 >> 2)
    for function in (operator.neg, operator.pos, abs, operator.invert):
        np.testing.assert_array_equal(function(t).numpy(), function(a))
    for function in (operator.truediv, operator.floordiv, operator.mod, operator.sub, operator.pow, divmod):
        np.testing.assert_allclose(np.asarray(function(3.0, zt.tensor(f))), function(3.0, f))
    quotient, rest = divmod(t, 4)
    assert (quotient.tolist(), rest.tolist()) == ((a // 4).tolist(), (a % 4).tolist())
    np.testing.assert_allclose((zt.tensor(f) ** 2).numpy(), f ** 2)
    np.testing.assert_array_equal((t @ zt.tensor(a.T)).numpy(), a @ a.T)
    np.testing.assert_array_equal((a @ zt.tensor(a.T)).numpy(), a @ a.T)
    t += 1
    np.testing.assert_array_equal(t.numpy(), a + 1)
    whole = a.astype(np.float64)
    whole += zt.tensor(f)  # NumPy's array stays one
    np.testing.assert_array_equal(whole, a + f)


@pytest.mark.parametrize(("a", "b"), [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((0, 3), (3,)),
                                      ((2, 3), (0, 1, 1)), ((1,), (0,)), ((), ())])
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = np.ones(a), np.full(b, 2.0)
    np.testing.assert_array_equal((zt.tensor(x) - zt.tensor(y)).numpy(), x - y, strict=True)
    where = zt.ops.where(zt.tensor(x) > 0.0, zt.tensor(y), 0.0)
    np.testing.assert_array_equal(where.numpy(), np.where(x > 0, y, 0.0), strict=True)


def test_numbers_that_are_not_pythons_own() -> None:
    class Level(enum.IntEnum):
        LOW = 2

    class Meters(float):
        pass

    x = zt.tensor([1.0, 2.0])
    for number, d in ((Level.LOW, "float32"), (Meters(2), "float32"), (np.float64(2), "float64"),
                      (np.float32(2), "float32"), (np.int8(2), "float32"), (np.int64(2), "float64"),
                      (np.bool_(True), "float32"), (np.array(2.0), "float64"), ([2.0, 2.0], "float64")):
        for y in (x * number, number * x) if not isinstance(number, list) else (x * number,):
            assert isinstance(y, zt.Tensor) and y.dtype.long == d, number
            np.testing.assert_array_equal(y.numpy(), np.float32([1, 2]) * np.asarray(number), str(number))


def test_numpys_functions() -> None:
    a = np.array([[3.0, 1.0], [2.0, 4.0]])
    x = zt.tensor(a)
    for call in (np.exp, np.sum, np.mean, np.max, np.argmax, np.prod, lambda t: np.cumsum(t, 0), np.transpose, np.std,
                 lambda t: np.sum(t, axis=1, keepdims=True), lambda t: np.var(t, axis=0), np.linalg.det,
                 lambda t: np.add(t, 1), lambda t: np.where(t > 2, t, 0), np.squeeze, np.sort, np.ravel,
                 lambda t: np.clip(t, 1.5, 2.5), lambda t: np.concatenate([t, t]), np.array, np.linalg.inv,
                 lambda t: np.add.reduce(t), lambda t: np.add(a, t, out=np.zeros((2, 2))), np.any, np.all,
                 lambda t: np.multiply.outer(t, t), lambda t: np.reshape(t, (4, 1)), np.diag, np.amin):
        np.testing.assert_allclose(np.asarray(call(x)), call(a), rtol=1e-12)
    assert isinstance(np.exp(x), zt.Tensor) and isinstance(np.sum(x), zt.Tensor)
    assert np.shape(x) == (2, 2) and np.ndim(x) == 2 and np.size(x) == 4


def test_methods_and_attributes() -> None:
    a = np.arange(6.0).reshape(1, 2, 3)
    x = zt.tensor(a)
    for got, want in ((x.T, a.T), (x.mT, a.swapaxes(1, 2)), (x.reshape(3, -1), a.reshape(3, -1)),
                      (x.reshape((6,)), a.reshape(6)), (x.transpose(2, 0, 1), a.transpose(2, 0, 1)),
                      (x.transpose(), a.T), (x.sum(), a.sum()), (x.sum(axis=(0, 2)), a.sum((0, 2))),
                      (x.max(axis=-1), a.max(-1)), (x.mean(), a.mean()), (x.astype("int8"), a.astype("int8")),
                      (x.astype(np.float32), a.astype(np.float32)), (x.clip(1, 2), a.clip(1, 2))):
        np.testing.assert_allclose(got.numpy(), want)
    assert {"softmax", "reshape", "numpy", "node"} <= {*dir(x)} and not hasattr(x, "no_such_op")
    with pytest.raises(AttributeError, match="no 'sofmax'"):
        x.sofmax()


def test_sums_and_means_of_bools() -> None:
    a = np.array([[True, False], [True, True]])
    x = zt.tensor(a)
    for got, want in ((x.sum(), a.sum()), (x.sum(axis=0), a.sum(0)), (x.mean(), a.mean()), (x.std(), a.std()),
                      (x.prod(axis=1), a.prod(1)), (x.cumsum(axis=0), a.cumsum(0)), (zt.ops.sum(a), a.sum()),
                      (x.sum(dtype="int32"), a.sum(dtype=np.int32)), (x.any(), a.any()), (x.all(axis=0), a.all(0))):
        assert np.asarray(got).dtype == want.dtype
        np.testing.assert_allclose(np.asarray(got), want)


@pytest.mark.parametrize(("wrong", "kind", "words"), [
    (lambda x: x + zt.ones(3), ShapeError, "zt.ops.add"), (lambda x: x @ x, ShapeError, "zt.ops.matmul"),
    (lambda x: x & 1, ShapeError, "float32"), (lambda x: x + "a", DataError, "<U1"),
    (lambda x: x + None, DataError, "None"), (lambda x: zt.tensor([1], "uint8") + 256, DataError, "256 does not fit uint8"),
    (lambda x: zt.tensor([1]) * (1 << 63), DataError, "does not fit int64"), (lambda x: x.sum(axis=5), ShapeError, "axis 5"),
    (lambda x: x.reshape(5), ShapeError, "reshape"), (lambda x: x[0].mT, ShapeError, "mT takes"), (lambda x: zt.tensor([1]) % 1j, Unsupported, "complex"),
])
def test_errors_come_with_the_op(wrong: Any, kind: type[Exception], words: str) -> None:
    for _ in range(2):
        with pytest.raises(kind, match=words):
            wrong(zt.zeros((2, 4)))


def test_arrays_are_read_at_the_call_also_when_it_is_remembered() -> None:
    x, a = zt.tensor([1.0, 2.0]), np.array([10.0, 20.0], np.float32)
    for turn in range(3):
        a[:] = 10.0 + turn
        y = x + a
        scalar = x * np.float64(turn)
        a[:] = -1.0
        assert y.tolist() == [11.0 + turn, 12.0 + turn] and y.dtype.long == "float32"
        assert scalar.tolist() == [turn, 2.0 * turn] and scalar.dtype.long == "float64"
    for k in (1.0, 2.0, 3.0):
        b = np.full((2, 2), k)
        result = zt.ops.add(b, b)
        result[0, 0] = 9.0
        np.testing.assert_array_equal(b, np.full((2, 2), k))
        np.testing.assert_array_equal(result, [[9.0, 2 * k], [2 * k, 2 * k]])
        np.testing.assert_array_equal(zt.ops.exp(b[:, ::-1]), np.exp(b))  # not contiguous
        assert zt.ops.add(b.astype(">f8"), 1.0)[0, 0] == k + 1  # of another byte order
    assert zt.ops.sum(np.ones((2, 3)), axis=0).shape == (3,) and zt.ops.sum(np.ones((3, 2)), axis=0).shape == (2,)


def test_operands_by_name_are_operands_each_time() -> None:
    a = np.array([1.0, 4.0, 9.0])
    for x in (a, zt.tensor(a)):
        for first in (0.0, 0.0, 1.0, np.float64(2.0), np.float64(2.0), 3, None, None):
            want = np.diff(a) if first is None else np.diff(a, prepend=first)
            np.testing.assert_array_equal(np.asarray(zt.ops.diff(x, prepend=first)), want)


def test_tensors_of_equal_shape_keep_their_dtypes() -> None:
    arrays = [np.zeros(2, d) for d in ("bool", "float32", "float64", "int8")]
    for name in ("broadcast_arrays", "meshgrid"):
        results = getattr(zt.ops, name)(*map(zt.tensor, arrays))
        assert [str(y.numpy().dtype) for y in results] == [str(a.dtype) for a in arrays]


def test_sums_and_extremes_of_bools_are_their_logic() -> None:
    a, b = np.array([[True, False, True], [False, False, True]]), np.array([True, True, False])
    x, y = zt.tensor(a, device="cpu"), zt.tensor(b, device="cpu")
    for f in (lambda m, a, b: a + b, lambda m, a, b: a * b, lambda m, a, b: m.maximum(a, b),
              lambda m, a, b: m.minimum(b, a), lambda m, a, b: a + True, lambda m, a, b: a * 2,
              lambda m, a, b: a.max(axis=1), lambda m, a, b: a.min(), lambda m, a, b: a.sum()):
        np.testing.assert_array_equal(f(zt.ops, x, y).numpy(), f(np, a, b), strict=True)
    for refused in (lambda: x - y, lambda: zt.ops.matmul(x, x.T), lambda: zt.ops.inner(x, y)):
        with pytest.raises(ShapeError, match="does not take bool"):  # here, not when it is computed
            refused()


def test_dtypes_equal_their_names() -> None:
    """As in NumPy and Keras, so that `x.dtype == "float32"` is not silently false."""
    every = [*dtypes.ALL, *dtypes.COMPLEX]
    for d in every:
        assert [e for e in every if e == str(d)] == [d], d
        assert [e for e in every if e != d.name] == [e for e in every if e is not d]
        if d is not dtypes.bf16:
            assert [e for e in every if e == np.dtype(str(d)) and np.dtype(str(d)).type == e] == [d]
        assert d not in (None, 3, "float", object) and {d: 1}[d] == 1
    assert dtypes.bf16 == ml_dtypes.bfloat16 != dtypes.u16 and dtypes.bf16 != np.uint16
    seen: list[bool] = []
    zt.Sequential([zt.Input((2,)), zt.layers.Lambda(lambda x: (seen.append(x.dtype == "float32"), x)[1])]).predict(np.ones((1, 2)))
    assert seen and all(seen)
