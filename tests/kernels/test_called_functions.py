"""Functions that threads call: their text is parsed once, and the names in it are looked up for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import KernelError
from ztorch.kernels import source

X = np.arange(4, dtype=np.float32)


def _kernel(number: float, counted: Any) -> Any:
    """A kernel with a function that adds number * 0, number * 1 ..., up to the first sum above 4."""
    def added(x):
        total = 0
        for k in counted(3):
            total += k * number
            if total > 4:
                break
        return x + total

    @zt.kernel
    def sums(x):
        out = np.zeros_like(x)
        for _, thread in zt.threads(1, 4):
            out[thread] = added(x[thread]) + added(0.0)
        return out

    return sums


@pytest.mark.parametrize(("number", "total"), [(1, 3), (2.5, 7.5), (5.0, 5)])
def test_equal_code_with_other_names_around(number: float, total: float) -> None:
    np.testing.assert_array_equal(_kernel(number, range)(X), X + 2 * np.float32(total))


def test_threads_within_a_function_are_found_by_what_the_name_means() -> None:
    _kernel(1, range)(X)
    with pytest.raises(KernelError, match="inside another one"):
        _kernel(1, zt.threads)(X)


def test_text_is_parsed_once() -> None:
    _kernel(1.0, range)(X)
    before = source._parsed.cache_info().misses
    _kernel(1.5, range)(X)
    assert source._parsed.cache_info().misses == before
