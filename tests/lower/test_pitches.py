"""Products whose lines are no multiple of 16 bytes, on chips whose threads copy asynchronously: operands get longer lines,
and what lies between lines is in no result."""

from __future__ import annotations

import numpy as np
import pytest

from tests import parity
from tests.cases.products import bound
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.lower.grid import pitches

SM_80 = TARGETS["cuda:sm_80"].limits
# Rows, steps along k, columns; whether the left and the right operand lie transposed.
CASES = {"columns": (72, 64, 75, False, False), "rows": (67, 64, 72, True, False), "both": (75, 40, 67, True, False),
         "steps along k": (40, 75, 48, False, True), "all": (35, 75, 43, False, True),
         "steps of the left": (40, 75, 48, False, False), "steps of the right": (40, 75, 48, True, True)}


@pytest.fixture(autouse=True)
def small_operands_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pitches, "PITCH_REUSE", 16)


def product(a: Value, b: Value, a_turned: bool, b_turned: bool) -> Graph:
    return Graph({"y": ops.matmul(ops.transpose(a) if a_turned else a, ops.transpose(b) if b_turned else b)})


def fed(graph: Graph) -> Job:
    random = np.random.default_rng(4)
    return Job(graph, {v: random.normal(size=v.shape).astype(np.float16) for v in graph.leaves("input")})


def stages(one: Job) -> list[int]:
    """Of each product."""
    steps = plan_of(one.alone("j"), SM_80)[0].parts
    return [s.schedule.stages for s in steps if s.schedule.kind == "grid_matrix"]


@pytest.mark.parametrize("name", CASES)
def test_lines_of_any_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m, k, n, *turned = CASES[name]
    a, b = (leaf("input", name, shape[::-1] if turn else shape, f16)
            for name, shape, turn in zip("ab", ((m, k), (k, n)), turned, strict=True))
    one = fed(product(a, b, *turned))
    assert min(stages(one)) > 1

    def play(kernel: Kernel, buffers: dict, *_: int, **__: int) -> None:
        run(kernel, buffers, parse(rendered([kernel], "sm_80")))

    monkeypatch.setattr(parity, "interpret", play)
    assert (abs(interpreted(one, SM_80)[0] - one.oracle()[0]) <= bound(one, f16, k)).all()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_what_lies_between_lines_is_in_no_result(turned: tuple[bool, bool]) -> None:
    """Parts of matrices, whose other elements are NaN: behind columns, rows or steps along k."""
    a, b = leaf("input", "a", (72, 80), f16), leaf("input", "b", (72, 80), f16)
    parts = [ops.slice(x, (0, 0), (1, 1), (72, 75)) for x in (a, b)]
    if turned == (False, False):
        parts[0] = ops.slice(a, (0, 0), (1, 1), (64, 72))
    one = fed(product(parts[0], parts[1], *turned))
    assert min(stages(one)) > 1
    want = one.oracle()[0]
    one.feeds[b][:, 75:] = np.nan
    if turned != (False, False):
        one.feeds[a][:, 75:] = np.nan
    broken = Job(one.graph, one.feeds)
    got = interpreted(broken, SM_80)[0]
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=2.0**-10 * abs(want).max() * 4)


def test_a_product_that_is_not_copied_anyway_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The left operand could get longer lines along k, and the right one is read too seldom."""
    monkeypatch.setattr(pitches, "PITCH_REUSE", 65)
    a, b = leaf("input", "a", (64, 75), f16), leaf("input", "b", (75, 72), f16)
    assert [s.schedule.kind for s in plan_of(fed(product(a, b, False, False)).alone("j"), SM_80)[0].parts] == ["grid_matrix"]
