"""The rows of processors, chips and backends, and who reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ztorch.backends import registry
from ztorch.codegen import targets
from ztorch.codegen.targets import FAMILIES, TARGETS
from ztorch.compile.targeting import target_for
from ztorch.errors import UnknownName, ZtorchError
from ztorch.machines import chips, gpus
from ztorch.machines.backends import BACKENDS, before_cpu
from ztorch.machines.chips import CHIPS, Chip, runnable
from ztorch.machines.gpus import gpu
from ztorch.machines.processors import (
    ANY,
    PROCESSORS,
    SIMD_LEVELS,
    Processor,
    identify,
    processor,
)
from ztorch.runtime.devices import resolve
from ztorch.runtime.spec import CPU_LEVELS

NEW = Chip("cuda", "sm_95", "ampere", 95, isa="9.1")


def test_cards_have_the_subgroup_of_their_code() -> None:
    for card in gpus.GPUS.values():
        for name in card.targets:
            assert (grid := TARGETS[name].limits.grid) is not None and grid.subgroup == card.subgroup, name


def test_a_new_chip_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets, what devices run, and messages know it by its row alone. The drivers' choice is
    tested beside each driver."""
    monkeypatch.setattr(chips, "CHIPS", (*CHIPS, NEW, Chip("rocm", "gfx777", "rdna4")))
    monkeypatch.setattr(targets, "TARGETS", targets.table())
    new = targets.target("cuda:sm_95")
    assert new.chip == "sm_95" and dict(new.frame_data) == {"version": "9.1", "early": True}
    assert new.limits.grid is not None
    assert new.limits.grid.mma_shapes == FAMILIES["ampere"].mma_shapes
    assert targets.target("rocm:gfx777").llvm_cpu == "gfx777"
    assert runnable("cuda", generation=95)[-1] == "sm_95" and "sm_95" not in runnable("cuda", generation=90)
    assert runnable("rocm", "gfx777") == ("gfx777",)
    with pytest.raises(UnknownName, match=r"choose one of .*cuda:sm_95"):
        targets.target("cuda")
    card = replace(gpu("A100"), name="Z95", targets=("cuda:sm_95",), units=7)
    monkeypatch.setattr(gpus, "GPUS", {**gpus.GPUS, "Z95": card})
    grid = targets.table()["cuda:sm_95"].limits.grid
    assert grid is not None and (grid.compute_units, grid.unit) == (7, card.rates)


def test_chips_are_targets_of_their_backends_in_order() -> None:
    for backend, assembler in (("cuda", "ptx"), ("rocm", "amdgcn")):
        named = [t.chip for t in TARGETS.values() if t.assembler == assembler]
        assert named == [c.name for c in chips.chips_of(backend)]
    assert {c.family for c in CHIPS} == set(FAMILIES)
    assert len({c.name for c in CHIPS}) == len(CHIPS)


def test_code_for_a_chip_runs_on_later_ones() -> None:
    for generation, able in (
        (61, ()), (75, ("sm_75",)), (87, ("sm_75", "sm_80", "sm_86")),
        (90, ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")),
        (100, ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100")),
    ):
        assert runnable("cuda", generation=generation) == able, generation


def test_every_driver_has_a_row() -> None:
    assert {row.name for row in BACKENDS} == {*registry.names(), "cpu"}
    assert {t.backend for t in TARGETS.values()} == {row.name for row in BACKENDS}
    assert before_cpu() == ("cuda", "rocm", "metal")


def test_every_simd_level_is_a_target() -> None:
    assert tuple(row.name for row in SIMD_LEVELS) == CPU_LEVELS
    for row in SIMD_LEVELS:
        assert TARGETS[row.name].arch == row.arch and TARGETS[row.name].backend == "cpu"
        assert not row.feature or row.feature in TARGETS[row.name].required_features


@pytest.mark.parametrize("row", PROCESSORS.values(), ids=PROCESSORS)
def test_rows_of_processors_are_possible(row: Processor) -> None:
    assert (row.level in CPU_LEVELS) == (row is not ANY)
    assert 16 << 10 <= row.l1_bytes < row.l2_bytes
    assert all(value > 0 for value in row if type(value) in (int, float))
    for maker, family, models in row.ids:
        assert all(identify(maker, family, model) is row for model in models)


def test_an_unknown_processor() -> None:
    with pytest.raises(UnknownName, match="did you mean 'zen3'"):
        processor("zen33")
    for device, level, row in (("cpu:avx2:zen4", "avx2", "zen4"), ("cpu:sse4.1:icelake", "sse4.1", "icelake"),
                               ("cpu:neon:neoverse-v2", "neon", "neoverse-v2")):
        assert resolve(device, must_be_local=False) == (level, "cpu", 0, row, False)
        assert target_for(resolve(device, must_be_local=False)).limits.processor == PROCESSORS[row]
    for wrong in ("cpu:avx2:zen99", "cpu:zen3:zen4", "cpu:avx2:"):
        with pytest.raises(ZtorchError):
            resolve(wrong, must_be_local=False)
    with pytest.raises(ZtorchError, match="cpu:zen3"):
        resolve("cpu:zen33")
