"""ONNX's own backend tests: the recorded passes still pass. docs/onnx.md has the table."""

from __future__ import annotations

import collections
import os

import pytest

from tools import onnx_suite
from tools.onnx_cases import OUTCOMES, RANDOM_OPS, SuiteCase, cases, judge
from tools.onnx_tables import PAGE, difference, exceptions
from ztorch.interchange.onnx.node import NODES
from ztorch.interchange.onnx.nodes.microsoft import MICROSOFT
from ztorch.interchange.onnx.protobuf import WITHOUT_DOMAIN


@pytest.fixture(scope="module")
def suite() -> list[SuiteCase]:
    return list(cases())


def test_what_passed_still_passes(suite: list[SuiteCase]) -> None:
    """With NumPy; `.ci/run` compiles them all, by python -m tools.onnx_suite --check."""
    known = exceptions()
    faults = [fault for case in suite if (fault := difference(case.name, judge(case, None), known))]
    assert not faults, "\n".join([*faults, "run python -m tools.onnx_suite --write, if it is right"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_check_lists_the_differences(suite: list[SuiteCase], jobs: int, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    names = ("test_abs", "test_identity_sequence", "test_relu")
    monkeypatch.setattr(onnx_suite, "cases", lambda: [case for case in suite if case.name in names])
    assert onnx_suite.main(["--check", "--jobs", str(jobs)]) == 0
    assert "3 cases are as listed" in capsys.readouterr().out
    monkeypatch.setattr(onnx_suite, "exceptions", lambda: {"test_relu": ("Unsupported", "")})
    assert onnx_suite.main(["--check", "--jobs", str(jobs)]) == 1
    output = capsys.readouterr().out
    assert "test_relu: pass, not Unsupported" in output and "test_abs" not in output
    assert "test_identity_sequence: Unsupported, not pass" in output and "2 of 3 cases differ" in output


def test_a_crashed_check_names_its_case(suite: list[SuiteCase], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_suite, "judge", lambda case, device: os._exit(1))
    with pytest.raises(SystemExit, match=f"ended at one of {suite[0].name}"):
        [*onnx_suite.judged(suite[:2], None, 2)]


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
    elsewhere = {"GlobalLpPool", "MaxRoiPool", "Optional", *RANDOM_OPS,  # test_onnx_nodes.py, test_onnx_layer.py
                 *(name.removeprefix("ztorch.") for name in NODES if name.startswith("ztorch."))}  # test_torch_export.py
    own = {name for name in NODES if not name.startswith(MICROSOFT)} - WITHOUT_DOMAIN  # test_onnx_microsoft.py
    assert {name.rpartition(".")[2] for name in own} - tried - elsewhere == set()
