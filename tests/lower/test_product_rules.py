"""Proposals of the rules of lowering for matrix products on processors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.attention import fed
from tests.cases.proposals import AVX2, x
from tests.parity import HERE, Job, agree, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f32
from ztorch.graph.narrow import ROUNDED
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower import tuning
from ztorch.lower.cpu.packed_panels import packed_columns
from ztorch.lower.cpu.tiling import (
    choose,
    estimated_cycles,
    product_lanes,
    registers,
    tiling,
)
from ztorch.lower.region import COPY
from ztorch.lower.rewrites.frozen import Derived
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import ProductSchedule
from ztorch.machines.processors import ANY, processor

ZEN3 = replace(AVX2, processor=processor("zen3"))


# -- products --------------------------------------------------------------------------------------


def test_a_tile_fills_the_registers_but_one() -> None:
    assert choose(96, 32, 96, AVX2, f32) == ProductSchedule(6, 2, 1, 0, 0, 0, 4, 1)
    assert choose(96, 96, 96, AVX2, f32) == ProductSchedule(6, 2, 1, 0, 0, 0, 4, 1)  # 4 x 3 takes all 16
    wide = choose(97, 96, 96, TARGETS["avx512"].limits, f32)
    assert registers(wide.tile_rows, wide.tile_vectors) <= 32 < registers(wide.tile_rows + 2, wide.tile_vectors)
    assert choose(9, 9, 9, TARGETS["scalar"].limits, f32) == ProductSchedule(3, 3, 1, 0, 0, 0, 4, 1)


def test_a_tile_fills_all_registers_where_each_step_prefetches() -> None:
    """LLVM does not move loads across a prefetch, which would take another register."""
    def tile(m: int, n: int, k: int) -> tuple[int, int]:
        step = plan_of(Graph({"y": ops.matmul(x(m, k), leaf("input", "b", (k, n), f32))}), AVX2)[0].steps[-1]
        assert isinstance(step.schedule, ProductSchedule)
        return step.schedule.tile_rows, step.schedule.tile_vectors

    assert [tile(8, n, 500) for n in (1000, 1024, 1001)] == [(4, 3), (4, 2), (4, 2)]  # pages apart; a mask
    assert tile(8, 1000, 170) == (4, 3)  # also where three vectors stay in L1
    assert tile(100, 1000, 500) == (6, 2)


def test_tall_tiles_would_load_addresses_of_rows() -> None:
    for limits in (AVX2, ZEN3):
        assert choose(1024, 8, 108, limits, f32).tile_rows == 10
        assert choose(1024, 24, 108, limits, f32) == ProductSchedule(4, 3, 1, 0, 0, 8, 4, 1)
    arm = replace(AVX2, processor=ANY._replace(row_addresses=26))
    assert choose(1024, 8, 108, arm, f32).tile_rows > 10


def test_a_mask_takes_a_register_unless_it_has_one_of_its_own() -> None:
    assert choose(1024, 12, 108, AVX2, f32) == ProductSchedule(6, 2, 1, 0, 0, 8, 4, 1)
    assert choose(1024, 16, 108, AVX2, f32) == ProductSchedule(6, 2, 1, 0, 0, 0, 4, 1)
    with_masks = replace(AVX2, mask_registers=True)
    assert choose(1024, 12, 108, with_masks, f32) == ProductSchedule(6, 2, 1, 0, 0, 0, 4, 1)


def test_parts_of_k_where_both_operands_miss_the_l2_cache() -> None:
    def schedule(k: int, columns: int) -> ProductSchedule:
        a = ops.transpose(leaf("input", "a", (k, 144), f32))
        step = plan_of(Graph({"y": ops.matmul(a, leaf("input", "b", (k, columns), f32))}), AVX2)[0].steps[-1]
        assert isinstance(step.schedule, ProductSchedule)
        return step.schedule

    assert schedule(2048, 32).block_depth == 0
    deep = schedule(8192, 32)
    assert deep.block_depth == 256 and 1 < deep.block_rows < 12  # few tiles read a part of B again


def test_tiles_of_one_height_are_half_the_code() -> None:
    """Unless they take clearly more time, or the product is so long that code does not matter."""
    wide = TARGETS["avx512"].limits
    assert [choose(m, 256, 64, wide, f32).tile_rows for m in (400, 401, 402)] == [10, 14, 14]
    assert choose(4000, 512, 512, wide, f32).tile_rows == 14


def test_rows_wait_in_the_second_cache_where_the_right_operand_does_not_fit() -> None:
    """Half of it is theirs: 256 * 256 floats are just half of 512 KiB."""
    assert choose(256, 256, 256, ZEN3, f32).block_rows == 1
    beyond = choose(256, 257, 256, ZEN3, f32)
    assert (beyond.tile_rows, (256 << 10) // (6 * 256 * 4)) == (6, 42)
    assert beyond.block_rows == 22  # two blocks, as equal as may be, where one of 43 tiles is too large
    assert choose(216, 257, 256, ZEN3, f32).block_rows == 36  # one block
    assert choose(256, 257, 256, AVX2, f32).block_rows == 1  # where that cache is larger
    assert choose(8, 4000, 100_000, ZEN3, f32).block_rows == 1


def test_panels_from_memory_are_read_for_many_rows() -> None:
    """Where the L2 cache holds five tiles, but not where it holds ten, nor panels that stay in L3."""
    larger = replace(ZEN3, processor=ZEN3.processor._replace(l2_bytes=1 << 20))
    small = replace(ZEN3, processor=ZEN3.processor._replace(l3_bytes=2 << 20))
    rows = [choose(2048, n, 2048, limits, f32, packed=True, distance=64).block_rows
            for n, limits in ((2048, ZEN3), (1024, ZEN3), (2048, larger), (2048, small))]
    assert rows == [22, 5, 10, 5]


def test_few_rows_read_each_panel_once() -> None:
    """Four tiles of twelve rows or so share 40 panels, or 3, of which workers would get too few."""
    wide = TARGETS["avx512"].limits
    assert [choose(49, n, 160, wide, f32).block_rows for n in (1280, 192, 96)] == [4, 2, 1]
    assert choose(12544, 1280, 16, wide, f32).block_rows == 1


def test_tiles_of_a_block_fetch_the_next_panel_together() -> None:
    """Each of four tiles fetches one of the four steps of a turn, two vectors of 16 columns."""
    kernel = plan_of(Graph({"y": ops.matmul(x(49, 64), leaf("input", "b", (64, 512), f32))}),
                     TARGETS["avx512"].limits)[0].steps[-1].kernel
    fetched = [i for i in kernel.body if i.opcode == "prefetch"]
    assert [i.attrs["cache"] for i in fetched] == [2, 2] * 2  # of tiles of 13 rows, and of 12


def test_operands_outside_the_first_cache_are_prefetched() -> None:
    """Half of it may be a panel's: two vectors of 256 steps are just half of 32 KiB."""
    near, far = choose(240, 240, 256, ZEN3, f32), choose(240, 240, 257, ZEN3, f32)
    assert (near.tile_vectors, near.prefetch) == (2, 0)
    assert (far.tile_vectors, far.prefetch) == (2, tuning.PREFETCH_STEPS)
    assert choose(1, 240, 5000, ZEN3, f32).prefetch == 0  # one row reads it but once


