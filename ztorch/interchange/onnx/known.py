"""Values of a graph that depend on constants alone, as numbers."""

from __future__ import annotations

import numpy as np

from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Value, topological

LIMIT = 1 << 20  # elements of an array that is computed while importing


def variables(x: Value) -> list[Value]:
    """The leaves that a value depends on and that are not constants."""
    return [v for v in topological([x]) if v.op.kind == "leaf" and v.attrs["role"] != "constant"]


def numbers_now(x: Value) -> np.ndarray | None:
    """A value as numbers, if it depends on constants alone and is not large."""
    return None if variables(x) else _evaluated(x)


def known_now(x: Value) -> np.ndarray | Value:
    """A value as numbers where it depends on constants alone, not on weights or random numbers, and
    is not large."""
    known = numbers_now(x) if x.dtype.in_numpy else None
    return x if known is None else known


def _evaluated(x: Value) -> np.ndarray | None:
    return None if any(v.size > LIMIT for v in topological([x])) else evaluate([x], {})[0]
