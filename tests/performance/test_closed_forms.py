"""The performance model where its answer is known: by arithmetic, and by the interpreter's own accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import target
from ztorch.compile.kernels import in_words
from ztorch.dtypes import DType, bf16, f16, f32, i32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import Interpreter
from ztorch.ir.kernel import Kernel, Operand
from ztorch.machines.gpus import GPUS, gpu, gpus_of
from ztorch.performance.prediction import KernelPrediction, predict_kernel, resident_groups
from ztorch.performance.register_use import estimated_registers
from ztorch.performance.ring_clock import RingTimes, ring_cycles
from ztorch.performance.step import predict_functions
from ztorch.performance.walk import work_of

H200 = gpu("H200")
THREADS = 256


def kernel(body: Callable[[Builder, Operand, Operand], Any], size: int = 1 << 20, shared: int = 0,
           d: DType = f32) -> Kernel:
    """x is read and y written by what the body emits for a workgroup's and a thread's number."""
    b = Builder("k", i32)
    b.memory("x", d, size)
    b.memory("y", d, size, access="w")
    if shared:
        b.memory("near", d, shared, "shared", "rw")
    b.workgroup = (THREADS, 1, 1)
    body(b, b.identity("grid_id"), b.identity("block_id"))
    return b.kernel()


def place(b: Builder, g: Operand, t: Operand) -> Operand:
    return b.add(b.mul(g, THREADS), t)


def of(prediction: KernelPrediction, opcode: str, mem: str) -> Any:
    [found] = [a for a in prediction.accesses if (a.opcode, a.mem) == (opcode, mem)]
    return found


@together()
@pytest.mark.parametrize(("given", "want"), [
    # copies as the cache delivers them, products, and the latency over the stages but the one that is read
    ((1, 100, 4, RingTimes(1, 500, 300, 1, 100, 0)), 100 * 300 + 500), ((1, 100, 4, RingTimes(1, 500, 0, 1, 300, 0)), 100 * 300 + 500),
    ((1, 100, 4, RingTimes(0, 900, 0, 0, 100, 0)), 100 * 900 / 3), ((5, 20, 4, RingTimes(1, 500, 0, 1, 300, 1000)),
                                                                          5 * (20 * 300 + 1000) + 500)])
def test_a_ring_takes_what_its_slowest_part_takes(given: tuple, want: float) -> None:
    assert ring_cycles(*given) == pytest.approx(want, rel=0.03)


def test_what_a_ring_brings_from_the_cache() -> None:
    """Of a product of 4 x 2 tiles every workgroup brings its rows, and half of the columns in a cluster of two. Of six
    workgroups some have two tiles, and some one."""
    for cluster, columns in ((1, 128), (2, 64)):
        a, b = leaf("input", "a", (512, 256), f16), leaf("input", "b", (256, 256), f16)
        graph = Graph({"y": ops.matmul(a, ops.transpose(b))})
        limits = target("cuda:sm_90a").on_device({"compute_units": 6}).limits
        [step] = plan_of(graph, limits)[0].steps
        text = f"grid_roles tile(rows=128, columns=128) stages(3) epilogue(bands=2) cluster({cluster})"
        [step] = plan_of(graph, limits, schedules={step.key: text})[0].steps
        words = renderer(target("cuda:sm_90a"))
        p = predict_kernel(*in_words(step.kernel, target("cuda:sm_90a"), words), H200)
        assert p.l2_bytes == 8 * (128 + columns) * 256 * 2 + 512 * 256 * 2
        assert p.copies_pending == 2 and p.flops == pytest.approx(2 * 512 * 256 * 256, rel=0.01)


@pytest.mark.parametrize("shape", [(4096, 4096, 128), (768, 768, 768), (512, 4096, 1024)])
def test_clusters_are_taken_where_they_are_faster(shape: tuple[int, int, int]) -> None:
    hopper = target("cuda:sm_90a")
    m, n, k = shape
    graph = Graph({"y": ops.matmul(leaf("input", "a", (m, k), f16), leaf("input", "b", (k, n), f16))})
    [step] = plan_of(graph, hopper.limits)[0].steps
    shared = repr(step.schedule)
    assert "cluster(2)" in shared
    alone = shared.replace("cluster(2)", "cluster(1)")
    two, one = (predict_kernel(*in_words(plan_of(graph, hopper.limits, schedules={step.key: s})[0].steps[0].kernel, hopper,
                                         renderer(hopper)), H200).seconds for s in (shared, alone))
    assert two < 0.96 * one


def test_a_copy_is_one_transaction_a_request_at_the_rate_of_memory() -> None:
    n = 1 << 26
    k = kernel(lambda b, g, t: b.store("y", place(b, g, t), b.load("x", place(b, g, t))), n)
    for row in (H200, gpu("A100"), gpu("RTX 4090")):
        p = predict_kernel(k, (n // THREADS, 1, 1), row)
        assert p.bound == "memory" and p.memory_bytes == 8 * n
        assert p.seconds == pytest.approx(8 * n / row.copy_rate)
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


def test_loads_of_vectors_take_their_bytes_in_turns() -> None:
    """16 bytes of each of 32 threads: 512 bytes, 4 turns; all of one address: one bank for all."""
    def body(b: Builder, g: Operand, t: Operand) -> None:
        for at in (b.mul(t, 4), b.mul(b.div(t, 32), 4)):
            x = b.load("near", at, lanes=4, align=16)
            b.store("y", b.mul(place(b, g, t), 4), x, align=16)

    p = predict_kernel(kernel(body, shared=4096), (64, 1, 1), H200)
    own, shared = [a for a in p.accesses if a.mem == "near"]
    assert own.turns / own.requests == 4 and own.conflicts == 1
    assert shared.turns / shared.requests == 2 and shared.conflicts == 1


def test_loads_that_wait_for_one_another_take_their_latency() -> None:
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
    y = ops.matmul(_input("a", d, 512, 256), _input("b", d, 256, 384))
    predicted = predict_functions({"f": Graph({"y": y})}, target(chip), gpu(name))["f"]
    assert predicted.flops == 2 * 512 * 256 * 384 and predicted.launches == 1
    assert predicted.seconds > predicted.floor + predicted.gaps


def test_small_programs_lie_in_the_shared_cache_and_large_ones_do_not() -> None:
    x = _input("x", f32, 1 << 12)
    small = predict_functions({"f": Graph({"y": ops.exp(x)})}, target("cuda:sm_80"), gpu("A100"))["f"]
    large = predict_functions({"f": Graph({"y": ops.exp(_input("x", f32, 1 << 24))})},
                              target("cuda:sm_80"), gpu("A100"))["f"]
    assert small.cached and small.memory_bytes == 0
    assert not large.cached and large.memory_bytes == 2 * 4 << 24


class Recorder(Interpreter):
    """Notes which bytes the threads of the middle workgroup reach for."""

    def reach(self, at: int, store: Any, index: np.ndarray, mask: np.ndarray | None) -> Any:
        places, live = super().reach(at, store, index, mask)
        size = store.spec.dtype.bytes
        shape = (self.threads, max(places.shape[1], index.shape[1]))
        own = np.broadcast_to(index, shape)
        alive = np.broadcast_to(True if live is None else live, shape)
        middle = slice(self.size * (self.grid[0] // 2), self.size * (self.grid[0] // 2 + 1))
        notes = self.__dict__.setdefault("notes", {}).setdefault((at, store.spec.name), [0, 0, 0])
        for addresses, active in zip(own[middle].reshape(-1, 32, shape[1]),
                                     alive[middle].reshape(-1, 32, shape[1]), strict=True):
            touched = addresses[active] * size
            notes[0] += bool(len(touched))
            notes[1] += len(np.unique(touched // 128))
            notes[2] += len(np.unique(touched // 32))
        return places, live


WHOLE = {
    "product": lambda: ops.matmul(_input("a", f32, 128, 64), _input("b", f32, 64, 128)),
    "product turned": lambda: ops.matmul(_input("a", f32, 128, 64), ops.transpose(_input("b", f32, 128, 64))),
    "product with an edge": lambda: ops.matmul(_input("a", f32, 100, 64), _input("b", f32, 64, 99)),
    "softmax": lambda: ops.softmax(_input("a", f32, 8, 2048)),
    "columns": lambda: ops.sum(_input("a", f32, 128, 40), axis=0),
    "transpose": lambda: ops.transpose(_input("a", f32, 64, 96)) * 2.0,
    "rows by number": lambda: ops.take(_input("a", f32, 64, 32), _input("i", i32, 48), axis=0),
}


@pytest.mark.parametrize("name", WHOLE)
def test_accesses_are_those_that_the_interpreter_makes(name: str) -> None:
    """Of the workgroup in the middle: requests, lines and sectors of each access to global memory."""
    chip = target("cuda:sm_80")
    words = renderer(chip)
    plan, _ = plan_of(Graph({"y": WHOLE[name]()}), chip.limits)
    for step in plan.steps:
        k, grid = in_words(step.kernel, chip, words)
        arrays = {m.name: np.zeros(m.size, m.dtype.numpy) for m in k.memories if m.space == "global"}
        notes = recorded(k, grid, arrays)
        work = work_of(k, grid, 32)
        counted = {(at if at >= 0 else -1 - at, a.mem): [a.requests, a.lines, a.sectors]
                   for at, a in work.accesses.items() if a.space == "global"}
        found = {key: n for key, n in notes.items() if k.memory(key[1]).space == "global"}
        assert found and counted.keys() == found.keys()
        for key, n in found.items():
            (requests, lines, sectors), instr = counted[key], k.body[key[0]]
            assert [requests, sectors] == pytest.approx([n[0], n[2]], rel=0.02), instr
            assert lines == pytest.approx(n[1], rel=0.1), instr  # not all trips begin alike in a line


def recorded(k: Kernel, grid: Any, arrays: dict[str, np.ndarray]) -> dict[tuple[int, str], list[int]]:
    machine = Recorder(k, arrays, 1, grid, True, 32, {})
    with np.errstate(all="ignore"):
        for run in machine.steps:
            run()
    return machine.__dict__["notes"]


@pytest.mark.parametrize("chip", ["cuda:sm_80", "rocm:gfx1100"])
def test_every_opcode_is_counted(chip: str) -> None:
    """One that the model does not know takes a slot; none is an error."""
    made_for = target(chip)
    [row, *_], words = gpus_of(chip), renderer(made_for)
    for d in (f32, i32, f16):
        for opcode in opcodes_of(d):
            speakable, grid = in_words(kernel_for(opcode, d, 1)[0], made_for, words)
            p = predict_kernel(speakable, grid, row)
            assert 0 < p.work_seconds <= p.seconds < 1e-2, opcode  # rem may turn 40 times


# -- units ---------------------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize(("threads", "registers", "shared", "groups"), [
    (256, 32, 0, 8), (256, 64, 0, 4), (256, 255, 0, 1), (1024, 32, 0, 2), (32, 16, 0, 32),
    (256, 32, 48 << 10, 4), (128, 32, 227 << 10, 1)])
def test_workgroups_of_a_unit(threads: int, registers: int, shared: int, groups: int) -> None:
    """Of an H200: 2,048 threads, 65,536 registers, 228 KiB of shared memory."""
    assert resident_groups(H200, threads, registers, shared) == groups


def test_rows_of_gpus_are_plausible() -> None:
    for row in GPUS.values():
        assert all(target(t).limits.grid is not None for t in row.targets)
        assert row in gpus_of(row.targets[0])
        assert row.memory_gb_s < row.l2_gb_s and row.memory_cycles > row.l2_cycles > row.shared_cycles
        assert all(rate * 1e12 >= row.f32_rate * 0.4 for _, rate in row.matrix_tflops)


def test_registers_of_sums_are_counted() -> None:
    def body(b: Builder, g: Operand, t: Operand) -> None:
        sums = [b.var(f32, 1, 0) for _ in range(100)]
        with b.loop(0, 10) as k:
            x = b.load("x", b.add(k, t))
            for v in sums:
                b.set(v, b.add(b.get(v), x))
        for n, v in enumerate(sums):
            b.store("y", t, b.get(v), off=n)

    assert 100 < estimated_registers(kernel(body)) <= 128
