"""Other numbers at the places of a key, beside NumPy's arrays that change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.grouping import together

A = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
KEYS: dict[str, Any] = {
    "integer": -1, "slice": slice(1, 3), "column": (slice(None), 2), "every second": slice(None, None, 2),
    "backwards": (slice(None, None, -1), 1), "ellipsis": (..., 0), "None": (None, 1), "element": (1, 2, 0),
    "positions": [0, 2], "pairs": ([0, 2], [1, 1]), "twice": (np.array([1, 1, 3]), slice(1, 3)),
    "mask": A > 0, "mask of rows": np.array([True, False, True, False]), "none": slice(2, 2), "empty": []}


@pytest.fixture(autouse=True)
def evaluated() -> Iterator[None]:
    with by_numpy():
        yield


@together()
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_set_and_add_are_numpys(key: Any) -> None:
    for values in (7.5, A[key] * 2 + 1, *([A[key][..., :1] - 3] if A[key].ndim > 1 else [])):
        changed, added = A.copy(), A.copy()
        changed[key] = values
        np.add.at(added, key, values)
        places = zt.tensor(A).at[key]
        np.testing.assert_array_equal(places.set(values).numpy(), changed)
        np.testing.assert_allclose(places.add(values).numpy(), added, rtol=1e-6)


def test_dtypes_tensors_and_gradients() -> None:
    x = zt.tensor([1, 2, 3])
    assert x.at[1].set(2.7).tolist() == [1, 2, 3] and x.at[x > 1].add(5).tolist() == [1, 7, 8]
    assert x.at[zt.tensor([0, 2])].set(zt.tensor([9, 8])).tolist() == [9, 2, 8]
    assert zt.tensor([True, False]).at[[1, 1]].set(True).tolist() == [True, True]
    assert zt.tensor([1j, 2.0]).at[0].set(3 - 1j).tolist() == [3 - 1j, 2]
    last = zt.grad(lambda v: (zt.zeros(4).at[[1, 1, 2]].set(v) ** 2.0).sum())(zt.tensor([1.0, 2.0, 3.0]))
    assert last.tolist() == [0, 4, 6]
    with pytest.raises(TypeError, match=r"x.at\[key\].set"):
        x[0] = 1  # type: ignore[index]
    with pytest.raises(TypeError, match=r"x.shape\[0\]"):
        x.size(0)  # type: ignore[operator]
