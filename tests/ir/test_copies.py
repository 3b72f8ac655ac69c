"""Asynchronous copies: in the interpreter, in PTX, and as loads and stores where there are none."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run, spoken, through_ptx
from ztorch.dtypes import DType, f16, f32, i32
from ztorch.errors import InterpretError, VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse as parse_text
from ztorch.ir.text import show
from ztorch.ir.verify import verify
from ztorch.lower.grid.workgroups import threads

THREADS, SLABS, STAGES = 32, 5, 3


def ring(d: DType = f32, elements: int = 4, pending: int = STAGES - 2, barrier: bool = True,
         stages: int = STAGES, behind: int = 0) -> Kernel:
    """Sums over slabs that pass through a ring of stages; the last slab is not full. A thread reads its neighbor's
    copy. Arguments other than the usual ones are mistakes."""
    b, part = Builder("ring", i32), THREADS * elements
    size = SLABS * part - part // 2
    b.memory("x", d, size), b.memory("y", d, part, access="w")
    b.memory("s", d, STAGES * part, "shared", "rw")
    with b.loop(0, 1, kind="grid"), threads(b, THREADS) as t:
        mine = b.mul(t, elements)

        def start(slab: object) -> None:
            index = b.add(b.mul(b.rem(slab, stages), part), mine)
            at = b.add(b.mul(slab, part), mine)
            b.copy_async("s", index, "x", at, elements, b.lt(at, size), align=elements * d.bytes)

        sums = [b.var(d, 1, 0) for _ in range(elements)]
        for k in range(STAGES - 1):
            start(b.const(k, i32))
            b.copies_commit()
        other = b.mul(b.xor(t, 1), elements)
        with b.loop(0, SLABS) as k:
            b.copies_wait(pending)
            if barrier:
                b.barrier()
            ahead = b.add(k, STAGES - 1)
            with b.if_(b.lt(ahead, SLABS)):
                start(ahead)
            b.copies_commit()
            stage = b.mul(b.rem(b.add(k, behind), STAGES), part)
            for n, total in enumerate(sums):
                b.set(total, b.add(b.get(total), b.load("s", b.add(stage, other), off=n)))
        for n, total in enumerate(sums):
            b.store("y", other, b.get(total), off=n)
    return b.kernel()


def numbers(kernel: Kernel) -> tuple[dict[str, np.ndarray], np.ndarray]:
    x, y = kernel.memories[:2]
    data = np.arange(1, x.size + 1).astype(x.dtype.numpy)
    padded = np.concatenate([data, np.zeros(SLABS * y.size - x.size, data.dtype)])
    return {"x": data, "y": np.zeros(y.size, data.dtype)}, padded.reshape(SLABS, -1).sum(0)


SHAPES = [(f32, 4), (f32, 2), (f32, 1), (f16, 8), (f16, 4), (f16, 2)]


@pytest.mark.parametrize(("d", "elements"), SHAPES)
def test_what_a_ring_of_stages_gives(d: DType, elements: int) -> None:
    kernel = ring(d, elements)
    verify(kernel)
    assert parse_text(show(kernel)) == kernel
    for execute in (interpret, through_ptx):
        held, want = numbers(kernel)
        execute(kernel, held)
        np.testing.assert_array_equal(held["y"], want)
    assert "cp.async.c" in rendered([kernel], "sm_80")


@pytest.mark.parametrize(("d", "elements"), SHAPES[:1] + SHAPES[3:4])
def test_chips_without_them_load_and_store(d: DType, elements: int) -> None:
    kernel = ring(d, elements)
    assert not spoken(kernel, "sm_75").opcodes() & {"copy_async", "copies_commit", "copies_wait"}
    held, want = numbers(kernel)
    through_ptx(kernel, held, "sm_75")
    np.testing.assert_array_equal(held["y"], want)
    assert "cp.async" not in rendered([kernel], "sm_75")


MISTAKES = {  # messages of the interpreter and of the PTX machine
    "a dropped wait": ({"pending": STAGES}, "in flight", "in flight"),
    "a wait for too few": ({"pending": STAGES - 1}, "in flight", "in flight"),
    "a missing barrier": ({"barrier": False}, "race", "race"),
    "a stage that is still read": ({"stages": STAGES - 1}, "race|in flight", "race|in flight"),
    "a swapped stage": ({"behind": 1}, "race|in flight", "race|in flight"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_detected(name: str) -> None:
    how, said, by_ptx = MISTAKES[name]
    kernel = ring(**how)
    with pytest.raises(InterpretError, match=said):
        interpret(kernel, numbers(kernel)[0])
    with pytest.raises(PtxError, match=by_ptx):
        through_ptx(kernel, numbers(kernel)[0])


@pytest.mark.parametrize(("old", "new"), [
    (r"cp\.async\.wait_group 1;", "cp.async.wait_group 2;"), (r"cp\.async\.commit_group;", ""),
    (r"selp\.b32 %n, 16, 0,", "selp.b32 %n, 0, 16,"), (r", 16, %n;", ", 16;"), (r"shared\.global", "global.shared")])
def test_a_changed_instruction_is_detected(old: str, new: str) -> None:
    kernel = ring()
    text = re.sub(old, new, rendered([kernel], "sm_80"))
    held, want = numbers(kernel)
    with pytest.raises((PtxError, AssertionError)):
        run(kernel, held, parse(text))
        np.testing.assert_array_equal(held["y"], want)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("copy_async s", "copy_async x", "x is not shared"), ("source=x", "source=y", "read-only global memory"),
    ("source=x", "source=s", "read-only global memory"), ("source_off=0", "source_off=1", "aligned to 16"),
    ("elements=4", "elements=0", "elements=0 is not possible"), ("pending=1", "pending=-1", "is not possible")])
def test_what_the_verifier_refuses(old: str, new: str, why: str) -> None:
    with pytest.raises(VerifyError, match=why):
        verify(parse_text(show(ring()).replace(old, new)))
