"""The performance model where its answer is known: by arithmetic, and by the interpreter's own accesses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.cases.grouping import together
from tests.parity import plan_of
from tests.performance.kernels import THREADS, kernel
from ztorch import ops
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import target
from ztorch.compile.kernels import in_words
from ztorch.dtypes import DType, bf16, f16, f32, i32, u32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.machines.gpus import gpu
from ztorch.performance.fused_instructions import fused_results
from ztorch.performance.prediction import KernelPrediction, predict_kernel
from ztorch.performance.ring_clock import RingTimes, TileShare, ring_cycles
from ztorch.performance.step import FunctionPrediction, LaunchPrediction, predict_functions

H200 = gpu("H200")


def place(b: Builder, g: Operand, t: Operand) -> Operand:
    return b.add(b.mul(g, THREADS), t)


def of(prediction: KernelPrediction, opcode: str, mem: str) -> Any:
    [result] = [a for a in prediction.accesses if (a.opcode, a.mem) == (opcode, mem)]
    return result


@together()
@pytest.mark.parametrize(("given", "want"), [
    # copies as the cache delivers them, products, and the latency over the stages but the one that is read
    (([TileShare(100, 0)], 4, RingTimes(1, 500, 300, 1, 100)), 100 * 300 + 500),
    (([TileShare(100, 0)], 4, RingTimes(1, 500, 0, 1, 300)), 100 * 300 + 500),
    (([TileShare(100, 0)], 4, RingTimes(0, 900, 0, 0, 100)), 100 * 900 / 3),
    (([TileShare(20, 1000)] * 5, 4, RingTimes(1, 500, 0, 1, 300)), 5 * (20 * 300 + 1000) + 500),
    (([TileShare(7, 400), TileShare(20, 1000), TileShare(13, 1400)], 4, RingTimes(1, 500, 0, 1, 300)), 40 * 300 + 2800 + 500)])
def test_the_time_of_a_ring_is_that_of_its_slowest_part(given: tuple, want: float) -> None:
    assert ring_cycles(*given) == pytest.approx(want, rel=0.03)


def test_what_a_ring_brings_from_the_cache() -> None:
    """Of a product of 4 x 2 tiles every workgroup brings its rows, and half of the columns in a cluster of two. Of six
    workgroups some have two tiles, and some one."""
    for cluster, columns in ((1, 128), (2, 64)):
        a, b = leaf("input", "a", (512, 256), f16), leaf("input", "b", (256, 256), f16)
        graph = Graph({"y": ops.matmul(a, ops.transpose(b))})
        limits = target("cuda:sm_90a").on_device({"compute_units": 6}).limits
        [step] = plan_of(graph, limits)[0].steps
        text = f"grid_roles tile(rows=128, columns=128) stages(3) epilogue(bands=2) cluster(rows={cluster}, columns=1)"
        [step] = plan_of(graph, limits, schedules={step.key: text})[0].steps
        words = renderer(target("cuda:sm_90a"))
        p = predict_kernel(*in_words(step.kernel, target("cuda:sm_90a"), words), H200)
        assert p.l2_bytes == 8 * (128 + columns) * 256 * 2 + 512 * 256 * 2
        assert p.copies_pending == 2 and p.flops == pytest.approx(2 * 512 * 256 * 256, rel=0.01)


@pytest.mark.parametrize(("shape", "clusters"), [
    ((4096, 4096, 128), "41 21 11"), ((768, 768, 768), "41 21 11"), ((512, 4096, 1024), "22 41 11"), ((768, 3072, 4096), "22 21 11")])
def test_clusters_are_chosen_where_faster(shape: tuple[int, int, int], clusters: str) -> None:
    hopper = target("cuda:sm_90a")
    m, n, k = shape
    graph = Graph({"y": ops.matmul(leaf("input", "a", (m, k), f16), leaf("input", "b", (k, n), f16))})
    [step] = plan_of(graph, hopper.limits)[0].steps
    shared = repr(step.schedule)
    best, *others = (f"cluster(rows={down}, columns={along})" for down, along in clusters.split())
    assert best in shared
    predictions = [predict_kernel(*in_words(plan_of(graph, hopper.limits, schedules={step.key: s})[0].steps[0].kernel, hopper,
                                            renderer(hopper)), H200) for s in (shared, *(shared.replace(best, s) for s in others))]
    first, second, alone = (p.l2_bytes for p in predictions)
    assert first < second < 0.96 * alone
    first, second, alone = (p.seconds for p in predictions)
    assert first <= second < 0.96 * alone


def test_a_copy_is_one_transaction_a_request_at_the_rate_of_memory() -> None:
    n = 1 << 26
    k = kernel(lambda b, g, t: b.store("y", place(b, g, t), b.load("x", place(b, g, t))), n)
    for row in (H200, gpu("A100"), gpu("RTX 4090")):
        p = predict_kernel(k, (n // THREADS, 1, 1), row)
        assert p.bound == "memory" and p.memory_bytes == 8 * n
        assert p.seconds == pytest.approx(row.memory_seconds(4 * n, 4 * n))
        for access in p.accesses:
            assert access.transactions == 1 and access.sectors == 4 * access.requests


@together()
@pytest.mark.parametrize(("stride", "lines", "sectors"), [
    (1, 1, 4), (2, 2, 8), (4, 4, 16), (8, 8, 32), (32, 32, 32), (100, 32, 32), (0, 1, 1)])
def test_strides(stride: int, lines: int, sectors: int) -> None:
    """float32 loads of 32 threads that lie so many elements apart."""
    k = kernel(lambda b, g, t: b.store("y", place(b, g, t), b.load("x", b.mul(t, stride))))
    access = of(predict_kernel(k, (64, 1, 1), H200), "load", "x")
    assert (access.transactions, access.sectors / access.requests) == (lines, sectors)


@together()
@pytest.mark.parametrize(("pitch", "conflicts"), [(32, 32), (33, 1), (34, 2), (36, 4), (48, 16)])
def test_a_transposed_tile_without_padding_has_32_conflicts(pitch: int, conflicts: int) -> None:
    """Rows of a tile are stored side by side and its columns read; `pitch` elements from row to row."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        row, column = b.div(t, 32), b.rem(t, 32)
        b.store("near", b.add(b.mul(row, pitch), column), b.load("x", place(b, g, t)))
        b.barrier()
        b.store("y", place(b, g, t), b.load("near", b.add(b.mul(column, pitch), row)))

    p = predict_kernel(kernel(body, shared=32 * 48), (64, 1, 1), H200)
    assert of(p, "store", "near").conflicts == 1 and of(p, "load", "near").conflicts == conflicts


