"""Limits of schedules and rules, called by themselves at the last value that they allow and the first one that they do
not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.parity import NARROW, Job, interpreted
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16, f32, i32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.cpu import borders, scatter_add
from ztorch.lower.grid import attention_tiles, pitches, split_k, window_tiles
from ztorch.lower.grid.attention_rows import AttentionSizes
from ztorch.lower.grid.attention_tiles import GridAttentionMatrixSchedule
from ztorch.lower.index import Index, Var
from ztorch.lower.region import view_of
from ztorch.lower.rewrites.attention import matrix_shape
from ztorch.lower.schedule import ScatterSchedule
from ztorch.ops.scattering import SUMS_AT

SM_80 = TARGETS["cuda:sm_80"].limits


def around(v: Value) -> Any:
    """A region of one member."""
    return SimpleNamespace(members=[v])


@pytest.mark.cheap
@pytest.mark.parametrize(("targets", "lanes", "refused"), [(4, 1, False), (4, 2, True), (1, 4, False), (1, 3, True)])
def test_updates_with_separate_targets_have_one_lane(targets: int, lanes: int, refused: bool) -> None:
    updates, places = leaf("input", "u", (1, 6, 4), f32), leaf("input", "p", (1, 6, targets), i32)
    region = around(SUMS_AT(updates, places, n=9, chunks=1))
    assert bool(scatter_add.refusal(ScatterSchedule(lanes, 1, 0), region, NARROW)) is refused


@pytest.mark.cheap
@pytest.mark.parametrize("outer", [1, 2])
def test_sums_at_places_of_all_tables_or_of_each(outer: int) -> None:
    rng = np.random.default_rng(outer)
    updates, places = leaf("input", "u", (2, 40, 3), f32), leaf("input", "p", (outer, 40, 1), i32)
    y = SUMS_AT(updates, places, n=5, chunks=1)
    feeds = {updates: rng.integers(-9, 9, updates.shape).astype(np.float32),
             places: rng.integers(0, 5, places.shape).astype(np.int32)}
    want = np.zeros((2, 1, 5, 3))
    for o, k in np.ndindex(2, 40):
        want[o, 0, feeds[places][o % outer, k, 0]] += feeds[updates][o, k]
    np.testing.assert_array_equal(interpreted(Job(Graph({"y": y}), feeds, "sums"), NARROW)[0], want)


def test_a_product_is_summed_where_it_is_computed_unless_it_is_read_more_than_once() -> None:
    a, b = (leaf("input", n, (4, 6), f32) for n in "ab")
    for x, members in ((a * b, 2), (ops.transpose(a * b), 2), (ops.broadcast_to(a * b, (3, 4, 6)), 1), (a + b, 1)):
        reduction = OPS.sum(x, axis=0)
        while reduction.op.kind != "reduce":
            [reduction] = reduction.args
        region = borders._region(reduction)
        assert (region.kind, region.shape, len(region.members)) == ("reduce", reduction.args[0].shape, members)


def test_subgroups_of_attention_fill_a_workgroup_at_most() -> None:
    q, k = leaf("input", "q", (1, 64, 16), f16), leaf("input", "k", (1, 64, 16), f16)
    region = around(SimpleNamespace(args=(q, k, k)))  # type: ignore[arg-type]
    for subgroups, high, fits in ((32, 1, True), (33, 1, False), (1, 1, True), (0, 1, False), (1, 0, False)):
        said = attention_tiles.refusal(GridAttentionMatrixSchedule(subgroups, high, 16, 2, 0), region, SM_80)
        assert said.startswith(f"subgroups({subgroups})") is not fits


def test_the_cost_of_attention_counts_every_byte_of_shared_memory() -> None:
    """Two subgroups read 16 queries each, and all keys and values, which are copied once: in and out."""
    grid = SM_80.grid
    assert grid is not None
    shape = matrix_shape(f16, grid)
    assert shape is not None
    slow = replace(grid, compute_units=1, unit=grid.unit._replace(shared_bytes=1e-6))
    cost = attention_tiles._cost(GridAttentionMatrixSchedule(2, 1, 16, 2, 0), AttentionSizes(1, 32, 16, 16, 16), shape, slow)
    lines, queries = 16 * (16 + 16), 16 * 16
    assert cost == pytest.approx(1e6 * 2 * (2 * (lines + queries) + 2 * lines))


@pytest.mark.cheap
@pytest.mark.parametrize(("deep", "lines", "tap", "columns", "shared"), [
    (True, 4 * window_tiles.REPEAT, None, 64, True), (True, 2 * window_tiles.REPEAT, None, 64, False), (True, 4 * window_tiles.REPEAT, "t", 64, False),
    (False, 2 * window_tiles.REPEAT, "t", 64, True), (True, 2 * window_tiles.REPEAT, "t", 128, True)])
def test_workgroups_share_whole_lines(deep: bool, lines: int, tap: str | None, columns: int, shared: bool) -> None:
    """A tile is 4 REPEAT lines deep. Two workgroups each copy half of a strip's columns, else of its lines."""
    tile: Any = SimpleNamespace(shape=SimpleNamespace(of=f16), down=lambda w: 2, cluster_rows=2, cluster_columns=1, columns=columns, deep=deep,
                                depth=4 * window_tiles.REPEAT, patch=SimpleNamespace(sizes={"k": lines}, tap=tap))
    axes: Any = SimpleNamespace(contiguous=(False, True), k=["k"])
    assert window_tiles._shares(tile, axes, columns) is shared


def test_only_a_whole_rounded_matrix_is_rounded_again_with_wider_rows() -> None:
    x = leaf("input", "x", (8, 16), f32)
    narrow, computed = OPS.cast(x, f16), OPS.cast(OPS.exp(x), f16)
    top, bottom = (OPS.slice(narrow, (k, 0), (1, 1), (4, 16)) for k in (0, 4))
    for matrix, known in ((narrow, True), (OPS.cast(OPS.transpose(x), f16), True), (OPS.reshape(narrow, (4, 32)), True),
                          (x, False), (computed, False), (top, False), (bottom, False), (OPS.transpose(narrow), False)):
        indices = tuple(Index.of(Var(f"d{k}", n)) for k, n in enumerate(matrix.shape))
        base = view_of(matrix, indices)
        assert base is not None
        assert (pitches._narrowed(base, matrix) is not None) is known


@pytest.mark.cheap
@pytest.mark.parametrize(("m", "n", "k", "parts"), [
    (1152, 128, 50176, 8), (768, 768, 4096, 2), (768, 3072, 4096, 1), (4096, 4096, 4096, 1), (147, 64, 802816, 36),
    (64, 4096, 4096, 1), (32, 4096, 4096, 1), (64, 4096, 11008, 4)])
def test_products_by_subgroups_are_split_where_that_gains(m: int, n: int, k: int, parts: int) -> None:
    """In parts that leave few of 108 units idle in the last round; as before if lines cannot be copied asynchronously. A few
    rows that occupy most units are whole: each unit waits less for its loads than where all units load."""
    grid = SM_80.grid
    assert grid is not None
    v = ops.matmul(ops.transpose(leaf("input", "a", (k, m), f16)), leaf("input", "b", (k, n), f16))
    assert max(1, split_k.parts_of(v, grid, matrix_shape(f16, grid))) == parts
