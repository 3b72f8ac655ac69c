"""Products and reductions on machines of workgroups, at sizes where tiles, teams and turns differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cases.grid import ELEMENTWISE, REDUCING, job
from tests.cases.grouping import together
from tests.parity import GROUPS, SUBGROUPS, Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import DType, f16, f32, f64, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid.operands import load_width
from ztorch.lower.grid.rows import team
from ztorch.lower.grid.thread_tiles import TILES, Tile, estimate
from ztorch.lower.params import Params
from ztorch.lower.passes import launched, vectored
from ztorch.lower.plan import lower

MACHINES = {"groups": GROUPS, "subgroups": SUBGROUPS,
            "wide": Limits(0, 16, True, grid=GridLimits(threads=1024, subgroup=32, compute_units=132, load_width=4)),
            "whole": Limits(0, 16, True, grid=GridLimits(load_width=4, scalar_stores_readable_as_vectors=False))}
both = pytest.mark.parametrize("limits", MACHINES.values(), ids=MACHINES)


@both
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 90), (2, 3, 5), (17, 33, 40), (64, 64, 64),
                                           (70, 130, 37), (128, 20, 300), (5, 200, 16),
                                           (72, 132, 36), (128, 256, 64)])
def test_products(limits: Limits, m: int, n: int, k: int) -> None:
    one = job(ops.matmul, (m, k), (k, n))
    agree(one, interpreted(one, limits), terms=k)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_vectors_are_stored_in_full_or_not_loaded(turned: tuple[bool, bool]) -> None:
    """For each layout of the operands, on a machine where a store to a part of a vector may overwrite
    the rest."""
    def make(x: Value, y: Value) -> Value:
        x, y = (ops.transpose(v) if t else v for v, t in zip((x, y), turned, strict=True))
        return ops.maximum(ops.matmul(x, y) + x[:, :1], 0.0)

    m, n, k = 72, 136, 44  # edges of tiles in all directions
    one = job(make, (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
    agree(one, interpreted(one, MACHINES["whole"]), terms=k)
    [step] = plan_of(one.alone("j"), MACHINES["whole"])[0].steps
    held = {m.name: m.vec for m in vectored(step.kernel, scalar_stores=False).memories}
    assert (held["strip_a"], held["strip_b"], held["tile"]) == (4, 4, 1)


def test_even_rows_are_read_in_twos() -> None:
    """Strips are stored in pairs too, where that matters."""
    small, large = (job(ops.matmul, (m, 30), (30, n)) for m, n in ((36, 70), (2050, 2050)))
    for one, name, lanes in ((small, "whole", 2), (small, "wide", 2), (large, "wide", 2)):
        limits = MACHINES[name]
        if one is small:
            agree(one, interpreted(one, limits), terms=30)
        [step] = plan_of(one.alone("j"), limits)[0].steps
        read = {i.attrs["mem"]: i.dest.lanes for i in step.kernel.body if i.opcode == "load"}
        assert read["m0"] == read["m1"] == lanes
        if name == "whole":
            held = {m.name: m.vec for m in vectored(step.kernel, scalar_stores=False).memories}
            assert held["strip_b"] == 2


def test_pairs_are_read_only_if_every_thread_still_has_something_to_read() -> None:
    product = ops.matmul(leaf("input", "a", (36, 30), f32), leaf("input", "b", (30, 70), f32))
    for tile, width in ((Tile(8, 16, 8, 1, 1), 1), (Tile(32, 32, 16, 2, 2), 2)):
        assert load_width(product, 0, tile, MACHINES["wide"]) == width


def test_neighbors_of_elements() -> None:
    """Elementwise kernels read and write four neighbors at once where these are adjacent."""
    limits = Limits(0, 16, True, grid=GridLimits(load_width=4, compute_units=32))
    apart = {"odd", "an odd row for all", "other parts", "odd rows", "transposed", "side by side",
             "in a border", "in an odd border"}
    for name, (make, *shapes) in ELEMENTWISE.items():
        one = job(make, *shapes)
        agree(one, interpreted(one, limits))
        stored = [i.args[1].lanes for s in plan_of(one.alone("j"), limits)[0].steps
                  for i in s.kernel.body if i.opcode == "store"]
        assert max(stored) == (1 if name in apart else 4), name
    few = job(lambda x: x + 1.0, (4 * 256 * 31,))
    [step] = plan_of(few.alone("j"), limits)[0].steps
    assert not any(o.lanes > 1 for i in step.kernel.body for o in (i.dest, *i.args))


def test_neighbors_of_sums() -> None:
    """Reducing kernels read four neighbors at once, and write neighbors."""
    limits = Limits(0, 16, True, grid=GridLimits(load_width=4, compute_units=32))
    apart = {"odd softmax", "odd columns", "columns of few", "other parts", "transposed", "in a border"}
    one_by_one = {"two axes", "all", "any", "parts of rows", "lookups"}
    for name, (make, *shapes) in REDUCING.items():
        one = job(make, *shapes)
        agree(one, interpreted(one, limits), terms=max(shapes[0]))
        for opcode, value, alone in (("load", 0, apart), ("store", 1, apart | one_by_one)):
            lanes = [(i.args[1] if value else i.dest).lanes
                     for s in plan_of(one.alone("j"), limits)[0].steps
                     for i in s.kernel.body if i.opcode == opcode]
            assert max(lanes) == (1 if name in alone else 4), (name, opcode)


@both
def test_deep_products_are_split(limits: Limits) -> None:
    one = job(ops.matmul, (8, 4096), (4096, 8))
    agree(one, interpreted(one, limits), terms=4096)
    assert len(plan_of(one.alone("j"), limits)[0].steps) == 2


@both
@pytest.mark.parametrize("d", [f32, f64, f16, i32])
def test_batches_views_and_epilogues(limits: Limits, d: DType) -> None:
    def make(a: Value, b: Value, c: Value) -> Value:
        y = ops.matmul(ops.transpose(a, (0, 2, 1)), b) + c
        return ops.tanh(y) if d.is_float else ops.abs(y)
    one = job(make, (3, 19, 21), (3, 19, 18), (18,), d=d)
    agree(one, interpreted(one, limits), terms=19)
    assert len(plan_of(one.alone("j"), limits)[0].steps) == 1


@together(of=16)
@both
@pytest.mark.parametrize("shape", [(3, 5), (700, 3), (2, 1000), (65, 64), (1, 40_000), (300, 17)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(limits: Limits, shape: tuple[int, int], axis: int) -> None:
    for make in (lambda x: ops.sum(x, axis=axis), lambda x: ops.max(x, axis=axis),
                 lambda x: ops.softmax(x, axis=axis), lambda x: ops.all(x > -3.0, axis=axis)):
        one = job(make, shape)
        agree(one, interpreted(one, limits), terms=shape[axis])


SPLIT = {  # shape, reduced axes, kernels on a machine of 16 units
    "columns": ((1024, 40), (0,), 2), "channels": ((6, 14, 14, 24), (0, 1, 2), 2),
    "in the middle": ((3, 512, 20), (1,), 2), "apart": ((512, 3, 2, 5), (0, 2), 2),
    "rows": ((3, 32768), (1,), 2), "all": ((20, 4096), (0, 1), 2),
    "prime": ((1031, 40), (0,), 1), "short": ((200, 40), (0,), 1), "short rows": ((3, 8192), (1,), 1),
    "many": ((300, 4000), (0,), 1)}


@together()
@pytest.mark.parametrize("name", SPLIT)
def test_long_reductions_occupy_the_machine(name: str) -> None:
    """Reductions to few results are split over workgroups, and sums keep the precision of a tree."""
    shape, axes, kernels = SPLIT[name]
    limits = Limits(0, 16, True, grid=GridLimits(compute_units=16, load_width=4, subgroup=32))
    for make in (lambda x: ops.sum(x, axis=axes), lambda x: ops.max(x * 2.0, axis=axes)):
        one = job(make, shape)
        steps = plan_of(one.alone("j"), limits)[0].steps
        assert len(steps) == kernels
        assert kernels == 1 or 4 <= launched(steps[0].kernel)[1][0] <= 32
        divisions = [i.opcode for i in steps[0].kernel.body if i.opcode in ("div", "rem")]
        loads = sum(i.opcode == "load" and i.attrs["mem"] == "m0" for i in steps[0].kernel.body)
        assert len(divisions) <= 8 * loads, divisions  # none for axes that are beside one another
        agree(one, interpreted(one, limits), terms=shape[axes[0]])


def test_a_tile_fits_its_machine() -> None:
    for grid in (GridLimits(), GridLimits(threads=64, shared_bytes=1 << 14), GridLimits(threads=1024, shared_bytes=227 << 10)):
        for m, n, k in ((1, 1, 1), (64, 10, 784), (4096, 4096, 4096), (3, 4000, 9)):
            for through in (False, True):
                _, tile = estimate(m, n, k, 1, grid, 4, through)
                assert tile.threads <= grid.threads and tile.shared(4, through) <= grid.shared_bytes
    time, tile = estimate(8, 8, 8, 1, GridLimits(threads=16), 4, False)  # no tile is so small
    assert math.isinf(time) and tile.threads == 64


def test_tiles_are_complete() -> None:
    for tile in TILES:
        assert tile.rows % tile.thread_rows == 0 and tile.columns % tile.thread_columns == 0
        assert tile.threads <= 256


def test_teams_are_complete_subgroups() -> None:
    for sub in (0, 8, 32, 64):
        grid = GridLimits(subgroup=sub)
        for outer in (1, 3, 64, 5000):
            for inner in (1, 2, 9, 1000):
                for beside in (False, True):
                    t = team(outer, inner, beside, grid)
                    assert t.size <= 256
                    if not beside and t.ways > 1 and sub:
                        assert t.size % sub == 0


def test_a_launch_has_no_loop_over_its_grid() -> None:
    one = job(ops.matmul, (70, 40), (40, 70))
    [step] = plan_of(one.alone("j"), SUBGROUPS)[0].steps
    kernel, grid = launched(step.kernel)
    kinds = {i.attrs["kind"] for i in kernel.body if i.opcode == "loop"}
    assert kinds == {"serial"} and grid[0] > 1
    assert {"grid_id", "block_id"} <= kernel.opcodes()


@pytest.mark.parametrize(("channels", "lanes", "padding"), [(8, 4, "valid"), (3, 1, "valid"),
                                                            (8, 4, "same")])
def test_windows_of_a_convolution_are_read_in_place(channels: int, lanes: int,
                                                    padding: str) -> None:
    """They are written down nowhere, though a product reads each element again and again; channels that are adjacent
    are read together. So are those that the gradient of the kernel reads."""
    rng = np.random.default_rng(0)
    x = leaf("input", "x", (2, 9, 7, channels), f32)
    w = leaf("input", "w", (3, 3, channels, 16), f32)
    y = ops.conv(x, w, padding=padding)
    _, slope = gradients(ops.sum(y * y), [x, w])
    for graph in (Graph({"y": y}), Graph({"slope": slope})):
        limits = Limits(0, 16, True, grid=GridLimits(load_width=4))
        plan = lower("f", graph, limits, Params(limits))
        largest = max((b.size for _, b, _ in plan.buffers), default=0)
        assert largest < 4 * 9 * x.size / 2, "windows, written down, take nine times the images"
        reads = {i.dest.lanes for s in plan.steps if "matmul" in s.kernel.name
                 for i in s.kernel.body if i.opcode == "load" and i.attrs["mem"] == "m0"}
        assert max(reads) == lanes
        job = Job(graph, {x: rng.normal(size=x.shape), w: rng.normal(size=w.shape)})
        agree(job, interpreted(job, limits), terms=2 * 63 * 9 * channels)
