"""The table of tuned constants, and the machine properties in schedules."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cases.proposals import AVX2
from tests.cases.schedules import JOBS, MACHINES
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower import tuning
from ztorch.machines.gpus import gpu
from ztorch.machines.processors import ANY, PROCESSORS, processor
from ztorch.machines.unit_rates import ANY_UNIT

LOWER = Path(tuning.__file__).parent.parent
ZEN3 = replace(AVX2, processor=processor("zen3"))


def test_every_constant_is_documented_and_used() -> None:
    used = {node.id for path in LOWER.rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    for row in tuning.constants():
        assert getattr(tuning, row.name) == row.value and row.name in used, row
        assert row.unit and row.meaning and row.evidence, row


def test_the_table_has_a_row_for_each_constant() -> None:
    assert {c.name for c in tuning.constants()} == {n for n in vars(tuning) if n.isupper()} - {"CHOSEN"}


# Numbers that are not choices: widths of registers and words, ranks of shapes, sizes of memos.
KNOWN = {("rewrites/attention_sums.py", 16), ("grid/contract.py", 4), ("grid/contract.py", 8), ("grid/elements.py", 4), ("grid/mma.py", 16), ("grid/team_totals.py", 32), ("grid/operands.py", 3), ("grid/strips.py", 4), ("index.py", 12),
         ("params.py", 50), ("grid/split_k.py", 3), ("rewrites/products.py", 3), ("rewrites/split_floats.py", 23), ("rewrites/split_floats.py", 32), ("cpu/packed_panels.py", 3), ("cpu/tiling.py", 8), ("cpu/vectorized_loops.py", 32), ("cpu/vectorized_loops.py", 256),
         ("rewrites/winograd.py", 3), ("rewrites/sums_of_products.py", 3), ("own_parts.py", 3)}


def test_no_other_number_hides_in_lowering() -> None:
    actual = {(path.relative_to(LOWER).as_posix(), node.value) for path in LOWER.rglob("*.py")
              if path.name != "passes.py" and path.parent.name != "tuning"
              for node in ast.walk(ast.parse(path.read_text()))
              if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1, 2)}
    assert actual <= KNOWN


def test_targets_assume_the_row_of_an_unknown_processor() -> None:
    assert all(t.limits.processor is ANY for t in TARGETS.values())
    assert TARGETS["avx2"].on_processor(PROCESSORS["zen3"]).limits == ZEN3


def test_schedules_do_not_depend_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts of this host reach lowering through the target alone."""
    def asked() -> None:
        raise AssertionError("lowering asks for this host")

    monkeypatch.setattr("ztorch.host.detect.detected", asked)
    for one in (JOBS["product"], JOBS["softmax"]):
        assert plan_of(one.alone("j"), MACHINES["avx2"])[0].steps


@pytest.mark.slow
def test_processors_change_schedules_and_no_bit() -> None:
    rng = np.random.default_rng(2)
    a, b = leaf("input", "a", (30, 100), f32), leaf("input", "b", (100, 64), f32)
    one = Job(Graph({"y": ops.softmax(ops.matmul(a, b))}),
              {v: rng.normal(size=v.shape).astype(np.float32) for v in (a, b)})
    tiny = replace(AVX2, processor=ANY._replace(l1_bytes=1 << 8, l2_bytes=1 << 12, l2_ways=2))
    plans = [plan_of(one.alone("j"), limits)[0] for limits in (AVX2, tiny)]
    assert len(plans[0].steps) < len(plans[1].steps)  # one packs
    np.testing.assert_array_equal(*(interpreted(one, limits)[0] for limits in (AVX2, tiny)))


def test_rates_of_gpus_change_schedules() -> None:
    """An RTX 4090 multiplies half as much in a cycle as an L4, whose code it runs."""
    heads = [leaf("input", n, (1, 8, 4096, 128), f16) for n in "qkv"]
    chip = TARGETS["cuda:sm_89"]
    assert chip.limits.grid.unit == gpu("L4").rates  # type: ignore[union-attr]
    assert TARGETS["cuda:sm_90a"].limits.grid.unit.products == pytest.approx(1892, abs=1)  # type: ignore[union-attr]
    chosen = [plan_of(Graph({"y": ops.attention(*heads)}), chip.on_device({"unit": rates}).limits)[0].steps[0].schedule
              for rates in (gpu("L4").rates, ANY_UNIT)]
    assert [s.high for s in chosen] == [1, 2]
