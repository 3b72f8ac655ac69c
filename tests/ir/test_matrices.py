"""Matrices that subgroups hold together: meaning, rules, text, races."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.matrices import SUBGROUP, expected, numbers, products
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16, f16, f32, f64, i32
from ztorch.errors import InterpretError, VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Fragment, MmaShape
from ztorch.ir.matrices import rounded
from ztorch.ir.text import parse, show
from ztorch.ir.verify import verify

HALF = MmaShape(16, 8, 16, f16, f32)
SHAPES = (HALF, MmaShape(16, 8, 16, bf16, f32), MmaShape(16, 8, 8, f32, f32, 10), MmaShape(16, 8, 8, f32, f32, 20),
          MmaShape(8, 8, 4, f64, f64), MmaShape(32, 32, 8, f32, f32))
TURNS = tuple(itertools.product((False, True), repeat=3))


@together()
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", TURNS)
def test_products(shape: MmaShape, transposed: tuple[bool, bool, bool]) -> None:
    kernel = products(shape, transposed)
    verify(kernel)
    held = numbers(kernel)
    want = expected(kernel, held, shape, transposed)
    interpret(kernel, held, subgroup=SUBGROUP)
    eps = 2.0 ** -52 if shape.into is f64 else 2.0 ** -23
    np.testing.assert_allclose(held["y"], want, rtol=0, atol=4 * eps * np.abs(want).max())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_text_and_back(shape: MmaShape) -> None:
    kernel = products(shape, (True, False, True), align=16 if shape.k % 8 == 0 else 0)
    assert parse(show(kernel)) == kernel


HEAD = """kernel k index=i32 exact workgroup=(64, 1, 1) {
  shared s f16[1024] rw
  shared o f32[1024] rw
  local l f16[1024] rw
  global r f16[1024] r
  global q f32[300] r
  var %90:f32x4@c(16x8x16 f16 f32)
  loop %91 = 0, 64, 1 block {
    %92:i32 = div %91, 32
    %93:bool = lt %91, 32:i32
    %94:bool = lt %92, 1:i32
    %80:f16x8@a(16x8x16 f16 f32) = mma_load s[0] pitch=16 transposed=false
    %81:f16x4@b(16x8x16 f16 f32) = mma_load s[0] pitch=8 transposed=false
    %82:f32x4@c(16x8x16 f16 f32) = mma_load o[0] pitch=8 transposed=false
"""
A, B, C = ("%1:f16x8@a(16x8x16 f16 f32)", "%1:f16x4@b(16x8x16 f16 f32)", "%1:f32x4@c(16x8x16 f16 f32)")
GOOD = (
    f"{A} = mma_load s[%92] pitch=16 transposed=true",
    f"{A} = mma_load r[768] pitch=16 transposed=false",
    f"{C} = mma %80, %81, %82",
    f"if %94 {{\n{C} = mma %80, %81, %82\n}}",
    "set %90, 0.0\nmma_store o[%92], %82 pitch=8 transposed=true" .replace("pitch=8", "pitch=16"),
)
BAD = (
    (f"{A} = mma_load s[%91] pitch=16 transposed=false", "index may differ"),
    (f"{A} = mma_load s[0] pitch=15 transposed=false", "overlap"),
    (f"{A} = mma_load s[0] pitch=0 transposed=false", "pitch=0 is not possible"),
    (f"{A} = mma_load s[0] pitch=16 transposed=2", "transposed=2 is not possible"),
    (f"{A} = mma_load s[0] pitch=16", "lacks the attributes"),
    (f"{A} = mma_load s[769] pitch=16 transposed=false", "outside its 1024"),
    (f"{A} = mma_load s[0] pitch=68 transposed=false", "outside its 1024"),
    (f"{A} = mma_load s[%92] align=16 pitch=16 transposed=false", "not known to be aligned"),
    (f"{A} = mma_load s[0] align=16 pitch=20 transposed=false", "not known to be aligned"),
    (f"{A} = mma_load o[0] pitch=16 transposed=false", "holds f32, not f16"),
    (f"{A} = mma_load l[0] pitch=16 transposed=false", "private to each thread"),
    (f"if %93 {{\n{C} = mma %80, %81, %82\n}}", "threads of a subgroup may part at the if"),
    (f"{C} = mma %81, %80, %82", "fragment of a matrix a"),
    (f"{C} = mma %80, %81, 0.0", "only a matrix c is set to a constant"),
    ("%1:f32x4 = mma %80, %81, %82", "fragment of a matrix c"),
    ("%1:f16x4@b(16x8x16 f16 f32) = mma_load s[0] pitch=8 transposed=false\n"
     "%2:f32x2@c(16x8x16 f16 f32) = mma_load o[0] pitch=8 transposed=false\n"
     "%3:f32x2@c(16x8x16 f16 f32) = mma %80, %1, %2", "not a multiple|different numbers of threads"),
    ("%1:f16x4@b(16x8x16 f16 f64) = mma_load s[0] pitch=8 transposed=false\n"
     f"%2{C[2:]} = mma %80, %1, %82", "of one shape"),
    ("%1:f16x0@a(16x8x16 f16 f32) = mma_load s[0] pitch=16 transposed=false", "do not spread"),
    ("%1:f32 = extract %82 lane=0", "of a known layout"),
    ("%1:f32x4@c(16x8x16 f16 f32) = mma_join 1.0:f32, 1.0:f32, 1.0:f32, 1.0:f32", "of a known layout"),
    ("%1:f32x4@c(16x8x16 f16 f32 quads) = mma_join 1.0:f32, 1.0:f32", "as many elements as it has"),
    ("%1:f32x4@c(16x8x16 f16 f32 quads) = mma_join 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16", "joins f32"),
    ("%1:f32x8@c(16x16x16 f16 f32 quads) = mma_load o[0] pitch=16 transposed=false", "unknown layout"),
    ("%1:f32x4@c(16x8x16 f16 f32) = add %82, %82", "no fragments of matrices"),
    ("%1:f32x4 = get %90", "may not have been set|do not mix"),
    ("mma_store o[0], %80 pitch=16 transposed=false", "fragment of a matrix c"),
    ("mma_store q[0], %82 pitch=8 transposed=false", "read-only"),
    ("%1:f16x7@a(16x8x16 f16 f32) = mma_load s[0] pitch=16 transposed=false", "do not spread"),
    ("%1:f16x8@a(16x8x16 f16 f16) = mma_load s[0] pitch=16 transposed=false", "sums are f32 or f64"),
    ("%1:f16x8@a(16x8x16 f16:5 f32) = mma_load s[0] pitch=16 transposed=false", "keeps 5 bits"),
    ("%1:f16x4@c(16x8x16 f16 f32) = mma_load s[0] pitch=8 transposed=false", "c of .* is f32"),
    ("%1:f16x2@a(16x8x4 f16 f32) = mma_load s[0] pitch=16 transposed=false\nshuffle_xor %1 mask=1", "do not spread|no fragments"),
)


def test_well_formed() -> None:
    for text in GOOD:
        verify(parse(HEAD + text + "\n}\n}"))


def test_ill_formed() -> None:
    for text, rule in BAD:
        with pytest.raises(VerifyError, match=rule):
            verify(parse(HEAD + text + "\n}\n}"))


def test_half_a_subgroup_is_refused() -> None:
    kernel = products(HALF, subgroups=1)
    loop = next(k for k, i in enumerate(kernel.body) if i.attrs.get("kind") == "block")
    body = list(kernel.body)
    start = body[loop].args
    short = replace(start[1], bits=16)
    body[loop] = replace(body[loop], args=(start[0], short, start[2]))
    body[-1] = replace(body[-1], args=(body[-1].args[0], start[0], short, start[2]))
    with pytest.raises(VerifyError, match="not a multiple of 32"):
        verify(replace(kernel, body=tuple(body), workgroup=(16, 1, 1)))


def test_other_subgroups_are_refused() -> None:
    kernel = products(HALF)
    with pytest.raises(InterpretError, match="8 elements a thread, but 16 threads a subgroup"):
        interpret(kernel, numbers(kernel), subgroup=16)


def test_a_differing_index_is_detected_at_run_time() -> None:
    b = Builder("differs", i32)
    b.memory("x", f16, 1024)
    b.workgroup = (32, 1, 1)
    with b.loop(0, 32, kind="block") as t:
        b.mma_load("x", t, Fragment("a", HALF), 32, 16)
    with pytest.raises(InterpretError, match="differs between the threads of a subgroup"):
        interpret(b.kernel(), {"x": np.zeros(1024, np.float16)}, subgroup=32)


@pytest.mark.parametrize("meet", [False, True])
@pytest.mark.parametrize("order", ["store then load", "load then store", "fill then load"])
def test_races(order: str, meet: bool) -> None:
    """Which thread has an element is not known, so nothing but a barrier orders two accesses."""
    b = Builder("race", i32)
    b.memory("s", f32, 128, "shared", "rw")
    b.workgroup = (32, 1, 1)
    c = Fragment("c", HALF)
    with b.loop(0, 32, kind="block") as t:
        with b.loop(t, 128, 32) as i:
            b.store("s", i, b.const(1.0, f32))
        if order != "fill then load":
            b.barrier()
        v = b.matrix(c, 32, 0)
        if order == "store then load":
            b.mma_store("s", 0, b.get(v), 8)
        elif order == "load then store":
            b.mma_load("s", 0, c, 32, 8)
        if meet:
            b.barrier()
        if order == "load then store":
            b.mma_store("s", 0, b.get(v), 8)
        else:
            b.mma_load("s", 0, c, 32, 8)
    verify(b.kernel())
    if meet:
        interpret(b.kernel(), {}, subgroup=32)
    else:
        with pytest.raises(InterpretError, match="race on s"):
            interpret(b.kernel(), {}, subgroup=32)


def test_tf32_rounds_ties_away_from_zero_and_keeps_nan() -> None:
    x = np.array([1 + 2**-11, -1 - 2**-11, 1 + 2**-12, 1 + 3 * 2**-12, 0.0, -0.0, np.inf, -np.inf, 3e38],
                 np.float32)
    want = [1 + 2**-10, -1 - 2**-10, 1.0, 1 + 2**-10, 0.0, -0.0, np.inf, -np.inf]
    got = rounded(x, 10)
    np.testing.assert_array_equal(got[:-1], np.array(want, np.float32))
    assert np.signbit(got[5]) and abs(got[-1] / 3e38 - 1) < 2**-11
    assert np.isnan(rounded(np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32), 10)).all()


def test_machines_list_only_shapes_that_pass() -> None:
    for target in TARGETS.values():
        grid = target.limits.grid
        for shape in grid.mma_shapes if grid else ():
            verify(products(shape, subgroup=grid.subgroup))
