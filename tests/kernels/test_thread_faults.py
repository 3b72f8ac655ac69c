"""Kernels of threads that are wrong: races, missing barriers, reads past the end."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from models.kernels import threads as gallery
from tests.parity import GROUPS, SCALAR, Job, agree, interpreted
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.errors import InterpretError, KernelError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.thread_kernel import kernel_of
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.lower.cpu.workgroup_loops import workgroups_as_loops

SIZE = 64  # threads of a block


@zt.kernel
def without_a_barrier(x):
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, 32):
        own = zt.shared(32, x.dtype)
        own[thread] = x[thread]
        if x[thread] > 0.0:  # without this, the race is seen while compiling
            out[thread] = own[31 - thread]
    return out


@zt.kernel
def two_write_one(x):
    out = np.zeros(1, x.dtype)
    for _, thread in zt.threads(1, 32):
        own = zt.shared(1, x.dtype)
        own[thread // 32] = x[thread]
        zt.barrier()
        out[0] = own[0]
    return out


@zt.kernel
def all_read_and_the_last_writes(x):
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, 4):
        own = zt.shared(1, x.dtype)
        if thread == 0:
            own[0] = x[0]
        zt.barrier()
        out[thread] = own[0]
        if thread == 3:
            own[0] = x[1]
    return out


@zt.kernel
def shared_but_not_written(x):
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, 32):
        own = zt.shared(33, x.dtype)
        own[thread] = x[thread]
        zt.barrier()
        out[thread] = own[thread + 1]
    return out


@zt.kernel
def past_the_end(x):
    out = np.zeros(x.shape[0], x.dtype)
    for _, thread in zt.threads(1, 32):
        out[thread] = x[thread // 32 + thread + 1]
    return out


def _played(kernel: Any, x: np.ndarray) -> None:
    v = leaf("input", "x", x.shape, str(x.dtype))
    evaluate([kernel.trace({"x": v})], {v: x})


@pytest.mark.parametrize("kernel, message, line", [
    (without_a_barrier, "race: thread 31 reads element 0 of shared memory, which thread 0 has written since",
     "out[thread] = own[31 - thread]"),
    (two_write_one, "race: thread 1 writes element 0 of shared memory, which thread 0 has written since",
     "own[thread // 32] = x[thread]"),
    (shared_but_not_written, "reads element 32 of shared memory, which no thread has written",
     "out[thread] = own[thread + 1]"),
    (past_the_end, "index 32 is out of bounds", "out[thread] = x[thread // 32 + thread + 1]")],
    ids=lambda p: p if isinstance(p, str) else p.source.name)
def test_faults_are_detected(kernel: Any, message: str, line: str) -> None:
    """By plain Python, and by the interpreter: in any memory, whatever the order of threads. The
    interpreter names the line of the kernel."""
    x = np.ones(32, np.float32)
    if kernel is without_a_barrier:  # plain Python runs thread 0 first, which finds nothing there
        message = "reads element 31 of shared memory, which no thread has written"
    with pytest.raises((KernelError, IndexError), match=message):
        kernel.debug(x)
    with pytest.raises(InterpretError, match=r"race on|never written|out of bounds") as error:
        _played(kernel, x)
    assert f"`{line}`" in str(error.value)


@zt.kernel
def halved(x):
    """Loops over threads beside other loops, and a kernel that is called."""
    sums = gallery.block_sums(x, 64) + 1.0
    out = np.zeros(x.shape[0], x.dtype)
    for block, thread in zt.threads(sums.shape[0], 64):
        i = block * 64 + thread
        if i < x.shape[0]:
            out[i] = x[i] / sums[block]
            zt.atomic_add(out, i, 1.0)
    return out * 0.5


@zt.kernel
def guarded(x, p):
    """Reads that a loop without turns, or a condition, keeps from leaving the array."""
    out = np.zeros(SIZE, x.dtype)
    for _, thread in zt.threads(1, SIZE):
        total = 0.0
        for k in range(p[thread] if thread < 4 else 0):
            total += x[thread] + k
        turns = 0
        while thread + turns < 4 and x[thread + turns] > 0:
            total += x[thread]
            turns += 1
        out[thread] = total
    return out


def test_guarded_elements_are_not_read() -> None:
    x, p = np.arange(4, dtype=np.float32), np.array([0, 3, 1, 2], np.int32)
    want = guarded.debug(x, p)
    assert want.max() > 9
    leaves = [leaf("input", n, (4,), str(a.dtype)) for n, a in (("x", x), ("p", p))]
    one = Job(Graph({"y": guarded.trace(dict(zip("xp", leaves, strict=True)))}),
              dict(zip(leaves, (x, p), strict=True)), "guarded")
    for machine in (SCALAR, GROUPS):
        agree(one, interpreted(one, machine), terms=20)
    np.testing.assert_allclose(guarded(x, p), want)
    [node] = [v for v in one.graph.nodes() if v.op.kind == "threads"]
    kernel = workgroups_as_loops(kernel_of(node.attrs["program"]))
    interpret(kernel, {m.name: np.concatenate([a, np.zeros(m.size - a.size, a.dtype)]).astype(m.dtype.numpy)
                       for m, a in zip(kernel.memories, [one.feeds.get(a, np.zeros(SIZE)) for a in node.args],
                                       strict=False)})


def test_threads_together_with_other_kernels() -> None:
    x = np.random.default_rng(2).normal(size=64 * 9 + 3).astype(np.float32)
    want = halved.debug(x)
    np.testing.assert_allclose(halved(x), want, rtol=1e-5, atol=1e-6)
    v = leaf("input", "x", x.shape, "float32")
    one = Job(Graph({"y": halved.trace({"x": v})}), {v: x}, "halved")
    agree(one, interpreted(one, GROUPS), terms=100)  # more blocks than this grid has workgroups


def test_a_barrier_that_not_all_threads_reach_in_plain_python() -> None:
    @zt.kernel
    def k(x):
        out = np.zeros(4, x.dtype)
        for _, thread in zt.threads(1, 4):
            if x[thread] > 0:
                zt.barrier()
        return out

    with pytest.raises(KernelError, match="thread 1 of block 0 waits at a barrier that thread 0"):
        k.debug(np.arange(4.0))
    with pytest.raises(KernelError, match=r"zt.threads runs in kernels only"):
        zt.threads(1, 2)
    with pytest.raises(KernelError, match=r"zt.barrier is for threads"):
        zt.barrier()


@zt.kernel
def count_64(p):
    out = np.zeros(4, np.int64)
    for _, thread in zt.threads(1, 32):
        zt.atomic_add(out, p[thread], 1)
    return out


@zt.kernel
def much_shared(x):
    out = np.zeros(1, x.dtype)
    for _, thread in zt.threads(1, 32):
        own = zt.shared(1 << 15, x.dtype)
        own[thread] = x[thread]
        out[0] = 1.0
    return out


@zt.kernel
def many_threads(x):
    out = np.zeros(1, x.dtype)
    for _, _thread in zt.threads(1, 1024):
        out[0] = 1.0
    return out


@pytest.mark.parametrize("kernel, target, message", [
    (count_64, "vulkan", "vulkan lacks atomic_add on int64"), (count_64, "webgpu", "webgpu has no int64"),
    (much_shared, "vulkan", "asks for 131072 bytes of shared memory, but this device has at most 16384"),
    (many_threads, "webgpu", "asks for 1024 threads in a block, but this device has at most 256")],
    ids=lambda p: p if isinstance(p, str) else p.source.name)
def test_missing_capabilities_are_named(kernel: Any, target: str, message: str) -> None:
    [name] = kernel.parameters
    v = leaf("input", name, (32,), "int32" if name == "p" else "float32")
    with pytest.raises(Unsupported, match=message):
        compile_functions({"f": Graph({"y": kernel.trace({name: v})})}, TARGETS[target], "lacks")


def test_a_write_after_reads_of_several_threads_is_a_race() -> None:
    """Also where the thread that writes is the last one that read."""
    with pytest.raises(KernelError, match=r"race: thread 3 writes element 0 .*, which thread 0 has read"):
        all_read_and_the_last_writes.debug(np.arange(4.0))


def test_threads_end_after_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(KernelError, match="race"):
        all_read_and_the_last_writes.debug(np.arange(4.0))
    assert threading.active_count() == before
