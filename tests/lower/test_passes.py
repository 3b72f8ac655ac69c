"""Passes over one kernel keep its meaning: decompose, share_out, hoist, on the interpreter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.random_kernels import random_buffers, random_kernel
from tests.cases.steps import training_step
from tests.parity import NARROW, SCALAR, WIDE, plan_of
from ztorch.dtypes import f16, f32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr, Kernel, matching
from ztorch.ir.opcodes import OPCODES
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose, hoist, share_out, vectored
from ztorch.lower.tails import stored_in_pieces

MISSING = {n for n, row in OPCODES.items() if row.via is not None} - {"cast"}  # for 16 bits


def run(kernel: Kernel, buffers: dict[str, np.ndarray], workers: int = 1) -> dict[str, np.ndarray]:
    verify(kernel)
    mine = {n: a.copy() for n, a in buffers.items()}
    interpret(kernel, mine, workers)
    return mine


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_tails_are_stored_as_shorter_vectors() -> None:
    """Every number of lanes that a mask can leave; other masks stay."""
    for lanes, count in [(8, n) for n in range(9)] + [(2, 1), (16, 13)]:
        b = Builder("tail")
        b.memory("x", f32, lanes, access="r")
        b.memory("y", f32, lanes + 5, access="rw")
        x = b.load("x", 0, lanes=lanes)
        b.store("y", 0, x, off=3, mask=b.lt(b.iota(lanes), count))
        b.store("y", 0, b.mul(x, -1.0), off=3, mask=b.lt(x, 2.0))
        kernel = b.kernel()
        pieces = stored_in_pieces(kernel)
        stores = [i for i in pieces.body if i.opcode == "store"]
        masked = [i for i in stores if len(i.args) == 3]
        assert len(stores) == count.bit_count() + 1 and len(masked) == 1
        buffers = {"x": np.arange(1, lanes + 1, dtype=np.float32), "y": np.full(lanes + 5, 9, np.float32)}
        same(run(pieces, buffers), run(kernel, buffers))


def flat_kernels() -> list[Kernel]:
    """Kernels as lowering leaves them, for three machines."""
    graph = training_step(9, 7).alone("k")
    return [s.kernel for limits in (SCALAR, NARROW, WIDE) for s in plan_of(graph, limits)[0].steps]


def filled(kernel: Kernel, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {m.name: (rng.uniform(0.5, 2, m.size) if m.dtype.is_float else rng.integers(
        0, 2, m.size)).astype(m.dtype.numpy) for m in kernel.memories if m.space == "global"}


# -- decompose -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [sorted(MISSING), ["exp", "log", "tanh"], ["fma"]], ids=str)
def test_decompose_leaves_only_opcodes_of_the_target(missing: list[str]) -> None:
    def speaks(i: Instr) -> bool:
        return i.opcode not in missing or not (i.dest.dtype.is_float or i.opcode == "mulhi")

    for kernel in flat_kernels():
        plain = decompose(kernel, speaks, "test")
        verify(plain)
        assert all(speaks(i) for i in plain.body)
        before, after = run(kernel, filled(kernel)), run(plain, filled(kernel))
        for name in before:
            if before[name].dtype.kind == "f":
                np.testing.assert_allclose(after[name], before[name], rtol=2e-5, atol=2e-5)
            else:
                np.testing.assert_array_equal(after[name], before[name])


@together()
@pytest.mark.parametrize("seed", range(30))
def test_decompose_of_random_kernels_changes_no_integer(seed: int) -> None:
    kernel = random_kernel(Random(seed))
    lacks = {"rem", "mulhi"}

    def speaks(i: Instr) -> bool:
        return i.opcode not in lacks or not i.dest.dtype.is_int

    plain = decompose(kernel, speaks, "test")
    assert all(speaks(i) for i in plain.body)
    buffers = random_buffers(kernel, Random(seed))
    same(run(kernel, buffers), run(plain, buffers))


def test_constants_too_are_converted_before_they_are_stored() -> None:
    b = Builder("k")
    b.memory("y", f16, 1, access="w")
    b.store("y", 0, b.const(1.5, f32))
    plain = decompose(b.kernel(), lambda i: True, "test")
    assert [a.dtype for i in plain.body for a in i.args[1:]] == [f16]
    y = np.zeros(1, np.float16)
    interpret(plain, {"y": y})
    assert y == [1.5]


def test_a_kernel_that_needs_nothing_is_itself() -> None:
    kernel = parallel_kernel(3)
    assert decompose(kernel, lambda i: True, "test") is kernel


def test_an_opcode_without_a_decomposition_is_named() -> None:
    kernel = next(k for k in flat_kernels() if "add" in k.opcodes())
    with pytest.raises(Unsupported, match="klingon lacks add"):
        decompose(kernel, lambda i: i.opcode != "add", "klingon")


# -- share_out -----------------------------------------------------------------------------------------


# -- vectored -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loads", "stores", "size", "vec", "alone"), [
    ([(0, 4, 16)], [], 8, 4, 4), ([(2, 2, 8)], [], 8, 2, 2), ([(0, 2, 16)], [], 8, 2, 2),
    ([(0, 4, 16), (3, 1, 0)], [], 8, 4, 4),  # a part of a vector is read
    ([(0, 4, 4)], [], 8, 1, 1), ([(0, 4, 0)], [], 8, 1, 1),  # not known to be aligned
    ([(0, 4, 16), (0, 4, 0)], [], 8, 1, 1), ([(0, 4, 16), (0, 2, 8)], [], 8, 1, 1),
    ([(0, 8, 32)], [], 8, 1, 1), ([(0, 1, 16)], [], 8, 1, 1),
    ([(0, 4, 16)], [], 7, 1, 1),  # the last vector would be cut short
    ([(0, 4, 16)], [(5, 1, 0)], 8, 4, 1), ([(0, 4, 16)], [(4, 4, 16)], 8, 4, 4),
    ([(0, 4, 16)], [(4, 4, 0)], 8, 1, 1), ([], [(5, 1, 0)], 8, 1, 1)])
def test_memories_are_arrays_of_the_vectors_in_them(
        loads: list[tuple[int, int, int]], stores: list[tuple[int, int, int]], size: int, vec: int,
        alone: int) -> None:
    """`alone`: where nothing else may be written into an array of vectors."""
    b = Builder("mixed")
    b.memory("x", f32, size, access="rw")
    b.memory("other", f32, 8, access="rw")
    for at, lanes, align in loads:
        b.load("x", at, lanes=lanes, align=align)
    for at, lanes, align in stores:
        b.store("x", at, b.splat(b.load("other", 1), lanes), align=align)
    kernel = b.kernel()
    verify(kernel)
    assert [m.vec for m in vectored(kernel).memories] == [vec, 1]
    assert [m.vec for m in vectored(kernel, scalar_stores=False).memories] == [alone, 1]
    verify(vectored(kernel))


def parallel_kernel(trips: int) -> Kernel:
    b = Builder("double")
    b.memory("x", f32, trips * 2)
    b.memory("y", f32, trips * 2, access="w")
    for half in (0, 1):
        with b.loop(0, trips, kind="parallel") as i:
            b.store("y", i, b.mul(b.load("x", i, off=half * trips), 2.0), off=half * trips)
    return b.kernel()


@together()
@pytest.mark.parametrize("trips", (1, 2, 3, 7, 16))
@pytest.mark.parametrize("workers", (1, 2, 3, 5, 20))
def test_workers_share_all_iterations_without_races(trips: int, workers: int) -> None:
    kernel = parallel_kernel(trips)
    shared = share_out(kernel)
    assert not any(i.attrs.get("kind") == "parallel" for i in shared.body)
    buffers = {"x": np.arange(2 * trips, dtype=np.float32), "y": np.full(2 * trips, -1, np.float32)}
    same(run(shared, buffers, workers), run(kernel, buffers))


def test_kernels_without_parallel_loops_are_unchanged() -> None:
    b = Builder("k")
    b.memory("y", f32, 1, access="w")
    b.store("y", 0, b.const(1.0, f32))
    kernel = b.kernel()
    assert share_out(kernel) is kernel


# -- hoist ---------------------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize("seed", range(60))
def test_hoisting_changes_nothing_in_random_kernels(seed: int) -> None:
    kernel = random_kernel(Random(seed))
    moved = hoist(kernel)
    assert sorted(i.dest.id for i in moved.body) == sorted(i.dest.id for i in kernel.body)
    buffers = random_buffers(kernel, Random(seed))
    same(run(kernel, buffers), run(moved, buffers))


def test_loads_leave_loops_that_do_not_change_them() -> None:
    b = Builder("k")
    b.memory("x", f32, 8)
    b.memory("z", f32, 8, access="rw")
    total = b.var(f32, 1, 0.0)
    with b.loop(0, 4) as i, b.loop(0, 8) as j:
        scaled = b.mul(b.load("x", i), 3.0)  # not of the inner loop
        b.set(total, b.add(b.get(total), b.mul(scaled, b.load("z", i))))
        b.store("z", j, b.get(total))
    kernel = hoist(b.kernel())
    inner = [at for at, i in enumerate(kernel.body) if i.opcode == "loop"][1]
    end = dict(matching(kernel.body))[inner]
    loads = [at for at, i in enumerate(kernel.body) if i.opcode == "load"]
    assert kernel.body[loads[0]].attrs["mem"] == "x" and loads[0] < inner
    assert kernel.body[loads[1]].attrs["mem"] == "z" and inner < loads[1] < end
    x, z = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    same(run(kernel, {"x": x, "z": z}), run(b.kernel(), {"x": x, "z": z}))


def test_everything_lowering_does_to_a_kernel_is_legal() -> None:
    for kernel in flat_kernels():
        verify(kernel)
        again = hoist(kernel)
        same(run(kernel, filled(kernel), 3), run(again, filled(kernel), 3))
