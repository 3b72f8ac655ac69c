"""Products of matrices by PTX's own words, against the interpreter of the IR, which lays matrices out in another way:
equal to the bit only if each thread has the elements that PTX specifies."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.matrices import SUBGROUP, numbers, products
from tests.machines.ptx.machine import launch
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import CHIPS, rendered, run, spoken, through_ptx
from ztorch.codegen.targets import TARGETS
from ztorch.errors import Unsupported
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import MmaShape

SHAPES = TARGETS["cuda:sm_80"].limits.grid.mma_shapes
TURNS = tuple(itertools.product((False, True), repeat=3))
each = pytest.mark.parametrize("shape", SHAPES, ids=str)


def test_the_shapes() -> None:
    assert [(str(s), s.mantissa_bits) for s in SHAPES] == [
        ("16x8x16 f16 f32", 0), ("16x8x16 bf16 f32", 0), ("16x8x8 f32:10 f32", 10),
        ("16x8x8 f32:20 f32", 20)]


@together()
@each
@pytest.mark.parametrize("transposed", TURNS)
@pytest.mark.parametrize(("space", "align"), [("shared", 16), ("shared", 0), ("global", 0)])
def test_products(shape: MmaShape, transposed: tuple[bool, bool, bool], space: str, align: int) -> None:
    kernel = products(shape, transposed, space, align)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=SUBGROUP)
    through_ptx(kernel, got)
    np.testing.assert_array_equal(got["y"], want["y"])
    assert ("ldmatrix" in rendered([kernel], "sm_80")) == (align == 16 and shape.of.bytes == 2)


WRONG = {  # possible mistakes of a macro: of all shapes, of 16 bits, and by the mantissa bits of float32
    0: [(r"shr.u32 %h, %l, 2", "shr.u32 %h, %l, 1"), (r"and.b32 %l, %l, 3", "and.b32 %l, %l, 7"),
        (r"row\.col", "row.row"), (r"(mma.sync\S+ { \S+) (\S+)", r"\1 %v0,")],
    2: [(r"\.trans", ""), (r"x4\.shared", "x4.trans.shared"), (r"shr.u32 %h, %l, 3", "shr.u32 %h, %l, 2"),
        (r"(ldmatrix\S+) { (\S+), (%v\d+_\d)", r"\1 { \3, \2"), (r"f32\.(b?)f16\.b?f16", "f32.tf32.tf32")],
    20: [(r"sub\.rn\.f32 (%r, %s), %r", r"add.rn.f32 \1, %r"), (r"setp\.eq\.f32", "setp.ne.f32"),
         (r"and\.b32 (%v\d+_\d+), %s, 0xFFFFE000", r"mov.b32 \1, %s"),
         (r"mma\.sync[^;]*; (mma\.sync[^;]*; mma)", r"\1")],
    10: [(r"cvt.rna.tf32.f32", "mov.b32"), (r"(tf32.f32) (%v\d+)_1, %s; (.*?) \2_2,", r"\1 \2_2, %s; \3 \2_1,")],
}


@together()
@pytest.mark.parametrize(("shape", "old", "new"),
                         [(s, *w) for s in SHAPES for n in (0, s.mantissa_bits or 2) for w in WRONG[n]])
def test_a_changed_instruction_is_detected(shape: MmaShape, old: str, new: str) -> None:
    kernel = products(shape, align=16)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=SUBGROUP)
    text = rendered([kernel], "sm_80")
    broken = re.sub(old, new, text)
    assert broken != text
    with pytest.raises((PtxError, AssertionError)):
        run(kernel, got, parse(broken))
        np.testing.assert_array_equal(got["y"], want["y"])


def execute(body: str, threads: int = 32) -> None:
    head = (".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n"
            f".reqntid {threads}, 1, 1\n{{\n.reg .b32 %a, %t, %r, %s; .reg .pred %p; .reg .f32 %f;\n"
            ".shared .align 16 .b8 x[512];\nmov.b32 %a, x; mov.u32 %t, %tid.x; mov.b32 %f, 0; mov.b32 %r, 1;\n")
    launch(parse(head + body + "\nret;\n}").entries["k"], (1, 1, 1), [], GlobalMemory())


LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 { %r }, [%a];"
MMA = ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %f, %f, %f, %f }, { %r, %r, %r, %r }, { %r, %r },"
       " { %f, %f, %f, %f };")


@pytest.mark.parametrize(("body", "threads", "why"), [
    (LDMATRIX.replace("[%a]", "[%a+8]"), 32, "not aligned to 16"),
    (LDMATRIX.replace("[%a]", "[%a+512]"), 32, "shared memory at"),
    (LDMATRIX.replace("x1", "x2"), 32, "is not 2 registers"),
    (LDMATRIX, 48, "block of 48 threads"),
    (f"setp.lt.s32 %p, %t, 7; @%p bra END; {LDMATRIX} END:", 32, "not all of a warp"),
    (f"mad.lo.s32 %s, %t, 4, %a; st.shared.b32 [%s], %t; {LDMATRIX}", 32, "a race"),
    (MMA, 32, "not rounded to tf32"),
    (MMA.replace("tf32", "f16"), 32, "unknown"),
    (f"setp.lt.s32 %p, %t, 7; @%p bra END; {MMA} END:", 32, "not all of a warp"),
])
def test_faults_raise_errors(body: str, threads: int, why: str) -> None:
    with pytest.raises(PtxError, match=why):
        execute(body, threads)


@together()
@each
@pytest.mark.parametrize("chip", CHIPS)
def test_chips_without_it_refuse(shape: MmaShape, chip: str) -> None:
    kernel = products(shape)
    if shape in TARGETS[f"cuda:{chip}"].limits.grid.mma_shapes:
        assert spoken(kernel, chip).opcodes() >= {"mma_load", "mma", "mma_store"}
        return
    with pytest.raises(Unsupported, match="lacks mma_load"):
        spoken(kernel, chip)


def test_chips_refuse_other_shapes() -> None:
    s = SHAPES[0]
    with pytest.raises(Unsupported, match="lacks mma_load"):
        spoken(products(MmaShape(8, 16, 16, s.of, s.into)), "sm_80")