def test_many_tiles_read_packed_panels_without_prefetches() -> None:
    """Vectors that are whole lines, and few tiles, fetch them ahead."""
    wide = TARGETS["avx512"].limits
    assert [choose(m, 240, 512, ZEN3, f32, packed=True, distance=64).prefetch for m in (49, 48)] == [0, 8]
    assert choose(480, 480, 2048, wide, f32, packed=True, distance=128).prefetch == 8


def test_the_l2_cache_keeps_up_only_with_narrow_panels() -> None:
    """Two vectors of B a step are 11 bytes a cycle."""
    slow = replace(AVX2, processor=ANY._replace(l2_bytes_per_cycle=8.0))
    assert choose(384, 384, 384, slow, f32).tile_vectors == 1
    fast = replace(AVX2, processor=ANY._replace(l2_bytes_per_cycle=1000.0, l1_bytes=1 << 20))
    assert choose(384, 384, 384, fast, f32).tile_vectors == 3


def test_a_left_operand_that_tiles_read_badly_is_copied() -> None:
    """Few elements of each line, and the others again after so many lines that they are gone; or
    rows that come in groups of fewer than a good tile has."""
    def copied(a: Value, columns: int = 512) -> bool:
        y = ops.matmul(a, leaf("input", "b", (a.shape[-1], columns), f32))
        plan = plan_of(Graph({"y": y}), ZEN3)[0]
        return "contract" not in plan.steps[0].key and not any(
            "matmul" in s.key and plan.inputs[p.offset].attrs["name"] == "a"
            for s in plan.steps for p in s.locations if p.space == "inputs")

    def a(*shape: int) -> Value:
        return leaf("input", "a", shape, f32)

    assert copied(ops.transpose(a(2000, 96))) and not copied(ops.transpose(a(2000, 96)), 32)
    assert not copied(ops.transpose(a(100, 96)))
    assert copied(ops.reshape(ops.transpose(a(5, 400, 128), (1, 0, 2)), (2000, 128)))
    assert not copied(ops.reshape(a(64, 32, 128), (2048, 128)))


