"""Attention whose workgroups have roles: right in the interpreter and as PTX, and nothing of its ring can be left out."""

from __future__ import annotations

import pytest

from tests.cases.attention import job, off
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import from_storage

HOPPER = TARGETS["cuda:sm_90a"].limits
# Heads, those of keys, queries, keys, size of a head, shape of the mask, causal, dtype; teams and columns of a block.
CASES = {
    "one block": (2, 2, 64, 32, 32, (), False, "bfloat16", 1, 32),
    "many blocks, two panels": (1, 1, 70, 150, 72, (), False, "bfloat16", 2, 64),
    "causal": (2, 1, 70, 70, 16, (), True, "float16", 1, 32),
    "masked, in groups": (4, 2, 24, 40, 24, (2, 1, 1, 40), False, "bfloat16", 1, 16),
    "rows that see nothing": (2, 1, 40, 40, 8, (40, 40), False, "float16", 2, 16),
}


def case(name: str) -> tuple[Job, str]:
    *sizes, teams, block = CASES[name]
    return job(*sizes, more=8), f"grid_attention_roles teams({teams}) block({block}) stages(2)"


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    """In the interpreter, and through PTX."""
    one, schedule = case(name)
    step = plan_of(one.alone("j"), HOPPER)[0].steps[-1]
    schedules = {step.key: schedule}
    assert off(one, interpreted(one, HOPPER, schedules=schedules)[0]) < 4
    [step] = plan_of(one.alone("j"), HOPPER, schedules=schedules)[0].steps
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_90a")))
    [root] = one.graph.roots
    assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 4
