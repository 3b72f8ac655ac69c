"""Rings of attention whose workgroups have roles, and of its gradients: none comes to a standstill, whatever the number
of blocks of keys, and whichever role is ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cases.attention import attention, fed, job
from tests.cases.grouping import together
from tests.cases.ring_schedules import played
from tests.parity import Job, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.ir.kernel import Kernel

HOPPER = TARGETS["cuda:sm_90a"].limits
AHEAD = 2  # blocks of which a team has the scores before its loop over the others


def forward(blocks: int, teams: int, stages: int, causal: bool) -> Kernel:
    """For a tile of queries, as many blocks of keys."""
    one = job(1, 1, 64 * teams, 64 * blocks, 16, (), causal, "bfloat16", more=0)
    key = plan_of(one.alone("j"), HOPPER)[0].steps[-1].key
    text = f"grid_attention_roles teams({teams}) block(64) stages({stages})"
    return plan_of(one.alone("j"), HOPPER, schedules={key: text})[0].steps[-1].kernel


def gradients(blocks: int, causal: bool) -> Iterator[Kernel]:
    graph, _ = attention(1, 1, 64 * blocks, 64 * blocks, 16, (), causal, backward=True, dtype="bfloat16", more=0)
    for step in plan_of(Job(graph, fed(graph)).alone("j"), HOPPER)[0].steps:
        if step.schedule is not None and step.schedule.kind == "grid_attention_gradient":
            yield step.kernel


@together()
@pytest.mark.parametrize(("teams", "stages", "causal", "blocks"), [
    (2, 2, False, 1), (2, 2, False, 2), (2, 2, False, 3), (2, 2, False, 1000), (1, 3, False, 1), (1, 3, False, 4),
    (1, 3, False, 101), (2, 2, True, 5), (2, 4, False, 7)])
def test_no_ring_deadlocks(teams: int, stages: int, causal: bool, blocks: int) -> None:
    kernel = forward(blocks, teams, stages, causal)
    assert played(kernel, ahead=AHEAD) == "" == played(kernel, last_first=True, ahead=AHEAD)


@together()
@pytest.mark.parametrize(("blocks", "causal"), [(2, False), (3, True), (7, False), (40, True)])
def test_no_ring_of_gradients_deadlocks(blocks: int, causal: bool) -> None:
    kernels = [*gradients(blocks, causal)]
    assert len(kernels) == 2
    for kernel in kernels:
        assert played(kernel, ahead=AHEAD) == "" == played(kernel, last_first=True, ahead=AHEAD)
