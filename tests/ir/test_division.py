"""Division by constants: the same numbers without dividing, and the ranges that allow it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases.grouping import together
from tests.cases.random_kernels import random_buffers, random_kernel
from ztorch.dtypes import DType, f32, i32, i64, u8, u32
from ztorch.ir.builder import Builder
from ztorch.ir.division import without_division
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.ranges import limits, ranges
from ztorch.ir.verify import verify

DIVIDING = {"div", "rem"}


def quotients(by: int, least: int, most: int, d: DType = i32, lanes: int = 1) -> Kernel:
    """Each x, brought between two bounds, divided by a constant: quotients and remainders."""
    b = Builder("divide", i32)
    for name, access in (("x", "r"), ("q", "w"), ("r", "w")):
        b.memory(name, d, 64, access=access)
    with b.loop(0, 64, lanes) as i:
        x = b.min(b.max(b.load("x", i, lanes=lanes), least), most)
        b.store("q", i, b.div(x, by))
        b.store("r", i, b.rem(x, by))
    return b.kernel()


def check(kernel: Kernel, by: int, least: int, most: int, plain: Kernel, d: DType) -> None:
    """At the bounds, and next to multiples of the divisor, where a wrong factor shows first."""
    verify(plain)
    rng = np.random.default_rng(by)
    spread = [int(most) * k // 40 // by * by + e for k in range(41) for e in (-1, 0, 1)]
    near = [least, least + 1, most, most - 1, most // by * by, most // by * by - 1, by, by - 1]
    x = [*near, *(spread[k] for k in rng.integers(0, len(spread), 64 - len(near)))]
    x = np.clip(x, least, most).astype(d.numpy)
    held = {"x": x, "q": np.zeros(64, d.numpy), "r": np.zeros(64, d.numpy)}
    interpret(plain, held)
    np.testing.assert_array_equal(held["q"], [int(n) // by for n in x])
    np.testing.assert_array_equal(held["r"], [int(n) % by for n in x])


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 2**31 - 1) | st.integers(1, 1000), st.integers(0, 2**31 - 1),
       st.booleans(), st.sampled_from([1, 4]))
@example(3, 8, True, 1)  # 8 * 3 >> 3 is 3, though 3 is 8 / 3 rounded up
@example(7, 2**31 - 1, True, 1)
@example(641, 2**31 - 1, True, 1)
@example(2**31 - 1, 2**31 - 1, True, 1)
@example(3, 2**16, False, 4)
def test_quotients_are_those_of_division(by: int, most: int, mulhi: bool, lanes: int) -> None:
    kernel = quotients(by, 0, most, lanes=lanes)
    plain = without_division(kernel, lambda i: mulhi)
    if mulhi:
        assert not plain.opcodes() & DIVIDING
    check(kernel, by, 0, most, plain, i32)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**63 - 1) | st.integers(1, 1000), st.integers(0, 2**63 - 1))
def test_quotients_of_64_bits(by: int, most: int) -> None:
    kernel = quotients(by, 0, most, i64)
    plain = without_division(kernel, lambda i: True)
    assert not plain.opcodes() & DIVIDING
    check(kernel, by, 0, most, plain, i64)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
@example(7, 2**32 - 1)  # no factor of 32 bits is exact
def test_quotients_without_a_sign(by: int, most: int) -> None:
    kernel = quotients(by, 0, most, u32)
    check(kernel, by, 0, most, without_division(kernel, lambda i: True), u32)


@pytest.mark.parametrize(("by", "most", "quotient", "remainder"), [
    (1, 10**6, [], []), (8, 10**6, ["shr"], ["and"]), (100, 99, [], []), (100, 100, ["mul", "shr"], None),
    (3, 2**15, ["mul", "shr"], ["mul", "sub"]), (2**30, 2**31 - 1, ["shr"], ["and"]),
    (3, 2**31 - 1, ["cast", "mulhi", "cast"], ["mul", "sub"]),
    (7, 2**31 - 1, ["cast", "mulhi", "shr", "cast"], ["mul", "sub"])])
def test_what_divides(by: int, most: int, quotient: list[str], remainder: list[str] | None) -> None:
    b = Builder("k", i32)
    b.memory("x", i32, 1)
    b.memory("y", i32, 1, access="w")
    x = b.min(b.max(b.load("x", 0), 0), most)
    b.store("y", 0, b.div(x, by))
    b.store("y", 0, b.rem(x, by))
    body = [i.opcode for i in without_division(b.kernel(), lambda i: True).body][3:]
    first = body.index("store")
    assert body[:first] == quotient
    rest = body[first + 1:-1]
    assert remainder is None or rest[len(rest) - len(remainder):] == remainder


@pytest.mark.parametrize(("least", "by"), [(-1, 8), (-(2**31), 7), (0, -8), (0, 0)])
def test_what_may_be_negative_is_divided(least: int, by: int) -> None:
    kernel = quotients(by, least, 2**31 - 1)
    assert without_division(kernel, lambda i: True) == kernel


def test_without_the_upper_half_large_numbers_are_divided() -> None:
    kernel = quotients(7, 0, 2**31 - 1)
    asked: list[Instr] = []
    assert without_division(kernel, lambda i: bool(asked.append(i))) == kernel
    assert {(i.opcode, i.dest.dtype) for i in asked} == {("mulhi", u32)}


@together()
@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_keep_results_and_ranges(seed: int) -> None:
    kernel = random_kernel(Random(seed))
    plain = without_division(kernel, lambda i: seed % 2 == 0)
    verify(plain)
    got, want = (random_buffers(kernel, Random(seed)) for _ in range(2))
    interpret(plain, got)
    interpret(kernel, want)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def test_divisors_that_are_positive_are_not_guarded() -> None:
    b = Builder("k", i32)
    b.memory("y", i32, 3, access="w")
    b.store("y", 0, b.div(-7, b.identity("workers")))
    b.store("y", 1, b.rem(-7, b.identity("workers")))
    b.store("y", 2, b.div(7, b.identity("worker")))  # which may be 0
    kernel = b.kernel()
    plain = without_division(kernel, lambda i: i.opcode not in DIVIDING)
    assert [i.opcode for i in plain.body if i.opcode.endswith(("div", "rem"))] == [
        "raw_div", "raw_rem", "div"]
    assert without_division(kernel, lambda i: True) == kernel
    held = {"y": np.zeros(3, np.int32)}
    interpret(plain, held, workers=1)
    assert held["y"].tolist() == [-7, 0, 0]


# -- ranges ------------------------------------------------------------------------------------------


def found(b: Builder, x: object) -> tuple[int, int]:
    return ranges(b.kernel())[x.id]  # type: ignore[attr-defined]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl",
                        "shr"]), st.randoms(use_true_random=False))
def test_ranges_hold_all_results(opcode: str, rng: Random) -> None:
    """Both ends of both operands and numbers between give results within the claimed range."""
    def interval(least: int, most: int) -> tuple[int, int]:
        low, high = sorted((rng.randint(least, most), rng.randint(least, most)))
        return low, high

    size = rng.choice([3, 40, 10**5, 2**31 - 1])
    a = interval(-size * rng.randint(0, 1), size)
    c = interval(0, 31) if opcode in ("shl", "shr") else interval(-size * rng.randint(0, 1), size)
    b = Builder("k", i32)
    b.memory("x", i32, 2)
    x, y = (b.min(b.max(b.load("x", k), low), high) for k, (low, high) in enumerate((a, c)))
    z = b.emit(opcode, x, y)
    if z.is_const:
        return
    b.memory("z", i32, 1, access="w")
    b.store("z", 0, z)
    low, high = found(b, z)
    for p in (*a, rng.randint(*a)):
        for q in (*c, rng.randint(*c)):
            held = {"x": np.array([p, q], np.int32), "z": np.zeros(1, np.int32)}
            interpret(b.kernel(), held)
            assert low <= held["z"][0] <= high, (opcode, p, q)


def test_ranges_of_counters() -> None:
    b = Builder("k", i32)
    b.workgroup = (64, 2, 1)
    b.memory("u", u8, 4)
    b.memory("f", f32, 4)
    t, g = b.identity("block_id", 1), b.identity("grid_id")
    worker, workers = b.identity("worker"), b.identity("workers")
    with b.loop(3, 50, 7) as i:
        inside = b.mul(i, 2)
    with b.loop(5, 5) as never:
        pass
    byte = b.cast(b.load("u", 0), dtype=i32)
    lanes = b.add(b.iota(8), 1)
    other = b.select(b.lt(t, g), b.add(t, 10), 3)
    rest, part = b.rem(g, 7), b.div(g, 8)
    wrapping = b.mul(g, 4)
    whole = b.cast(b.load("f", 0), dtype=i32)
    variable = b.var(i32, init=1)
    now = b.get(variable)
    assert [found(b, x) for x in (t, g, i, inside, never)] == [
        (0, 1), (0, 2**31 - 1), (3, 45), (6, 90), (5, 5)]
    assert [found(b, x) for x in (byte, lanes, other)] == [(0, 255), (1, 8), (3, 11)]
    assert [found(b, x) for x in (rest, part)] == [(0, 6), (0, 2**28 - 1)]
    assert found(b, worker)[0] == 0 and found(b, workers)[0] == 1
    for x in (wrapping, now):
        assert found(b, x) == limits(i32)
    assert whole.id not in ranges(b.kernel())
