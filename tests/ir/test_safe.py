"""Opcodes rewritten into raw ones keep their meaning: compared with the interpreter and Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases import oracle
from tests.cases.grouping import together
from tests.cases.opcodes import edges, kernel_for, opcodes_of, same
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import ALL, DType, f32, f64, i8, i16, i32, i64, u8, u16
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr
from ztorch.ir.opcodes import COMPUTING, OPCODES
from ztorch.ir.ranges import limits
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose

SAFE = ("div", "rem", "min", "max", "abs", "mulhi", "cast")
NARROW = (i8, u8, i16, u16)
RAW = tuple(n for n in COMPUTING if OPCODES[n].raw)


def native_cast(i: Instr) -> bool:
    """A conversion that any machine has."""
    x, d = i.args[0].dtype, i.dest.dtype
    return (x.is_int and d.kind in "fsu") or (x.is_float and d.is_float)


def bare(i: Instr) -> bool:
    """A machine that has nothing but raw opcodes: it divides, but gives no remainder."""
    if i.opcode == "cast":
        return native_cast(i)
    if i.opcode in ("div", "abs"):
        return i.dest.dtype.is_float
    return i.opcode not in SAFE and i.opcode != "raw_rem"


def wide(i: Instr) -> bool:
    """The same, and narrow integers are held in 32 bits."""
    return bare(i) and not (OPCODES[i.opcode].wraps and i.dest.dtype in NARROW)


MACHINES: dict[str, Callable[[Instr], bool]] = {"bare": bare, "wide": wide}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("d", ALL, ids=repr)
def test_rewritten_opcodes_mean_the_same(d: DType, machine: str) -> None:
    """On registers and on literals, at all edges: the opcodes that are exact."""
    speaks = MACHINES[machine]
    for opcode in opcodes_of(d):
        if opcode not in SAFE and not (OPCODES[opcode].wraps and d.is_int):
            continue
        kernel, buffers = kernel_for(opcode, d, 4)
        plain = decompose(kernel, speaks, machine)
        verify(plain)
        assert all(speaks(i) for i in plain.body)
        got, want = ({n: a.copy() for n, a in buffers.items()} for _ in range(2))
        interpret(plain, got)
        interpret(kernel, want)
        same(got, want, f"{opcode} {d!r} on a {machine} machine", opcode in ("min", "max"))


def cast_at_the_bounds(d: DType) -> None:
    """Around the least and the greatest integer of a dtype, from double precision."""
    low, high = limits(d)
    ends = [low, low - 1, low + 1, high, high - 1, high + 1, high + 2, 2 * high, -high, -0.5, 0.5]
    x = np.array([e + part for e in ends for part in (0, 0.25, -0.25)], np.float64)
    b = Builder("cast", i32)
    b.memory("x", f64, len(x))
    b.memory("y", d, len(x), access="w")
    with b.loop(0, len(x)) as i:
        b.store("y", i, b.cast(b.load("x", i), dtype=d))
    held = {"x": x, "y": np.zeros(len(x), d.numpy)}
    interpret(decompose(b.kernel(), bare, "bare"), held)
    assert held["y"].tolist() == [min(max(int(v), low), high) for v in x.tolist()]


@pytest.mark.parametrize("d", sorted(ALL, key=lambda d: not d.is_int), ids=repr)
@pytest.mark.parametrize("opcode", ["cast", "div", "rem"])
def test_undefined_operands_do_not_reach_the_machine(
        opcode: str, d: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in lanes whose result is discarded: some machines trap."""
    def guarded(raw: str, safe: str) -> None:
        def meaning(*args: np.ndarray, **attrs: DType) -> np.ndarray:
            result = OPCODES[safe].meaning(*args, **attrs)  # type: ignore[misc]
            was = row.meaning(*args, **attrs)  # type: ignore[misc]
            assert (result == was).all(), f"{raw}{args} is undefined"
            return was

        row = OPCODES[raw]
        monkeypatch.setitem(OPCODES, raw, row._replace(meaning=meaning))

    for raw in RAW:
        guarded(raw, raw.removeprefix("raw_"))
    if opcode == "cast" and d.is_int:
        cast_at_the_bounds(d)
    if opcode in opcodes_of(d):
        kernel, buffers = kernel_for(opcode, d, 4)
        interpret(decompose(kernel, bare, "bare"), {n: a.copy() for n, a in buffers.items()})


