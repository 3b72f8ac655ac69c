"""`zt.array_api` beside `array_api_strict`: names, arguments, defaults and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.arrays.array_api_beside import (
    BINARY,
    EVERY,
    FLOATS,
    INTEGERS,
    REDUCED,
    SIGNED,
    SPECIAL,
    UNARY,
    compare,
    compiles_some,  # noqa: F401  # for all tests here
    draw,
    generator,
)

# Of numbers so large that their digits say nothing of the angle, or of the rest of a division.
NEED_MODERATE = ("cos", "sin", "tan", "remainder", "floor_divide", "std", "var")


def moderate(name: str, x: np.ndarray) -> np.ndarray:
    if name not in NEED_MODERATE:
        return x
    size = abs(x)
    return np.where(size == size.dtype.type(1e30), 7, np.where(
        size == size.dtype.type(1e-30), 0.25, x)).astype(x.dtype)


def cases(table: dict[str, tuple[str, ...]]) -> Iterator[Any]:
    for name, dtypes in table.items():
        for d in dtypes:
            yield pytest.param(name, d, id=f"{name}-{d}")


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
