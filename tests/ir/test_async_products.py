"""Asynchronous products out of swizzled memory: in the interpreter, in PTX, and by mma where there are none."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from tests.cases.async_products import multiplying, numbers
from tests.cases.grouping import together
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run, spoken, through_ptx
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.errors import InterpretError, VerifyError
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse as parse_text
from ztorch.ir.text import show
from ztorch.ir.verify import verify


def by_numpy(kernel: Kernel, held: dict[str, np.ndarray]) -> None:
    interpret(kernel, held, subgroup=32)


def by_wgmma(kernel: Kernel, held: dict[str, np.ndarray]) -> None:
    through_ptx(kernel, held, "sm_90a")


@together()
@pytest.mark.parametrize(("transposed", "source_transposed", "columns", "d"), [
    *product((False, True), (False, True), (64,), (f16,)), (True, False, 128, bf16), (False, True, 64, f32)])
def test_what_a_product_gives(transposed: bool, source_transposed: bool, columns: int, d: DType) -> None:
    kernel = multiplying(d, columns, transposed, source_transposed, teams=2 if d is bf16 else 1)
    verify(kernel)
    assert parse_text(show(kernel)) == kernel
    by_mma = [through_ptx] if transposed == source_transposed else []  # for an older chip
    for execute in (by_numpy, by_wgmma, *by_mma):
        held, want = numbers(kernel, transposed, source_transposed)
        execute(kernel, held)
        np.testing.assert_array_equal(held["y"], want)
    assert "wgmma.mma_async" in rendered([kernel], "sm_90a")


def test_chips_without_them_multiply_synchronously() -> None:
    opcodes = spoken(multiplying(teams=1), "sm_90").opcodes()
    assert opcodes >= {"mma", "copy_async"}
    assert not opcodes & {"mma_async", "mma_fence", "shared_fence", "mma_commit", "mma_wait"}


MISTAKES = {  # messages of the interpreter and of the PTX machine
    "wait for copies": ("a copy to it is in flight", "a copy to an operand is in flight"),
    "fence of memory": ("without a fence", "no fence.proxy.async"),
    "barrier": ("race", "a race of a product"),
    "fence of matrices": ("without a fence", "no wgmma.fence"),
    "wait for products": ("overwritten while a product in flight", "written while a product in flight"),
    "the other stage": ("race", ""),  # PTX finds other numbers there
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_detected(name: str) -> None:
    kernel = multiplying(teams=1, leave_out=name)
    message, by_ptx = MISTAKES[name]
    with pytest.raises(InterpretError, match=rf"kernel multiplying, instruction \d+ .*{message}"):
        by_numpy(kernel, numbers(kernel)[0])
    held, want = numbers(kernel)
    with pytest.raises((PtxError, AssertionError), match=by_ptx or None):
        by_wgmma(kernel, held)
        np.testing.assert_array_equal(held["y"], want)


def test_sums_are_out_of_reach_until_they_are_waited_for() -> None:
    text = show(multiplying(teams=1))
    [(v, kind), *_] = re.findall(r"var (%\d+):(.*)", text)
    for early, how in ((f"%9000:{kind} = get {v}", "read"), (f"set {v}, 0.0", "written")):
        kernel = parse_text(text.replace("mma_commit\n", f"mma_commit\n{early}\n"))
        with pytest.raises(InterpretError, match=rf"variable {v} is touched while a product in flight"):
            by_numpy(kernel, numbers(kernel)[0])
        with pytest.raises(PtxError, match=rf"{how} while a product in flight adds to it"):
            by_wgmma(kernel, numbers(kernel)[0])


SWIZZLE, LINES, PANELS = 1 << 62, 64 << 32, 512 << 16  # fields of descriptors beside addresses
BROKEN = {
    "swizzle of another width": (r"and\.b32 %z, %z, 112;", "and.b32 %z, %z, 48;"),
    "no swizzle": (r"xor\.b32 %a, %a, %z;", ""),
    "swizzle by other bits": (r"shr\.u32 %z, %a, 3;", "shr.u32 %z, %a, 4;"),
    "descriptor without swizzle": (str(SWIZZLE + LINES), str(LINES)),
    "lines of another distance": (str(SWIZZLE + LINES), str(SWIZZLE + LINES // 2)),
    "panels of another distance": (f"%ab, {PANELS};", f"%ab, {PANELS // 2};"),
    "the other way along k": (r", 1, 1, 1, 0, 1;", ", 1, 1, 1, 0, 0;"),
    "another step along k": (r"mul\.lo\.s32 %oa, 16, 2;", "mul.lo.s32 %oa, 32, 2;"),
    "sums in another order": (r"(wgmma.mma\S+ \{ )(%\w+), (%\w+),", r"\1\3, \2,"),
    "sums that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "a group that does not end": (r"wgmma\.commit_group\.sync\.aligned;", ""),
}


@together()
@pytest.mark.parametrize("name", BROKEN)
def test_a_changed_instruction_is_detected(name: str) -> None:
    kernel = multiplying(columns=128, source_transposed=False, teams=1)
    text = rendered([kernel], "sm_90a")
    broken = re.sub(*BROKEN[name], text)
    assert broken != text
    held, want = numbers(kernel, False, False)
    with pytest.raises((PtxError, AssertionError)):
        run(kernel, held, parse(broken))
        np.testing.assert_array_equal(held["y"], want)


@pytest.mark.parametrize(("old", "new", "why"), [
    (" swizzled", "", "not swizzled memory"), ("global a f16[12288] r", "global a f16[12288] r swizzled", "only shared memory"),
    ("near_a f16[8192] rw", "near_a f16[8200] rw", "multiple of 1024 bytes"),
    ("elements=8", "elements=16", "not known to be in a chunk"), ("source_off=1024", "source_off=16", "not known to begin"),
    ("source=near_b", "source=b", "not swizzled memory"), ("panel=4096", "panel=72", "panels are a multiple of 512"),
    ("transposed=false", "transposed=2", "transposed=2 is not possible"), ("mma_wait pending=0", "mma_wait pending=-1", "not possible")])
def test_what_the_verifier_refuses(old: str, new: str, why: str) -> None:
    text = show(multiplying(columns=128, source_transposed=False, teams=1))
    assert old in text
    with pytest.raises(VerifyError, match=why):
        verify(parse_text(text.replace(old, new)))
