"""x[key] is NumPy's, for every key that NumPy takes and gives a shape that does not depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztorch as zt
from tests.cases.grouping import together
from ztorch.errors import ShapeError

A = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)

pytestmark = pytest.mark.usefixtures("by_numpy")


@st.composite
def basic_keys(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    """A shape, and a key of integers, slices, None and Ellipsis for it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    bound = st.none() | st.integers(-6, 6)
    key: list[Any] = []
    for n in shape[:draw(st.integers(0, len(shape)))]:
        slices = st.builds(slice, bound, bound, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
        key.append(draw(slices | st.integers(-n, n - 1) if n else slices))
    if draw(st.booleans()) and len(key) == len(shape):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return shape, key[0] if len(key) == 1 and draw(st.booleans()) else tuple(key)


@st.composite
def array_keys(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any], list[bool]]:
    """A shape, a key with arrays of integers or bools, and which of the arrays become tensors."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    common = draw(st.sampled_from([(), (1,), (3,), (2, 3), (0,)]))
    key: list[Any] = []
    axis = 0
    while axis < len(shape):
        kind = draw(st.sampled_from(["array", "array", "mask", "int", "slice", "list"]))
        n = shape[axis]
        if kind == "mask" and common in [(), (1,)]:
            rank = draw(st.integers(1, min(2, len(shape) - axis)))
            marks = np.zeros(shape[axis:axis + rank], bool)
            marks.flat[draw(st.integers(0, marks.size - 1))] = True
            key.append(marks)
            axis += rank
            continue
        own = draw(st.sampled_from([common, common[-1:]]))
        positions = np.array(draw(st.lists(st.integers(-n, n - 1), min_size=int(np.prod(own)),
                                           max_size=int(np.prod(own)))), np.int64).reshape(own)
        dtype = draw(st.sampled_from([np.int8, np.int32, np.int64]))
        key.append({"array": positions.astype(dtype), "mask": positions, "int": n - 1,
                    "slice": draw(st.sampled_from([slice(None), slice(None, None, -1), slice(0, 1)])),
                    "list": positions.tolist() if own else positions}[kind])
        axis += 1
    for _ in range(draw(st.integers(0, 1))):
        key.insert(draw(st.integers(0, len(key))), draw(st.sampled_from([None, Ellipsis])))
    return shape, key, [draw(st.booleans()) for _ in key]


@settings(max_examples=80, deadline=None)
@given(basic_keys())
def test_integers_and_slices(example: tuple[tuple[int, ...], Any]) -> None:
    shape, key = example
    a = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(zt.tensor(a)[key].numpy(), a[key], strict=True)


@settings(max_examples=80, deadline=None)
@given(array_keys())
def test_arrays_and_tensors(example: tuple[tuple[int, ...], list[Any], list[bool]]) -> None:
    shape, key, tensors = example
    a = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    want = a[tuple(key)]
    mixed = tuple(zt.tensor(k) if is_tensor and isinstance(k, np.ndarray) else k
                  for k, is_tensor in zip(key, tensors, strict=True))
    np.testing.assert_array_equal(zt.tensor(a)[mixed].numpy(), want, strict=want.ndim > 0)


KEYS: list[Any] = [
    (0, slice(None), [1, 3]), ([0, 1], slice(None), [1, 3]), (slice(None), [0, 2], [1, 3]),
    (slice(None), [[0], [2]], [1, 3]), ([1, 0], None, [1, 2]), (slice(None), None, [1, 2], 0),
    (Ellipsis, [0, -1]), (slice(None), [0, 2], [1], Ellipsis, 3), (slice(None), Ellipsis, 1, [1, 2], 3), (0, Ellipsis, [0, -1]), (slice(None), 2, [0, -1]), A % 7 == 0, A[:, :, 0, 0] > 5,
    (slice(None), A[0, :, :, 0] % 2 == 0), (A[:, 0, 0, 0] >= 0, 1), (1, A[0, :, 0, 0] > 5, 2),
    (A[:, 0, 0, 0] >= 0, slice(None), [1, 3]), [], ([], [], slice(None)), ((0, 1), (2, 0)),
    (slice(np.int64(1), np.int8(3)),), (np.int64(-1), np.uint8(2)), range(2), np.array(1),
    (np.array([1], np.uint64), 0), A < 0, np.array(False), np.array(True), (Ellipsis, None, slice(3, 0, -2)),
]


@together()
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_as_numpy(key: Any) -> None:
    want = A[key]
    np.testing.assert_array_equal(zt.tensor(A)[key].numpy(), want, strict=True)
    turned = tuple(zt.tensor(k) if isinstance(k, np.ndarray) else k for k in key) if isinstance(
        key, tuple) else zt.tensor(key) if isinstance(key, np.ndarray) else key
    np.testing.assert_array_equal(zt.tensor(A)[turned].numpy(), want, strict=True)


@together()
@pytest.mark.parametrize(("key", "words"), [
    (2, "index 2 is out of range for axis 0"), ((0, -4), "index -4 is out of range for axis 1"),
    ((0,) * 5, "5 indices for a tensor of shape"), ((..., 0, ...), "one Ellipsis"),
    (True, "one bool"), ((np.True_, 0), "one bool"), (1.0, "by 1.0"),
    ("a", "by 'a'"), ([0.5], "array of float64"), (np.zeros(0), "array of float64"),
    ([0, 2], "index 2 is out of range for an axis of size 2"), (([0, 1], [0, -4]), "index -4"),
    (([0, 1], [0, 1, 2]), r"\(2,\) and \(3,\)"), (np.ones(3, bool), "bools of shape"),
    ((slice(None), np.ones((3, 3), bool)), "bools of shape"), ((5, [0]), "index 5"),
    (np.ones((2, 3, 4, 5, 1), bool), "5 indices"), ({}, "by {}"),
])
def test_wrong_keys_are_named(key: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        zt.tensor(A)[key]


def test_wrong_tensors_as_keys() -> None:
    x = zt.tensor(A)
    with pytest.raises(ShapeError, match="array of float32"):
        x[zt.tensor([0.0])]
    with pytest.raises(TypeError, match="not an index"):
        x[zt.tensor(1.0):]


def test_indices_of_tensors_are_clamped() -> None:
    x = zt.tensor([10, 20, 30])
    wide = zt.tensor([-9, -3, -1, 2, 3, 1 << 40])
    assert x[wide].tolist() == [10, 10, 30, 30, 30, 30]
    assert x[zt.tensor([0, 200], dtype="uint8")].tolist() == [10, 30]
    assert x[zt.tensor([0, (1 << 63)], dtype="uint64")].tolist()[0] == 10


def test_a_tensor_of_one_integer_chooses_as_an_integer() -> None:
    x = zt.tensor(A)
    k = zt.tensor(1)
    np.testing.assert_array_equal(x[k].numpy(), A[1])
    np.testing.assert_array_equal(x[0, k].numpy(), A[0, 1])
    np.testing.assert_array_equal(x[k:, :k].numpy(), A[1:, :1])


def test_tensors_of_other_frameworks_choose() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(zt.tensor(A)[torch.tensor([1, 0])].numpy(), A[[1, 0]])


def test_a_loop_over_rows_compiles_a_few_programs(builds: list[str]) -> None:
    a = np.arange(60.0).reshape(20, 3)
    x = zt.tensor(a)
    assert [row.tolist() for row in x] == a.tolist()
    assert len(builds) <= 5
    for k in range(0, 18, 2):
        np.testing.assert_array_equal(x[k:k + 2, 1].numpy(), a[k:k + 2, 1])
        np.testing.assert_array_equal(x[k::-1].numpy(), a[k::-1])
    np.testing.assert_array_equal(x[-1].numpy(), a[-1])
    assert x[3].tolist() == a[3].tolist()


def test_elements_cannot_be_set() -> None:
    x = zt.tensor([1.0])
    with pytest.raises(TypeError, match="never changes"):
        x[0] = 2.0


def test_equal_keys_are_distinguished_from_similar_ones() -> None:
    x, one = zt.tensor(A), zt.tensor(np.array([1, 0]))
    keys: list[Any] = [1, (1,), slice(1, None), (slice(1, None),), slice(None), (0, 1), (None, 1),
                       np.array([1, 0]), np.array([1, -1], np.int8), (0, np.array([1, 0])), ...]
    for _ in range(2):
        for key in keys:
            np.testing.assert_array_equal(x[key].numpy(), A[key])
        np.testing.assert_array_equal(x[one, 0].numpy(), A[[1, 0], 0])
        with pytest.raises(ShapeError, match="one bool"):
            x[True]
        with pytest.raises(ShapeError, match="index 99 is out of range"):
            x[np.array([99, 0])]
    positions = np.array([1, 0])
    rows = x[positions]
    positions[:] = 0  # the rows were chosen before
    np.testing.assert_array_equal(rows.numpy(), A[[1, 0]])
    with zt.lazy(False):
        np.testing.assert_array_equal(x[1:].numpy(), A[1:])
