"""The PTX machine of the tests itself: it must refuse code that would fail on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.machines.ptx.machine import check, launch
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel

HEADER = ".version 7.0\n.target sm_80\n.address_size 64\n"


def entry(body: str, threads: int = 32) -> str:
    return f"{HEADER}.visible .entry k(.param .u64 k_0)\n.reqntid {threads}, 1, 1\n{{\n{body}\n ret;\n}}\n"


PROLOGUE = """.reg .b64 %m, %a; .reg .b32 %t, %v, %w; .reg .f32 %f; .reg .pred %p;
ld.param.u64 %m, [k_0]; cvta.to.global.u64 %m, %m; mov.u32 %t, %tid.x;
"""


def execute(body: str, nbytes: int = 128, threads: int = 32) -> np.ndarray:
    memory = GlobalMemory()
    at = memory.alloc(nbytes)
    memory.allocations[at].data[:] = 0
    launch(parse(entry(PROLOGUE + body, threads)).entries["k"], (1, 1, 1), [at], memory)
    return memory.allocations[at].data[:nbytes].view(np.int32)


STORE = "mad.wide.s32 %a, %t, 4, %m; st.global.b32 [%a], %v;"


@pytest.mark.parametrize(("body", "why"), [
    ("mov.b32 %v, 1; mad.wide.s32 %a, %t, 8, %m; st.global.b32 [%a], %v;", "in no one allocation"),
    ("mov.b32 %v, 1; st.global.b32 [%m+2], %v;", "not aligned"),
    (STORE, "never written"),
    ("add.f32 %f, 0f3F800000, 0f3F800000;", "may fuse it"),
    ("mul.f32 %f, 0f3F800000, 0f3F800000;", "may fuse it"),
    ("frob.b32 %v, %t;", "unknown"),
    ("add.s32 %v, %t, %m;", "is not 32 bits"),
    ("setp.lt.s32 %p, %t, 7; @%p bra END; bar.sync 0; END:", "not all threads of a block"),
    ("setp.lt.s32 %p, %t, 7; @%p bra END; shfl.sync.bfly.b32 %v, %t, 1, 31, 0xFFFFFFFF; END:",
     "not all of a warp"),
    (".reg .b32 %u; ld.global.v2.b32 {%v, %u}, [%m+4];", "not aligned"),
    ("ld.global.nc.b32 %v, [%m]; st.global.b32 [%m], %v;", "reads what the kernel writes"),
    ("st.global.b32 [%m], %t; ld.global.nc.b32 %v, [%m];", "reads what the kernel writes"),
    (".shared .align 16 .b8 s[64]; mov.b32 %w, s; st.shared.b32 [%w+64], %t;", "shared memory at"),
    (".shared .align 16 .b8 s[64]; mov.b32 %w, s; st.shared.b32 [%w], %t;", "a race"),
    (".shared .align 16 .b8 s[128]; mov.b32 %w, s; mad.lo.s32 %w, %t, 4, %w; st.shared.b32 [%w], %t;"
     "xor.b32 %w, %w, 4; ld.shared.b32 %v, [%w];", "a race"),
    ("bra NOWHERE;", "no such label"),
    ("st.global.b32 [%m], %t; griddepcontrol.wait;", "before the kernels before it are done"),
    ("griddepcontrol.launch_dependents; griddepcontrol.wait;", "before the wait"),
    ("setp.lt.s32 %p, %t, 7; @%p bra END; griddepcontrol.wait; END:", "not all threads reach it"),
    ("mov.b32 %v, %undeclared;", "not declared"),
])
def test_faults_raise_errors(body: str, why: str) -> None:
    with pytest.raises(PtxError, match=why):
        execute(body)


def test_threads_that_part_come_together() -> None:
    """Loops of different lengths, an if with two sides, and one inside the other."""
    actual = execute("""
      mov.b32 %v, 0; mov.b32 %w, 0;
    HEAD:
      setp.ge.s32 %p, %w, %t; @%p bra EXIT;
      { .reg .pred %odd; .reg .b32 %one; and.b32 %one, %w, 1; setp.eq.s32 %odd, %one, 1;
        @!%odd bra ELSE; }
      add.s32 %v, %v, %w; bra END;
    ELSE:
      add.s32 %v, %v, 100;
    END:
      add.s32 %w, %w, 1; bra HEAD;
    EXIT:
      bar.sync 0;
    """ + STORE)
    want = [sum(w if w % 2 else 100 for w in range(t)) for t in range(32)]
    assert actual.tolist() == want


def _float(x: float) -> str:
    return f"0f{np.float32(x).view(np.uint32):08X}"


@pytest.mark.parametrize(("code", "want"), [
    ("div.s32 %v, -7, 2;", -3), ("rem.s32 %v, -7, 2;", -1), ("shl.b32 %v, 1, 32;", 0),
    ("shr.s32 %v, -8, 40;", -1), ("shr.u32 %v, -8, 40;", 0), ("shr.s32 %v, -8, 1;", -4),
    ("mul.hi.u32 %v, 4294967295, 4294967295;", -2), ("abs.s32 %v, -2147483648;", -(1 << 31)),
    ("mov.b32 %w, 511; cvt.s32.s8 %v, %w;", -1), ("mov.b32 %w, 511; cvt.u32.u8 %v, %w;", 255),
    (f"cvt.rzi.s32.f32 %v, {_float(3e9)};", (1 << 31) - 1),
    (f"cvt.rzi.s32.f32 %v, {_float(-3e9)};", -(1 << 31)),
    (f"cvt.rzi.s32.f32 %v, {_float(np.nan)};", 0), (f"cvt.rzi.u32.f32 %v, {_float(-1)};", 0),
    ("cvt.rzi.s32.f64 %v, 0d7FF8000000000000;", -(1 << 31)),
    (f"setp.lt.f32 %p, {_float(np.nan)}, 0f00000000; selp.b32 %v, 1, 2, %p;", 2),
    (f"setp.neu.f32 %p, {_float(np.nan)}, 0f00000000; selp.b32 %v, 1, 2, %p;", 1),
    (f"cvt.rni.f32.f32 %f, {_float(2.5)}; cvt.rzi.s32.f32 %v, %f;", 2),
    ("mad.lo.s32 %v, 65536, 65536, 5;", 5),
])
def test_single_instructions(code: str, want: int) -> None:
    assert execute(code + STORE).tolist() == [want] * 32


# -- broken words are noticed ------------------------------------------------------------------------


Made = tuple[Kernel, dict[str, np.ndarray], str, np.ndarray]  # with the output's name, and its expected value


def softmax() -> Made:
    x = leaf("input", "x", (3, 1003), f32)
    return _only(Graph({"y": ops.softmax(x)}), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True))


def product() -> Made:
    x = leaf("input", "x", (50, 50), f32)
    return _only(Graph({"y": ops.matmul(x, x)}), lambda a: a @ a)


def _only(graph: Graph, meaning: Callable) -> Made:
    """The one kernel of a graph of one input, with data and the expected result."""
    plan, _ = plan_of(graph, TARGETS["cuda:sm_80"].limits)
    (step,) = plan.steps
    (x,) = graph.leaves("input")
    a = np.random.default_rng(0).normal(size=x.shape)
    held, out = {}, ""
    for m, place in zip([m for m in step.kernel.memories if m.space == "global"], step.locations, strict=True):
        held[m.name] = np.zeros(m.size, np.float32)
        if place.space == "inputs":
            held[m.name][:] = a.reshape(-1)
        elif place.space == "outputs":
            out = m.name
    return step.kernel, held, out, meaning(a.astype(np.float32).astype(np.float64)).reshape(-1)


@pytest.mark.parametrize("made", [softmax, product])
def test_whole_kernels(made: Callable) -> None:
    kernel, held, out, want = made()
    run(kernel, held, parse(rendered([kernel], "sm_80")))
    np.testing.assert_allclose(held[out], want, atol=2e-5)


@pytest.mark.parametrize(("made", "old", "new"), [
    (softmax, "  bar.sync 0;\n", ""), (product, "  bar.sync 0;\n", ""),
    (softmax, "shfl.sync.bfly.b32", "mov.b32"), (softmax, "max.NaN.f32", "min.NaN.f32"),
    (product, "fma.rn.f32", "fma.f32"), (product, "@%p bra", "@!%p bra"),
    (product, "ld.shared.f32", "ld.global.f32"), (softmax, "0f3F", "0f3E"),
])
def test_a_changed_instruction_is_detected(made: Callable, old: str, new: str) -> None:
    """Each would be a wrong word of the templates; none may pass for right."""
    kernel, held, out, want = made()
    text = rendered([kernel], "sm_80")
    assert old in text
    with pytest.raises((PtxError, AssertionError, ValueError, TypeError)):
        run(kernel, held, parse(text.replace(old, new)))
        np.testing.assert_allclose(held[out], want, atol=2e-5)


def test_unknown_instructions_are_found_before_they_run() -> None:
    with pytest.raises(PtxError, match="unknown"):
        check(parse(entry(PROLOGUE + "bra END; frob.b32 %v, %t; END:")).entries["k"])


@pytest.mark.parametrize("text", ["", HEADER + "rubbish", entry("")[:-3], entry(".reg .b7 %x;"),
                                  entry("L: L:"), entry(".frob %x;")])
def test_what_is_no_ptx_is_refused(text: str) -> None:
    with pytest.raises(PtxError):
        program = parse(text)
        assert program.entries["k"]


def test_blocks_of_several_axes() -> None:
    b = Builder("axes", TARGETS["cuda:sm_80"].limits.index)
    b.memory("y", b.index, 2 * 3 * 4 * 2, access="w")
    b.workgroup = (4, 2, 1)
    with b.loop(0, 3, kind="grid") as g, b.loop(0, 2, kind="grid", axis=1) as h, \
            b.loop(0, 4, kind="block") as t, b.loop(0, 2, kind="block", axis=1) as u:
        at = b.add(b.mul(b.add(b.mul(b.add(b.mul(h, 3), g), 2), u), 4), t)
        b.store("y", at, at)
    held = {"y": np.full(48, -1, np.int32)}
    kernel = b.kernel()
    run(kernel, held, parse(rendered([kernel], "sm_80")))
    assert held["y"].tolist() == list(range(48))
