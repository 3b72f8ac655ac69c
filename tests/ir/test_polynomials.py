"""Rewritten functions against wider arithmetic: measured errors, defined ends, equal at any width.

Run with -s for the table of measured errors (in units of the last place) and instruction counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cases.grouping import together
from tests.ir.rewritten import (
    CASES,
    RNG,
    WIDER,
    Array,
    even,
    kernel,
    run,
    same_points_in_any_order,  # noqa: F401  # for all tests here
    spread,
    top,
)
from ztorch.dtypes import (
    DType,
    bf16,
    f16,
    f32,
    f64,
    from_storage,
    to_storage,
)
from ztorch.ir.kernel import Kernel


def units(y: Array, truth: Array, d: DType) -> Array:
    """The error of y in units of the last place that the true value has in d."""
    info = ml_dtypes.finfo(ml_dtypes.bfloat16) if d == bf16 else np.finfo(d.numpy)
    size = np.maximum(np.abs(truth), float(info.smallest_normal))
    unit = np.ldexp(truth.dtype.type(1), np.frexp(size)[1] - 1 - info.nmant)
    return np.abs(y.astype(truth.dtype) - truth) / unit


# -- accuracy ------------------------------------------------------------------------------------


def wide_erf(x: Array) -> Array:
    """2/sqrt(pi) e^(-x^2) sum of 2^n x^(2n+1) / (2n+1)!!, all terms of one sign."""
    x = np.clip(x, -6.5, 6.5).astype(np.longdouble)
    term = total = x
    for n in range(1, 160):
        term = term * (2 * x * x) / (2 * n + 1)
        total = total + term
    return total * np.exp(-x * x) * np.longdouble("1.1283791670955125738961589031215")


def numpys(name: str) -> Callable[..., Any]:
    """NumPy's function; NumPy 1 has it under the older name only."""
    return getattr(np, {"atan": "arctan"}.get(name, name))


@cache
def sample(name: str, d: DType) -> tuple[list[Array], Array]:
    """Points of d with their true values."""
    inputs = CASES[name][0](d)
    groups = inputs if name == "pow" else [np.concatenate(inputs)]
    xs = [x.astype(d.numpy) for x in groups]
    wide = [x.astype(WIDER[d]) for x in xs]
    with np.errstate(all="ignore"):
        if name == "erf":
            return xs, wide_erf(wide[0]).astype(WIDER[d])
        if name == "rsqrt":
            return xs, 1 / np.sqrt(wide[0])
        return xs, numpys(name)(*wide)


@pytest.mark.parametrize("d", [f32, f64], ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_error_is_below_its_bound(name: str, d: DType) -> None:
    if np.finfo(WIDER[d]).nmant <= np.finfo(d.numpy).nmant + 8:
        pytest.skip("no wider type to compare with on this machine")
    xs, truth = sample(name, d)
    info = np.finfo(d.numpy)
    inside = np.isfinite(truth) & (abs(truth) <= info.max)
    if name in ("exp", "exp2", "pow"):  # smaller results are flushed to zero
        inside &= truth >= 2**0.5 * info.smallest_normal * (1 + 1e-5)
    worst, ops = [], []
    with np.errstate(all="ignore"):
        for exact in (True, False):
            errors = units(run(name, d, *xs, exact=exact), truth, d)
            worst.append(float(np.max(errors[inside])))
            ops.append(count(kernel(name, d, 16, 16, exact)))
    print(f"\n{name:6} {d!r} {sum(inside):7} points  error: exact {worst[0]:5.2f} fused "
          f"{worst[1]:5.2f}  instructions: exact {ops[0]} fused {ops[1]}", end="")
    _, narrow, wide = CASES[name]
    assert max(worst) <= (narrow if d == f32 else wide)


def count(k: Kernel) -> int:
    """Instructions that do work; a bitcast does none."""
    return sum(i.opcode not in ("loop", "end_loop", "load", "store", "bitcast") for i in k.body)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("d", "bound", "error"), [(f32, 1e5, 2**-24), (f64, 5e7, 2**-53)],
                         ids=["f32", "f64"])
def test_reduction_reaches_far(name: str, d: DType, bound: float, error: float) -> None:
    """2 units as above; for small results, whose unit is tiny, an absolute bound."""
    x = even(-bound, bound).astype(d.numpy)
    truth = getattr(np, name)(x.astype(WIDER[d]))
    for exact in (True, False):
        off = np.abs(run(name, d, x, exact=exact) - truth)
        assert np.max(off) < 2.1 * error
        unit = np.ldexp(1.0, np.frexp(truth)[1] - np.finfo(d.numpy).nmant - 1)
        assert np.max(off - 2.6 * unit) < 2e-4 * error


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("d", [f32, f64], ids=repr)
def test_large_angles(name: str, d: DType) -> None:
    """Of all sizes, beside small ones, close to multiples of pi / 2, and the closest there is."""
    closest = {f32: 16367173 * 2.0**72, f64: 6381956970095103 * 2.0**797}[d]
    multiples = np.pi / 2 * RNG.integers(2**16, 2**40, 1000)
    x = np.concatenate([spread(d, 15, top(d)), multiples, [closest, np.finfo(d.numpy).max]])
    x = x.astype(d.numpy)
    truth = getattr(np, name)(x.astype(WIDER[d]))
    for exact in (True, False):
        assert np.max(units(run(name, d, x, exact=exact), truth, d)) <= 2.6


@together()
@pytest.mark.parametrize("d", [f16, bf16], ids=repr)
@pytest.mark.parametrize("name", [n for n in CASES if n != "pow"])
def test_narrow_floats_round_once(name: str, d: DType) -> None:
    """All 65536 arguments: computed in f32, so hardly more than half a unit away."""
    x = from_storage(d, np.arange(2**16).astype(np.uint16).view(d.numpy))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        truth = (wide_erf(wide).astype(float) if name == "erf" else
                 1 / np.sqrt(wide) if name == "rsqrt" else numpys(name)(wide))
        if d == bf16 and name in ("exp", "exp2"):
            truth[(truth < 2.0**-125.49) & (truth > 0)] = nan
        y = run(name, d, x)
        rounded = from_storage(d, to_storage(d, truth.astype(np.float32)))
        finite = np.isfinite(rounded)
        assert np.max(units(y, truth, d)[finite]) < 0.51
        np.testing.assert_array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)])