@pytest.mark.parametrize("d", [d for d in ALL if d.is_int], ids=repr)
def test_division_against_plain_python(d: DType) -> None:
    """A second opinion on zero divisors and on the least number by -1, from registers."""
    pairs = [(a, b) for a in edges(d) for b in edges(d)]
    b = Builder("divide", i32)
    for name, access in (("x", "r"), ("y", "r"), ("q", "w"), ("r", "w")):
        b.memory(name, d, len(pairs), access=access)
    with b.loop(0, len(pairs)) as i:
        x, y = b.load("x", i), b.load("y", i)
        b.store("q", i, b.div(x, y))
        b.store("r", i, b.rem(x, y))
    held = {n: np.array([p[k] for p in pairs], d.numpy) for k, n in enumerate("xy")}
    held |= {n: np.zeros(len(pairs), d.numpy) for n in "qr"}
    interpret(decompose(b.kernel(), bare, "bare"), held)
    for (x, y), q, r in zip(pairs, held["q"].tolist(), held["r"].tolist(), strict=True):
        quotient = oracle.fit(d, abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) if y else 0
        assert (q, r) == (quotient, oracle.fit(d, x - quotient * y)), (x, y)


def lines_of(opcode: str, d: DType, *args: float, result: DType | None = None) -> list[str]:
    """The opcodes that an opcode becomes; the first operand is loaded, others are literals."""
    b = Builder("k", i32)
    b.memory("x", d, 1)
    b.memory("y", result or d, 1, access="w")
    more = {"dtype": result} if result else {}
    b.store("y", 0, b.emit(opcode, b.load("x", 0), *args, **more))
    return [i.opcode for i in decompose(b.kernel(), bare, "bare").body][1:-1]


@pytest.mark.parametrize(("opcode", "by", "lines"), [
    ("div", 7, ["raw_div"]), ("div", 0, []), ("div", -1, ["neg"]), ("div", -3, ["raw_div"]),
    ("rem", 0, []), ("rem", -1, []), ("rem", 7, ["raw_div", "mul", "sub"])])
def test_known_divisors_are_not_looked_at(opcode: str, by: int, lines: list[str]) -> None:
    assert lines_of(opcode, i64, by) == lines


def test_rewrites_do_not_change_their_operands() -> None:
    b = Builder("k", i32)
    b.memory("x", i32, 2)
    b.memory("y", i32, 2, access="w")
    x = b.load("x", 0)
    b.store("y", 0, b.rem(x, 0))
    b.store("y", 1, x)
    plain = decompose(b.kernel(), bare, "bare")
    verify(plain)
    held = {"x": np.array([7, 8], np.int32), "y": np.zeros(2, np.int32)}
    interpret(plain, held)
    assert held["y"].tolist() == [7, 7]


@pytest.mark.parametrize("opcode", ["max", "min"])
def test_known_numbers_are_not_tested(opcode: str) -> None:
    compare = {"max": "gt", "min": "lt"}[opcode]
    assert lines_of(opcode, f32, 0.0) == [compare, "select"]
    assert lines_of(opcode, f32, float("nan")) == [compare, "select", "ne", "select"]
    b = Builder("k", i32)
    b.memory("x", f32, 1)
    chosen = OPCODES[opcode].via(b, b.load("x", 0), b.const(2.0, f32))  # type: ignore[misc]
    assert b.body[-2].args[0].is_const and chosen.id == b.body[-1].dest.id  # the number comes first


