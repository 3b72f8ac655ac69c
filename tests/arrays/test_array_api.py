"""`zt.array_api` beside `array_api_strict`: names, arguments, defaults and values."""

from __future__ import annotations

import inspect
import math
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.covering import full
from ztorch.errors import ConfigError, ShapeError, ZtorchError

strict = pytest.importorskip("array_api_strict")
with warnings.catch_warnings():  # the next version, which has isin, is a draft
    warnings.simplefilter("ignore")
    strict.set_array_api_strict_flags(api_version="2025.12")
xp = zt.array_api

COMPLEX = "there are no complex numbers; zt.ops.fft takes pairs (real, imag)"
EXCLUDED = {  # what the standard has and we have not
    "complex64": COMPLEX, "complex128": COMPLEX, "fft": COMPLEX}

FOREIGN = ("strict", "ArrayAPI", "ModuleType", "Device")  # of the library, not of the standard


def _standard(module: Any, listed: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in listed
            if not name.startswith("_") and not any(part in name for part in FOREIGN)}


MAIN = _standard(strict, strict.__all__)
LINALG = _standard(strict.linalg, strict.linalg.__all__)
STANDARD = {**MAIN, **{f"linalg.{name}": member for name, member in LINALG.items()}}
FUNCTIONS = sorted(n for n, m in STANDARD.items() if inspect.isfunction(m) and n not in EXCLUDED)


def ours(name: str) -> Any:
    return getattr(xp.linalg, name[7:]) if name.startswith("linalg.") else getattr(xp, name)


DTYPE_ALONE = ("float32", "int8")  # where a test has dtypes alone, these are compiled


