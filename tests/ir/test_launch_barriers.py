"""Barriers of all workgroups of a launch: their meaning in the interpreter and in PTX, and mistakes with them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.launch_barriers import numbers, reversing
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
@pytest.mark.parametrize("barrier", ["grid", "cluster"])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_what_workgroups_that_meet_compute(barrier: str, rounds: int) -> None:
    kernel = reversing(barrier, rounds=rounds)
    verify(kernel)
    assert parse_text(show(kernel)) == kernel
    before, interpreted, by_ptx = numbers(), numbers(), numbers()
    interpret(kernel, interpreted, subgroup=32)
    program = parse(rendered([kernel], "sm_90a"))
    run(kernel, by_ptx, program)
    want = before["x"].astype(np.float64)
    for _ in range(rounds):
        want = want[::-1] * 2
    for held in (interpreted, by_ptx):
        np.testing.assert_array_equal(held["xy"[rounds % 2]], want)
    if barrier == "grid":  # the counter is ready for the next launch
        assert interpreted["arrived"][0] == by_ptx["arrived"][0] == (rounds % 2) << 31
        run(kernel, by_ptx | {"x": before["x"].copy()}, program)


@together()
@pytest.mark.parametrize("barrier", ["grid", "cluster"])
@pytest.mark.parametrize("instead", ["none", "workgroup"])
def test_a_missing_barrier_is_a_race(barrier: str, instead: str) -> None:
    kernel = reversing(barrier, instead=instead)
    with pytest.raises(InterpretError, match=r"kernel reversing, instruction \d+ \((load|store)\): race on [xy]"):
        interpret(kernel, numbers(), subgroup=32)
    with pytest.raises(PtxError, match="k0: a race of blocks on global memory"):
        run(kernel, numbers(), parse(rendered([kernel], "sm_90a")))


def test_a_barrier_that_some_workgroups_leave_out_is_divergent() -> None:
    with pytest.raises(InterpretError, match=r"\(grid_barrier\): divergent: not every thread of a launch gets here"):
        interpret(reversing(around="if"), numbers(), subgroup=32)
    held = numbers()
    held["arrived"][0] = 3
    with pytest.raises(InterpretError, match=r"arrived\[0\] was not zero before the first launch"):
        interpret(reversing(), held, subgroup=32)


@together()
@pytest.mark.parametrize(("old", "new", "why"), [
    (r"bar\.sync 0;\n(\{ \.reg \.pred %p; \.reg \.b32 %n, %o;)", r"\1", "no bar.sync after a store"),
    (r"_met: bar\.sync 0;", "_met:", "a race of blocks"),
    (r"atom\.acq_rel\.gpu\.", "atom.", "deadlock|a race of blocks"),
    (r"ld\.acquire\.gpu\.", "ld.", "a race of blocks"),
    (r"@%p bra L\d+_wait;", "", "a race of blocks"),
    (r"mov\.u32 %n, %tid\.x; setp\.ne\.s32 %p, %n, 0;", "mov.u32 %n, %ctaid.x; setp.eq.s32 %p, %n, 3;", "deadlock|a race of blocks"),
    (r"selp\.b32 %n, %o, 1, %p;", "mov.b32 %n, 1;", "deadlock"),
], ids=["no barrier before", "no barrier behind", "no release", "no acquire", "no wait", "a workgroup less", "no flip"])
def test_a_changed_word_is_detected(old: str, new: str, why: str) -> None:
    text = rendered([reversing()], "sm_90a")
    assert re.search(old, text), text
    with pytest.raises(PtxError, match=why):
        run(reversing(), numbers(), parse(re.sub(old, new, text)))


@together()
@pytest.mark.parametrize(("given", "message"), [
    ({"around": "if"}, "not all workgroups of a launch may get past the if"),
    ({"around": "loop"}, "not all workgroups of a launch may get past the loop"),
    ({"counter": "signed"}, "signed is not global memory of u32"),
], ids=str)
def test_wrong_kernels_are_refused(given: dict, message: str) -> None:
    with pytest.raises(VerifyError, match=rf"kernel reversing, instruction \d+ \(grid_barrier\): .*{message}"):
        verify(reversing(**given))


def test_counters_have_no_other_use() -> None:
    b = Builder("uses", i32)
    b.memory("arrived", u32, 1, access="rw")
    b.grid_barrier("arrived")
    b.atomic("add", "arrived", 0, b.const(1, u32))
    with pytest.raises(VerifyError, match="arrived counts the barriers of the launch"):
        verify(b.kernel())


def test_targets_without_the_word_say_so() -> None:
    with pytest.raises(Unsupported, match=r"kernel reversing: .*lacks grid_barrier"):
        decompose(reversing(), lambda i: i.opcode != "grid_barrier", "vulkan")
    for name in ("vulkan", "cuda:sm_75", "rocm:gfx942"):
        with pytest.raises(Unsupported, match=f"{name} lacks grid_barrier"):
            decompose(reversing(), renderer(TARGETS[name]).supports, name)
