"""Signals from one workgroup of a launch to another: their meaning in the interpreter and in PTX, and mistakes with them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.signals import handing, numbers
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import i32, u32
from ztorch.errors import InterpretError, Unsupported, VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.parse import parse as parse_text
from ztorch.ir.text import show
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose


@together()
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_what_workgroups_hand_over(chip: str) -> None:
    """Twice: a signal that has come is ready for the next launch."""
    kernel = handing()
    verify(kernel)
    assert parse_text(show(kernel)) == kernel
    (interpreted, want), (by_ptx, _) = numbers(), numbers()
    program = parse(rendered([kernel], chip))
    for _ in range(2):
        interpret(kernel, interpreted, subgroup=32)
        run(kernel, by_ptx, program)
        for held in (interpreted, by_ptx):
            np.testing.assert_array_equal(held["y"], want)
            assert not held["signals"].any()
            held["y"][:] = 0


def test_signals_in_cuda() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
    held, want = numbers()
    run(handing(), held, parse(rendered([handing()], "c:sm_80")))
    np.testing.assert_array_equal(held["y"], want)
    assert not held["signals"].any()


@together()
@pytest.mark.parametrize(("mistake", "in_turns", "at_once"), [
    ({"leave_out": "signal"}, r"\(grid_wait\): deadlock: instruction \d+ waits for the signal signals\[1\]",
     "deadlock: a block waits for a signal that does not come"),
    ({"leave_out": "wait"}, r"\(load\): race on handed\[\d+\]", "a race of blocks"),
    ({"leave_out": "barrier before"}, r"\(load\): race on handed\[\d+\]", "signals before its threads have met"),
    ({"leave_out": "barrier behind"}, r"\(load\): race on handed\[\d+\]", "a race of blocks"),
    ({"early": "signal"}, r"\(load\): race on handed\[\d+\]", "a race of blocks"),
    ({"early": "wait"}, r"\(grid_wait\): deadlock", ""),
    ({"twice": True}, r"\(grid_signal\): signals\[1\] is signaled before a wait", "signals again before"),
], ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else "")
def test_mistakes_are_detected(mistake: dict, in_turns: str, at_once: str) -> None:
    kernel = handing(**mistake)
    with pytest.raises(InterpretError, match=rf"kernel handing, instruction \d+ {in_turns}"):
        interpret(kernel, numbers()[0], subgroup=32)
    if mistake.get("early") == "wait":
        with pytest.raises(VerifyError, match=r"\(grid_wait\): no signal in signals comes before it"):
            verify(kernel)
        return
    with pytest.raises(PtxError, match=at_once):
        run(kernel, numbers()[0], parse(rendered([kernel], "sm_90a")))


def test_each_signal_is_waited_for() -> None:
    with pytest.raises(InterpretError, match=r"nobody has waited for the signal signals\[1\]"):
        interpret(handing(leave_out="wait"), numbers()[0], subgroup=32, races=False)


@together()
@pytest.mark.parametrize(("old", "new", "why"), [
    (r"st\.release\.gpu\.(global\.u32 \[%a\], 1;)", r"st.\1", "deadlock|a race of blocks"),
    (r"ld\.acquire\.gpu\.", "ld.", "a race of blocks"),
    (r"@%p bra L\d+_signal;", "", "a race of blocks"),
    (r"st\.release\S+ \[%a\], 1;", "", "deadlock|a race of blocks"),
    (r"(_signal: ld\.acquire\S+ %n, \[%a)\]", r"\1+4]", "deadlock|are in no one allocation"),
    (r"bar\.sync 0;\n", "", "have met|a race of blocks"),
], ids=["no release", "no acquire", "no second try", "no signal", "another signal", "no barriers"])
def test_a_changed_word_is_detected(old: str, new: str, why: str) -> None:
    text = rendered([handing()], "sm_90a")
    assert re.search(old, text), text
    with pytest.raises(PtxError, match=why):
        run(handing(), numbers()[0], parse(re.sub(old, new, text)))


def test_a_signal_that_stays_is_detected() -> None:
    """Without the store of zero the next launch would not wait."""
    text = rendered([handing()], "sm_90a")
    broken, (held, _) = re.sub(r"st\.global\.u32 \[%a\], 0;", "", text), numbers()
    assert broken != text
    run(handing(), held, parse(broken))
    assert held["signals"].any()
    with pytest.raises(InterpretError, match=r"signals\[1\] .* was not zero before the first launch"):
        interpret(handing(), held, subgroup=32)


def test_signals_have_no_other_use() -> None:
    b = Builder("uses", i32)
    b.memory("signals", u32, 2, access="rw")
    b.grid_signal("signals", 1)
    b.atomic("add", "signals", 0, b.const(1, u32))
    with pytest.raises(VerifyError, match="signals holds signals"):
        verify(b.kernel())
    with pytest.raises(VerifyError, match="signed is not global memory of u32"):
        verify(handing(signals="signed"))
    b = Builder("beyond", i32)
    b.memory("signals", u32, 2, access="rw")
    b.grid_signal("signals", 1, off=1)
    with pytest.raises(VerifyError, match=r"signals\[2\] is outside its 2 elements"):
        verify(b.kernel())


def test_targets_without_the_words_say_so() -> None:
    for name in ("vulkan", "cuda:sm_75", "rocm:gfx942"):
        with pytest.raises(Unsupported, match=f"kernel handing: .*{name} lacks grid_signal"):
            decompose(handing(), renderer(TARGETS[name]).supports, name)