@pytest.fixture(autouse=True)
def compiles_some(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled are each function in one of its dtypes, each dtype of some functions, and what has no
    dtype. NumPy evaluates the graphs of the others: their kernels run in lower/test_every_op.py and
    ops/test_every_dtype.py. A full run compiles all."""
    given = getattr(getattr(request.node, "callspec", None), "params", {})
    case = given.get("name"), given.get("dtype")
    linear = request.node.name.startswith("test_linear_algebra") and case[0] not in ("matmul", "vecdot")
    if full() or case in ROTATED or (not linear and case[1] in (None, *(DTYPE_ALONE if not case[0] else ()))):
        yield
    else:
        with by_numpy():
            yield


# -- names and arguments -----------------------------------------------------------------------------


def test_the_standard_is_all_there_but_for_what_is_excluded() -> None:
    assert len(STANDARD) > 170
    assert {name for name in STANDARD if not _has(name)} == set(EXCLUDED)


def _has(name: str) -> bool:
    module = xp.linalg if name.startswith("linalg.") else xp
    return hasattr(module, name.rpartition(".")[2])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_and_defaults_are_the_standards(name: str) -> None:
    def shown(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        parameters = inspect.signature(function).parameters.values()
        return sorted((p.kind, k if p.kind is not p.KEYWORD_ONLY else 0, p.name, None if "UNDEF" in (
            repr(p.default)) else p.default) for k, p in enumerate(parameters))

    assert repr(shown(ours(name))) == repr(shown(STANDARD[name]))


def test_every_public_name_is_the_standards() -> None:
    assert set(xp.__all__) - {"linalg"} <= set(MAIN) | {"__array_namespace_info__"}


def test_constants() -> None:
    for name in ("e", "pi", "inf", "nan", "newaxis"):
        assert repr(getattr(xp, name)) == repr(getattr(strict, name))


# -- values ------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 1e30, 1e-30, 3.0]
FLOATS, SIGNED, UNSIGNED, BOOLS = ("float32", "float64"), ("int8", "int64"), ("uint8",), ("bool",)
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
EVERY = (*NUMBERS, *BOOLS)


def draw(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of a dtype; of floats a quarter are special values."""
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in INTEGERS:
        low = 0 if dtype in UNSIGNED else -5
        return random.integers(low, 6, shape).astype(dtype)
    x = random.uniform(-3, 3, shape)
    chosen = random.random(shape) < 0.25
    return np.where(chosen, random.choice(SPECIAL, shape), x).astype(dtype)


def plain(x: Any) -> Any:
    """A result of either library in NumPy's arrays."""
    if isinstance(x, (list, tuple)):
        return [plain(part) for part in x]
    return x.numpy() if isinstance(x, zt.Tensor) else np.from_dlpack(x)


INDEXING = ("argmax", "argmin", "argsort", "count_nonzero", "searchsorted", "linalg.matrix_rank",
            "nonzero", "unique_all", "unique_counts", "unique_inverse")


def compare(name: str, arrays: list[Any], **attrs: Any) -> None:
    """Both libraries on the same arrays; other arguments by position go as they are."""
    def called(module: Any, to: Callable[[Any], Any]) -> Any:
        function = getattr(module.linalg, name[7:]) if name.startswith("linalg.") else (
            getattr(module, name))
        args = [to(a) if isinstance(a, np.ndarray) else [to(b) for b in a]
                if isinstance(a, list) and isinstance(a[0], np.ndarray) else a for a in arrays]
        named = {k: to(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
        with np.errstate(all="ignore"):
            return plain(function(*args, **named))

    got, want = called(xp, xp.asarray), called(strict, strict.asarray)
    parts = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
    for mine, theirs in parts:
        case = f"{name}({arrays}, {attrs})"
        assert mine.shape == theirs.shape, case
        if name not in INDEXING:
            assert mine.dtype == theirs.dtype, case
        error = 1e-5 if mine.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(mine, theirs, rtol=error, atol=error if mine.dtype.kind == "f"
                                   else 0, err_msg=case)
        if mine.dtype.kind == "f" and name in SIGNED_ZEROS:
            same = np.signbit(mine) == np.signbit(theirs)
            assert (same | np.isnan(theirs)).all(), case


SIGNED_ZEROS = ("abs", "asin", "asinh", "atan", "atanh", "ceil", "copysign", "expm1", "floor", "log1p",
                "negative", "positive", "round", "sin", "sinh", "sqrt", "square", "tan", "tanh",
                "trunc")
# Of numbers so large that their digits say nothing of the angle, or of the rest of a division.
NEED_MODERATE = ("cos", "sin", "tan", "remainder", "floor_divide", "std", "var")


def moderate(name: str, x: np.ndarray) -> np.ndarray:
    if name not in NEED_MODERATE:
        return x
    size = abs(x)
    return np.where(size == size.dtype.type(1e30), 7, np.where(
        size == size.dtype.type(1e-30), 0.25, x)).astype(x.dtype)


UNARY = {
    **dict.fromkeys(("abs", "negative", "positive", "sign", "square", "ceil", "floor", "round",
                     "trunc", "isfinite", "isinf", "isnan"), NUMBERS),
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp",
                     "expm1", "log", "log10", "log1p", "log2", "reciprocal", "signbit", "sin",
                     "sinh", "sqrt", "tan", "tanh"), FLOATS),
    "bitwise_invert": (*INTEGERS, *BOOLS), "logical_not": BOOLS}
BINARY = {
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal",
                     "greater", "greater_equal"), NUMBERS),
    **dict.fromkeys(("equal", "not_equal"), EVERY),
    **dict.fromkeys(("atan2", "copysign", "divide", "hypot", "logaddexp", "nextafter", "pow",
                     "remainder", "floor_divide"), FLOATS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (*INTEGERS, *BOOLS)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), BOOLS)}
REDUCED: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS, "prod": NUMBERS, "max": NUMBERS, "min": NUMBERS, "mean": FLOATS,
    "all": EVERY, "any": EVERY, "count_nonzero": EVERY, "argmax": NUMBERS, "argmin": NUMBERS,
    "std": FLOATS, "var": FLOATS}


