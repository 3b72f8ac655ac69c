"""Kernels of one rewritten function, and their errors in units of the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ztorch.dtypes import (
    DType,
    f32,
    f64,
    from_storage,
    to_storage,
)
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.opcodes import OPCODES

POINTS = 50_000
Array = np.ndarray
RNG = np.random.default_rng(0)
START = RNG.bit_generator.state
WIDER: dict[DType, Any] = {f32: np.float64, f64: np.longdouble}


@pytest.fixture(autouse=True)
def same_points_in_any_order() -> None:
    RNG.bit_generator.state = START


def kernel(name: str, d: DType, n: int, lanes: int, exact: bool) -> Kernel:
    """out = name(a, b, ...) by the rewriting, all of it or `lanes` elements at a time."""
    b = Builder(name, exact=exact)
    row = OPCODES[name]
    inputs = [b.memory("abc"[k], d, n) for k in range(row.arity)]
    b.memory("out", d, n, access="w")
    with b.loop(0, n, lanes, kind="grid") as i:
        via = row.rewriting(d)
        assert via is not None
        b.store("out", i, via(b, *[b.load(m, i, lanes=lanes) for m in inputs]))
    return b.kernel()


def run(name: str, d: DType, *xs: Array, exact: bool = True, lanes: int = 0) -> Array:
    n = len(xs[0])
    out = np.zeros(n, d.numpy)
    buffers = {"abc"[k]: np.ascontiguousarray(to_storage(d, x)) for k, x in enumerate(xs)}
    interpret(kernel(name, d, n, lanes or n, exact), {**buffers, "out": out}, races=False)
    return from_storage(d, out)


def spread(d: DType, low: float, high: float) -> Array:
    """Numbers of both signs, dense in every power of two."""
    return RNG.choice([-1.0, 1.0], POINTS) * np.exp2(RNG.uniform(low, high, POINTS))


def even(low: float, high: float) -> Array:
    return RNG.uniform(low, high, POINTS)


def top(d: DType) -> int:
    return {f32: 128, f64: 1024}[d]


def positive(d: DType) -> list[Array]:
    return [abs(spread(d, -top(d) - 15, top(d))), even(0, 3), 1 + spread(d, -23, -2)]


def powers(d: DType) -> list[Array]:
    """Pairs whose power spans all exponents, from bases near one and from everywhere."""
    bases = np.exp2(np.concatenate([even(-0.98, 0.98) * top(d), spread(d, -18, 1)])).astype(d.numpy)
    exponents = RNG.uniform(-0.98, 0.99, len(bases)) * top(d) / np.log2(bases.astype(WIDER[d]))
    return [np.concatenate([bases, even(0, 3)]), np.concatenate([exponents, even(-20, 20)])]


def reach(d: DType) -> float:
    """Below and above this, exp is not a normal number."""
    return {f32: 88.8, f64: 709.9}[d]


# Sample points, and the greatest errors in f32 and f64.
CASES: dict[str, tuple[Callable[[DType], list[Array]], float, float]] = {
    "exp": (lambda d: [even(-1, 1) * reach(d), spread(d, -top(d), 6.4)], 1.25, 1.25),
    "exp2": (lambda d: [even(-1, 1) * top(d), spread(d, -top(d), 7)], 1.2, 1.2),
    "expm1": (lambda d: [even(-1, 1) * reach(d), even(-3, 3), spread(d, 2 - top(d), 6)], 1.7, 2.3),
    "log": (positive, 0.9, 0.9),
    "log2": (positive, 1.5, 1.5),
    "log1p": (lambda d: [abs(spread(d, 6 - top(d), top(d))), even(-1, 3), spread(d, -50, -0.001)],
              0.9, 0.9),
    "tanh": (lambda d: [even(-10, 10), spread(d, 6 - top(d), 7)], 6.3, 2.7),
    "erf": (lambda d: [even(-6.5, 6.5), spread(d, 6 - top(d), 2)], 6.5, 1.6),
    "sin": (lambda d: [even(-20, 20), spread(d, -30, 4)], 2.6, 2.6),
    "cos": (lambda d: [even(-20, 20), spread(d, -30, 4)], 2.6, 2.6),
    "atan": (lambda d: [even(-5, 5), spread(d, -40, 40)], 2.1, 2.1),
    "pow": (powers, 4.5, 36.0),
    "rsqrt": (lambda d: [abs(spread(d, 2 - top(d), top(d)))], 1.5, 1.5),
}
