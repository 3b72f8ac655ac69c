"""ONNX's own backend tests: what passed still passes. docs/onnx.md has the table."""

from __future__ import annotations

import collections
import time

import pytest

from tests.cases import available
from tests.cases.covering import full
from tools.onnx_suite import OUTCOMES, PAGE, RANDOM_OPS, SuiteCase, cases, exceptions, judge
from ztorch.interchange.onnx.node import NODES
from ztorch.interchange.onnx.nodes.microsoft import MICROSOFT
from ztorch.interchange.onnx.protobuf import WITHOUT_DOMAIN

EACH = 50  # of so many cases, one is compiled in a run that is not full, beginning elsewhere each day
TURN = int(time.time() // 86_400)


@pytest.fixture(scope="module")
def suite() -> list[SuiteCase]:
    return list(cases())


@pytest.mark.parametrize("device", [None, "cpu", pytest.param("vulkan:0", marks=pytest.mark.full)])
def test_what_passed_still_passes(suite: list[SuiteCase], device: str | None) -> None:
    """All with NumPy; a sample compiled for each device, in a full run all for the CPU. The sample is another
    each day, so that fifty days compile all."""
    if device == "vulkan:0":
        available.device("vulkan")  # or the test is skipped
    known, faults = exceptions(), []
    for case in suite if device is None or (device == "cpu" and full()) else suite[TURN % EACH::EACH]:
        expected, _ = known.get(case.name, ("pass", ""))
        verdict = judge(case, device)
        if verdict.outcome != expected and (verdict.outcome, expected) != ("pass", "rounding"):
            faults.append(f"{case.name}: {verdict.outcome}, not {expected}: {verdict.reason}")
    assert not faults, "\n".join([*faults, "run python -m tools.onnx_suite --write, if it is right"])


def test_exceptions_are_of_the_suite(suite: list[SuiteCase]) -> None:
    known = exceptions()
    assert set(known) <= {case.name for case in suite}
    outcomes = collections.Counter(outcome for outcome, _ in known.values())
    assert set(outcomes) <= {"shape", "Unsupported", "rounding"}
    assert len(suite) - len(known) >= 1750


def test_the_table_counts_them(suite: list[SuiteCase]) -> None:
    outcomes = collections.Counter(outcome for outcome, _ in exceptions().values())
    outcomes["pass"] = len(suite) - outcomes.total()
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines()]
    table = {row[0].removeprefix("| "): row[-2] for row in rows if len(row) == 7}
    assert {name: int(table[name]) for name in OUTCOMES} == {n: outcomes[n] for n in OUTCOMES}


def test_the_suite_tries_every_op(suite: list[SuiteCase]) -> None:
    known = exceptions()
    tried = {node.op_type for case in suite if case.name not in known
             for node in case.model.graph.node}
    elsewhere = {"GlobalLpPool", "Optional", *RANDOM_OPS,  # test_onnx_nodes.py, test_onnx_layer.py
                 "StopGradient"}  # test_torch_export.py
    own = {name for name in NODES if not name.startswith(MICROSOFT)} - WITHOUT_DOMAIN  # test_onnx_microsoft.py
    assert {name.rpartition(".")[2] for name in own} - tried - elsewhere == set()
