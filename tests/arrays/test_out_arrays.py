"""zt.compiled(f)(x, out=y): results in arrays of the caller, with the same bits as new arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ConfigError, Unsupported


@zt.compiled
def scaled(a: Any, b: Any) -> Any:
    return zt.ops.exp(a) * b - zt.ops.sum(a, axis=-1, keepdims=True)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_results_are_written_to_the_array(dtype: str) -> None:
    """One that is not contiguous, too, and nothing beside it; later calls leave it as it is."""
    x, y = numbers(7, 5, dtype=dtype), numbers(7, 5, dtype=dtype)
    wanted = scaled(x, y)
    wide = np.full((14, 11), 3, dtype)
    unaligned = np.zeros(36 * x.itemsize + 1, np.uint8)[1:36 * x.itemsize + 1 - x.itemsize].view(dtype)
    for out in (np.empty((7, 5), dtype), np.empty((5, 7), dtype).T, wide[::2, 1::2], unaligned.reshape(7, 5)):
        assert scaled(x, y, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        scaled(y, x)
        scaled(x, b=x, out=np.empty((7, 5), dtype))
        np.testing.assert_array_equal(out, wanted)
    wide[::2, 1::2] = 3
    assert (wide == 3).all()


def test_out_may_overlap_with_arguments() -> None:
    """Row sums are read after other elements of the row are written."""
    memory, y = numbers(9, 5), numbers(8, 5)
    for rows in (slice(0, 8), slice(1, 9)):
        x = memory.copy()
        wanted = scaled(x[:8], y)
        np.testing.assert_array_equal(scaled(x[:8], y, out=x[rows]), wanted)
        np.testing.assert_array_equal(x[rows], wanted)


def test_tensors_that_a_function_reads_keep_their_numbers_while_it_runs() -> None:
    """They may be an array's memory."""
    x = numbers(6, 5)
    lent = zt.asarray(x, copy=False)
    function = zt.compiled(lambda a: a + zt.ops.sum(lent, axis=0) + lent)
    wanted = function(np.ones((6, 5), np.float32))
    np.testing.assert_array_equal(function(np.ones((6, 5), np.float32), out=x), wanted)


def test_trees() -> None:
    function = zt.compiled(lambda a: {"sum": zt.ops.sum(a), "parts": (a, a > 0, a[:0])})
    x = numbers(4, 3)
    out = {"sum": np.empty((), np.float32),
           "parts": [np.empty((4, 3), np.float32), np.empty((4, 3), bool), np.empty((0, 3), np.float32)]}
    assert function(x, out=out) is out
    wanted = function(x)
    np.testing.assert_array_equal(out["sum"], wanted["sum"])
    for got, part in zip(out["parts"], wanted["parts"], strict=True):
        np.testing.assert_array_equal(got, part)
    with pytest.raises(ConfigError, match=r"takes {'parts': \(array, array, array\), 'sum': array}, as the function r"):
        function(x, out=[out["sum"]])
    with pytest.raises(ConfigError, match="one piece of memory twice"):
        zt.compiled(lambda a: (a + 1, a + 2))(x, out=(x, x[:4]))


def test_state_that_a_function_changes() -> None:
    def draws() -> Any:
        seeds = zt.random.SeedGenerator(3)
        return zt.compiled(lambda a: a + zt.random.normal((3,), seed=seeds))

    x, new, written, out = np.zeros(3, np.float32), draws(), draws(), np.empty(3, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(written(x, out=out), new(x))


def test_errors() -> None:
    x, y = numbers(7, 5), numbers(7, 5)
    fixed = np.empty((7, 5), np.float32)
    fixed.flags.writeable = False
    for out, match in (
        (np.empty((7, 5)), r"out=... is an array of float64 \(7, 5\); the result is of float32 \(7, 5\)"),
        (np.empty((5, 7), np.float32), r"of float32 \(5, 7\); the result is of float32 \(7, 5\)"),
        (zt.tensor(x), "NumPy array of float32 .*, not an object of type Tensor"),
        (fixed, "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=match):
            scaled(x, y, out=out)
    with pytest.raises(ConfigError, match=r"scaled\(out=...\) is for NumPy arrays: a tensor never changes"):
        scaled(zt.tensor(x), y, out=np.empty((7, 5), np.float32))
    with pytest.raises(ConfigError, match="a tensor never changes"):
        zt.compiled(lambda a: scaled(a, a, out=fixed))(x)
    with pytest.raises(Unsupported, match="complex results"):
        zt.compiled(lambda a: a * 1j)(x, out=np.empty((7, 5), np.complex64))


def test_a_function_with_an_out_of_its_own_gets_it() -> None:
    assert zt.compiled(lambda a, out=1.0: a * out)(np.ones(2), out=3.0).tolist() == [3.0, 3.0]
    assert zt.compiled(lambda a, **named: a * named["out"])(np.ones(2), out=3.0).tolist() == [3.0, 3.0]
    assert zt.compiled(lambda a: a * 2)(np.ones(2), out=None).tolist() == [2.0, 2.0]


def test_threads_write_to_arrays_of_their_own() -> None:
    xs = [numbers(50, 40) + k for k in range(4)]
    wanted = [scaled(x, x) for x in xs]

    def run(k: int) -> bool:
        out = np.empty((50, 40), np.float32)
        return all(np.array_equal(scaled(xs[k], xs[k], out=out), wanted[k]) for _ in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))
