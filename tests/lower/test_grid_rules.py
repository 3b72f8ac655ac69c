"""Proposals of the rules of lowering for grids, on both sides of each threshold."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.cases.available import PLAYED, device
from tests.cases.device_programs import Module
from tests.cases.proposals import proposed, x
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid.rows import Team, team
from ztorch.lower.rewrites.prepare import prepare


def grid(**changes: int) -> Limits:
    return Limits(0, 64, True, grid=replace(GridLimits(load_width=4, compute_units=2), **changes))


def test_a_thread_computes_four_elements_if_enough_threads_remain() -> None:
    """256 threads for each of two units."""
    assert proposed(ops.exp(x(2048)), grid()) == "grid_elements threads(256) width(4)"
    assert proposed(ops.exp(x(2044)), grid()) == "grid_elements threads(256) width(1)"
    assert proposed(ops.exp(x(100)), grid()) == "grid_elements threads(128) width(1)"
    assert proposed(ops.exp(x(256)), grid(compute_units=0)) == "grid_elements threads(64) width(4)"


@pytest.mark.parametrize("backend", ["", *PLAYED[1:2]])
def test_borders_of_other_axes_keep_full_vectors(backend: str) -> None:
    """All elements of a vector are in the border, or none; those inside are what they are beside numbers
    that are none."""
    image = x(8, 9, 7, 8)
    graph = Graph({"y": ops.pad(image, (0, 1, 2, 0), (0, 3, 1, 0), 0.5)})
    limits = TARGETS[backend].on_device({"compute_units": 2}).limits if backend else grid()
    assert proposed(graph.outputs["y"], limits).endswith("width(4)")
    assert proposed(ops.pad(image, (0, 0, 0, 1), (0, 0, 0, 7)), limits).endswith("width(1)")
    data = np.arange(8 * 9 * 7 * 8, dtype=np.float32).reshape(8, 9, 7, 8)
    data[0, 0, 0] = np.nan  # the first vector, which threads in the border read in vain
    one = Job(graph, {image: data})
    if backend:
        device(backend)
    [got] = Module([one], backend, compute_units=2).run(0) if backend else interpreted(one, limits)
    np.testing.assert_array_equal(got, np.pad(data, ((0, 0), (1, 3), (2, 1), (0, 0)), constant_values=0.5))


@pytest.mark.parametrize("backend", ["", *PLAYED[1:2]])
def test_short_neighbors_are_stored_together(backend: str) -> None:
    """Even where the rows that are read are no multiple of four long, or lie across; single floats gain nothing."""
    data = np.arange(1, 211, dtype=np.float16)
    source, triples = leaf("input", "v", data.shape, f16), np.reshape(data, (70, 3))
    limits = TARGETS[backend].on_device({"compute_units": 0}).limits if backend else grid(compute_units=0)
    if backend:
        device(backend)
    for shape, turned, high, want in (
            ((2, 105), False, (0, 3), np.pad(data.reshape(2, 105), ((0, 0), (0, 3)))),
            ((2, 5, 21), False, (0, 0, 3), np.pad(data.reshape(2, 5, 21), ((0, 0), (0, 0), (0, 3)))),
            ((70, 3), True, (1, 2), np.pad(triples.T, ((0, 1), (0, 2))))):
        v = ops.reshape(source, shape)
        y = ops.pad(ops.transpose(v) if turned else v, (0,) * len(shape), high)
        assert proposed(y, limits).endswith("width(4)")
        one = Job(Graph({"y": y}), {source: data})
        [got] = Module([one], backend, compute_units=0).run(0) if backend else interpreted(one, limits)
        np.testing.assert_array_equal(got, want)
    assert proposed(ops.pad(x(2, 105), (0, 0), (0, 3)), limits).endswith("width(1)")


@pytest.mark.parametrize("backend", ["", *PLAYED])
def test_sums_of_columns_take_two_at_once_where_rows_are_no_multiple_of_four(backend: str) -> None:
    """Twice as many results side by side, too, since lines begin anywhere."""
    rows, least = x(64, 130), leaf("input", "least", (64, 1), f32)
    limits = TARGETS[backend].on_device({"compute_units": 2}).limits if backend else grid()
    graph = Graph({"y": ops.sum(ops.exp(rows - least) * least, 0)})
    assert limits.grid is not None
    if limits.grid.load_width == 4:
        assert re.match(r"grid_rows team\(rows=32, ways=[48]\) width\(2\)", proposed(graph.outputs["y"], limits))
        assert "width(1)" in proposed(ops.sum(x(64, 131), 0), limits)
    random = np.random.default_rng(5)
    one = Job(graph, {rows: random.normal(size=rows.shape).astype(np.float32),
                      least: random.normal(size=least.shape).astype(np.float32)})
    if backend:
        device(backend)
    [got], [want] = Module([one], backend, compute_units=2).run(0) if backend else interpreted(one, limits), one.oracle()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def test_random_numbers_of_neighbors_are_one_vector() -> None:
    """Each lane has the number of its own place."""
    seed, step, image = leaf("input", "seed", (2,), "uint32"), leaf("input", "step", (), "uint32"), x(8, 9, 64)
    graph = Graph({"y": image * ops.cast(ops.random_bits(image.shape, seed, step) < 1 << 30, "float32")})
    assert proposed(graph.outputs["y"], grid()).endswith("width(4)")
    data = np.arange(1, 8 * 9 * 64 + 1, dtype=np.float32).reshape(8, 9, 64)
    one = Job(graph, {image: data, seed: np.array([3, 4], np.uint32), step: np.array(5, np.uint32)})
    [got], [want] = interpreted(one, grid()), one.oracle()
    np.testing.assert_array_equal(got, want)
    assert 0.2 < np.mean(want != 0) < 0.3


def test_threads_that_share_a_result() -> None:
    """Four elements each where there are results for all threads of all units, else two; all of them where
    neighbors belong to other results."""
    assert team(512, 64, False, GridLimits(compute_units=2)) == Team(16, 16, False)
    assert team(511, 64, False, GridLimits(compute_units=2)) == Team(8, 32, False)
    assert team(512, 64, True, GridLimits(compute_units=2)) == Team(256, 1, True)
    assert team(256, 64, True, GridLimits(compute_units=2)) == Team(32, 8, True)  # 32 neighbors are read together


def test_rows_that_threads_hold_are_read_once() -> None:
    """And nothing is stored between passes: where all threads have as much of all rows, 32 elements at most. Else
    exponentials lie in the output; a pass that stores loads one at a time, and one that only adds up eight where that
    divides its share."""
    for columns, loads in ((64, 4), (8192, 8), (63, 4), (16384, 10)):
        [plan, *_] = plan_of(Graph({"y": ops.softmax(x(512, columns))}), grid(subgroup=32))
        [step] = plan.steps
        assert sum(i.opcode == "load" and i.attrs["mem"] in ("m0", "m1") for i in step.kernel.body) == loads
        assert not plan.buffers
    assert proposed(ops.sum(x(512, 64), -1), grid(subgroup=32)).endswith("turns(held=0)")  # which is one pass


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 2)], ids=["turned", "plain"])
def test_threads_read_neighbors_in_memory_for_any_axis_order(order: tuple[int, ...]) -> None:
    """The sum over 4 x 32 rows of a view of 4 x 8 x 32: 128 threads for each result, which are neighbors along the
    rows that are columns in memory."""
    turned = order[1] == 2
    source = x(4, 8, 32) if turned else x(4, 32, 8)
    y = ops.sum(ops.reshape(ops.transpose(source, order), (128, 8)), 0)
    s = proposed(y, grid(subgroup=32, load_width=1, compute_units=8))
    assert s.startswith("grid_rows team(rows=4, ways=64)" if turned else "grid_rows team(rows=8, ways=32)")
    data = np.arange(4 * 8 * 32, dtype=np.float32).reshape(source.shape)
    [got] = interpreted(Job(Graph({"y": y}), {source: data}), grid(subgroup=32, compute_units=8))
    np.testing.assert_array_equal(got, data.transpose(order).reshape(128, 8).sum(0))


@pytest.mark.parametrize(("subgroup", "wanted"), [(0, Team(1, 2, False)), (8, Team(4, 2, False))])
def test_a_team_fills_a_subgroup(subgroup: int, wanted: Team) -> None:
    assert team(1, 4, False, GridLimits(subgroup=subgroup)) == wanted


@pytest.mark.parametrize(("count", "loops"), [(7, 1), (8, 2)])
def test_workgroups_beyond_the_grid_limit_are_looped_over(count: int, loops: int) -> None:
    [step] = plan_of(Graph({"y": ops.exp(x(count * 256))}), grid(max_groups=7, load_width=1))[0].steps
    kinds = [i.attrs["kind"] for i in step.kernel.body if i.opcode == "loop"]
    assert kinds.count("grid") == 1 and len(kinds) == 1 + loops


def parts(limits: Limits, dtype: DType, m: int, n: int, k: int) -> int:
    """Into how many parts along k a product is divided."""
    y = ops.matmul(leaf("input", "a", (m, k), dtype), leaf("input", "b", (k, n), dtype))
    product = next(v for v in prepare(Graph({"y": y}), limits).nodes() if v.op.kind == "contract")
    return product.shape[0] if product.rank == 3 else 1


def test_a_deep_product_of_few_tiles_is_split() -> None:
    """Into parts of 256 steps, until each unit has one; into more if its workgroups then wait less, by an estimate."""
    limits = TARGETS["cuda:sm_80"].limits
    limits = replace(limits, grid=replace(limits.grid, compute_units=8))
    assert parts(limits, f16, 128, 64, 1024) == 4 and parts(limits, f16, 128, 64, 511) == 1
    assert parts(limits, f16, 128, 64, 1 << 14) == 4
    assert parts(limits, f16, 128, 256, 4096) == 4 and parts(limits, f16, 1024, 256, 4096) == 1


def test_products_by_threads_have_the_parts_that_occupy_the_units_evenly() -> None:
    limits = grid(compute_units=8)
    assert parts(limits, f32, 128, 64, 8192) == 8  # a tile for each unit
    assert parts(limits, f32, 128, 128, 190) == 1  # too shallow
    assert parts(limits, f32, 1024, 1024, 32768) == 1  # as even without
    limits = TARGETS["cuda:sm_90a"].limits
    assert parts(limits, f32, 2304, 256, 12544) == 7  # 252 tiles of 128 x 128 for twice 132 units
    assert parts(limits, f32, 2304, 256, 12547) == 1  # a prime number


@pytest.mark.parametrize(("m", "n", "k", "parts", "tile"), [
    (8, 512, 768, True, (8, 128)), (4, 512, 768, True, (4, 128)), (3, 512, 768, True, (4, 128)),
    (8, 512, 95, False, (16, 64)), (8, 1100, 768, True, (8, 128))])
def test_few_rows_read_the_right_operand_in_wide_tiles(m: int, n: int, k: int, parts: bool,
                                                       tile: tuple[int, ...]) -> None:
    y = ops.matmul(leaf("input", "a", (m, k), f32), leaf("input", "b", (k, n), f32))
    steps = plan_of(Graph({"y": y}), grid(compute_units=8, threads=256, load_width=4))[0].steps
    s = steps[0].schedule
    assert (len(steps) > 1) == parts and (s.tile_rows, s.tile_columns) == tile


@pytest.mark.parametrize(("m", "k", "units", "threads", "teams", "tile_depth"), [
    (16, 128, 4, 256, 4, 64), (16, 63, 4, 256, 2, 32), (16, 128, 4, 255, 2, 32),
    (16, 31, 4, 256, 1, 16), (32, 128, 4, 1024, 4, 64), (40, 128, 4, 64, 1, 8)])
def test_teams_share_out_the_depth_of_few_tiles(m: int, k: int, units: int, threads: int, teams: int,
                                                tile_depth: int) -> None:
    """As many as have a part of 16 steps each and threads, where there is a unit for each tile."""
    y = ops.matmul(leaf("input", "a", (m, k), f32), leaf("input", "b", (k, 8), f32))
    [step] = plan_of(Graph({"y": y}), grid(compute_units=units, threads=threads))[0].steps
    s = step.schedule
    assert (s.teams, s.tile_depth) == (teams, tile_depth)
