"""Products in blocks of rows and parts of k, and tiles whose rows evict one another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.cases.attention import fed
from tests.cases.proposals import AVX2, x
from tests.cases.schedules import JOBS
from tests.parity import HERE, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower import tuning
from ztorch.lower.cpu.left_operand import plain
from ztorch.lower.cpu.parts_of_k import in_blocks_along_k, most_block_rows
from ztorch.lower.cpu.tiling import choose
from ztorch.lower.schedule import IllegalSchedule, ProductSchedule
from ztorch.machines.processors import ANY, processor


@pytest.mark.parametrize(("block", "depth"), [(1, 0), (2, 0), (3, 5), (4, 13), (7, 1), (10, 6)])
def test_blocks_of_rows_cover_the_remainder(block: int, depth: int) -> None:
    """19 rows in tiles of 2 are nine and one; blocks of four of them leave one behind. 13 steps
    along k in parts of 5 leave three."""
    one = JOBS["product"]
    key = plan_of(one.alone("j"), AVX2)[0].steps[-1].key
    text = (f"product tile(rows=2, vectors=2) block(rows={block}, depth={depth}, pack=0) prefetch(1) unroll(3) "
            "epilogue(inline=0)")
    agree(one, interpreted(one, AVX2, schedules={key: text}, workers=3), terms=13)


@pytest.mark.parametrize(("name", "block", "depth"), [
    ("product", 2, 0), ("product", 3, 5), ("product", 4, 0), ("product", 7, 13), ("product", 10, 6),
    ("windows", 2, 0), ("windows", 5, 4), ("windows", 100, 12), ("batch of products", 2, 0)])
@pytest.mark.parametrize("rows", [2, 3])
def test_the_first_tile_of_a_block_copies_its_panel(name: str, block: int, depth: int, rows: int) -> None:
    """It may be one of the lower tiles behind the others. Later tiles read no more of the right operand,
    and all bits are the same."""
    one = JOBS[name]
    step = plan_of(one.alone("j"), AVX2)[0].steps[-1]
    assert isinstance(step.schedule, ProductSchedule)
    block = min(block, one.graph.roots[0].shape[-2])
    changed = replace(step.schedule, tile_rows=rows, block_rows=block, block_depth=depth, block_pack=1, prefetch=2)
    got = interpreted(one, AVX2, schedules={step.key: repr(changed)}, workers=3)
    agree(one, got, terms=36)
    np.testing.assert_array_equal(got[0], interpreted(one, AVX2)[0])


@pytest.mark.parametrize(("m", "n", "k"), [(25, 37, 41), (64, 64, 33), (49, 16, 100), (100, 50, 7), (31, 129, 64)])
def test_copied_panels_of_odd_shapes(m: int, n: int, k: int) -> None:
    """Compiled, with masked columns and rows that fill no tile: the bits of tiles that read in place."""
    graph = Graph({"y": ops.relu(ops.matmul(x(m, k), leaf("input", "b", (k, n), f32)))})
    one = Job(graph, fed(graph))
    for level in HERE:
        limits = TARGETS[level].limits
        step = plan_of(one.alone("j"), limits)[0].steps[-1]
        assert isinstance(step.schedule, ProductSchedule)
        down = math.ceil(m / step.schedule.tile_rows)
        if level == "scalar" or down < 2:
            continue
        results = []
        for block, pack in ((1, 0), (down, 1), (2, 1)):
            text = repr(replace(step.schedule, block_rows=block, block_pack=pack))
            results.append(Module([one], level, schedules={step.key.partition("/")[2]: text}).run(0, 2)[0])
        agree(one, [results[1]], terms=k)
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(("k", "changes", "match"), [
    (5000, {}, r"block\(pack=1\) needs 320000 bytes of 262144"),
    (50, {"block_rows": 1}, r"block\(pack=1\) needs block\(rows=...\) of 2 or more"),
    (50, {"block_pack": 2}, r"block\(pack=...\) must be between 0 and 1, not 2")])
def test_copies_of_panels_are_refused_by_name(k: int, changes: dict[str, int], match: str) -> None:
    graph = Graph({"y": ops.matmul(x(30, k), leaf("input", "b", (k, 16), f32))})
    step = plan_of(graph, AVX2)[0].steps[-1]
    assert isinstance(step.schedule, ProductSchedule)
    text = repr(replace(step.schedule, **{"tile_vectors": 2, "block_rows": 2, "block_pack": 1, **changes}))
    with pytest.raises(IllegalSchedule, match=match):
        plan_of(graph, AVX2, schedules={step.key: text})


@pytest.mark.parametrize("depth", [1, 4, 6, 12, 24, 36])
def test_parts_of_k_are_ranges_of_one_of_its_loops(depth: int) -> None:
    """Windows of 3 x 3 positions of 4 channels have two loops along k, of 3 and 12 steps. Sums that
    wait for the next part are added in the same order: the bits are the same."""
    one = JOBS["windows"]
    step = plan_of(one.alone("j"), AVX2)[0].steps[-1]
    assert isinstance(step.schedule, ProductSchedule)
    text = repr(replace(step.schedule, block_rows=3, block_depth=depth))
    got = interpreted(one, AVX2, schedules={step.key: text}, workers=3)
    agree(one, got, terms=36)
    np.testing.assert_array_equal(got[0], interpreted(one, AVX2)[0])


def test_windows_that_are_read_across_are_multiplied_in_parts_of_k() -> None:
    """Each step along k reads another line of the image. The L2 cache holds 1,024 of them at this
    distance, not 1,568."""
    image, slope = leaf("input", "x", (8, 28, 28, 128), f32), leaf("input", "g", (8, 14, 14, 256), f32)
    kernel = leaf("input", "w", (3, 3, 128, 256), f32)
    wide = replace(TARGETS["avx512"].limits, processor=processor("zen4"))

    def schedule(limits: Limits) -> ProductSchedule:
        [slopes] = gradients(ops.sum(ops.conv(image, kernel, strides=2, padding=((1, 1), (1, 1))) * slope), [kernel])
        steps = plan_of(Graph({"y": slopes}), limits)[0].steps
        [s] = [step.schedule for step in steps if isinstance(step.schedule, ProductSchedule)]
        return s

    s = schedule(wide)
    assert (s.tile_rows, s.block_rows, s.block_depth) == (14, 84, 256)
    assert schedule(replace(wide, processor=processor("zen4")._replace(l2_bytes=2 << 20))).block_depth == 0
    assert schedule(replace(AVX2, processor=processor("zen4"))).block_depth == 0  # windows are copied


def test_rows_whole_pages_apart_are_read_in_low_tiles() -> None:
    """Their lines map to one set of the L1 cache, of eight ways; two are left to the other operand.
    They are copied to longer rows only where low tiles take clearly longer."""
    wide = TARGETS["avx512"].limits
    zen4 = replace(wide, processor=processor("zen4"))

    def rows(m: int, k: int, limits: Limits) -> int:
        b = leaf("input", "b", (k, 1024), f32)
        step = plan_of(Graph({"y": ops.matmul(x(m, k), b)}), limits)[0].steps[-1]
        assert isinstance(step.schedule, ProductSchedule)
        return step.schedule.tile_rows

    assert [rows(64, k, zen4) for k in (1000, 1024, 1040, 2048)] == [13, 6, 13, 6]
    assert rows(64, 1024, replace(zen4, processor=processor("zen5"))) == 10
    assert rows(700, 1024, zen4) == 6 and rows(
        700, 1024, replace(wide, processor=ANY._replace(l3_bytes=32 << 20))) == 14
    assert rows(700, 1024, AVX2) == 6


@pytest.mark.parametrize(("m", "n", "prefetched"), [
    (60, 48, set()), (300, 8, {"x2"}), (100, 48, {"y"}), (301, 50, {"x2", "y"})])
def test_rows_and_results_beyond_the_l2_cache_are_prefetched(m: int, n: int, prefetched: set[str]) -> None:
    """Two caches of 8 KiB hold 256 rows of 16 numbers."""
    small = replace(AVX2, processor=ANY._replace(l2_bytes=8 << 10))
    graph = Graph({"y": ops.relu(ops.matmul(x(m, 16), leaf("input", "b", (16, n), f32)))})
    one = Job(graph, fed(graph))
    plan = plan_of(graph, small)[0]
    [step] = plan.steps
    places = dict(zip((mem.name for mem in step.kernel.memories), step.locations, strict=True))
    lines = [places[i.attrs["mem"]] for i in step.kernel.body
             if i.opcode == "prefetch" and i.attrs["cache"] == 2]
    assert {"y" if place.space == "outputs" else plan.inputs[place.offset].attrs["name"]
            for place in lines} == prefetched
    np.testing.assert_array_equal(interpreted(one, small, workers=3)[0], interpreted(one, AVX2)[0])


def test_rows_of_a_batch_are_prefetched_by_its_size() -> None:
    """Each matrix of 36 fits the L2 cache, all of them do not."""
    def prefetches(batch: int) -> bool:
        one = Graph({"y": ops.matmul(x(batch, 392, 128), leaf("input", "b", (batch, 128, 8), f32))})
        kernel = plan_of(one, AVX2)[0].steps[-1].kernel
        return any(i.opcode == "prefetch" and i.attrs["cache"] == 2 for i in kernel.body)

    assert [prefetches(n) for n in (2, 36)] == [False, True]


def test_a_loop_reads_each_part_of_a_sequence_in_blocks() -> None:
    """All row tiles of a panel follow one another, so that it is fetched once."""
    a, b = leaf("input", "a", (5000, 64), f32), leaf("input", "b", (5000, 256), f32)
    steps = plan_of(Graph({"y": ops.matmul(ops.transpose(a), b)}), AVX2)[0].steps
    blocks = [(s.schedule.block_rows, s.schedule.tile_rows) for s in steps if isinstance(s.schedule, ProductSchedule)]
    assert blocks == [(11, 6)]


def test_sums_of_a_block_fit_on_the_stack() -> None:
    """102,400 rows that are read across, each step another line, would need 12 MB."""
    a, b = leaf("input", "a", (2000, 102_400), f32), leaf("input", "b", (2000, 64), f32)
    wide = replace(TARGETS["avx512"].limits, processor=processor("zen4"))
    s = choose(102_400, 64, 2000, wide, f32, access=plain(102_400, 2000))
    blocks = in_blocks_along_k(s, 102_400, 2000, plain(102_400, 2000), 409_600, 64, wide.processor)
    assert blocks.block_depth and 100 < blocks.block_rows <= most_block_rows(s, 64)
    steps = plan_of(Graph({"y": ops.matmul(ops.transpose(a), b)}), wide)[0].steps
    locals_ = [m for step in steps for m in step.kernel.memories if m.space == "local"]
    assert all(m.size * m.dtype.bytes <= tuning.BLOCK_SUMS_BYTES for m in locals_)
