"""Products of float32 in parts: nearly all bits of the result, by matrix units that keep ten."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import Make, job, plain
from tests.parity import Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.dtypes import DType, f16, f32
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.grid import pitches
from ztorch.lower.rewrites import split_floats

MAKES: dict[str, tuple[Make, tuple, tuple]] = {
    "as they are": (lambda a, b: ops.matmul(a, ops.transpose(b)), (72, 100), (136, 100)),
    "turned": (lambda a, b: ops.matmul(ops.transpose(a), b), (100, 72), (100, 136)),
    "rows at no multiple of 16 bytes": (plain, (72, 99), (99, 131)),
}


@together()
@pytest.mark.parametrize("name", MAKES)
def test_nearly_all_bits_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, constant in ((split_floats, "SPLIT_FLOATS_LEAST"), (pitches, "PITCH_REUSE")):
        monkeypatch.setattr(module, constant, 64)
    make, *shapes = MAKES[name]
    one = job(make, *shapes, d=f32)
    errors, (want,) = {}, one.oracle()
    size = make(*(ops.abs(x) for x in one.feeds.values()))
    for precision in ("high", "tf32"):
        limits = target("cuda:sm_90a").with_precision(precision).on_device({"compute_units": 1}).limits
        (got,) = interpreted(one, limits)
        errors[precision] = (np.abs(got.reshape(want.shape) - want) / size).max()
    # Both operands lose a bit in 2 ** 21, and the product of both rests is left out; sums round.
    assert errors["high"] < 3 * 2.0**-21 + 100 * 2.0**-24
    assert errors["tf32"] > 20 * errors["high"]


def test_parts_are_those_of_the_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_floats, "SPLIT_FLOATS_LEAST", 8)
    one = job(plain, (8, 9), (9, 16), d=f32)
    [y] = one.graph.outputs.values()
    split = split_floats.SplitFloats(target("cuda:sm_90a").with_precision("high").limits)(y)
    assert split.args[0].shape == (8, 27)
    [got], [want] = evaluate([split], one.feeds), one.oracle()
    np.testing.assert_allclose(got, want, rtol=0, atol=9 * 2.0**-21 * np.abs(want).max())


def test_infinities_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times numbers with and without a rest, of both signs, and zero."""
    monkeypatch.setattr(split_floats, "SPLIT_FLOATS_LEAST", 8)
    one = job(plain, (8, 9), (9, 16), d=f32)
    a, b = one.feeds.values()
    a[0, 2], a[1, 3], a[2, 4], b[5, 6], b[6, 7], b[8, 0] = np.inf, -np.inf, np.nan, np.inf, -np.inf, np.nan
    b[2, :4], b[3, 5], a[4, 5] = (1.0, -2.0, 0.0, 1.0 / 3), 0.0, 0.0
    split = split_floats.SplitFloats(target("cuda:sm_90a").with_precision("high").limits)(one.graph.outputs["y"])
    with np.errstate(invalid="ignore"):
        [got], [want] = evaluate([split], one.feeds), [a @ b]
    assert np.isinf(want).sum() > 30 and 20 < np.isnan(want).sum() < 40
    np.testing.assert_allclose(got, want, rtol=0, atol=9 * 2.0**-21 * np.abs(want[np.isfinite(want)]).max())


@pytest.mark.parametrize("d", [f16, f32])
def test_repeated_rows_of_two_heights(d: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of one row, as often as each has rows: their left operands are two copies."""
    for module, constant in ((split_floats, "SPLIT_FLOATS_LEAST"), (pitches, "PITCH_REUSE")):
        monkeypatch.setattr(module, constant, 8)
    row, w = leaf("input", "row", (1, 99), d), leaf("input", "w", (99, 136), d)
    graph = Graph({f"y{n}": ops.matmul(ops.broadcast_to(row, (n, 99)), w) for n in (72, 136)})
    random = np.random.default_rng(2)
    one = Job(graph, {v: random.standard_normal(v.shape).astype(d.working) for v in (row, w)})
    limits = target("cuda:sm_90a").with_precision("high").on_device({"compute_units": 1}).limits
    agree(one, interpreted(one, limits), terms=99)


def kinds(chip: str, precision: str, *shapes: tuple[int, int]) -> list[str]:
    graph = Graph({"y": plain(*(leaf("input", f"x{k}", s, f32) for k, s in enumerate(shapes)))})
    steps = plan_of(graph, target(f"cuda:{chip}").with_precision(precision).limits)[0].parts
    return [s.schedule.kind for s in steps if "matmul" in s.kernel.name]


@pytest.mark.parametrize(("chip", "precision", "kind"), [
    ("sm_90a", "high", "grid_roles"), ("sm_90a", "float32", "grid_product"), ("sm_80", "high", "grid_matrix"),
    ("sm_75", "high", "grid_product"), ("sm_86", "high", "grid_product")])  # where threads are as fast
def test_only_where_it_is_faster(chip: str, precision: str, kind: str) -> None:
    assert kinds(chip, precision, (2048, 256), (256, 2048)) == [kind]
    assert kinds(chip, precision, (256, 256), (256, 2048)) == [kind.replace("roles", "matrix")]
