"""Rewritten functions against wider arithmetic: measured errors, defined ends, equal at any width.

Run with -s for the table of measured errors (in units of the last place) and instruction counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch.dtypes import (
    ALL,
    DType,
    bf16,
    f16,
    f32,
    f64,
    from_storage,
    to_storage,
    u8,
    u16,
    u32,
    u64,
)
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.opcodes import OPCODES

POINTS = 50_000
LITTLE, MUCH = 2.0**-24, 2.0**15  # in every float type
Array = np.ndarray
RNG = np.random.default_rng(0)
WIDER: dict[DType, Any] = {f32: np.float64, f64: np.longdouble}
BITS = {f32: np.uint32, f64: np.uint64}


@pytest.fixture(autouse=True)
def same_points_in_any_order() -> None:
    global RNG
    RNG = np.random.default_rng(0)


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
    "log2": (positive, 1.6, 1.6),
    "log1p": (lambda d: [abs(spread(d, 6 - top(d), top(d))), even(-1, 3), spread(d, -50, -0.001)],
              1.5, 1.5),
    "tanh": (lambda d: [even(-10, 10), spread(d, 6 - top(d), 7)], 6.3, 2.7),
    "erf": (lambda d: [even(-6.5, 6.5), spread(d, 6 - top(d), 2)], 6.5, 1.6),
    "sin": (lambda d: [even(-20, 20), spread(d, -30, 4)], 2.6, 2.6),
    "cos": (lambda d: [even(-20, 20), spread(d, -30, 4)], 2.6, 2.6),
    "atan": (lambda d: [even(-5, 5), spread(d, -40, 40)], 2.1, 2.1),
    "pow": (powers, 4.5, 36.0),
    "rsqrt": (lambda d: [abs(spread(d, 2 - top(d), top(d)))], 1.5, 1.5),
}


def numpys(name: str) -> Callable[..., Any]:
    """NumPy's function; NumPy 1 has it under the older name only."""
    return getattr(np, {"atan": "arctan"}.get(name, name))


@cache
def sample(name: str, d: DType) -> tuple[list[Array], Array]:
    """Points of d with their true values."""
    given = CASES[name][0](d)
    groups = given if name == "pow" else [np.concatenate(given)]
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
    x = np.array([3e6, -1e9, 1e18, 1e38], d.numpy)
    assert np.all(np.abs(run(name, d, x)) <= 1)


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
        if name in ("sin", "cos"):
            truth[np.abs(x) > 1e5] = nan
        if d == bf16 and name in ("exp", "exp2"):
            truth[(truth < 2.0**-125.49) & (truth > 0)] = nan
        y = run(name, d, x)
        rounded = from_storage(d, to_storage(d, truth.astype(np.float32)))
        finite = np.isfinite(rounded)
        assert np.max(units(y, truth, d)[finite]) < 0.51
        np.testing.assert_array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)])


# -- ends ----------------------------------------------------------------------------------------

ENDS: dict[str, list[tuple[float, float]]] = {  # arguments with their values
    "exp": [(0.0, 1), (-0.0, 1), (inf, inf), (-inf, 0), (1024, inf), (-1024, 0), (MUCH, inf)],
    "exp2": [(0.0, 1), (-0.0, 1), (inf, inf), (-inf, 0), (5, 32), (-3, 1 / 8), (1024, inf)],
    "expm1": [(0.0, 0), (-0.0, -0.0), (inf, inf), (-inf, -1), (-48, -1), (1024, inf), (LITTLE, LITTLE)],
    "log": [(1, 0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-inf, nan), (-1, nan), (-LITTLE, nan)],
    "log2": [(1, 0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-inf, nan), (8, 3), (2**-24, -24)],
    "log1p": [(0.0, 0), (-0.0, -0.0), (-1, -inf), (inf, inf), (-inf, nan), (-1.5, nan), (LITTLE, LITTLE)],
    "tanh": [(0.0, 0), (-0.0, -0.0), (inf, 1), (-inf, -1), (24, 1), (-24, -1), (MUCH, 1), (LITTLE, LITTLE)],
    "erf": [(0.0, 0), (-0.0, -0.0), (inf, 1), (-inf, -1), (6.5, 1), (-6.5, -1), (MUCH, 1)],
    "sin": [(0.0, 0), (-0.0, -0.0), (inf, nan), (-inf, nan), (LITTLE, LITTLE), (-LITTLE, -LITTLE)],
    "atan": [(0.0, 0), (-0.0, -0.0), (LITTLE, LITTLE), (-LITTLE, -LITTLE)],
    "cos": [(0.0, 1), (-0.0, 1), (inf, nan), (-inf, nan), (LITTLE, 1)],
    "rsqrt": [(0.0, inf), (inf, 0), (-1, nan), (4, 0.5)],
}


