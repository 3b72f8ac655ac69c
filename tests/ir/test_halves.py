"""Conversions of 16-bit floats by integer work, against NumPy on every bit pattern."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.dtypes import (
    Codes,
    DType,
    bf16,
    codes_dtype,
    f16,
    f32,
    f64,
    from_storage,
    i32,
    part_dtype,
    result_type,
    to_storage,
)
from ztorch.errors import Unsupported
from ztorch.ir import halves
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose

EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 65536, 1e38, 2**-14,
                  2**-24, 2**-25, 2**-25 * 1.0001, 6e-8, 1e-40, 3.3895314e38, 1 + 2**-9,
                  1 + 2**-8 + 2**-9], np.float32)


def converted(x: np.ndarray, source: DType, to: DType, lanes: int = 8) -> np.ndarray:
    """x converted by the rewriting, run by the interpreter with no half conversion of its own."""
    b = Builder("convert")
    b.memory("x", source, x.size)
    b.memory("y", to, x.size, access="w")
    with b.loop(0, x.size, lanes) as i:
        b.store("y", i, halves.cast(b, b.load("x", i, lanes=lanes), to))
    kernel = decompose(b.kernel(), speaks, "a machine without halves")
    verify(kernel)
    y = np.zeros(x.size, to.numpy)
    interpret(kernel, {"x": x, "y": y})
    return y


def speaks(instr: object) -> bool:
    if instr.opcode != "cast":  # type: ignore[attr-defined]
        return True
    kinds = {instr.dest.dtype, instr.args[0].dtype}  # type: ignore[attr-defined]
    return not kinds & set(halves.HALVES)


def test_a_dtype_without_a_conversion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(halves._WIDENED, bf16)
    monkeypatch.delitem(halves._NARROWED, bf16)
    x = np.zeros(8, np.uint16)
    for source, to in ((bf16, f32), (f32, bf16)):
        with pytest.raises(Unsupported, match=r"cast.*bfloat16.*ir/halves\.py"):
            converted(x.astype(source.numpy), source, to)


@pytest.mark.parametrize("d", halves.HALVES, ids=repr)
def test_every_half_widens_exactly(d: DType) -> None:
    bits = np.arange(1 << d.bits).astype(codes_dtype(d).numpy).view(d.numpy)
    np.testing.assert_array_equal(
        converted(bits, d, f32), from_storage(d, bits).astype(np.float32))


@pytest.mark.parametrize("d", halves.HALVES, ids=repr)
def test_narrowing_rounds_like_numpy(d: DType) -> None:
    rng = np.random.default_rng(0)
    spread = (rng.standard_normal(40000) * np.exp2(rng.uniform(-30, 20, 40000))).astype(np.float32)
    x = np.concatenate([EDGES, spread, np.arange(65536, dtype=np.uint16).view(np.float16).astype(
        np.float32)])
    x = np.concatenate([x, np.zeros(-x.size % 8, np.float32)])
    with np.errstate(over="ignore"):
        wanted = to_storage(d, x)
    got = converted(x, f32, d)
    number = ~np.isnan(x)
    codes = codes_dtype(d).numpy
    np.testing.assert_array_equal(got[number].view(codes), wanted[number].view(codes))
    assert np.isnan(from_storage(d, got[~number])).all()


@pytest.mark.parametrize("d", halves.HALVES, ids=repr)
def test_other_types_convert_through_float32(d: DType) -> None:
    x = np.arange(-64, 64, dtype=np.int32)
    np.testing.assert_array_equal(converted(x, i32, d), to_storage(d, x.astype(np.float32)))
    half = to_storage(d, np.linspace(-4, 4, 16, dtype=np.float32))
    np.testing.assert_array_equal(converted(half, d, f64), from_storage(d, half).astype(float))
    other = f16 if d is bf16 else bf16
    np.testing.assert_array_equal(
        from_storage(other, converted(half, d, other)),
        from_storage(other, to_storage(other, from_storage(d, half).astype(np.float32))))


def test_a_float_that_numpy_lacks_mixes_like_bfloat16() -> None:
    """A new one is a row of the table: no rule names bfloat16."""
    small = DType("f8", "float8_e5m2", "f", 8, 3, "unsigned char", "", 23, 19, None, bf16.spelled,
                  Codes(np.uint8, lambda x: x.astype(np.uint8), lambda codes: codes.astype(np.float32)))
    for d in (small, bf16):
        assert result_type(d) is result_type(d, d) is result_type(i32, d) is d
        assert [result_type(d, other) for other in (f16, f32, f64)] == [f32, f32, f64]
        assert part_dtype(d) is f32 and part_dtype(d, f64) is f64
    assert result_type(small, bf16) is f32
