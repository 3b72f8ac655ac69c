"""docs/capabilities.md agrees with the registries, and the supported cases run."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.cases.available import COMPUTING, PLAYED
from tests.cases.covering import full
from tests.cases.grouping import together
from tests.cases.opcodes import kernel_for
from tools import capabilities as c
from tools import opcode_support as support
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16, f32, f64, i32
from ztorch.errors import Unsupported
from ztorch.graph.op import public_ops
from ztorch.lower.passes import decompose

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "capabilities.md").read_text()
STALE = "run python -m tools.capabilities > docs/capabilities.md"


@functools.cache
def groups() -> list:
    return c.grouped()


@pytest.mark.slow
def test_the_statements_are_true() -> None:
    made = c.words_part(groups())
    stands = PAGE.split("\n")
    for line in "\n".join(made).split("\n"):
        assert line in stands, f"{STALE}: it lacks {line!r}"


def rows() -> dict[str, str]:
    """The lines of the table of ops, by op."""
    return {line.split("`")[1]: line for line in PAGE.split("## Ops")[1].split("\n")
            if line.startswith("| `")}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_ops_are_true() -> None:
    """Every row that tells of a limit, and every twentieth of the others; in a full run every row."""
    stands = rows()
    odd = {n for n, line in stands.items() if re.search(r"\| (not|[^|]* in part)", line)}
    tried = odd | set(sorted(stands)[::1 if full() else 20])
    made = {line.split("`")[1]: line for line in c.ops_part(groups(), tried)
            if line.startswith("| `")}
    for name in tried:
        assert made[name] == stands[name], STALE


def test_every_op_with_a_sample_has_a_row() -> None:
    sampled = {p.name for p in public_ops() if p.samples}
    assert set(rows()) == sampled, STALE


@together()
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("d", [f32, f64, bf16, i32], ids=repr)
def test_states_match_compiling(name: str, d: object) -> None:
    """Against whole kernels of each opcode, on registers and on literals."""
    target = TARGETS[name]
    words = renderer(target)
    for opcode in ("add", "exp", "rem", "fma", "round", "lt", "mulhi", "and"):
        if d.kind not in support.OPCODES[opcode].kinds or target.backend == "dummy":  # type: ignore[attr-defined]
            continue
        state = support.scalar_state(opcode, d, target)  # type: ignore[arg-type]
        kernel, _ = kernel_for(opcode, d, 1, target.limits.index)  # type: ignore[arg-type]
        try:
            plain = decompose(kernel, words.supports, name)
            words.kernel(plain)
        except Unsupported:
            assert state == support.NO, opcode
            continue
        kept = any(i.opcode == opcode and i.args[0].dtype is d for i in plain.body)
        assert state == (support.NATIVE if kept else support.VIA), (opcode, state)


def test_ops_listed_as_running_must_run() -> None:
    """The drivers that .ci/run demands are those that the page says the tests run on."""
    [asked] = re.findall(r"ZTORCH_REQUIRE_BACKENDS=([\w,]+)", (ROOT / ".ci" / "run").read_text())
    assert set(asked.split(",")) == {*PLAYED, "dummy"} and set(PLAYED) <= set(COMPUTING)