def test_wide_loads_take_several_transactions() -> None:
    """16 bytes of each of 32 threads: 512 bytes, 4 turns; all of one address: one bank for all."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        for at in (b.mul(t, 4), b.mul(b.div(t, 32), 4)):
            x = b.load("near", at, lanes=4, align=16)
            b.store("y", b.mul(place(b, g, t), 4), x, align=16)

    p = predict_kernel(kernel(body, shared=4096), (64, 1, 1), H200)
    own, shared = [a for a in p.accesses if a.mem == "near"]
    assert own.wavefronts / own.requests == 4 and own.conflicts == 1
    assert shared.wavefronts / shared.requests == 2 and shared.conflicts == 1


@together()
@pytest.mark.parametrize(("name", "opcode", "lanes"), [
    ("H200", "xor", 64), ("H200", "add", 128), ("A100", "sub", 128), ("RTX 5090", "add", 128), ("MI300X", "add", 64)])
def test_additions_of_integers_share_two_kinds_of_units(name: str, opcode: str, lanes: int) -> None:
    """NVIDIA's assembler writes half of them as products, where fewer units add than multiply."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        words = [b.load("x", b.add(b.mul(t, 8), k)) for k in range(8)]
        with b.loop(0, 1000):
            for k in range(512):
                word = words[k % 8]
                words[k % 8] = b.emit(opcode, word, b.emit("min" if opcode != "xor" else "max", word, k))
        b.store("y", t, words[0])

    row = gpu(name)
    p = predict_kernel(kernel(body, d=i32), (row.units * 8, 1, 1), row)
    least = 8 * THREADS * 512_000 * (1 / row.int_lanes + 1 / max(lanes, row.int_lanes))
    assert p.parts["integers"] == pytest.approx(least / row.clock_of(p.groups), rel=0.02)


