"""Text and back: the same kernel, to the bit; and every slip in a text is named with its line."""

from __future__ import annotations

import contextlib
import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.covering import full
from tests.cases.grouping import together
from tests.cases.random_kernels import random_kernel
from ztorch.dtypes import ALL, DType, bf16, boolean, f16, f32, f64, i8, i32, i64, u64
from ztorch.errors import VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel, Operand, constant
from ztorch.ir.text import parse, show
from ztorch.ir.verify import verify


def everything() -> Kernel:
    """A kernel with something of every form."""
    b = Builder("every", index=i32, exact=False, first_id=7)
    b.workgroup, b.origin = (8, 2, 1), ("dense/kernel", 'a "quoted" name', "// not a comment")
    b.memory("x", bf16, 64, vec=4)
    b.memory("y", f32, 64, access="rw")
    b.memory("s", f32, 16, space="shared", access="rw")
    v, flag = b.var(f32, 4, 0.0), b.var(boolean, init=True)
    t, g = b.identity("block_id", 1), b.identity("grid_id")
    x = b.load("x", 4, off=4, lanes=4, dtype=f32, align=8, mask=b.lt(b.iota(4), 3))
    z = b.shuffle(x, b.const(1.0, f32, 4), (0, 5, 2, 7))
    b.store("s", t, b.extract(z, 3))
    b.barrier()
    b.set(v, b.fma(x, z, b.get(v)))
    b.set(flag, b.and_(b.get(flag), b.gt(b.extract(x, 0), -0.0)))
    b.store("y", g, b.const(0.1, f32), off=-0)
    b.shuffle_xor(b.extract(x, 1), 3)
    with b.loop(0, 8, 2, kind="serial", axis=2, hint="fast") as i, b.if_(
            b.get(flag), els=True) as token:
        b.store("y", b.add(b.iota(4, i32), i), b.get(v), off=3, mask=b.lt(x, float("inf")))
        b.else_(token)
        with b.if_(b.eq(i, 3)):
            b.store("y", i, b.bitcast(b.cast(b.extract(x, 2), dtype=i32), dtype=f32), off=-0)
    return b.kernel()


def test_everything_round_trips() -> None:
    kernel = everything()
    verify(kernel)
    text = show(kernel)
    assert parse(text) == kernel and show(parse(text)) == text


def test_it_reads_well() -> None:
    b = Builder("axpy")
    b.memory("x", f32, 8)
    b.memory("y", f32, 8, access="rw")
    with b.loop(0, 8, 4, kind="parallel") as i:
        x = b.load("x", i, lanes=4, align=16)
        b.store("y", i, b.add(b.mul(x, 0.1), b.load("y", i, lanes=4)), align=16)
    assert show(b.kernel()) == """\
kernel axpy index=i64 exact {
  global x f32[8] r
  global y f32[8] rw
  loop %0 = 0, 8, 4 parallel {
    %1:f32x4 = load x[%0] align=16
    %2:f32x4 = mul %1, 0.1
    %3:f32x4 = load y[%0]
    %4:f32x4 = add %2, %3
    store y[%0], %4 align=16
  }
}
"""


def holding(c: Operand) -> Kernel:
    b = Builder("holding")
    v = b.var(c.dtype, c.lanes)
    b.set(v, c)
    b.raw("cast", f32, c.lanes, (c,))
    return b.kernel()


@pytest.mark.parametrize("d", ALL, ids=repr)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_constants_are_exact(d: DType, data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, (1 << d.bits) - 1))
    kernel = holding(Operand(-1, d, data.draw(st.sampled_from((1, 8))), "const", bits))
    assert parse(show(kernel)) == kernel


@together()
@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
@pytest.mark.parametrize("text", ["0.0", "-0.0", "1.0", "0.5", "-2.5", "inf", "-inf", "nan"])
def test_float_constants_read_well(d: DType, text: str) -> None:
    kernel = holding(constant(float(text), d))
    assert show(kernel).count(f" {text}") == 2
    assert parse(show(kernel)) == kernel


def test_every_nan_keeps_its_payload() -> None:
    for bits in (0x7FC00001, 0xFFC00000, 0x7F800001):
        kernel = holding(Operand(-1, f32, 1, "const", bits))
        assert f"{bits:#x}" in show(kernel) and parse(show(kernel)) == kernel


