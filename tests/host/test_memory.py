"""Memory for compiled code: aligned, zeroed, and a process's own."""

from __future__ import annotations

import os

import pytest

from ztorch.abi import BUFFER_ALIGN
from ztorch.host.memory import HUGE_PAGE, aligned


def test_blocks_are_aligned_and_zero() -> None:
    sizes = (*range(1, 100), HUGE_PAGE // 2 - 1, HUGE_PAGE // 2, HUGE_PAGE + 1)
    blocks = [aligned(nbytes) for nbytes in sizes]  # all at once, so that they lie everywhere
    for nbytes, block in zip(sizes, blocks, strict=True):
        large = nbytes >= HUGE_PAGE // 2
        assert block.ctypes.data % (HUGE_PAGE if large else BUFFER_ALIGN) == 0
        assert block.nbytes == nbytes and not block.any()
    assert aligned(0).nbytes == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_to_a_copy() -> None:
    blocks = [aligned(nbytes) for nbytes in (100, HUGE_PAGE // 2, 3 * HUGE_PAGE + 1)]
    child = os.fork()
    if not child:
        for block in blocks:
            block[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not any(block.any() for block in blocks)