def test_a_scheduler_with_one_subgroup_more_takes_longest() -> None:
    """Five workgroups of one subgroup each occupy the four schedulers of a unit as long as eight."""
    b = Builder("products", i32)
    _ = b.memory("x", f32, 1 << 16), b.memory("y", f32, 1 << 16, access="w")
    b.workgroup = (32, 1, 1)
    at = b.add(b.mul(b.identity("grid_id"), 32), b.identity("block_id"))
    x = b.load("x", at)
    total = b.var(f32, 1, 0)
    with b.loop(0, 4096):
        for _ in range(64):
            b.set(total, b.fma(x, x, b.get(total)))
    b.store("y", at, b.get(total))
    products = b.kernel()
    times = [predict_kernel(products, (n * H200.units, 1, 1), H200, cached=True).parts["float32"] for n in (4, 5, 8, 9)]
    assert times == pytest.approx([times[0], 2 * times[0], 2 * times[0], 3 * times[0]])


def test_shifts_of_vectors_are_fused_with_nothing() -> None:
    for lanes, fused in ((1, ["shl", "shr"]), (2, [])):
        b = Builder("rotated")
        b.memory("x", u32, 2, access="rw")
        x = b.load("x", 0, lanes=lanes)
        b.store("x", 0, b.or_(b.shl(x, 13), b.shr(x, 19)))
        results = fused_results(b.kernel())
        assert [i.opcode for i in b.kernel().body if i.dest.id in results] == fused


def test_dependent_loads_cost_their_latency() -> None:
    """A chain of loads, of which each gives the address of the next, on one workgroup."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        at = b.var(i32, 1, 0)
        with b.loop(0, 1000):
            b.set(at, b.load("x", b.get(at)))
        b.store("y", t, b.get(at))

    p = predict_kernel(kernel(body, d=i32), (1, 1, 1), H200)
    assert p.bound == "latency"
    assert p.seconds == pytest.approx(1000 * H200.memory_cycles / 1.98e9, rel=0.02)


@together()
@pytest.mark.parametrize(("ahead", "loads"), [(2, 7), (0, 9), (8, 1)])
def test_a_guard_of_the_last_trips_is_counted(ahead: int, loads: int) -> None:
    """Of nine trips, those at the end load nothing."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        with b.loop(0, 9) as k:
            later = b.add(k, ahead)
            with b.if_(b.lt(later, 9)):
                b.store("y", place(b, k, t), b.load("x", place(b, later, t)))
            b.store("y", place(b, k, t), b.const(0, f32), off=1 << 16)

    p = predict_kernel(kernel(body), (4, 1, 1), H200)
    subgroups = THREADS // 32
    assert of(p, "load", "x").requests == pytest.approx(loads * subgroups)
    assert [a.requests for a in p.accesses if a.opcode == "store"] == pytest.approx(
        [loads * subgroups, 9 * subgroups])


@together()
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_copies_ahead_hide_latency(stages: int) -> None:
    """A ring of copies that are waited for before they are read: a trip takes the latency once where
    none is ahead, and a part of it where some are."""
    trips, size = 300, THREADS * 4

    def body(b: Builder, g: Operand, t: Operand) -> None:
        def copy(at: Operand) -> None:
            slot = b.mul(b.rem(at, stages), size)
            b.copy_async("near", b.add(slot, b.mul(t, 4)), "x",
                         b.mul(b.add(b.mul(at, THREADS), t), 4), elements=4, align=16)
            b.copies_commit()

        total = b.var(f32, 1, 0)
        for ahead in range(stages - 1):
            copy(b.const(ahead, i32))
        with b.loop(0, trips) as k:
            if stages == 1:
                copy(k)
            b.copies_wait(max(0, stages - 2))
            b.barrier()
            if stages > 1:
                copy(b.add(k, stages - 1))
            near = b.load("near", b.add(b.mul(b.rem(k, stages), size), t))
            b.set(total, b.add(b.get(total), near))
            b.barrier()
        b.store("y", t, b.get(total))

    p = predict_kernel(kernel(body, shared=stages * size), (1, 1, 1), H200)
    each = p.parts["latency"] * 1.98e9 / trips
    ahead = max(1, stages - 1)
    assert H200.memory_cycles / ahead <= each <= (H200.memory_cycles + 110) / ahead
    assert p.copies_pending == max(0, stages - 2)