def test_floats_are_the_shortest_that_read_back() -> None:
    for x, d, text in ((0.1, f32, "0.1"), (1e-45, f32, "1e-45"), (1 / 3, f64, repr(1 / 3)),
                       (65504.0, f16, "65504.0"), (3.4028235e38, f32, "3.4028235e+38")):
        assert f" {text}" in show(holding(constant(x, d)))
    assert struct.pack("<f", 0.1) == struct.pack("<I", constant(0.1, f32).bits)


def test_whole_numbers_read_as_signed_or_not() -> None:
    for x, d in ((-128, i8), ((1 << 64) - 1, u64), (-(1 << 63), i64)):
        assert f" {x}" in show(holding(constant(x, d)))


@settings(max_examples=60 if full() else 25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_kernels_round_trip(rng: Random) -> None:
    kernel = random_kernel(rng)
    text = show(kernel)
    assert parse(text) == kernel and show(parse(text)) == text


def test_ids_that_do_not_count_on_are_written() -> None:
    b = Builder("gaps")
    b.memory("y", f32, 4, access="w")
    b.store("y", 0, b.const(1.0, f32))
    b._next = 40
    b.store("y", 1, b.const(1.0, f32))
    b.store("y", 2, b.const(1.0, f32))
    text = show(b.kernel())
    assert text.count("#") == 1 and "#40" in text and parse(text) == b.kernel()


def test_comments_blanks_and_spacing_are_free() -> None:
    kernel = parse("""
        // a comment
        kernel free index=i64 exact {
          global y f32[4] w

          // another
            %5:f32   =  add   1.0 ,2.0
          store y[ 1+2 ] ,%5
        }""")
    verify(kernel)
    assert kernel.body[1].attrs == {"mem": "y", "off": 2, "align": 0}
    assert parse(show(kernel)) == kernel


GOOD = show(everything())


@together()
@pytest.mark.parametrize(("line", "message"), [
    ("%1:f32 = ad 1.0, 2.0", "line 3: there is no opcode 'ad'"),
    ("%1:f3 = add 1.0, 2.0", "expected a type"),
    ("%1:f32 = add 1.0, %9", "%9 is not defined"),
    ("%1:f32 = add 1.0 2.0", "expected the end of the line"),
    ("%1:f32 = lt 1.0, 2.0:i32x", "expected"),
    ("%1:bool = lt 1.0, 2.0", "not a constant of bool"),
    ("store y[0], 1.0", "needs its type"),
    ("store y[0, 1.0:f32", "expected ]"),
    ("store [0], 1.0:f32", "expected a memory"),
    ("%1:i8 = add 128, 0", "does not fit i8"),
    ("%1:u8 = add -1, 0", "does not fit u8"),
    ("%1:f16 = add 0x10000, 0.0", "more than the 16 bits"),
    ("%1:i32 = add 1.5, 0", "not a constant of i32"),
    ("%1:bool = not 1", "not a constant of bool"),
    ("loop %1 = 0, 8 serial {", "expected , between"),
    ("loop %1 = 0, 8, 1 serial", "expected {"),
    ("if true:bool", "expected {"),
    ("} else {", "else belongs to an if"),
    ("else", "no opcode 'else'"),
    ("global y f32[4] w", "declared twice"),
    ("global z f32x4[4] w", "no lanes"),
    ("global z f32[-4] w", "line 3"),
    ("var %1:f32 init", "the end of the line"),
    ("origin [1]", "an origin is a list"),
    ("origin [", "line 3"),
    ("barrier; exit", "expected the end"),
    ("%99999999999:f32 = add 1.0, 2.0", "line 3"),
    ("%1:f32 = add " + "9" * 5000 + ", 1.0", "line 3"),
])
def test_slips_are_named_with_their_line(line: str, message: str) -> None:
    text = f"kernel k index=i64 exact {{\nglobal y f32[4] w\n{line}\n}}"
    with pytest.raises(VerifyError, match="line 3") as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "kernel", "kernel k index=f99 exact {\n}",
                                  "kernel k index=i64 {\n}", "kernel k index=i64 exact {",
                                  "kernel k index=i64 exact {\n}\n}",
                                  "kernel a.b index=i64 exact {\n}"])
def test_incomplete_texts(text: str) -> None:
    with pytest.raises(VerifyError, match="line"):
        parse(text)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_texts_raise_nothing_else(rng: Random) -> None:
    text = list(GOOD)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        text[at:at + rng.randint(0, 3)] = rng.choice(["", "%", "{", "}\n", "x", "9" * 25, ",", "é"])
    with contextlib.suppress(VerifyError):
        verify(parse("".join(text)))
