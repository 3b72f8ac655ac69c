"""docs/kernel_functions.md agrees with the table of functions."""

from __future__ import annotations

import functools
from pathlib import Path

from tools import kernel_functions
from tools.kernel_functions import function_rows
from ztorch.kernels.known_functions import FUNCTIONS, METHODS
from ztorch.kernels.thread_functions import THREAD_FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "kernel_functions.md"
page = functools.cache(kernel_functions.page)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tools.kernel_functions > docs/kernel_functions.md"


def test_every_function_is_listed() -> None:
    calls = [c for line in page().splitlines() if line.startswith("| `")
             for c in line.split("|")[1].split("`")[1::2]]
    assert len(calls) == len(FUNCTIONS) + len(METHODS) + len(THREAD_FUNCTIONS) + 1  # the loop over threads


def test_rows() -> None:
    rows = function_rows().splitlines()
    assert "| `np.exp(x)`, `math.exp(n)` | float32 | float32 |" in rows
    assert "| `np.maximum(x, y)` | float32 | int32 |" in rows
    assert "| `np.all(x)`, `x.all()` | bool | bool |" in rows