def test_a_deep_product_is_a_sum_of_products() -> None:
    deep, flat = (plan_of(Graph({"y": ops.matmul(x(80, k), leaf("input", "b", (k, 72), f32))}),
                          ZEN3)[0].steps for k in (5000, 3000))
    products = [[s for s in steps if "matmul" in s.key] for steps in (deep, flat)]
    assert [len(p) for p in products] == [3, 1]
    graph = Graph({"y": ops.matmul(x(66, 5000), leaf("input", "b", (5000, 65), f32))})
    random = np.random.default_rng(0)
    job = Job(graph, {v: random.normal(size=v.shape).astype(np.float32) for v in graph.leaves("input")})
    agree(job, compiled(job, HERE[-1]), terms=5000)


@pytest.mark.parametrize(("k", "products"), [(5000, 1), (4099, 2)], ids=["even parts", "a rest"])
def test_a_deep_product_of_examples_is_a_loop(k: int, products: int) -> None:
    """However many examples there are, as for the gradient of weights."""
    a, b = x(k, 66), leaf("input", "b", (k, 65), f32)
    graph = Graph({"y": ops.matmul(ops.transpose(a), b)})
    plan = plan_of(graph, ZEN3)[0]
    assert len(plan.loops) == 1 and sum("matmul" in s.key for s in plan.steps) == products
    random = np.random.default_rng(0)
    job = Job(graph, {v: random.normal(size=v.shape).astype(np.float32) for v in graph.leaves("input")})
    agree(job, compiled(job, HERE[-1]), terms=k)


def test_a_port_narrower_than_a_vector_takes_several_cycles() -> None:
    wide = TARGETS["avx512"].limits
    halves = replace(wide, processor=ANY._replace(port_bits=256))
    tiles = tiling(6, 3, 6, 96, 16)
    nine, eighteen = (estimated_cycles(tiles, 1000, f32, limits.processor) for limits in (wide, halves))
    assert eighteen - nine == pytest.approx(2 * 1000 * 9)  # the 18 multiply-adds of a step take nine cycles, or 18


def test_a_large_tile_is_better_than_a_small_one_that_computes_as_fast() -> None:
    """It reads fewer bytes for each multiply-add: 14 rows of 2 vectors a fifth less than 9 of 3."""
    wide = TARGETS["avx512"].limits
    s = choose(504, 480, 512, wide, f32)
    assert (s.tile_rows, s.tile_vectors) == (14, 2)


def test_a_single_row_reads_its_weights_in_wide_panels() -> None:
    """Each is read once a call, so that small panels save nothing: it waits for the L2 cache, and
    the fewest tiles are best."""
    wide = TARGETS["avx512"].limits
    assert choose(1, 512, 128, wide, f32).tile_vectors == 16
    assert choose(14, 512, 128, wide, f32).tile_vectors == 2


def test_tiles_divide_the_panels_of_a_packed_operand() -> None:
    """Two vectors would be faster where the L2 cache is slow, and a panel has three."""
    slow = replace(AVX2, processor=ANY._replace(l2_bytes_per_cycle=14.0))
    assert choose(384, 384, 384, slow, f32, packed=True).tile_vectors == 2
    assert 3 % choose(384, 384, 384, slow, f32, packed=True, panel=3).tile_vectors == 0


