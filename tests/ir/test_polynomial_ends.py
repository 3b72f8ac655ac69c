"""Rewritten functions at the ends of their range, and integer and rounding opcodes that are rewritten."""

from __future__ import annotations

from math import inf, nan

import ml_dtypes
import numpy as np
import pytest

from tests.cases.grouping import together
from tests.ir.rewritten import (
    CASES,
    RNG,
    even,
    kernel,
    run,
    same_points_in_any_order,  # noqa: F401  # for all tests here
    spread,
)
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
from ztorch.ir.opcodes import OPCODES

LITTLE, MUCH = 2.0**-24, 2.0**15  # in every float type
BITS = {f32: np.uint32, f64: np.uint64}

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
def test_nan_in_nan_out(name: str, d: DType) -> None:
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