# Each function in one dtype: the next function in the next.
ROTATED = {(name, dtypes[k % len(dtypes)]) for table in (UNARY, BINARY, REDUCED)
           for k, (name, dtypes) in enumerate(table.items())}


def cases(table: dict[str, tuple[str, ...]]) -> Iterator[Any]:
    for name, dtypes in table.items():
        for d in dtypes:
            yield pytest.param(name, d, id=f"{name}-{d}")


def generator(*label: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32("-".join(label).encode()))


@pytest.mark.parametrize(("name", "dtype"), list(cases(UNARY)))
def test_functions_of_one(name: str, dtype: str) -> None:
    x = draw(generator(name, dtype), (4, 24), dtype)
    if dtype in FLOATS:
        x[0, :len(SPECIAL)] = SPECIAL
    compare(name, [moderate(name, x) if dtype in FLOATS else x])


@pytest.mark.parametrize(("name", "dtype"), list(cases(BINARY)))
def test_functions_of_two(name: str, dtype: str) -> None:
    random = generator(name, dtype)
    if dtype in FLOATS:
        grid = moderate(name, np.array(SPECIAL, dtype))
        compare(name, [grid[:, None], grid])
    else:
        compare(name, [draw(random, (5, 1, 7), dtype), draw(random, (6, 1), dtype)])
    if dtype != "bool" and name not in ("nextafter", "hypot", "atan2", "copysign", "logaddexp"):
        compare(name, [draw(random, (3,), dtype), 2])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype: str) -> None:
    random = generator("integers", dtype)
    x, y = draw(random, (40,), dtype), random.integers(1, 5, 40).astype(dtype)
    for name in ("floor_divide", "remainder", "pow", "bitwise_left_shift", "bitwise_right_shift"):
        compare(name, [x, y])
    if dtype in SIGNED:
        compare("floor_divide", [x, -y])
        compare("remainder", [x, -y])


@pytest.mark.parametrize(("name", "dtype"), list(cases(REDUCED)))
def test_reductions(name: str, dtype: str) -> None:
    random = generator(name, dtype)
    x = draw(random, (3, 4, 5), dtype)
    if dtype in FLOATS:
        x = np.nan_to_num(x) if name in ("argmax", "argmin") else moderate(name, x)
    compare(name, [x])
    compare(name, [x], axis=-1, keepdims=True)
    if name not in ("argmax", "argmin"):
        compare(name, [x], axis=(0, 2))
    if name in ("std", "var"):
        compare(name, [draw(random, (6,), "float64")], correction=1.0)


@pytest.mark.parametrize("dtype", EVERY)
def test_manipulation(dtype: str) -> None:
    random = generator("manipulation", dtype)
    x, y = draw(random, (2, 3, 4), dtype), draw(random, (2, 3, 4), dtype)
    for name, args, attrs in [
            ("concat", [[x, y]], {"axis": 1}), ("concat", [[x, y]], {}),
            ("concat", [[x, y]], {"axis": None}), ("stack", [[x, y]], {"axis": -1}),
            ("flip", [x], {}), ("flip", [x], {"axis": (0, 2)}), ("roll", [x, 2], {}),
            ("roll", [x, (1, -1)], {"axis": (0, 2)}), ("expand_dims", [x, 1], {}),
            ("squeeze", [x[:1], 0], {}), ("permute_dims", [x, (2, 0, 1)], {}),
            ("reshape", [x, (6, -1)], {}), ("moveaxis", [x, 0, 2], {}), ("tile", [x, (2, 1)], {}),
            ("repeat", [x, 2], {}), ("repeat", [x, 3], {"axis": 1}), ("unstack", [x], {"axis": 1}),
            ("broadcast_to", [x[:, :1], (2, 3, 4)], {}), ("broadcast_arrays", [x, y[0, :, :1]], {}),
            ("tril", [x], {"k": 1}), ("triu", [x], {"k": -1}), ("matrix_transpose", [x], {}),
            ("take", [x, np.array([1, 0, -1, 1])], {"axis": 2}), ("take", [x[0, 0], np.array([3])], {}),
            ("take_along_axis", [x, np.array([[[0, 3]]]).repeat(2, 0).repeat(3, 1)], {}),
            ("where", [draw(random, (3, 1), "bool"), x, y], {})]:
        compare(name, args, **attrs)
    compare("meshgrid", [x[0, 0], y[0, :, 0]], indexing="ij")
    compare("meshgrid", [x[0, 0], y[0, :, 0]])