# -- products and whole kernels ----------------------------------------------------------------------


def _input(name: str, d: DType, *shape: int) -> Value:
    return leaf("input", name, shape, d)


@together()
@pytest.mark.parametrize(("d", "chip", "name"), [
    (f32, "cuda:sm_90", "H200"), (bf16, "cuda:sm_80", "A100"), (f16, "rocm:gfx942", "MI300X")])
def test_products_have_2mnk_operations(d: DType, chip: str, name: str) -> None:
    y = ops.matmul(_input("a", d, 3072, 256), _input("b", d, 256, 1536))  # whole tiles
    predicted = predict_functions({"f": Graph({"y": y})}, target(chip), gpu(name))["f"]
    assert predicted.flops == 2 * 3072 * 256 * 1536 and predicted.launches == 1
    assert predicted.seconds > predicted.floor + predicted.gaps


def test_small_programs_fit_the_shared_cache_and_large_ones_do_not() -> None:
    x = _input("x", f32, 1 << 12)
    small = predict_functions({"f": Graph({"y": ops.exp(x)})}, target("cuda:sm_80"), gpu("A100"))["f"]
    large = predict_functions({"f": Graph({"y": ops.exp(_input("x", f32, 1 << 24))})},
                              target("cuda:sm_80"), gpu("A100"))["f"]
    assert small.cached and small.memory_bytes == 0
    assert not large.cached and large.memory_bytes == 2 * 4 << 24


def test_kernels_that_start_early_shorten_the_gaps() -> None:
    """Where few wait for few; the first of a call waits for the driver."""
    x = leaf("input", "x", (64, 64), f32)
    graph = Graph({"y": ops.matmul(ops.exp(ops.matmul(x, x)), x)})
    early, late = (predict_functions({"y": graph}, target(name), H200)["y"] for name in ("cuda:sm_90", "cuda:sm_80"))
    assert early.waves == late.waves == 2
    assert late.gaps == pytest.approx((H200.step_us + 2 * H200.launch_us) * 1e-6)
    assert early.gaps == pytest.approx((H200.step_us + H200.launch_us + H200.early_launch_us) * 1e-6)


@pytest.mark.parametrize(("first", "second", "at_once", "early"), [
    (1, 1, "", True), (4, 8, "", True), (4, 9, "", False), (33, 1, "", False), (1, 1, "first", False), (1, 1, "second", False)])
def test_no_kernels_start_early_where_many_wait_for_many(first: int, second: int, at_once: str, early: bool) -> None:
    """At most 32 pairs of a kernel and one that it waits for, and none whose workgroups run at once, nor the next."""
    kernels: list[Any] = [SimpleNamespace(at_once=at_once == name) for name in ("first", "second")]
    launches = [LaunchPrediction(kernel, 1, k == 0) for n, kernel in zip((first, second), kernels, strict=True)
                for k in range(n)]
    step = FunctionPrediction("f", H200, True, (*launches,), early=True)
    gap = H200.early_launch_us if early else H200.launch_us
    assert step.gaps == pytest.approx((H200.step_us + H200.launch_us + gap) * 1e-6)


@pytest.mark.parametrize(("d", "tflops"), [(f32, 66.9), (bf16, 989.0)], ids=str)
def test_the_least_time_is_that_of_the_units_that_multiply(d: DType, tflops: float) -> None:
    """Threads on float32, and matrix instructions on 16 bits."""
    graph = Graph({"y": ops.matmul(_input("a", d, 1024, 1024), _input("b", d, 1024, 1024))})
    p = predict_functions({"f": graph}, target("cuda:sm_90a"), H200)["f"]
    assert p.floor == pytest.approx(2 * 1024**3 / (tflops * 1e12), rel=0.02)