@together()
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fused"])
@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str, d: DType, exact: bool) -> None:
    x, wanted = np.array([*ENDS[name], (nan, nan), (-nan, nan)], d.working).T
    y = run(name, d, x, exact=exact)
    np.testing.assert_allclose(y, wanted, rtol=2.0**-23)
    np.testing.assert_array_equal(np.signbit(y[x == 0]), np.signbit(wanted[x == 0]))


@together()
@pytest.mark.parametrize("d", [f32, f64], ids=repr)
@pytest.mark.parametrize("name", [n for n in ENDS if n != "rsqrt"])
def test_every_nan_stays_nan(name: str, d: DType) -> None:
    """Also those whose lowest bits are set, which shifts could bring into the exponent."""
    quiet = int(np.array(nan, d.numpy).view(BITS[d]))
    x = np.array([quiet + 1, quiet + 2**9 - 1, quiet + 2**20], BITS[d]).view(d.numpy)
    assert np.all(np.isnan(run(name, d, x)))


@pytest.mark.parametrize("d", [f32, f64], ids=repr)
def test_exponentials_next_to_overflow_and_underflow(d: DType) -> None:
    info = np.finfo(d.numpy)
    x = np.log(np.array(info.max))
    last = np.array([x, np.nextafter(x, d.numpy.type(inf)), x * d.numpy.type(1 + 1e-6)], d.numpy)
    with np.errstate(over="ignore"):
        y = run("exp", d, last)
        expected = np.exp(last.astype(np.longdouble)).astype(d.numpy)
    assert np.all((y == expected) | (np.abs(y / info.max - 1) < 1e-4))
    assert y[2] == inf
    low = np.log2(float(info.smallest_normal)) + np.array([0.51, 0.499])
    y = run("exp2", d, low.astype(d.numpy))
    assert y[0] > info.smallest_normal and y[1] == 0


@pytest.mark.parametrize("name", ["tanh", "erf"])
@pytest.mark.parametrize("d", [f32, f64], ids=repr)
def test_saturation_is_exact_and_never_passed(name: str, d: DType) -> None:
    x = np.concatenate([even(2, 30), spread(d, 5, 100)]).astype(d.numpy)
    for exact in (True, False):
        y = run(name, d, x, exact=exact)
        assert np.max(np.abs(y)) == 1
        assert np.all(np.abs(y)[np.abs(x) > 22] == 1)
        np.testing.assert_array_equal(run(name, d, -x, exact=exact), -y)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fused"])
@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
def test_pow_ends(d: DType, exact: bool) -> None:
    values = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, inf, -inf, nan, 16384, -16384, 5, 0.125]
    x, y = [v.ravel().astype(d.working) for v in np.meshgrid(values, values)]
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float32) if d.bits == 16 else x, y).astype(np.float64)
    wanted[np.abs(wanted) < 2.0 ** {f64: -1021.5}.get(d, -125.5)] *= 0.0
    with np.errstate(all="ignore"):
        wanted = from_storage(d, to_storage(d, wanted.astype(d.working)))
        z = run("pow", d, x, y, exact=exact)
    np.testing.assert_allclose(z, wanted, rtol=8 * float(ml_dtypes.finfo(
        ml_dtypes.bfloat16 if d == bf16 else d.numpy).eps) if d.bits == 16 else 1e-6)
    np.testing.assert_array_equal(np.signbit(z[z == 0]), np.signbit(wanted[z == 0]))


# -- widths, arithmetic, termination --------------------------------------------------------------


@together()
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fused"])
@pytest.mark.parametrize("name", CASES)
def test_lanes_do_not_matter(name: str, exact: bool) -> None:
    for d in (f16, f32, f64):
        x, y = spread(d, -6, 6)[:1024].astype(d.numpy), even(-4, 4)[:1024].astype(d.numpy)
        xs = [x, y][: OPCODES[name].arity]
        one, many = (run(name, d, *xs, exact=exact, lanes=n) for n in (1, 16))
        assert one.tobytes() == many.tobytes()