@pytest.mark.parametrize("dtype", EVERY)
def test_results_whose_shapes_depend_on_numbers(dtype: str) -> None:
    random = generator("sets", dtype)
    for shape in ((4, 5), (1,), (30,)):
        x = draw(random, shape, dtype)
        x = np.where((x == 0) | (x != x), np.zeros_like(x), x)  # of zeros any may come first
        compare("nonzero", [x])
        for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
            compare(name, [x])
    compare("unique_all", [np.zeros(0, dtype)])


def test_every_nan_is_different() -> None:
    result = xp.unique_all(xp.asarray([math.nan, 1.0, math.nan, 1.0]))
    np.testing.assert_array_equal(result.values.numpy(), [1.0, math.nan, math.nan])
    assert result.counts.tolist() == [2, 1, 1] and result.inverse_indices.tolist() == [1, 0, 2, 0]
    assert result.indices.tolist() == [1, 0, 2]


def test_shapes_that_depend_on_numbers_are_not_compiled() -> None:
    with pytest.raises(ZtorchError, match="has no value while"):
        zt.compiled(xp.unique_values)(zt.tensor([1.0, 2.0]))


@pytest.mark.parametrize("invert", [False, True])
def test_isin_is_numpys(invert: bool) -> None:  # the reference does not invert
    x, y = np.arange(12).reshape(3, 4), np.array([2, 7, 2, 30])
    got = xp.isin(xp.asarray(x), xp.asarray(y), invert=invert)
    np.testing.assert_array_equal(got.numpy(), np.isin(x, y, invert=invert))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_orders_and_sums_along_axes(dtype: str) -> None:
    random = generator("orders", dtype)
    x = np.nan_to_num(draw(random, (3, 7), dtype))
    for descending in (False, True):
        compare("sort", [x], axis=0, descending=descending)
        compare("argsort", [x], descending=descending)
    small = random.integers(0, 3, (3, 5)).astype(dtype)
    for name in ("cumulative_sum", "cumulative_prod"):
        compare(name, [small], axis=1)
        compare(name, [small], axis=0, include_initial=True)
        compare(name, [small[0]])
    compare("diff", [x], axis=0)
    compare("diff", [small], n=2, prepend=small[:, :1])
    compare("clip", [small, 1, 2])
    compare("clip", [small], max=1)
    compare("searchsorted", [np.sort(x[0]), x[1]], side="right")
    compare("searchsorted", [x[0], x[1]], sorter=np.argsort(x[0]))


def _linear() -> Iterator[Any]:
    random = np.random.default_rng(1)
    a, b, v = random.normal(size=(2, 4, 4)), random.normal(size=(2, 4, 3)), random.normal(size=(4,))
    positive = a @ a.swapaxes(1, 2) + np.eye(4)
    for name, args, attrs in [
            ("matmul", [a, b], {}), ("linalg.matmul", [a, v], {}), ("tensordot", [a, v], {"axes": 1}),
            ("tensordot", [a, b], {"axes": ((0, 2), (0, 1))}), ("vecdot", [a, v], {}),
            ("linalg.outer", [v, v], {}), ("linalg.cross", [b, b[::-1]], {}),
            ("linalg.cholesky", [positive], {}), ("linalg.cholesky", [positive], {"upper": True}),
            ("linalg.det", [a], {}), ("linalg.inv", [a], {}), ("linalg.solve", [a, b], {}),
            ("linalg.slogdet", [a], {}), ("linalg.qr", [b], {}), ("linalg.svdvals", [b], {}),
            ("linalg.eigvalsh", [positive], {}), ("linalg.pinv", [b], {}),
            ("linalg.matrix_rank", [b], {}), ("linalg.matrix_rank", [a], {"rtol": 0.5}),
            ("linalg.matrix_power", [a, 3], {}), ("linalg.diagonal", [b], {"offset": -1}),
            ("linalg.trace", [a], {"offset": 1}), ("linalg.vector_norm", [b], {"ord": 3, "axis": 1}),
            ("linalg.vector_norm", [b], {"keepdims": True}), ("linalg.matrix_norm", [b], {}),
            ("linalg.matrix_norm", [b], {"ord": "nuc"}),
            ("linalg.trace", [np.arange(9, dtype=np.int8).reshape(3, 3)], {})]:
        yield pytest.param(name, args, attrs, id=f"{name}-{attrs}")


