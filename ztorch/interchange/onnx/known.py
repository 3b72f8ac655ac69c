"""Computes values that depend only on constants, while a graph is imported."""

from __future__ import annotations

import numpy as np

from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Value, topological

EXPANDED = 1 << 16  # bytes of floats that are not stored in place of fewer bytes
LIMIT = 1 << 20  # elements: larger arrays are not computed while importing


def variables(x: Value) -> list[Value]:
    """The leaves other than constants that a value depends on."""
    return [v for v in topological([x]) if v.op.kind == "leaf" and v.attrs["role"] != "constant"]


def constant_numbers(x: Value) -> np.ndarray | None:
    """A value as numbers, if it depends only on constants and is small."""
    return None if variables(x) else _evaluated(x)


def folded(x: Value) -> np.ndarray | Value:
    """A value as numbers if it depends only on constants and is small, else the value itself.
    Quantized weights stay as they are: codes take less memory, and integer products read them."""
    codes = sum(v.nbytes for v in topological([x]) if v.op.kind == "leaf")
    expands = x.dtype.is_float and x.nbytes > max(EXPANDED, codes)
    numbers = constant_numbers(x) if x.dtype.in_numpy and not expands else None
    return x if numbers is None else numbers


def is_even(x: np.ndarray) -> bool:
    """Whether an array has one number throughout, such as zeros with a row for each of a batch."""
    first = x.flat[:1]
    return bool(x.size and (x == first).all() and (
        first != 0 or x.dtype.kind != "f" or (np.signbit(x) == np.signbit(first)).all()))


def _evaluated(x: Value) -> np.ndarray | None:
    return None if any(v.size > LIMIT for v in topological([x])) else evaluate([x], {})[0]
