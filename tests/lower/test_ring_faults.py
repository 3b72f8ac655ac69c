"""Faults put into the PTX of every kernel that has a ring: a wait that is dropped, a stage in place of another, another
swizzle and a missing fence are each found by the machine that runs it, or a result is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.cases.covering import pairs
from tests.cases.grouping import together
from tests.cases.ring_kernels import RINGS
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run
from ztorch.dtypes import to_storage
from ztorch.ir.kernel import Kernel

TILES = 3  # one more than a ring has stages, so that one is used again
# A ring, and which of its kernels.
KERNELS = {"product": ("tiles (2, 2, 3, 1)", 0), "convolution": ("images", 0), "gradient of a kernel": ("gradient of a kernel", 0),
           "convolution in parts": ("images in parts", 0), "gradient of a kernel in parts": ("gradient of a kernel in parts", 0),
           "attention": ("attention (2, 2, False)", 0), "gradient of queries": ("attention gradients (2, 2, False)", 0),
           "gradients of keys and values": ("attention gradients (2, 2, False)", 1)}

# Waits of the thread that copies: stages of both sides are given back together, so that either would do.
SPARE = {("gradient of queries", "a dropped wait"): 1, ("gradients of keys and values", "a dropped wait"): 1}

WAIT = r"L\d+_wait: mbarrier\.try_wait\S+ %p, \[%a\], %v\d+; @!%p bra L\d+_wait; \}"
SWIZZLE = 1 << 62  # of lines of 128 bytes, in a descriptor of a matrix


def each(text: str, pattern: str, replacement: str) -> Iterator[str]:
    """The text with each match replaced, one at a time."""
    for m in re.finditer(pattern, text):
        yield text[:m.start()] + m.expand(replacement) + text[m.end():]


def every(pattern: str, replacement: str | Callable[[re.Match], str]) -> Callable[[str], Iterator[str]]:
    return lambda text: iter([re.sub(pattern, replacement, text)])


FAULTS: dict[str, Callable[[str], Iterator[str]]] = {
    "a dropped wait": lambda text: each(text, WAIT, "}"),
    "an arrival less": lambda text: each(text, r"mbarrier\.arrive\.shared::cta\.b64 _, \[%a\];", ""),
    "one stage for all copies": every(r"(mad\.lo\.s32 %a, )%v\d+(, [24], [^}]*?cp\.async\.bulk)", r"\g<1>0\2"),
    "one stage for all products": every(r"(mad\.lo\.s32 %ab, )%v\d+(, [24], )", r"\g<1>0\2"),
    "another swizzle": every(r"or\.b64 %db, %db, (\d+)", lambda m: f"or.b64 %db, %db, {int(m[1]) + SWIZZLE}"),
    "no fence of barriers": every(r"fence\.mbarrier_init\.release\.cluster;", ""),
    "no fence of matrices": every(r"wgmma\.fence\.sync\.aligned;", ""),
}


def results(kernel: Kernel, text: str) -> dict[str, np.ndarray]:
    """What a text leaves in the buffers, whose numbers are random."""
    rng, held = np.random.default_rng(0), {}
    for m in (m for m in kernel.memories if m.space == "global"):
        held[m.name] = to_storage(m.dtype, rng.normal(size=m.size).astype(m.dtype.working))
    run(kernel, held, parse(text))
    return held


@together()
@pytest.mark.parametrize(("name", "fault"), pairs(list(KERNELS), list(FAULTS)))
def test_a_fault_is_detected(name: str, fault: str) -> None:
    ring, number = KERNELS[name]
    kernel = RINGS[ring][0](TILES)[number]
    text = rendered([kernel], "sm_90a")
    want, broken = results(kernel, text), [*FAULTS[fault](text)]
    assert broken
    for k, other in enumerate(broken):
        assert other != text
        if k == SPARE.get((name, fault)):
            continue
        try:
            got = results(kernel, other)
        except PtxError:
            continue
        wrong = [m for m, a in got.items() if not np.array_equal(a, want[m])]
        assert wrong, f"number {k} of {len(broken)} is missed"
