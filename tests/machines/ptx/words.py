"""The meaning of PTX instructions, on arrays of bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.machines.ptx import compiled_words
from tests.machines.ptx.fused import fma64
from tests.machines.ptx.parse import BITS, Instruction, PtxError
from ztorch.dtypes import DType, bf16, dtype, from_storage, to_storage

DTYPE = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
         "u32": np.uint32, "s64": np.int64, "u64": np.uint64, "f16": np.float16, "f32": np.float32,
         "f64": np.float64, "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
Meaning = Callable[..., np.ndarray]
ROUND = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
           "eq": np.equal, "ne": np.not_equal}
SIMPLE = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _to_tf32(x: np.ndarray) -> np.ndarray:
    """To 10 bits of mantissa: the nearest, ties away from zero."""
    number = x.view(np.float32).astype(np.float64)
    mantissa, power = np.frexp(number)
    near = np.ldexp(np.sign(mantissa) * np.floor(np.abs(mantissa) * 2048 + 0.5), power - 11)
    kept = np.isfinite(number) & (np.abs(number) >= 2.0**-126)
    near = np.where(kept, near, number).astype(np.float32).view(np.uint32)
    small = (x + np.uint32(0x1000)) & np.uint32(0xFFFFE000)  # fixed steps below the least normal
    return np.where(np.isfinite(number) & ~kept, small, near)


def meaning(i: Instruction) -> tuple[Meaning, tuple[int, ...], int]:
    """An instruction's function, and how many bits it reads of each operand and writes."""
    if i.opcode == ("cvt", "rna", "tf32", "f32"):
        return _to_tf32, (32,), 32
    if i.opcode in compiled_words.WORDS:
        return compiled_words.WORDS[i.opcode]
    name, *how = i.opcode
    kind = how[-1]
    how = how[:-1]
    if name == "cvt" and how in (["rn", "f16x2"], ["rn", "bf16x2"]) and kind == "f32":
        return partial(_packed, dtype(how[1][:-2])), (32, 32), 32
    if name == "cvt":
        return _convert(i)
    if kind not in BITS:
        raise PtxError(f"{i.text}: unknown")
    bits, is_float = BITS[kind], kind[0] == "f"
    if name == "setp":
        return _compare(how, kind, i), (bits, bits) + (1,) * (len(how) - 1), 1
    if name == "selp":
        return (lambda a, b, p: np.where(p, a, b)), (bits, bits, 1), bits
    if name in ("and", "or", "xor", "not") and not how and kind[0] in "pb":
        f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}[name]
        return f, (bits,) * (1 if name == "not" else 2), bits
    d = DTYPE.get(kind)
    if d is None or kind in ("f16", "bf16", "b8", "s8", "u8"):
        raise PtxError(f"{i.text}: type")
    if is_float and name in ("add", "sub", "mul", "div", "sqrt", "fma") and how != ["rn"]:
        raise PtxError(f"{i.text}: its rounding is not spelled out, so ptxas may fuse it")
    key = (name, *(() if is_float else how))
    if key in (("add",), ("sub",)) or key == ("mul", "lo") or (key == ("mul",) and is_float):
        return _typed(SIMPLE[name], d), (bits, bits), bits
    if key == ("mul", "hi"):
        return (lambda a, b: _high(a.view(d), b.view(d), bits)), (bits, bits), bits
    if key == ("mad", "lo"):
        return _typed(lambda a, b, c: a * b + c, d), (bits,) * 3, bits
    if (name, how, kind[0]) == ("rcp", ["rn"], "f"):
        return _typed(np.reciprocal, d), (bits,), bits
    if key == ("mad", "wide") and kind == "s32":
        return (lambda a, b, c: (a.view(np.int32).astype(np.int64) * b.view(np.int32) + c.view(np.int64)
                                 ).view(np.uint64)), (32, 32, 64), 64
    if key == ("div",):
        return _typed(np.divide if is_float else _quotient, d), (bits, bits), bits
    if key == ("rem",) and not is_float:
        return _typed(_rest, d), (bits, bits), bits
    if key == ("fma",) and is_float:
        return _typed(_fma32 if bits == 32 else fma64, d), (bits,) * 3, bits
    if (name, how, kind) in (("rcp", ["approx", "ftz"], "f64"), ("rsqrt", ["approx", "ftz"], "f64")):
        return (lambda x: _rough(x.view(d), name == "rsqrt")), (bits,), bits
    if name in ("ex2", "rcp") and (how, kind) == (["approx", "ftz"], "f32"):
        return partial(_near, np.exp2 if name == "ex2" else np.reciprocal), (32,), 32
    if key == ("sqrt",):
        return _typed(np.sqrt, d), (bits,), bits
    if key in (("neg",), ("abs",)):
        return _sign(name, kind), (bits,), bits
    if key in (("min",), ("max",)) and not is_float:
        return _typed(np.minimum if name == "min" else np.maximum, d), (bits, bits), bits
    if (name, how, kind) in (("min", ["NaN"], "f32"), ("max", ["NaN"], "f32")):
        return _typed(np.minimum if name == "min" else np.maximum, d), (bits, bits), bits
    if key == ("shl",) and kind[0] == "b":
        return (lambda a, n: _shift(np.left_shift, a, n, bits)), (bits, 32), bits
    if key == ("shr",) and kind[0] in "su":
        return (lambda a, n: _shift(np.right_shift, a.view(d), n, bits).view(a.dtype)), (bits, 32), bits
    raise PtxError(f"{i.text}: unknown")


