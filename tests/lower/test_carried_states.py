"""States that a loop carries: updated in place, unless a reader needs the previous value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.available import PLAYED, device
from ztorch import ops
from ztorch.compile.pipeline import build
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

FIRST = np.arange(5, dtype=np.float32)


def graphs(read_again: bool) -> dict[str, Graph]:
    """A state is doubled and increased three times; `read_again` after the loop, as it was. As each turn
    asks for the largest element, it stays a loop around kernels."""
    state = leaf("state", "s", (5,), "float32", FIRST, kind="cache", trainable=False)
    x = leaf("input", "x", (5,), "float32")
    last, _ = ops.scan(lambda s, _: (s * 2.0 + x + ops.max(s), None), state, length=3)
    y = last - state if read_again else last - 1.0
    return {"predict": Graph({"y": x + 1.0}), "turn": Graph({"y": y}, {"s": last})}


@pytest.mark.parametrize("read_again", [True, False])
@pytest.mark.parametrize("name", ["cpu", *(f"{b}:0" for b in PLAYED)])
def test_a_carried_state(name: str, read_again: bool) -> None:
    if name != "cpu":
        device(name[:-2])
    program = build(graphs(read_again), name, "carrying")
    call = program.bind("turn")
    call.inputs["x"][...] = x = np.full(5, 0.5, np.float32)
    before = FIRST
    for _ in range(2):
        call()
        after = before
        for _ in range(3):
            after = after * 2 + x + after.max()
        np.testing.assert_array_equal(program.state("s"), after)
        np.testing.assert_array_equal(call.outputs["y"], after - (before if read_again else 1))
        before = after


def test_it_is_copied_only_where_it_is_read_again() -> None:
    copies = [sum("copy" in kernel for kernel, _ in build(graphs(again), "cpu", "carrying").functions[
        "turn"].kernels) for again in (False, True)]
    assert copies == [1, 3]  # in each turn; and before and after all of them
