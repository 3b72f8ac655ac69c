"""The performance model of whole kernels and compute units, beside the interpreter's accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.opcodes import kernel_for, opcodes_of
from tests.parity import plan_of
from tests.performance.kernels import kernel
from ztorch import ops
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import target
from ztorch.compile.kernels import in_words
from ztorch.dtypes import DType, f16, f32, i32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import Interpreter
from ztorch.ir.kernel import Kernel, Operand
from ztorch.machines.chips import CHIPS
from ztorch.machines.gpus import GPUS, gpu, gpus_of
from ztorch.performance.prediction import predict_kernel, resident_groups
from ztorch.performance.register_use import ADDRESSING, estimated_registers
from ztorch.performance.walk import work_of

H200 = gpu("H200")


# -- products and whole kernels ----------------------------------------------------------------------


def _input(name: str, d: DType, *shape: int) -> Value:
    return leaf("input", name, shape, d)


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
    "product transposed": lambda: ops.matmul(_input("a", f32, 128, 64), ops.transpose(_input("b", f32, 128, 64))),
    "product with an edge": lambda: ops.matmul(_input("a", f32, 100, 64), _input("b", f32, 64, 99)),
    "softmax": lambda: ops.softmax(_input("a", f32, 8, 2048)),
    "columns": lambda: ops.sum(_input("a", f32, 128, 40), axis=0),
    "transpose": lambda: ops.transpose(_input("a", f32, 64, 96)) * 2.0,
    "rows by number": lambda: ops.take(_input("a", f32, 64, 32), _input("i", i32, 48), axis=0),
}


@pytest.mark.parametrize("name", WHOLE)
def test_accesses_equal_those_of_the_interpreter(name: str) -> None:
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
        actual = {key: n for key, n in notes.items() if k.memory(key[1]).space == "global"}
        assert actual and counted.keys() == actual.keys()
        for key, n in actual.items():
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
    assert all(gpus_of(f"{c.backend}:{c.name}") for c in CHIPS)  # so none is planned with another's figures
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

    assert 100 + ADDRESSING < estimated_registers(kernel(body)) <= 128
