"""Repeated calls with NumPy arrays, which take a shorter path than the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztorch as zt
from ztorch.host.memory import address_of_array


@zt.kernel
def twice_and(x: Any, y: Any) -> Any:
    return x * 2 + y


def _rows(r: np.random.Generator) -> np.ndarray:
    return r.normal(size=(6, 5)).astype(np.float32)


# Arrays of one shape and dtype that lie in memory in other ways.
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda x: x,
    "columns first": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, 0)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "unaligned": lambda x: np.frombuffer(b"?" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "subclass": lambda x: x.view(np.matrix),
}
CALLS: dict[str, Callable[..., Any]] = {
    "op": lambda x, y: zt.ops.add(zt.ops.multiply(x, 2.0), y),
    "kernel": twice_and,
    "compiled": zt.compiled(lambda x, y: x * 2 + y),
    "compiled tree": lambda x, y: _of_tree({"x": x, "others": [y, 2.0]}, 3, "plus"),
}


@zt.compiled
def _of_tree(tree: Any, times: int, name: str) -> Any:
    assert name == "plus" and times == 3
    return tree["x"] * tree["others"][1] + tree["others"][0]


@pytest.mark.parametrize("name", CALLS)
def test_any_layout_after_any_other(name: str) -> None:
    r, call = np.random.default_rng(0), CALLS[name]
    for layout in [*LAYOUTS, *reversed(LAYOUTS)] * 2:
        x, y = LAYOUTS[layout](_rows(r)), LAYOUTS[layout](_rows(r))
        result = call(x, y)
        assert type(result) is np.ndarray and result.flags.writeable
        np.testing.assert_array_equal(result, np.asarray(x) * np.float32(2) + np.asarray(y), layout)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_callers_own(name: str) -> None:
    call, x = CALLS[name], np.ones((4, 3), np.float32)
    results = [call(x, np.full_like(x, k)) for k in range(5)]
    results[2][:] = -1  # writes to this result alone
    for k in (0, 1, 3, 4):
        np.testing.assert_array_equal(results[k], np.full((4, 3), 2 + k))
    np.testing.assert_array_equal(x, 1)
    large = np.ones((300, 300), np.float32)  # its results come from a pool
    results = [call(large, np.full_like(large, k)) for k in range(4)]
    results[1][:] = -1
    for k in (0, 2, 3):
        np.testing.assert_array_equal(results[k], np.full((300, 300), 2 + k))


@pytest.mark.parametrize("name", CALLS)
def test_shapes_and_dtypes_take_turns(name: str) -> None:
    call = CALLS[name]
    for _ in range(3):
        for shape in ((3,), (0, 3), (1, 3)):
            for dtype in (np.float32, np.float64, np.int32):
                x = np.ones(shape, dtype)
                result = call(x, x)
                np.testing.assert_array_equal(result, np.full(shape, 3))
                if name in ("kernel", "compiled"):
                    assert result.dtype == dtype


def test_bfloat16() -> None:
    x = np.arange(6).astype(ml_dtypes.bfloat16)
    for _ in range(3):
        result = twice_and(x, x)
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.astype(np.float32), np.arange(6) * 3.0)


def test_tensors_after_arrays_and_beside_them() -> None:
    x = np.ones(4, np.float32)
    for call in (zt.ops.add, twice_and, zt.compiled(lambda a, b: a + b)):
        whole = np.asarray(call(x, x))
        for _ in range(3):
            assert type(call(x, x)) is np.ndarray
            for pair in ((zt.tensor(x), zt.tensor(x)), (zt.tensor(x), x), (x, zt.tensor(x))):
                result = call(*pair)
                assert type(result) is zt.Tensor
                np.testing.assert_array_equal(result.numpy(), whole)


def test_numbers_beside_tensors_and_arrays() -> None:
    step = zt.compiled(lambda x, rate, times, name: x * rate + times if name == "add" else x)
    for x in (np.ones(3, np.float32), zt.tensor(np.ones(3, np.float32))):
        for rate in (0.5, 0.0, -0.0, 2.0):
            for times in (1, True, 2):
                result = np.asarray(step(x, rate, times, "add"))
                np.testing.assert_array_equal(result, np.full(3, rate + times))
                assert np.asarray(step(x, rate, times, "none")).tolist() == [1, 1, 1]
    signs = zt.compiled(lambda x, zero: zt.ops.copysign(x, x * zero))
    for zero in (0.0, -0.0, 0.0):
        assert np.signbit(signs(np.ones(2, np.float32), zero)).tolist() == [np.signbit(zero)] * 2


def test_another_default_device() -> None:
    x = np.ones(3, np.float32)
    for call in (lambda: zt.ops.add(x, x), lambda: twice_and(x, x)):
        for device in ("cpu", "cpu:scalar", "cpu"):
            with zt.device(device):
                for _ in range(3):
                    assert np.unique(call()).size == 1


def test_addresses() -> None:
    x = np.arange(12.0).reshape(3, 4)
    for array in (x, x[1:], x[:, 2:], x.T, x.view(np.matrix), np.empty((0, 3)), np.float32(2) * np.ones(())):
        array = np.asanyarray(array)
        assert address_of_array(array) == array.__array_interface__["data"][0]