@pytest.mark.parametrize("opcode", RAW)
def test_raw_opcodes_are_wrong_where_machines_differ(opcode: str) -> None:
    """So that a rewriting that lets such operands through is found on the interpreter."""
    meaning = OPCODES[opcode].meaning
    assert meaning is not None
    if opcode == "raw_cast":
        x = np.array([np.nan, 2.0**31, -(2.0**31) - 1, -(2.0**31), 2147483647.9, -3.9])
        got = meaning(x, dtype=i32)
        safe = OPCODES["cast"].meaning(x, dtype=i32)  # type: ignore[misc]
        assert (got != safe).tolist() == [True, True, True, False, False, False]
        assert (meaning(np.array([2.0**63, 2.0**62]), dtype=i64) < 0).tolist() == [True, False]
        return
    if opcode in ("raw_exp2", "raw_rcp"):  # subnormal operands and results
        x = np.array([-127, -126, 0.5] if opcode == "raw_exp2" else [2.0**-127, 2.0**127, 2.0**-126], np.float32)
        safe = np.exp2(x) if opcode == "raw_exp2" else 1 / x
        assert (meaning(x) != safe).tolist() == [True, opcode == "raw_rcp", False]
        return
    if opcode in ("raw_exponent", "raw_significand"):  # negative numbers: NaN, and any number
        x = np.array([0.75, 1.4375, 1.5, 5, 2.0**-149, 0, np.inf, -1, np.nan], np.float32)
        parts = {"raw_exponent": [0, 0, 1, 2, -149, -np.inf, np.inf, np.nan, np.nan],
                 "raw_significand": [0.75, 1.4375, 0.75, 1.25, 1, 1, 1, 1, np.nan]}
        np.testing.assert_array_equal(meaning(x), parts[opcode])
        return
    x, y = np.array([5, 5, -128, -128, 127], np.int8), np.array([0, 3, -1, 1, -1], np.int8)
    safe = OPCODES[opcode.removeprefix("raw_")].meaning(x, y)  # type: ignore[misc]
    assert (meaning(x, y) != safe).tolist() == [True, False, True, False, False]
    x, y = np.array([5, 5], np.uint8), np.array([0, 255], np.uint8)
    safe = OPCODES[opcode.removeprefix("raw_")].meaning(x, y)  # type: ignore[misc]
    assert (meaning(x, y) != safe).tolist() == [True, False]


@together()
@pytest.mark.parametrize("name", TARGETS)
def test_no_target_repeats_a_rule(name: str) -> None:
    """Safe opcodes on integers and conversions that a target has are words of the
    machine itself. This list is all of it."""
    own = {
        "llvm": {"cast_float_to_int", "cast_bool_to_int", "cast_bool_to_float", "abs", "max_int",
                 "min_int", "mulhi_u32"},
        "ptx": {"cast_f32_to_i32", "cast_f32_to_u32", "abs", "max_int", "min_int", "mulhi"},
        "ptx80": {"max_f32", "min_f32"}, "ptx90a": {"div_f32"},
        "cuda": {"cast_f32_to_i32", "cast_f32_to_u32", "abs_int", "max_int", "min_int", "mulhi_u64"},
        "cuda80": {"max_f32", "min_f32"}, "cuda90a": {"div_f32"},
        "spirv": {"abs", "mulhi"}, "spirv_cl": {"abs", "mulhi"}, "clike": {"mulhi_u32"},
        "opencl": {"mulhi"}, "wgsl": {"abs"},
        "dummy": {"div", "rem", "min", "max", "abs", "mulhi", "cast"}}
    usual = {"div_float", "abs_float", "cast_int_to_int", "cast_int_to_float", "cast_float_to_float"}
    target = TARGETS[name]
    allowed = set().union(*(own.get(f, set()) for f in target.template_folders)) | usual
    defined = {w for w in renderer(target).words if w.split("_")[0] in SAFE}
    assert defined <= allowed


