"""The builder adapts numbers and lanes, folds constants, reuses values, and keeps scopes apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch.dtypes import ALL, DType, bf16, boolean, f16, f32, f64, i8, i32, i64, u8, u64
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import constant, matching
from ztorch.ir.verify import verify


def builder() -> Builder:
    b = Builder("k")
    b.memory("x", f32, 64)
    b.memory("i", i64, 64)
    b.memory("y", f32, 64, access="rw")
    return b


def opcodes(b: Builder) -> list[str]:
    return [i.opcode for i in b.kernel().body]


def test_numbers_adopt_dtype_and_lanes_of_the_other_operand() -> None:
    b = builder()
    x = b.load("x", 0, lanes=4)
    for y in (b.add(x, 1), b.add(1, x), b.select(b.lt(x, 0), x, 2.5)):
        assert (y.dtype, y.lanes) == (f32, 4)
    assert b.lt(x, 0).dtype == boolean
    number = b.kernel().body[1].args[1]
    assert (number.dtype, number.lanes, number.number) == (f32, 4, 1.0)
    verify(b.kernel())


def test_scalars_spread_over_lanes() -> None:
    b = builder()
    x, s = b.load("x", 0, lanes=4), b.load("x", 9)
    b.mul(x, s)
    b.mul(s, x)
    assert opcodes(b) == ["load", "load", "splat", "mul", "mul"]
    verify(b.kernel())


def test_what_has_no_dtype_is_refused() -> None:
    b = builder()
    mask = b.lt(b.load("x", 0), 0.0)
    for wrong in (lambda: b.add(1, 2), lambda: b.select(mask, 1.0, 2.0),
                  lambda: b.cast(b.load("x", 0)), lambda: b.add(b.load("x", 0)),
                  lambda: b.add(b.load("x", 0, lanes=2), b.load("x", 0, lanes=4))):
        with pytest.raises(AssertionError):
            wrong()
    with pytest.raises(AttributeError):
        b.no_such_opcode  # noqa: B018


@pytest.mark.parametrize(("opcode", "d", "operands", "want"), [
    ("add", i8, (127, 1), -128), ("sub", u8, (0, 1), 255), ("div", i32, (-7, 2), -3),
    ("rem", i32, (-7, 2), -1), ("div", i32, (5, 0), 0), ("shr", i8, (-128, 7), -1),
    ("add", f16, (2048.0, 1.0), 2048.0), ("mul", bf16, (1.0078125, 1.0078125), 1.015625),
    ("div", f32, (1.0, 0.0), math.inf), ("mul", f32, (-0.0, 1.0), -0.0),
    ("add", u64, (1 << 63, 1 << 63), 0), ("max", f64, (1.0, 2.0), 2.0),
    ("not", i32, (0,), -1), ("and", boolean, (True, False), False),
])
def test_constants_fold_as_the_interpreter_computes(opcode: str, d: DType, operands: tuple,
                                                    want: Any) -> None:
    b = Builder("fold")
    y = b.emit(opcode, *[b.const(x, d) for x in operands])
    assert y == constant(want, d) and not b.body
    if d == boolean:
        return
    for n, _ in enumerate(operands):
        b.memory(f"x{n}", d, 1)
        b.load(f"x{n}", 0)
    b.memory("y", d, 1, access="w")
    b.store("y", 0, b.emit(opcode, *[i.dest for i in b.body]))
    from ztorch.dtypes import to_storage

    buffers = {f"x{n}": to_storage(d, np.array([x], d.working)) for n, x in enumerate(operands)}
    buffers["y"] = to_storage(d, np.zeros(1, d.working))
    interpret(b.kernel(), buffers)
    assert int(buffers["y"].view(f"u{d.bytes}")[0]) == y.bits


@together()
@pytest.mark.parametrize("source", ALL, ids=repr)
@pytest.mark.parametrize("target", ALL, ids=repr)
def test_casts_of_constants_fold(source: DType, target: DType) -> None:
    b = Builder("fold")
    assert b.cast(b.const(1, source), dtype=target) == constant(1, target)


def test_constants_are_compared_by_bits() -> None:
    assert len({constant(0.0, f32), constant(-0.0, f32), constant(0, i32), constant(False, boolean),
                constant(1, i32), constant(True, boolean), constant(1.0, f32)}) == 7
    b = builder()
    x = b.load("x", 0)
    assert b.mul(x, 0.0) != b.mul(x, -0.0)


def test_equal_values_are_reused_while_visible() -> None:
    b = builder()
    x = b.load("x", 0)
    first = b.add(x, 1.0)
    assert b.add(x, 1.0) is first and b.add(x, 2.0) is not first
    with b.loop(0, 4) as i:
        assert b.add(x, 1.0) is first and b.load("x", 0) is x
        inner = b.add(i, 1)
        assert b.add(i, 1) is inner
        deep = b.mul(x, 7.0)
    assert b.mul(x, 7.0) is not deep
    with b.if_(b.lt(x, 0.0), els=True) as t:
        yes = b.sub(x, 3.0)
        b.else_(t)
        assert b.sub(x, 3.0) is not yes
    verify(b.kernel())


def test_what_may_change_is_not_reused() -> None:
    b = builder()
    v = b.var(f32, init=0.0)
    assert b.get(v) != b.get(v)
    assert b.load("y", 0) != b.load("y", 0)
    assert b.load("x", 0) == b.load("x", 0)


def test_masks_and_index_lanes_pick_the_opcode() -> None:
    b = builder()
    lanes = b.iota(4)
    x = b.load("x", lanes)
    b.store("y", lanes, b.extract(x, 0))
    b.store("y", 3, x, off=2)
    actual = opcodes(b)
    assert actual == ["iota", "gather", "extract", "splat", "scatter", "store"]
    verify(b.kernel())


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_fold_is_a_halving_tree(lanes: int) -> None:
    b = builder()
    b.store("y", 0, b.fold("add", b.load("x", 0, lanes=lanes)))
    verify(b.kernel())
    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    y = np.zeros(64, np.float32)
    interpret(b.kernel(), {"x": x, "i": np.zeros(64, np.int64), "y": y})
    want = x[:lanes]
    while len(want) > 1:
        want = want[:len(want) // 2] + want[len(want) // 2:]
    assert y[0] == want[0]


def test_structure_nests() -> None:
    b = builder()
    x = b.load("x", 0)
    with b.loop(0, 4), b.if_(b.lt(x, 0.0), els=True) as t:
        b.store("y", 0, x)
        b.else_(t)
        b.store("y", 1, x)
    kernel = b.kernel()
    assert opcodes(b) == ["load", "loop", "lt", "if", "store", "else", "store", "end_if",
                          "end_loop"]
    assert sorted(matching(kernel.body)) == [(1, 8), (3, 7)]
    verify(kernel)


def test_single_lanes_are_scalars() -> None:
    b = builder()
    x = b.load("x", 0)
    assert b.splat(x, 1) is x and b.extract(x, 0) is x and b.iota(1) == constant(0, i64)
    assert b.splat(b.const(2.0, f32), 4) == constant(2.0, f32, 4)
    assert b.extract(b.const(2.0, f32, 4), 3) == constant(2.0, f32)
