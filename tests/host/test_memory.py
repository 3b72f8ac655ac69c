"""Memory for compiled code: aligned, zeroed, and a process's own."""

from __future__ import annotations

import os

import pytest

from ztorch.abi import BUFFER_ALIGN
from ztorch.host.memory import HUGE_PAGE, aligned


def test_blocks_are_aligned_and_zero() -> None:
    for nbytes in (0, 1, 100, HUGE_PAGE // 2 - 1, HUGE_PAGE // 2, HUGE_PAGE + 1):
        block = aligned(nbytes)
        large = nbytes >= HUGE_PAGE // 2
        assert block.ctypes.data % (HUGE_PAGE if large else BUFFER_ALIGN) == 0 or not nbytes
        assert block.nbytes == nbytes and not block.any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_to_a_copy() -> None:
    block = aligned(HUGE_PAGE // 2)
    child = os.fork()
    if not child:
        block[:] = 1
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and not block[0]
