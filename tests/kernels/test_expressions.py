"""Expressions give the numbers of plain Python in every kind of loop, and what NumPy refuses is refused."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import KernelError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf

ARRAYS = {"x": np.arange(1.0, 13.0).reshape(3, 4) / 8, "v": np.array([0.5, -1.25, 2.0, 0.0]),
          "p": np.array([1, 2, 3, 4], np.int32), "c": np.array([True, False, True, True])}
LOOPS = {
    "range": "    for i in range(4):\n",
    "threads": "    for _, i in zt.threads(1, 4):\n",
    "rows": "    for i in range(4):\n        h = 0.0\n        for k in range(p[i] - 1, p[i]):\n            h += v[k]\n",
    "scan": "    h = 0.0\n    for i in range(4):\n        h = h * 0.5 + v[i]\n"}
OF_ELEMENTS = (
    "v[i] or 2.0", "v[i] and 2.0", "v[i] - 0.5 or p[i]", "p[i] - 1 and v[i]", "p[i] > 1 or v[i]", "0 or v[i]", "1 and v[i]",
    "v[i] and 0", "v[i] or p[i] - 1 or c[i]", "not (v[i] or p[i] - 1)", "c[i] and v[i]", "i and 5", "i > 1 or 5",
    "c[i] + c[i]", "c[i] * c[0]", "(v[i] > 0) + (p[i] > 1)", "(i > 0) + (i > 1)", "(i > 0) + c[i]", "c[i] + v[i]",
    "np.clip(v[i], None, 1.0)", "np.clip(v[i], 0, None)", "-p[i] // 3", "-v[i] % 0.3", "0 < v[i] < 1", "i < 2 <= p[i]",
    "(1, 5, 7, 9)[p[i] - 1]", "sum(c[k] for k in range(4))", "round(v[i])", "int(-v[i])")
OF_ARRAYS = (
    "np.clip(v, None, 1.0)", "np.clip(v, 0.0, None)", "c + c", "c * c", "np.add(c, c)", "np.any(v[3])", "np.all(v[0])",
    "np.argmax(v[0])", "v * np.array([0.5, 1.5] * 2)", "(1, 3) < (1, 2)", "(2, 1) >= (1, 3)",
    "np.stack((v, v), axis=-1)", "np.swapaxes(x, -1, 0)", "np.expand_dims(x, -1)", "np.concatenate((x, x), axis=-1)")
REFUSED = (
    "np.argmax(x, axis=(0, 1))", "np.sort(x, axis=(0, 1))", "np.cumsum(x, axis=(0, 1))", "np.sum(x, axis=(0, 0))",
    "np.sum(x, axis=True)", "np.stack((v, v), axis=2)", "np.stack((v, v), axis=-3)", "np.concatenate((v, v), axis=1)",
    "np.stack(())", "np.concatenate(())", "np.swapaxes(x, 0, 2)", "np.expand_dims(x, 4)", "c - c", "-c", "(1, 2) < 'a'")


def kernel(text: str) -> Any:
    linecache.cache[text] = (len(text), None, text.splitlines(True), text)
    names: dict[str, Any] = {"np": np, "zt": zt}
    exec(compile(text, text, "exec"), names)
    return zt.kernel(names["k"], max_steps=8)


def compiled(k: Any) -> Any:
    leaves = {n: leaf("input", n, a.shape, str(a.dtype)) for n, a in ARRAYS.items()}
    return evaluate([k.trace(leaves)], dict(zip(leaves.values(), ARRAYS.values(), strict=True)))[0]


@pytest.mark.parametrize("loop", LOOPS)
def test_of_elements(loop: str) -> None:
    for expression in OF_ELEMENTS:
        k = kernel(f"def k(x, v, p, c):\n    out = np.zeros(4)\n{LOOPS[loop]}        out[i] = {expression}\n    return out\n")
        np.testing.assert_allclose(compiled(k), k.debug(**ARRAYS), err_msg=expression)


@pytest.mark.cheap
def test_of_arrays() -> None:
    for expression in OF_ARRAYS:
        k = kernel(f"def k(x, v, p, c):\n    return {expression}\n")
        got, expected = compiled(k), k.debug(**ARRAYS)
        np.testing.assert_array_equal(got, expected, err_msg=expression)
        assert got.shape == np.shape(expected)


@pytest.mark.cheap
def test_what_numpy_refuses() -> None:
    for expression in REFUSED:
        k = kernel(f"def k(x, v, p, c):\n    return {expression}\n")
        with pytest.raises((TypeError, ValueError, IndexError)):
            k.debug(**ARRAYS)
        with pytest.raises(KernelError):
            compiled(k)


TABLES = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]


@zt.kernel
def chosen(x):
    return x * TABLES[1]


def test_a_list_of_arrays_from_outside() -> None:
    np.testing.assert_array_equal(chosen(np.ones(2)), TABLES[1])


@zt.kernel
def multiples(n, of=3):
    """A kernel that only takes numbers that are compiled in."""
    flags = np.zeros(n, bool)
    for k in range(0, n, of):
        flags[k] = True
    return flags


def test_a_kernel_of_numbers_alone_makes_arrays() -> None:
    for n, of in ((10, 3), (7, 2)):
        np.testing.assert_array_equal(multiples(n, of), np.arange(n) % of == 0)
    assert isinstance(multiples(10), np.ndarray)
