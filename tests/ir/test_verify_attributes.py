"""Rules of the IR that no text can break: attributes, kinds and divergence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cases.grouping import together
from tests.ir.kernels_as_text import body
from ztorch.dtypes import ALL, boolean, f32, i32, i64, u8, u32
from ztorch.errors import VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Memory, Operand, constant
from ztorch.ir.opcodes import OPCODES, SCALAR
from ztorch.ir.uniform import divergent
from ztorch.ir.verify import verify


def small() -> Kernel:
    return body("%1:f32 = load x[0]\nif true:bool {\nstore y[0], %1\n}")


def changed(at: int, **what: Any) -> Kernel:
    k = small()
    return replace(k, body=(*k.body[:at], replace(k.body[at], **what), *k.body[at + 1:]))


def test_what_no_text_can_say_is_refused_too() -> None:
    k = small()
    value, token = k.body[0].dest, k.body[1].dest
    cases: list[tuple[Kernel, str]] = [
        (changed(0, opcode="lod"), "no such opcode"),
        (changed(2, args=(k.body[2].args[0], token)), "operand 1 is a token, not a value"),
        (changed(2, args=(k.body[2].args[0], replace(value, dtype=i32))), "unlike its definition"),
        (changed(2, args=(k.body[2].args[0], replace(value, id=77))), "%77 is used outside"),
        (changed(2, args=(k.body[2].args[0], Operand(-1, f32, 1, "const", 1 << 32))),
         "not a proper constant"),
        (changed(2, args=(k.body[2].args[0], Operand(-1, f32, 1, "const"))), "not a proper constant"),
        (changed(2, dest=replace(token, id=1)), "%1 is defined twice"),
        (changed(2, dest=replace(token, id=-4)), "%-4 is not an id"),
        (changed(2, dest=replace(token, id=9, dtype=f32)), "a token is one bool"),
        (changed(3, args=(replace(token, id=1),)), "%1"),
        (changed(3, attrs={"els": True}), "els does not say"),
        (changed(1, attrs={"els": True}), "els does not say"),
        (replace(k, body=k.body[:3]), "ends inside an open loop or if"),
        (replace(k, body=(*k.body, k.body[3])), "no open if to end"),
        (replace(k, name="k; evil"), "not an identifier"),
        (replace(k, name="k\n"), "not an identifier"),
        (replace(k, name="\u00e9"), "not an identifier"),
        (replace(k, origin=("a */ evil",)), "is not valid in a comment"),
        (replace(k, origin=("a\nevil",)), "is not valid in a comment"),
        (replace(k, index=u32), "indices are i32 or i64"),
        (replace(k, workgroup=(0, 1, 1)), "three positive numbers"),
        (replace(k, variables=(*k.variables, value)), "declared as a variable"),
        (replace(k, variables=(*k.variables, k.variables[0])), "defined twice"),
    ]
    for memory, rule in [
            (Memory("a b", f32, 4), "not an identifier"), (Memory("x", f32, 4), "declared twice"),
            (Memory("m", boolean, 4), "bool; store u8"), (Memory("m", f32, 0), "not countable"),
            (Memory("m", f32, 4, "constant"), "no memory space"),
            (Memory("m", f32, 4, "global", "x"), "no access"),
            (Memory("m", f32, 4, vec=3), "vec is 1, 2 or 4")]:
        cases.append((replace(k, memories=(*k.memories, memory)), rule))
    cases.append((replace(k, index=i32, memories=(*k.memories, Memory("m", u8, 1 << 31))),
                  "not countable in i32"))
    for kernel, rule in cases:
        with pytest.raises(VerifyError, match=rule):
            verify(kernel)


ENDS = [
    ("%1:f32 = load x[0]", "off", [0, 15], [-(2**63), 2**63, 1.0, True, None]),
    ("%1:f32 = load x[0]", "align", [0, 1, 4], [-4, 3, 128, True]),
    ("%1:f32x2 = shuffle 1.0:f32x2, 1.0:f32x2 perm=(0, 1)", "perm", [(0, 3), (2, 1)],
     [(0, -1), (0, 4), [0, 1], (0, True)]),
    ("%1:f32 = extract 1.0:f32x4 lane=0", "lane", [0, 3], [-1, 4, True]),
    ("%1:i64 = grid_id axis=0", "axis", [0, 2], [-1, 3, True]),
    ("%1:f32 = shuffle_xor 1.0 mask=1", "mask", [1, 127], [0, 128, -1, True]),
    ("if true:bool {\n}", "els", [False], [0, 1, None]),
    ("loop %1 = 0, 4, 1 serial {\n}", "kind", ["serial", "parallel", "grid"], ["unrolled", "", 0]),
    ("loop %1 = 0, 4, 1 serial {\n}", "hint", ["fast", 3, True], ["a b", 1.5, "x)", None])]


def test_extreme_attributes() -> None:
    for text, name, good, bad in ENDS:
        k = body(text)
        for value in (*good, *bad):
            first = replace(k.body[0], attrs={**k.body[0].attrs, name: value})
            changed = replace(k, body=(first, *k.body[1:]))
            if value in good and type(value) in map(type, good):
                verify(changed)
            else:
                with pytest.raises(VerifyError, match=rf"{name}=.* is not possible"):
                    verify(changed)


def test_attributes_cannot_smuggle_text() -> None:
    for attrs in ({"kind": "serial", "a b": 1}, {"kind": "serial", "hint": "x; evil"},
                  {"kind": "serial", "hint": 1.5}, {"kind": ["serial"]}):
        b = Builder("k")
        with b.loop(0, 4):
            pass
        k = b.kernel()
        k.body[0].attrs.clear()
        k.body[0].attrs.update(attrs)
        with pytest.raises(VerifyError):
            verify(k)


@together()
@pytest.mark.parametrize("opcode", SCALAR)
def test_kinds_of_every_scalar_opcode(opcode: str) -> None:
    row = OPCODES[opcode]
    for d in ALL:
        one = constant(1, d)
        args = (constant(True, boolean), one, one) if opcode == "select" else (one,) * row.arity
        dest = Operand(0, boolean if row.result == "bool" else d)
        k = Kernel("k", (), (), (Instr(opcode, dest, args),), i64)
        if d.kind in row.kinds:
            verify(k)
        else:
            with pytest.raises(VerifyError, match=f"is not defined on {d!r}"):
                verify(k)


def test_divergence_flows_through_variables_around_a_loop() -> None:
    k = body("%1:i64 = block_id axis=0\n%2:f32 = cast %1\nset %100, 0.0\nset %101, 0.0\n"
             "loop %3 = 0, 4, 1 serial {\n%4:f32 = get %100\n%5:f32x4 = get %101\nset %100, %2\n}")
    actual = divergent(k)
    assert {1, 2, 4, 100} <= actual and not {3, 5, 101} & actual
