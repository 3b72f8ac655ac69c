"""Memory and locks of a compiled program, where another process or thread could meet them."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.host.memory import HUGE_PAGE, aligned


def in_a_child(good: Callable[[], bool]) -> bool:
    """What it says in a forked child."""
    child = os.fork()
    if child == 0:
        verdict = 1
        try:
            verdict = 0 if good() else 1
        finally:
            os._exit(verdict)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
@pytest.mark.parametrize("nbytes", (100, HUGE_PAGE // 2, 3 * HUGE_PAGE + 1))
def test_memory_of_a_forked_child_is_its_own(nbytes: int) -> None:
    memory = aligned(nbytes)

    def write() -> bool:
        memory[:] = 7
        return bool((memory == 7).all())

    assert in_a_child(write)
    assert not memory.any()


@forks
def test_a_forked_child_trains_for_itself() -> None:
    """With weights that are large enough for huge pages."""
    model = zt.Sequential([L.Input((16,)), L.Dense(4096), L.Dense(64)])
    program = model.compile("cpu", batch_size=8, optimizer="sgd", loss="mse")
    assert program.executable.params.nbytes > HUGE_PAGE // 2
    x, y = np.ones((8, 16), np.float32), np.ones((8, 64), np.float32)
    before = program.get_weights()

    def train() -> bool:
        program.fit(x, y, epochs=1, verbose=0)
        return all((a != b).any() for a, b in zip(program.get_weights(), before, strict=True))

    assert in_a_child(train)
    for a, b in zip(program.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
