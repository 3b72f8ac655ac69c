"""Every scalar opcode, on every dtype it takes, against plain Python at the edges."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.cases import oracle
from tests.cases.grouping import together
from tests.cases.opcodes import array, edges
from ztorch.dtypes import (
    ALL,
    DType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    from_storage,
    i32,
    u8,
    u16,
    u64,
)
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Operand
from ztorch.ir.opcodes import OPCODES, SCALAR
from ztorch.ir.verify import verify


def run(b: Builder, /, **buffers: np.ndarray) -> None:
    kernel = b.kernel()
    verify(kernel)
    interpret(kernel, buffers)


NUMBERS = [d for d in ALL if d.kind != "b"]


def apply(opcode: str, sources: list[DType], result: DType, rows: list[tuple],
          lanes: int = 16) -> list[Any]:
    """An opcode on every row of operands, in full vectors and one masked remainder."""
    n = len(rows)
    b = Builder("apply")
    buffers = {}
    for name, d, column in zip("abc", sources, zip(*rows, strict=True), strict=False):
        b.memory(name, u8 if d == boolean else d, n)
        buffers[name] = array(list(column), d)
    b.memory("y", u8 if result == boolean else result, n, access="w")

    def vector(i: Operand | int, off: int, mask: Operand | None) -> None:
        xs = [b.load(name, i, off, lanes, mask=mask) for name in "abc"[:len(sources)]]
        xs = [b.ne(x, 0) if d == boolean else x for x, d in zip(xs, sources, strict=True)]
        y = b.raw(opcode, result, lanes, tuple(xs))
        b.store("y", i, y, off, mask)

    whole = n - n % lanes
    with b.loop(0, whole, lanes) as i:
        vector(i, 0, None)
    if n % lanes:
        vector(whole, 0, b.lt(b.iota(lanes), n % lanes))
    buffers["y"] = np.zeros(n, u8.numpy if result == boolean else result.numpy)
    run(b, **buffers)
    got = from_storage(result, buffers["y"]) if result != boolean else buffers["y"].astype(bool)
    return got.tolist()


def same(got: Any, want: Any, any_zero: bool = False) -> bool:
    if isinstance(want, float):
        if math.isnan(want):
            return math.isnan(got)
        sign = any_zero or want != 0 or math.copysign(1, got) == math.copysign(1, want)
        return bool(got == want and sign)
    return bool(got == want and type(got) is type(want))


def rows_for(opcode: str, d: DType) -> list[tuple]:
    row, values = OPCODES[opcode], edges(d)
    if opcode == "select":
        return [(c, a, b) for c in (False, True) for a in values for b in values[:3]]
    if opcode in ("shl", "shr"):
        return [(a, b) for a in values for b in (0, 1, d.bits // 2, d.bits - 1)]
    rows = list(itertools.product(values, repeat=row.arity))
    return rows if len(rows) < 800 else Random(0).sample(rows, 800)


def test_the_oracle_has_every_opcode() -> None:
    assert {*oracle.EXACT, *oracle.NEAR, "cast", "bitcast", "mulhi"} == set(SCALAR)


@together(of=100)
@pytest.mark.parametrize(("opcode", "d"), [
    (opcode, d) for opcode in oracle.EXACT for d in ALL if d.kind in OPCODES[opcode].kinds], ids=repr)
def test_exact_opcode(opcode: str, d: DType) -> None:
    row, rows = OPCODES[opcode], rows_for(opcode, d)
    result = boolean if row.result == "bool" else d
    sources = [boolean, d, d] if opcode == "select" else [d] * row.arity
    got = apply(opcode, sources, result, rows)
    for operands, g in zip(rows, got, strict=True):
        want = oracle.EXACT[opcode](*operands)
        want = oracle.fit(result, want)
        if opcode == "fma" and d == f64:  # defined as split: two roundings
            want = operands[0] * operands[1] + operands[2]
        assert same(g, want, opcode in ("min", "max")), f"{opcode}{operands} is {want}, not {g}"


@together()
@pytest.mark.parametrize("d", [f16, bf16, f32, f64], ids=repr)
@pytest.mark.parametrize("opcode", sorted(oracle.NEAR))
def test_near_opcode(opcode: str, d: DType) -> None:
    rows = rows_for(opcode, d)
    got = apply(opcode, [d] * OPCODES[opcode].arity, d, rows)
    for operands, g in zip(rows, got, strict=True):
        exact = oracle.NEAR[opcode](*operands)
        want = oracle.rounded(d, exact)
        near = math.isfinite(want) and abs(g - want) <= 4 * oracle.ulp(d, want)
        assert same(g, want) or near, f"{opcode}{operands} is {want}, not {g}"


@pytest.mark.parametrize("d", [u8, u16, u64], ids=repr)
def test_mulhi(d: DType) -> None:
    rows = rows_for("mulhi", d)
    assert apply("mulhi", [d, d], d, rows) == [a * b >> d.bits for a, b in rows]


@together()
@pytest.mark.parametrize("target", ALL, ids=repr)
@pytest.mark.parametrize("source", ALL, ids=repr)
def test_cast(source: DType, target: DType) -> None:
    rows = [(x,) for x in edges(source)]
    got = apply("cast", [source], target, rows)
    for (x,), g in zip(rows, got, strict=True):
        want = oracle.cast(x, source, target)
        if target == bf16 and source.bits > 32:  # on its way through float32
            want = oracle.rounded(bf16, oracle.cast(x, source, f32))
        assert same(g, want), f"{source!r} {x} as {target!r} is {want}, not {g}"


@together()
@pytest.mark.parametrize(("source", "target"), [
    (s, t) for s in NUMBERS for t in NUMBERS if s.bits == t.bits], ids=repr)
def test_bitcast(source: DType, target: DType) -> None:
    rows = [(x,) for x in edges(source) if not math.isnan(x)]
    got = apply("bitcast", [source], target, rows)
    for (x,), g in zip(rows, got, strict=True):
        assert same(g, oracle.from_bits(oracle.bits(x, source), target))


@together()
@pytest.mark.parametrize("stored", NUMBERS, ids=repr)
@pytest.mark.parametrize("computed", [f32, bf16, i32, boolean], ids=repr)
def test_memory_converts(stored: DType, computed: DType) -> None:
    values = edges(stored)
    b = Builder("convert")
    b.memory("x", stored, len(values))
    b.memory("y", stored, len(values), access="w")
    with b.loop(0, len(values)) as i:
        b.store("y", i, b.load("x", i, dtype=computed))
    y = array([0] * len(values), stored)
    run(b, x=array(values, stored), y=y)
    for x, got in zip(values, from_storage(stored, y).tolist(), strict=True):
        if computed == bf16 and stored.bits > 32:
            x = oracle.cast(x, stored, f32)
            want = oracle.cast(oracle.rounded(bf16, x), computed, stored)
        else:
            want = oracle.cast(oracle.cast(x, stored, computed), computed, stored)
        assert same(got, want)