@pytest.mark.parametrize(("name", "args", "attrs"), list(_linear()))
def test_linear_algebra(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    compare(name, args, **attrs)


def test_decompositions_have_named_parts() -> None:
    x = xp.asarray(np.random.default_rng(2).normal(size=(3, 3)))
    svd, eigh = xp.linalg.svd(x), xp.linalg.eigh(x + x.mT)
    np.testing.assert_allclose(((svd.U * svd.S) @ svd.Vh).numpy(), x.numpy(), atol=1e-14)
    np.testing.assert_allclose((x + x.mT) @ eigh.eigenvectors,
                               eigh.eigenvectors * eigh.eigenvalues, atol=1e-14)
    assert xp.linalg.qr(x).Q.shape == xp.linalg.qr(x).R.shape == (3, 3)
    assert xp.linalg.slogdet(x).sign.item() in (-1.0, 1.0)


@pytest.mark.parametrize("dtype", EVERY)
def test_creation(dtype: str) -> None:
    mine, theirs = getattr(xp, dtype), getattr(strict, dtype)
    for name, args in [("zeros", ((2, 3),)), ("ones", (4,)), ("full", ((2,), 1)), ("eye", (3, 2)),
                       ("arange", (1, 5, 2)), ("linspace", (0, 4, 5))]:
        if (dtype == "bool" and name in ("arange", "linspace")) or (
                name == "linspace" and dtype not in FLOATS):
            continue
        got = getattr(xp, name)(*args, dtype=mine)
        want = getattr(strict, name)(*args, dtype=theirs)
        np.testing.assert_array_equal(got.numpy(), plain(want), strict=True)
    x = xp.ones((2, 3), dtype=mine)
    for name in ("zeros_like", "ones_like", "empty_like"):
        like = getattr(xp, name)(x)
        assert like.shape == (2, 3) and like.dtype is mine
    assert xp.full_like(x, 1).dtype is mine and xp.empty((2,), dtype=mine).dtype is mine
    assert xp.asarray(x, dtype=xp.float32).dtype is xp.float32
    assert xp.astype(x, xp.float64).dtype is xp.float64
    np.testing.assert_array_equal(xp.from_dlpack(np.ones(2, dtype)).numpy(), np.ones(2, dtype))


# -- dtypes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", EVERY)
def test_promotion_and_limits(a: str) -> None:
    for b in EVERY:
        try:
            want = strict.result_type(getattr(strict, a), getattr(strict, b))
        except TypeError:  # the standard leaves it open
            continue
        mine, other = getattr(xp, a), getattr(xp, b)
        assert xp.result_type(mine, other) is getattr(xp, str(want).rpartition(".")[2])
        assert xp.can_cast(mine, other) == strict.can_cast(getattr(strict, a), getattr(strict, b))
        assert xp.result_type(xp.ones(2, dtype=mine), other) is xp.result_type(mine, other)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating",
                 "complex floating", "numeric", ("bool", "real floating")):
        assert xp.isdtype(getattr(xp, a), kind) == strict.isdtype(getattr(strict, a), kind)
    if a in NUMBERS:
        info = "finfo" if a in FLOATS else "iinfo"
        got, want = getattr(xp, info)(getattr(xp, a)), getattr(strict, info)(getattr(strict, a))
        for field in got._fields[:-1]:
            assert getattr(got, field) == getattr(want, field)
        assert got.dtype is getattr(xp, a)


