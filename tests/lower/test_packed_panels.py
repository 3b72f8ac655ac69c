"""Right operands of products whose panels are packed: before the product, or by the first tile of a block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases.proposals import AVX2, x
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.packed_panels import pack, packed_columns, panel_columns
from ztorch.lower.cpu.tiling import choose
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import ProductSchedule
from ztorch.machines.processors import ANY, processor

ZEN3 = replace(AVX2, processor=processor("zen3"))


def packs(m: int, n: int, k: int, limits: Limits) -> str:
    """Where the right operand of a product is packed: before it, or in its blocks."""
    a, b = leaf("input", "a", (m, k), f32), leaf("input", "b", (k, n), f32)
    graph = prepare(Graph({"y": ops.matmul(a, b)}), limits)
    schedule = plan_of(graph, limits)[0].steps[-1].schedule
    assert isinstance(schedule, ProductSchedule)
    before = packed_columns(graph.outputs["y"].args[1]) > 0
    assert not (before and schedule.block_pack)
    return "before" if before else "block" if schedule.block_pack else ""


@pytest.mark.parametrize(("m", "n", "k", "wanted"), [
    (24, 512, 512, "block"), (23, 512, 512, ""),  # the L1 cache has 16 lines for 512 rows
    (8, 1024, 1024, "block"), (7, 1024, 1024, ""), (12, 1024, 9, "block"), (12, 1024, 8, ""),  # whole pages apart
    (500, 500, 500, ""),  # rows that share no power of two stay, all of them
    (48, 1536, 129, "block"), (384, 512, 17, "block"), (384, 512, 16, ""),
    (512, 500, 500, "before"), (512, 260, 500, ""),  # larger than the L2 cache, and many rows
    (256, 512, 512, "block"), (257, 512, 512, "before"),  # left rows that fill the L2 cache, or more
    (24, 512, 4096, "block"), (24, 512, 4097, "before"),  # a panel that fills the stack, or more
])
def test_a_right_operand_that_evicts_itself_is_packed(m: int, n: int, k: int, wanted: str) -> None:
    assert packs(m, n, k, ZEN3) == wanted


def test_packing_depends_on_the_processor() -> None:
    larger = replace(ZEN3, processor=ZEN3.processor._replace(l2_bytes=1 << 20))
    assert [packs(400, 512, 512, limits) for limits in (ZEN3, larger)] == ["before", "block"]
    narrow, wide = (replace(TARGETS[level].limits, processor=processor("zen5")) for level in ("avx2", "avx512"))
    assert [packs(64, 512, 512, limits) for limits in (narrow, wide)] == ["block", ""]  # each vector is a line
    assert [packs(m, 512, 784, wide) for m in (383, 512)] == ["", "before"] and packs(512, 600, 512, wide) == "block"


@pytest.mark.parametrize(("m", "n", "k", "rows"), [(384, 512, 17, 64), (96, 48, 65, 6), (25, 16, 65, 3)])
def test_all_rows_read_one_copy_of_a_panel_unless_too_few_are_left_to_share(m: int, n: int, k: int, rows: int) -> None:
    far = replace(AVX2, processor=ANY._replace(l1_bytes=4096))
    [step] = plan_of(Graph({"y": ops.matmul(x(m, k), leaf("input", "b", (k, n), f32))}), far)[0].steps
    assert isinstance(step.schedule, ProductSchedule)
    assert (step.schedule.block_rows, step.schedule.block_pack, step.schedule.prefetch) == (rows, 1, 0)


def test_packed_panels_are_recognized_by_their_layout() -> None:
    b = x(40, 70)
    packed = pack(b, panel_columns(b, 100, AVX2, f32))
    wide = choose(100, 70, 40, AVX2, f32, packed=True).tile_vectors * 8
    assert packed_columns(packed) == wide and packed.shape == b.shape
    assert packed_columns(b) == packed_columns(ops.transpose(x(70, 40))) == 0
    heads = ops.reshape(leaf("input", "w", (40, 10, 7), f32), (40, 70))  # three axes, and not packed
    assert packed_columns(heads) == 0


def test_packing_reads_in_memory_order() -> None:
    job = Graph({"y": ops.matmul(leaf("input", "a", (512, 1024), f32), leaf("input", "b", (1024, 512), f32))})
    [copy] = [s for s in plan_of(job, ZEN3)[0].steps if "_copy" in s.key and "_pad" not in s.key]
    assert repr(copy.schedule) == "elements lanes(8) order(0, 2, 1) share(2)"
    near = ops.exp(ops.transpose(x(6, 9, 32), (1, 0, 2)))  # rows of 128 bytes, 1,152 from one to the next
    assert "order(1, 0)" in repr(plan_of(Graph({"y": near}), ZEN3)[0].steps[0].schedule)
    closer = ops.exp(ops.transpose(x(6, 7, 32), (1, 0, 2)))  # 896
    assert "order(0, 1)" in repr(plan_of(Graph({"y": closer}), ZEN3)[0].steps[0].schedule)
    longest = ops.exp(ops.transpose(x(6, 9, 64), (1, 0, 2)))  # 256 bytes each
    assert "order(1, 0)" in repr(plan_of(Graph({"y": longest}), ZEN3)[0].steps[0].schedule)
    long = ops.exp(ops.transpose(x(6, 9, 128), (1, 0, 2)))  # 512 bytes each
    assert "order(0, 1)" in repr(plan_of(Graph({"y": long}), ZEN3)[0].steps[0].schedule)


@pytest.mark.parametrize(("batch", "n", "wanted"), [(4, 256, (8, 1)), (1, 256, (8, 1)), (4, 128, (8, 1)), (1, 128, (8, 1)),
                                                    (1, 64, (4, 1)), (4, 64, (8, 1)), (4, 48, (3, 0))])
def test_matrices_of_a_batch_are_packed_if_they_are_large(batch: int, n: int, wanted: tuple[int, int]) -> None:
    """An eighth of 256 KiB: 128 rows of 64 numbers. Where several products share the work, each has one block."""
    small = replace(AVX2, processor=ANY._replace(l2_bytes=256 << 10, l1_bytes=4096))
    b = leaf("input", "b", (batch, 128, n), f32)
    [step] = plan_of(Graph({"y": ops.matmul(x(batch, 48, 128), b)}), small)[0].steps
    assert isinstance(step.schedule, ProductSchedule)
    assert (step.schedule.block_rows, step.schedule.block_pack) == wanted
