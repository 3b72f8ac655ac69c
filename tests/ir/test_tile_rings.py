"""Rings of tiles: barriers of phases, copies by tensor maps, roles and clusters, in the interpreter and in PTX."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.tile_rings import SIZE, numbers, ringing
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.machines.ptx.tensor_maps import TensorMap
from ztorch.errors import InterpretError, VerifyError
from ztorch.ir.interpret import interpret
from ztorch.ir.parse import parse as parse_text
from ztorch.ir.text import show
from ztorch.ir.tile_maps import TileMap, tile_maps
from ztorch.ir.verify import verify

STAGE = 2 * SIZE * 2  # bytes


@together()
@pytest.mark.parametrize("given", [{}, {"k": 200}, {"groups": 3, "k": 64}, {"groups": 4, "k": 136, "cluster": 2}], ids=str)
def test_what_a_ring_computes(given: dict) -> None:
    kernel = ringing(**given)
    verify(kernel)
    assert parse_text(show(kernel)) == kernel
    held, want = numbers(kernel)
    interpret(kernel, held, subgroup=32)
    np.testing.assert_array_equal(held["y"], want)
    held, want = numbers(kernel)
    run(kernel, held, parse(rendered([kernel], "sm_90a")))
    np.testing.assert_array_equal(held["y"], want)


MISTAKES = {  # messages of the interpreter and of the PTX machine
    "fence of barriers": ({"leave_out": "fence of barriers"}, "no mbarrier_fence", "no fence and barrier"),
    "barrier": ({"leave_out": "barrier"}, "no barrier after", "no fence and barrier"),
    "wait for consumers": ({"leave_out": "wait for consumers"}, "overwritten while a copy", "a stage is overwritten"),
    "expected bytes": ({"leave_out": "expected bytes"}, r"deadlock: .*barrier full\[0\]", "deadlock"),
    "wait for copies": ({"leave_out": "wait for copies"}, "touched while a copy", "a copy to an operand is in flight"),
    "wait for products": ({"leave_out": "wait for products"}, "a product in flight reads it", "a product in flight reads it"),
    "arrival": ({"leave_out": "arrival of consumers"}, r"deadlock: .*barrier empty\[0\]", "deadlock"),
    "too few bytes": ({"expected": STAGE - 1024}, "more bytes than mbarrier_expect", "more bytes come"),
    "too many bytes": ({"expected": STAGE + 1024}, "for which 1024 bytes are not in flight", "deadlock"),
    "a wrong phase": ({"parity": 0}, "deadlock", "deadlock"),
    "a swapped stage": ({"ahead": 1}, "touched while a copy", "a copy to an operand is in flight"),
    "the end of a cluster": ({"groups": 2, "cluster": 2, "k": 64, "leave_out": "barrier at the end"},
                             "no cluster_barrier after", "a block may end"),
}


@together()
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_detected(name: str) -> None:
    given, message, by_ptx = MISTAKES[name]
    kernel = ringing(**given)
    with pytest.raises(InterpretError, match=rf"kernel ringing, instruction \d+ .*{message}"):
        interpret(kernel, numbers(kernel)[0], subgroup=32)
    with pytest.raises(PtxError, match=f"k0: .*{by_ptx}"):
        run(kernel, numbers(kernel)[0], parse(rendered([kernel], "sm_90a")))


BROKEN = {
    "a wait that does not try again": (r"@!%p bra L\d+_wait;", ""),
    "an address of another barrier": (r"(bytes \[%a\], \S+ { \S+ %v\d+ }\], )\[%b\]", r"\1[%b+8]"),
    "the other map": (r"mov\.b64 %t, t0;", "mov.b64 %t, t1;"),
    "coordinates in another order": (r"\{ (%v\d+), (%v\d+) \}\]", r"{ \2, \1 }]"),
    "lines of another distance": (str((1 << 62) + (64 << 32)), str((1 << 62) + (32 << 32))),
    "half of the registers twice": (r"setmaxnreg\.dec\.sync\.aligned\.u32 40", "setmaxnreg.inc.sync.aligned.u32 256"),
    "a team of others": (r"bar\.sync 1, 128;", "bar.sync 1, 96;"),
}


@together()
@pytest.mark.parametrize("name", BROKEN)
def test_a_changed_instruction_is_detected(name: str) -> None:
    kernel = ringing(k=200)
    text = rendered([kernel], "sm_90a")
    old, new = BROKEN[name]
    if name == "half of the registers twice":
        text = text.replace("u32 232", "u32 264")
    broken = re.sub(old, new, text) if not old.isdigit() else re.sub(
        rf"\b{old[:6]}\d+\b", lambda m: str(int(m[0]) - (32 << 32)), text)
    assert broken != text
    held, want = numbers(kernel)
    with pytest.raises((PtxError, AssertionError)):
        run(kernel, held, parse(broken))
        np.testing.assert_array_equal(held["y"], want)


@pytest.mark.parametrize("swizzle", [0, 2])
def test_a_wrong_swizzle_is_detected(swizzle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ringing(k=64)
    one = TileMap("a", 0, (64, 64), (1, 64), (64, 64))
    assert tile_maps(kernel) == (one, one._replace(memory="b"))
    held, want = numbers(kernel)
    monkeypatch.setattr("tests.machines.ptx.running.TensorMap", lambda *given: TensorMap(*given, swizzle=swizzle))
    with pytest.raises((PtxError, AssertionError), match="a tensor map of other swizzle" if swizzle else None):
        run(kernel, held, parse(rendered([kernel], "sm_90a")))
        np.testing.assert_array_equal(held["y"], want)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("box=(64, 64)", "box=(32, 64)", "lines of 128 bytes"), ("box=(64, 64)", "box=(64, 300)", "at most 256"),
    ("pitches=(1, 320)", "pitches=(1, 324)", "do not begin at multiples"), ("extents=(320, 64)", "extents=(320, 65)", "outside its"),
    ("extents=(320, 64)", "extents=(320, 64, 1)", "differ in length"), ("near_a f16[8192] rw swizzled", "near_a f16[8192] rw", "not swizzled memory"),
    ("shared full u64", "shared full u32", "not shared memory of u64"), ("source=a ", "source=y ", "not global memory that is only read"),
    ("team_barrier count=128", "team_barrier count=100", "a team of 100"), ("count=232", "count=236", "236 registers"),
    ("bytes=16384", "bytes=16380", "expects 16380 bytes"), ("cluster=1", "cluster=2", "of a cluster of 1"),
    ("mbarrier_wait full", "mbarrier_wait near_a", "near_a holds barriers")])
def test_what_the_verifier_refuses(old: str, new: str, why: str) -> None:
    text = show(ringing())
    assert old in text
    with pytest.raises(VerifyError, match=why):
        verify(parse_text(text.replace(old, new)))


def test_barriers_and_tiles_are_touched_by_nothing_else() -> None:
    text = show(ringing())
    for mem, kind, why in (("full", "u64", "holds barriers"), ("near_a", "f16", "filled by copies of tiles")):
        with pytest.raises(VerifyError, match=why):
            verify(parse_text(text.replace("team_barrier", f"%9000:{kind} = load {mem}[0]\nteam_barrier")))


TEAMS = """kernel teams index=i32 exact workgroup=(96, 1, 1) {
  global y f32[96] w
  loop %0 = 0, 1, 1 grid {
    loop %1 = 0, 96, 1 block {
      %2:i32 = div %1, 32
      %3:bool = lt %2, 2:i32
      if %3 {
        team_barrier count=64
      }
      %6:bool = ge %2, FIRST:i32
      if %6 {
        team_barrier count=64
      }
      store y[%1], 1.0:f32
    }
  }
}
"""


def test_a_team_is_the_same_threads_at_each_barrier() -> None:
    """Also where most threads of the second team were in the first."""
    for first, why in (("1", "there is one team only"), ("2", "not the 64 threads of a team")):
        kernel = parse_text(TEAMS.replace("FIRST", first))
        verify(kernel)
        with pytest.raises(InterpretError, match=why):
            interpret(kernel, {"y": np.zeros(96, np.float32)}, subgroup=32)