def test_few_rows_read_weights_that_never_change_in_16_bits() -> None:
    def read(rows: int, frozen: bool = True) -> DType:
        w = ROUNDED(leaf("state", "w", (40, 32), f32, np.zeros((40, 32), np.float32)), dtype=bf16)
        graph = prepare(Graph({"y": ops.matmul(x(rows, 40), w)}), AVX2, Derived() if frozen else None)
        return graph.outputs["y"].args[1].dtype

    assert [read(tuning.NARROW_ROWS), read(tuning.NARROW_ROWS + 1)] == [bf16, f32]
    assert read(1, frozen=False) is f32


def test_a_right_operand_that_needs_a_copy_is_packed() -> None:
    """A transposed one, if the L1 cache does not hold it and whole panels cover it."""
    def packed(n: int, k: int) -> bool:
        b = ops.transpose(leaf("input", "b", (n, k), f32))
        graph = prepare(Graph({"y": ops.matmul(x(20, k), b)}), AVX2)
        return packed_columns(graph.outputs["y"].args[1]) > 0

    assert packed(80, 80) and not packed(60, 80) and not packed(32, 80)
    assert packed(96, 80) and not packed(64, 80)  # of three vectors each


def test_rows_that_evict_one_another_are_fetched_just_ahead() -> None:
    def ahead(n: int) -> int:
        b = leaf("input", "b", (300, n), f32)
        step = plan_of(Graph({"y": ops.matmul(x(20, 300), b)}), AVX2)[0].steps[-1]
        assert isinstance(step.schedule, ProductSchedule)
        return step.schedule.prefetch

    assert [ahead(n) for n in (500, 256, 512, 1024)] == [tuning.PREFETCH_STEPS, 4, 2, 0]


@pytest.mark.parametrize(("columns", "lanes"), [(3, 8), (6, 8), (8, 8), (9, 16), (20, 8), (24, 8), (40, 8), (150, 16)])
def test_few_columns_are_multiplied_in_half_vectors(columns: int, lanes: int) -> None:
    """Where a whole vector takes two turns of a port: three halves are less than two wholes."""
    zen4 = replace(TARGETS["avx512"].limits, processor=processor("zen4"))
    graph = Graph({"y": ops.relu(ops.matmul(x(19, 13), leaf("input", "b", (13, columns), f32)))})
    assert product_lanes(columns, zen4, f32) == lanes
    assert product_lanes(columns, TARGETS["avx512"].limits, f32) == 16
    job = Job(graph, fed(graph))
    agree(job, interpreted(job, zen4, workers=3), terms=13)


@pytest.mark.parametrize(("turns", "wanted"), [(256, True), (250, False)])
def test_rows_of_sequences_that_evict_one_another_are_copied(turns: int, wanted: bool) -> None:
    """Rows of a tile are those of a turn, a whole sequence apart: here whole pages, or not."""
    x = leaf("input", "x", (16, turns, 128), f32)
    rows = ops.reshape(ops.transpose(x, (1, 0, 2)), (turns * 16, 128))
    small = replace(ZEN3, processor=ZEN3.processor._replace(l2_bytes=1 << 18))
    graph = prepare(Graph({"y": ops.matmul(rows, leaf("input", "w", (128, 64), f32))}), small)
    assert (graph.outputs["y"].args[0].op is COPY) == wanted


def test_left_operands_avoid_page_strides() -> None:
    """A stored operand lies in longer rows, also where a product reads it transposed."""
    def left(graph: Graph) -> list[tuple[int, ...]]:
        wholes = [v for v in prepare(graph, TARGETS[HERE[-1]].limits).nodes() if v.op.name == "inset"]
        return [v.shape for v in wholes]

    a, b, c, d = (leaf("input", name, shape, f32) for name, shape in zip(
        "abcd", ((9, 3), (3, 1024), (1024, 5), (9, 7)), strict=True))
    hidden = ops.relu(ops.matmul(a, b))
    graph = Graph({"y": ops.matmul(hidden, c), "z": ops.matmul(hidden.T, d),
                   "sum": ops.sum(hidden)})
    assert left(graph) == [(9, 1040)]
    assert not left(Graph({"y": ops.matmul(ops.relu(x(9, 1016)), x(1016, 5))}))
    job = Job(graph, fed(graph))
    agree(job, compiled(job, HERE[-1]), terms=9 * 1024)
