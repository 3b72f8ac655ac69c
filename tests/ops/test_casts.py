"""Casts of floats to integers in vectors: truncated, and saturated at the ends of the range."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch.runtime.devices import best_level

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ENDS = [float(s * 2**n + e) for n in (7, 8, 15, 16, 31, 32) for s in (1, -1) for e in (-1, -0.5, 0, 1)]
X = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.99, -0.99, 3e38, -3e38, 2.0**63, -(2.0**63), 2.0**64,
              9.2233714e18, 1.8446743e19, *ENDS])


def converted(x: float, d: str) -> int:
    least, most = np.iinfo(d).min, np.iinfo(d).max
    return 0 if np.isnan(x) else most if x >= most else least if x <= least else int(x)


@pytest.mark.parametrize("f", ["float32", "float64"])
@pytest.mark.parametrize("level", sorted({"scalar", best_level()}))
def test_it_saturates(f: str, level: str) -> None:
    x = X.astype(f)
    with zt.device(f"cpu:{level}"):
        results = zt.compiled(lambda x: tuple(x.astype(d) for d in INTEGERS))(zt.tensor(x))
    for d, y in zip(INTEGERS, results, strict=True):
        np.testing.assert_array_equal(y.numpy(), np.array([converted(v, d) for v in x.tolist()], d), err_msg=d)