def _typed(f: Callable[..., np.ndarray], d: type) -> Meaning:
    raw = UNSIGNED[np.dtype(d).itemsize * 8]
    if isinstance(f, np.ufunc):  # gives the number of its arguments
        if d is raw:
            return f
        if f.nin == 2:
            return lambda a, b: f(a.view(d), b.view(d)).view(raw)
    return lambda *xs: np.asarray(f(*[x.view(d) for x in xs]), d).view(raw)


def _compare(how: list[str], kind: str, i: Instruction) -> Meaning:
    test, d = how[0], DTYPE[kind]
    if len(how) > 2 or (len(how) == 2 and how[1] not in ("or", "and")):
        raise PtxError(i.text)
    if kind[0] == "f":
        def holds(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            apart = np.isnan(a) | np.isnan(b)
            if test in ("nan", "num"):
                return apart if test == "nan" else ~apart
            if test in COMPARE:
                return COMPARE[test](a, b) & ~apart
            return COMPARE[test.removesuffix("u")](a, b) | apart
        if test not in ("nan", "num") and test not in COMPARE and test.removesuffix("u") not in COMPARE:
            raise PtxError(i.text)
    elif test not in COMPARE or (kind[0] == "b" and test not in ("eq", "ne")):
        raise PtxError(i.text)
    else:
        holds = COMPARE[test]
    if len(how) == 1:
        return lambda a, b: holds(a.view(d), b.view(d))
    both = np.logical_or if how[1] == "or" else np.logical_and
    return lambda a, b, p: both(holds(a.view(d), b.view(d)), p)


def _high(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        return ((a.astype(wide) * b) >> wide.type(bits)).astype(a.dtype).view(UNSIGNED[bits])
    a, b = np.broadcast_arrays(a, b)
    return np.array([(int(x) * int(y)) >> 64 & (1 << 64) - 1 for x, y in zip(a, b, strict=True)], np.uint64)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Truncates; where PTX leaves the result open it is an odd number, which no test expects."""
    odd = (b == 0) | ((b == -1) & (a == np.iinfo(a.dtype).min)) if a.dtype.kind == "i" else b == 0
    safe = np.where(odd, 1, b).astype(b.dtype)
    q, r = a // safe, a % safe
    if a.dtype.kind == "i":
        q = q + ((r != 0) & ((a < 0) != (safe < 0)))
    return np.where(odd, np.array(0x5A5A5A5A).astype(a.dtype), q).astype(a.dtype)


def _rest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    odd = (b == 0) | ((b == -1) & (a == np.iinfo(a.dtype).min)) if a.dtype.kind == "i" else b == 0
    return np.where(odd, np.array(0x5A5A5A5A).astype(a.dtype), a - _quotient(a, b) * b).astype(a.dtype)


def _rough(x: np.ndarray, root: bool) -> np.ndarray:
    """1 / x or that of its square root, of which the upper half of the bits is right, as PTX says."""
    exact = 1 / (np.sqrt(x) if root else x)
    return np.asarray(exact).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)


def _packed(d: DType, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two float32 as numbers of 16 bits in one register, of which the second is in the lower half."""
    upper, lower = (np.asarray(to_storage(d, x.view(np.float32))).view(np.uint16).astype(np.uint32)
                    for x in (high, low))
    return upper << np.uint32(16) | lower


def _near(f: np.ufunc, x: np.ndarray) -> np.ndarray:
    """The result of f with an error of 2 ** -22, upwards or downwards by turns; subnormal numbers are
    zero."""
    number = np.where(x & 0x7F800000, x, x & 0x80000000).astype(np.uint32).view(np.float32)
    y = (f(number.astype(np.float64)) * (1 + 2.0**-22 * np.where(x & 1, 1, -1))).astype(np.float32)
    return np.where(np.abs(y) < 2.0**-126, np.copysign(np.float32(0), y), y).view(np.uint32)


def _sign(name: str, kind: str) -> Meaning:
    if kind[0] == "f":
        raw = UNSIGNED[BITS[kind]]
        top = raw(1 << (BITS[kind] - 1))
        return (lambda a: a ^ top) if name == "neg" else (lambda a: a & ~top)
    if kind[0] != "s":
        raise PtxError(f"{name}.{kind}")
    return _typed(np.negative if name == "neg" else np.abs, DTYPE[kind])


def _shift(f: Callable[..., np.ndarray], a: np.ndarray, n: np.ndarray, bits: int) -> np.ndarray:
    """Distances of the width and more shift everything out."""
    far = n >= bits
    if not far.any():
        return f(a, n.astype(a.dtype))
    result = f(a, np.where(far, 0, n).astype(a.dtype))
    out = np.where(a < 0, -1, 0) if a.dtype.kind == "i" and f is np.right_shift else np.zeros_like(a)
    return np.where(far, out, result).astype(a.dtype)


def _fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The product is exact in float64. The sum may not be, and rounding it twice goes wrong only
    where it seems to lie halfway between two float32, or below the least of them."""
    p, c = a.astype(np.float64) * b, c.astype(np.float64)
    s = p + c
    seems = ((s.view(np.uint64) & np.uint64(0x1FFFFFFF)) == 0x10000000) | (np.abs(s) < 2.0**-125)
    if seems.any():
        part = s - p
        error = (p - (s - part)) + (c - part)
        inexact = (error != 0) & np.isfinite(s) & np.isfinite(error)
        even = (s.view(np.uint64) & np.uint64(1)) == 0
        s = np.where(inexact & even, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)
    return s.astype(np.float32)


def widening(kind: str, bits: int) -> Meaning:
    """From an element in memory to a register of so many bits."""
    if bits < BITS[kind]:
        raise PtxError(f"a load of {kind} into {bits} bits")
    if kind[0] == "s":
        wide = DTYPE[f"s{bits}"]
        return lambda x: x.view(DTYPE[kind]).astype(wide).view(UNSIGNED[bits])
    return lambda x: x.astype(UNSIGNED[bits])


def _convert(i: Instruction) -> tuple[Meaning, tuple[int, ...], int]:
    *how, d, s = i.opcode[1:]
    target, source = i.operands
    given, wanted = target.bits, getattr(source, "bits", None) or BITS[s]  # type: ignore[union-attr]
    if given < BITS[d] or wanted < BITS[s]:
        raise PtxError(f"{i.text}: register too narrow")
    to_float, from_float = "f" in d, "f" in s
    if to_float and from_float:
        f = _float_to_float(how, d, s, i)
    elif to_float:
        if how != ["rn"] or d not in ("f32", "f64"):
            raise PtxError(i.text)
        f = lambda x: x.astype(DTYPE[d]).view(UNSIGNED[BITS[d]])  # noqa: E731
    elif from_float:
        if how != ["rzi"] or d[0] == "b":
            raise PtxError(i.text)
        f = lambda x: _saturate(x, d, s)  # noqa: E731
    else:
        if how:
            raise PtxError(i.text)
        f = lambda x: x.astype(DTYPE[d]).view(UNSIGNED[BITS[d]])  # noqa: E731
    low, grow = UNSIGNED[BITS[s]], widening(d, given)

    def work(x: np.ndarray) -> np.ndarray:
        x = x.astype(low)
        return grow(f(x if s == "bf16" else x.view(DTYPE[s])))
    return work, (wanted,), given


def _float_to_float(how: list[str], d: str, s: str, i: Instruction) -> Meaning:
    if d == s and len(how) == 1 and how[0] in ROUND and d in ("f32", "f64"):
        return lambda x: ROUND[how[0]](x).view(UNSIGNED[BITS[d]])
    if (d, s) in (("f32", "f16"), ("f64", "f32")) and not how:
        return lambda x: x.astype(DTYPE[d]).view(UNSIGNED[BITS[d]])
    if (d, s) in (("f16", "f32"), ("f32", "f64")) and how == ["rn"]:
        return lambda x: x.astype(DTYPE[d]).view(UNSIGNED[BITS[d]])
    if (d, s) == ("bf16", "f32") and how == ["rn"]:
        return lambda x: np.where(np.isnan(x), np.uint16(0x7FFF), to_storage(bf16, x))
    if (d, s) == ("f32", "bf16") and not how:
        return lambda x: from_storage(bf16, x).view(np.uint32)
    raise PtxError(i.text)


def _saturate(x: np.ndarray, d: str, s: str) -> np.ndarray:
    """Towards zero and into range. NaN is 0, but where 64 bits are involved the top bit."""
    info = np.iinfo(DTYPE[d])
    x = np.trunc(x)
    high, low = x >= float(info.max) + (BITS[d] < 53), x <= float(info.min)
    inside = ~(high | low | np.isnan(x))
    result = np.where(inside, x, 0).astype(DTYPE[d])
    result = np.where(high, DTYPE[d](info.max), np.where(low, DTYPE[d](info.min), result))
    top = 0 if s != "f64" and BITS[d] < 64 else 1 << (BITS[d] - 1)
    raw = UNSIGNED[BITS[d]]
    return np.where(np.isnan(x), raw(top), result.view(raw))