@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
def test_rem_of_floats(d: DType) -> None:
    x, y = (spread(f32, -3, 5).astype(d.working) for _ in range(2))
    x[:8] = [7, -7, 7, -7, 0.7, -0.7, 5, 0]
    y[:8] = [2, 2, -2, -2, 0.1, 0.1, inf, 3]
    x, y = (from_storage(d, to_storage(d, v)) for v in (x, y))
    if d.bits >= 32:  # any two numbers: quotients of up to 2^277, of up to 2^2098
        ends = np.array([np.finfo(d.numpy).max, np.finfo(d.numpy).smallest_subnormal], d.numpy)
        bits = RNG.integers(0, 2**(d.bits - 1), 512, f"u{d.bytes}").view(d.numpy)
        bits = np.concatenate([bits[np.isfinite(bits)], ends])
        x, y = (np.concatenate(v) for v in ((x, bits, ends), (y, bits[::-1], ends)))
    wanted = np.fmod(x, y)
    for exact in (True, False):
        rest = run("rem", d, x, y, exact=exact)
        np.testing.assert_array_equal(rest, wanted)
        np.testing.assert_array_equal(np.signbit(rest), np.signbit(x))
    with np.errstate(all="ignore"):
        assert np.all(np.isnan(run("rem", d, np.array([1, inf, nan, 1], d.working),
                                   np.array([0, 2, 1, nan], d.working))))


@pytest.mark.parametrize("d", [f16, f32, f64], ids=repr)
@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
def test_rounding_gives_the_same_bits(name: str, d: DType) -> None:
    """Random bits, ties, signed zeros, and numbers around the first that have no fraction bits."""
    bits = np.dtype(f"u{d.bytes}")
    x = np.concatenate([RNG.integers(0, 2**d.bits, 20_000, bits).view(d.numpy), np.arange(-999, 999) / 4,
                        [-0.0, inf, -inf, nan, 0.49999999999999994, 2.0**22 + 0.5, 2.0**52 - 0.5, 2.0**52]])
    x = x.astype(d.numpy)
    x = np.concatenate([x, -x])
    meaning = OPCODES[name].meaning
    assert meaning is not None
    with np.errstate(all="ignore"):
        wanted = meaning(x)
    result, number = run(name, d, x), ~np.isnan(wanted)
    np.testing.assert_array_equal(result[number].view(bits), wanted[number].view(bits))
    assert np.isnan(result[~number]).all()


@pytest.mark.parametrize("d", [d for d in ALL if d.is_int], ids=repr)
def test_rem_of_integers(d: DType) -> None:
    info = np.iinfo(d.numpy)
    x, y = (RNG.integers(info.min, info.max, 4096, d.numpy, endpoint=True) for _ in range(2))
    y[:64] = 0
    y[64:2048] = y[64:2048] % 7 + 1
    meaning = OPCODES["rem"].meaning
    assert meaning is not None
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run("rem", d, x, y), meaning(x, y))


@pytest.mark.parametrize("d", [u8, u16, u32, u64], ids=repr)
def test_mulhi(d: DType) -> None:
    ends = np.array([0, 1, 2, 2 ** (d.bits // 2), 2**d.bits - 1, 2 ** (d.bits - 1)], d.numpy)
    x = np.concatenate([np.repeat(ends, 6), RNG.integers(0, 2**d.bits, 4096, d.numpy)])
    y = np.concatenate([np.tile(ends, 6), RNG.integers(0, 2**d.bits, 4096, d.numpy)])
    wanted = [(int(p) * int(q)) >> d.bits for p, q in zip(x, y, strict=True)]
    np.testing.assert_array_equal(run("mulhi", d, x, y), np.array(wanted, d.numpy))


def test_rewriting_ends() -> None:
    """No function is rewritten into itself, by whatever detour."""
    uses: dict[str, set[str]] = {}
    for name, row in OPCODES.items():
        if row.result == "attr":  # cast: told apart by both dtypes, see test_halves
            continue
        for d in [d for d in ALL if d.kind in row.kinds and row.rewriting(d)]:
            for exact in (True, False):
                uses.setdefault(name, set()).update(kernel(name, d, 4, 4, exact).opcodes())

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"{name} is rewritten into itself: {path}"
        for inner in uses.get(name, ()):
            walk(inner, (*path, name))

    for name in uses:
        walk(name, ())
