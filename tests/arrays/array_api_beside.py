"""Random arguments for `zt.array_api` and `array_api_strict`, and the comparison of both."""

from __future__ import annotations

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

strict = pytest.importorskip("array_api_strict")
with warnings.catch_warnings():  # the next version, which has isin, is a draft
    warnings.simplefilter("ignore")
    strict.set_array_api_strict_flags(api_version="2025.12")
xp = zt.array_api

DTYPE_ALONE = ("float32", "int8")  # where a test has dtypes alone, these are compiled


@pytest.fixture(autouse=True)
def compiles_some(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled are each function in one of its dtypes, each dtype of some functions, and functions without a
    dtype. NumPy evaluates the graphs of the others: their kernels run in lower/test_every_op.py and
    ops/test_every_dtype.py. A full run compiles all."""
    arguments = getattr(getattr(request.node, "callspec", None), "params", {})
    case = arguments.get("name"), arguments.get("dtype")
    linear = request.node.name.startswith("test_linear_algebra") and case[0] not in ("matmul", "vecdot")
    if full() or case in ROTATED or (not linear and case[1] in (None, *(DTYPE_ALONE if not case[0] else ()))):
        yield
    else:
        with by_numpy():
            yield


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


def generator(*label: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32("-".join(label).encode()))
