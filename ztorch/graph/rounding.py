"""Measures how much the values of a graph may differ by rounding.

The graph is evaluated several times in float64. Each time, the result of every op is perturbed by
a random part of the rounding error of its dtype; for a sum of n numbers the error grows with
sqrt(n) and the sum of their sizes. Sums of 16-bit floats count as float32, rounded once. The spread
of a value over these evaluations is the tolerance for a correct program. It includes whatever
amplifies errors: cancellation, division by small numbers, close comparisons.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType, f32
from ztorch.graph.evaluate import evaluate
from ztorch.graph.narrow import ROUNDED
from ztorch.graph.value import Value
from ztorch.ir.halves import HALVES

ALLOWED = 8.0  # roundings per op: polynomials err by a few, and close comparisons must flip
SAMPLES = 10  # evaluations: enough that a close comparison flips in one of them
# Opcodes that never round: they return an operand or an integer.
EXACT = frozenset({"min", "max", "select", "abs", "neg", "round", "floor", "ceil", "trunc"})


def unit_roundoff(d: DType) -> float:
    """The most that rounding to a float moves a number, as a part of it.

    >>> unit_roundoff(f32) == 2.0**-24
    True
    """
    return 2.0**-d.significand


def bounded(roots: Sequence[Value], feeds: Mapping[Value, Any],
            seed: int = 0) -> list[tuple[np.ndarray, float]]:
    """The roots in float64, each with its largest allowed error; zero for integers.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (1000,), "float32")
    >>> [(value, bound)] = bounded([ops.sum(x)], {x: np.ones(1000)})
    >>> float(value), 1e-5 < bound < 0.1
    (1000.0, True)
    """
    exact = evaluate(roots, feeds, oracle=True)
    spread = [0.0] * len(roots)
    sizes: dict[Value, np.ndarray] = {}
    for k in range(SAMPLES):
        nudge = functools.partial(_nudged, np.random.default_rng((seed, k)), sizes)
        moved = evaluate(roots, feeds, oracle=True, nudge=nudge)
        with np.errstate(invalid="ignore"):
            spread = [max(s, _apart(a, b)) if r.dtype.is_float else s
                      for r, s, a, b in zip(roots, spread, moved, exact, strict=True)]
    return [(y, 2.0 * s + _floor(r.dtype, y)) for r, y, s in zip(
        roots, exact, spread, strict=True)]


def _apart(moved: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference; infinite where rounding may make a number NaN or infinite."""
    finite = np.isfinite(exact)
    off = np.abs(moved[finite] - exact[finite])
    return float(np.nan_to_num(off, nan=np.inf).max()) if off.size else 0.0


def _floor(d: DType, y: np.ndarray) -> float:
    """A few roundings of the value itself, plus the numbers that some devices flush to zero."""
    if not d.is_float:
        return 0.0
    finite = np.abs(y[np.isfinite(y)])
    return 4 * unit_roundoff(d) * float(finite.max(initial=0.0)) + 1e-36


def _nudged(rng: np.random.Generator, sizes: dict[Value, np.ndarray], v: Value, y: np.ndarray,
            args: Sequence[np.ndarray]) -> np.ndarray:
    """y, perturbed by the rounding error of the op that computes it.

    `sizes` caches the sums of the sizes of terms, which take as long to compute as y itself.
    """
    if not v.dtype.is_float or v.op.movement or v.op.kind == "leaf" or v.op.opcode in EXACT or (
            not y.size):
        return y
    terms = 1
    if v.op.kind == "contract":
        terms = args[0].shape[-1]
        if v not in sizes:
            sizes[v] = v.op.numpy(*(np.abs(a) for a in args), **v.attrs)
    elif v.op.kind in ("reduce", "scatter") and v.op.opcode == "add":
        terms = max(1, args[0].size // y.size)
        if v not in sizes:
            sizes[v] = v.op.numpy(np.abs(args[0]), *args[1:], **v.attrs)
    unit = ALLOWED * unit_roundoff(v.attrs["dtype"] if v.op is ROUNDED else v.dtype)
    if v not in sizes:
        size = unit * np.abs(y)
    elif v.dtype in HALVES:
        size = ALLOWED * unit_roundoff(f32) * math.sqrt(terms) * sizes[v] + unit * np.abs(y)
    else:
        size = unit * math.sqrt(terms) * sizes[v]
    off = rng.random(y.shape, np.float32)  # half of it is shared, as by constants
    off += np.float32(rng.uniform(-1, 1) / 2 - 0.5)
    moved: np.ndarray = size * off
    moved += y
    return moved if np.isfinite(moved).all() else np.where(np.isfinite(moved), moved, y)