def test_numbers_adapt_to_dtypes() -> None:
    assert xp.result_type(xp.float32, 1.0) is xp.result_type(1, xp.float32) is xp.float32
    assert xp.result_type(xp.int8, 1) is xp.int8 and xp.result_type(xp.bool, True) is xp.bool
    for wrong in (lambda: xp.result_type(1.0), lambda: xp.isdtype(xp.bool, "float"),
                  lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32)):
        with pytest.raises(ConfigError):
            wrong()


# -- the namespace itself ----------------------------------------------------------------------------


def test_tensors_tell_their_namespace() -> None:
    x = zt.tensor([1.0, 2.0])
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ConfigError, match=r"2024\.12, not '2020\.01'"):
        x.__array_namespace__(api_version="2020.01")
    assert x.to_device("cpu") is x


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"] is True
    assert info.default_device() in info.devices()
    assert set(info.dtypes()) == set(strict.__array_namespace_info__().dtypes()) - {
        "complex64", "complex128"}
    assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert info.default_dtypes() == {"real floating": xp.float32, "integral": xp.int64,
                                     "indexing": xp.int32}
    assert xp.argmax(xp.asarray([1.0])).dtype is info.default_dtypes()["indexing"]


def test_axes_that_must_be_told() -> None:
    x = xp.ones((2, 3))
    for name in ("take", "cumulative_sum", "cumulative_prod"):
        with pytest.raises(ShapeError, match=rf"{name} needs axis="):
            ours(name)(*([x, xp.asarray([0])] if name == "take" else [x]))


# -- corners -----------------------------------------------------------------------------------------


def test_corners_that_the_suite_of_the_standard_looks_into() -> None:
    small, wide = (zt.tensor(np.array(v, d)) for v, d in (([0, 1, 200], np.uint8),
                                                          ([300, 2, 3], np.uint16)))
    assert (-small).tolist() == xp.negative(small).tolist() == [0, 255, 56]
    assert xp.linalg.outer(small, wide).dtype.long == xp.vecdot(small, wide).dtype.long == "uint16"
    assert xp.vecdot(small, wide).tolist() == 602
    assert xp.repeat(small, zt.tensor([1, 0, 2])).tolist() == [0, 200, 200]
    assert xp.unstack(xp.zeros((2, 0)), axis=1) == ()
    assert np.isnan(xp.std(xp.zeros((1, 2)), axis=0, correction=1.0).numpy()).all()
    for k in (-1 << 40, 1 << 31):
        assert xp.eye(2, k=k).tolist() == [[0, 0], [0, 0]]
        assert xp.tril(xp.ones((2, 2)), k=k).tolist() == np.tril(np.ones((2, 2)), k).tolist()
    assert not np.signbit(xp.sign(zt.tensor([-0.0])).numpy()).any()
    with pytest.raises(ShapeError, match="one axis or more"):
        xp.nonzero(xp.asarray(3.0))
    x = np.random.default_rng(0).normal(size=(2, 4, 3))
    rtol = np.array([1e-3, 0.5])
    np.testing.assert_allclose(xp.linalg.pinv(zt.tensor(x), rtol=zt.tensor(rtol)).numpy(),
                               np.linalg.pinv(x, rtol=rtol), atol=1e-12)
    assert xp.linalg.matrix_rank(zt.tensor(x), rtol=zt.tensor(rtol)).tolist() == [
        np.linalg.matrix_rank(a, rtol=r) for a, r in zip(x, rtol, strict=True)]
    assert complex(zt.tensor(2.5)) == 2.5 and xp.imag(small).tolist() == [0, 0, 0]
    assert xp.real(small).tolist() == xp.conj(small).tolist() == small.tolist()
