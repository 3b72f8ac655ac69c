"""Loops over threads: their results on workers and on devices, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING
from tests.cases.device_programs import all_agree
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered
from tests.machines.ptx.running import run as run_ptx
from tests.parity import GROUPS, HERE, SCALAR, SUBGROUPS, C, Job, Module, agree, interpreted
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.thread_kernel import kernel_of
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.ir.verify import verify
from ztorch.lower.cpu.workgroup_loops import workgroups_as_loops

BLOCKS, SIZE = 2, 64
N = BLOCKS * SIZE


def scaled(x: Any, by: Any) -> Any:
    y = x * by
    return y + 1


@zt.kernel
def statements(x, p):
    """Each statement and word once: branches, loops with ends, functions, arrays of two axes."""
    a, totals = np.zeros(x.shape[0], np.float32), np.zeros(x.shape[0], np.int32)
    tallies, seen = np.zeros((2, 3), np.int32), np.zeros(x.shape[0], np.bool_)
    turned, spans = np.zeros(x.shape[0], np.uint32), np.zeros(x.shape[0], np.float32)
    held, claims = np.full(x.shape[0], 7, np.float32), np.zeros((2, 2), np.int32)
    rows = np.zeros(x.shape[0], np.float32)
    for block, thread in zt.threads(BLOCKS, SIZE):
        i = block * SIZE + thread
        flags, tile = zt.shared((2, SIZE), np.bool_), zt.shared((8, 8), np.float32)
        flags[0, thread] = x[i] > 0
        flags[1, SIZE - 1 - thread] = x[i] > 0.5 and p[i] > 2
        tile[thread // 8, thread % 8] = x[i]
        zt.barrier()
        a[i] = tile[thread % 8, thread // 8] if flags[0, thread] else scaled(x[i], 2)
        seen[i] = flags[1, thread] or flags[0, SIZE - 1 - thread]
        total = 0
        for k in range(thread, -1, -3):
            if k == 5:
                continue
            if total > 40:
                break
            total += k
        totals[i] = total
        zt.atomic_add(tallies, (block, 0), p[i])
        zt.atomic_max(tallies, (block, 1), p[i])
        zt.atomic_min(tallies, (block, 2), p[i] - 7)
        if zt.atomic_cas(claims, (block, 0), 0, 1) == 0:  # one of them, whichever
            zt.atomic_add(claims, (block, 1), 1)
        old = zt.atomic_exchange(held, i, float(thread))
        turned[i] = zt.shuffle(np.uint32(thread), (thread + 3) % 32)
        y = x[i]
        for step in (1, 2):
            zt.barrier()
            if step == 1:
                y = y * 2
            tile[thread // 8, thread % 8] = y + old
            zt.barrier()
            y += tile[(thread // 8 + step) % 8, 0]
        spans[i] = zt.subgroup_max(y) - zt.subgroup_min(y) + zt.shuffle_xor(y, 1)
        row = np.full(5, y, np.float32)  # an array of each thread
        for k, mask in ((0, 16), (2, 3)):
            row[k] += zt.shuffle_xor(row[k + 1], mask)
        span = 4
        while span > 1:
            row[span] += zt.shuffle_xor(y, span * 2) + k
            span //= 2
        rows[i] = sum(row[k] for k in range(p[i] % 5 + 1) if k != 1)
    return a, totals, tallies, seen, turned, spans, held, claims, rows


@zt.kernel
def settled(x):
    """A loop with barriers whose condition all threads see."""
    out = np.zeros(x.shape[0], np.int32)
    for _, thread in zt.threads(1, SIZE):
        row, busy = zt.shared(SIZE, np.float32), zt.shared(1, np.int32)
        row[thread] = x[thread]
        if thread == 0:
            busy[0] = 1
        zt.barrier()
        turns = 0
        while busy[0] > 0:
            zt.barrier()
            if thread == 0:
                busy[0] = 0
            zt.barrier()
            left = row[thread]
            if left > 0.25:
                zt.atomic_max(busy, 0, 1)
                row[thread] = left / 2
                turns += 1
            zt.barrier()
        rounds = 0
        for _ in range(busy[0] + 2):
            zt.barrier()
            rounds += 10
        out[thread] = turns + rounds
    return out


def inputs(kernel: Any) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.normal(size=N if kernel is statements else SIZE).astype(np.float32),
            random.integers(0, 8, N).astype(np.int32)][:2 if kernel is statements else 1]


def job(kernel: Any) -> Job:
    arrays = inputs(kernel)
    leaves = [leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xp", arrays, strict=False)]
    y = kernel.trace(dict(zip("xp", leaves, strict=False)))
    return Job(Graph({f"y{k}": v for k, v in enumerate(y if isinstance(y, tuple) else (y,))}),
               dict(zip(leaves, arrays, strict=True)), kernel.source.name)


JOBS = [job(statements), job(settled)]


def test_plain_python_matches_the_graph() -> None:
    for kernel, one in zip((statements, settled), JOBS, strict=True):
        want = kernel.debug(*inputs(kernel))
        got = evaluate(one.graph.roots, one.feeds)
        for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert got[0].max() == 24  # so that threads took several turns


@pytest.mark.parametrize("machine", [SCALAR, GROUPS, SUBGROUPS], ids=["cpu", "groups", "subgroups"])
def test_on_interpreted_machines(machine: Any) -> None:
    for one in JOBS:
        agree(one, interpreted(one, machine, workers=2), terms=20)


@pytest.mark.parametrize("level", [HERE[0], HERE[-1], *C])
def test_on_workers(level: str) -> None:
    module = Module(JOBS, level)
    for k, one in enumerate(JOBS):
        for workers in (1, 2):
            agree(one, module.run(k, workers), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPUTING)
def test_on_devices(backend: str) -> None:
    all_agree(backend, JOBS)


def test_segments_of_a_block_follow_the_rules() -> None:
    """Code for workers has no threads any more, and reads nothing unwritten."""
    for one in JOBS:
        [node] = [v for v in one.graph.nodes() if v.op.kind == "threads"]
        kernel = kernel_of(node.attrs["program"])
        workers = workgroups_as_loops(kernel)
        verify(workers)
        assert not workers.opcodes() & {"barrier", "block_id", "grid_id"}
        arrays = [one.feeds.get(a, np.zeros(0)) for a in node.args]
        results = []
        for k in (kernel, workers):
            buffers = {m.name: (a.copy() if a.size else np.zeros(m.size, m.dtype.numpy))
                       for m, a in zip(kernel.memories, arrays, strict=False)}
            interpret(k, buffers, races=k is kernel)
            results.append(buffers)
        for name, array in results[0].items():
            np.testing.assert_array_equal(array, results[1][name])


def test_rendered_for_machines_that_are_not_here() -> None:
    graph = {"f": JOBS[0].graph}
    for name, words in (("cuda:sm_90", ("atom.shared.add", "atom.global.cas", "shfl.sync.bfly")),
                        ("rocm:gfx942", ("atomicrmw", "cmpxchg")),
                        ("metal", ("atomic_fetch_max_explicit", "simd_shuffle_xor"))):
        text = compile_functions(graph, TARGETS[name], "threads").text
        wanted = words if "shared" not in words[0] else ("atom.global.add", *words[1:])
        assert all(word in text for word in wanted), name


@zt.kernel
def raced(x, p):
    """Every atomic update, of whole numbers and of floats, in shared memory and outside."""
    tallies, ends = np.zeros((2, 5), np.int32), np.full((2, 3), 0.25, np.float32)
    held, long = np.zeros(x.shape[0], np.float32), np.full(2, 5, np.int64)
    swapped = np.full(x.shape[0], 9, np.int64)
    for block, thread in zt.threads(2, 32):
        i = block * 32 + thread
        own, parts = zt.shared(3, np.int32), zt.shared(2, np.float32)
        if thread < 3:
            own[thread] = 0
        if thread < 2:
            parts[thread] = 0.0
        zt.barrier()
        zt.atomic_add(own, p[i] % 3, p[i])
        zt.atomic_add(parts, thread % 2, x[i])
        if zt.atomic_cas(tallies, (block, 3), 0, thread + 1) == 0:
            zt.atomic_add(tallies, (block, 4), 1)
        zt.atomic_max(ends, (block, 0), x[i])
        zt.atomic_min(ends, (block, 1), x[i])
        zt.atomic_add(ends, (block, 2), x[i])
        zt.atomic_max(long, block, np.int64(p[i]) * 10)
        held[i] = zt.atomic_exchange(swapped, i, np.int64(p[i])) * 0.5
        zt.barrier()
        if thread < 3:
            zt.atomic_max(tallies, (block, thread), own[thread])
        zt.atomic_min(tallies, (block, 3), 0)
        held[i] += parts[thread % 2]
    return tallies, ends, held, long, swapped


def test_atomic_updates_as_ptx() -> None:
    """Every word of them runs, on a machine that takes threads one after the other."""
    x, p = (a[:64] for a in inputs(statements))
    leaves = [leaf("input", n, a.shape, str(a.dtype)) for n, a in (("x", x), ("p", p))]
    y = raced.trace(dict(zip("xp", leaves, strict=True)))
    program, firsts = y[0].args[0].attrs["program"], y[0].args[0].args
    feeds = dict(zip(leaves, (x, p), strict=True))
    kernel, want = kernel_of(program), raced.debug(x, p)
    before = {a.name: np.array(evaluate([v], feeds)[0]).reshape(-1) for a, v in zip(
        program.arrays, firsts, strict=True)}
    text = rendered([kernel], "sm_80")
    words = ("atom.shared.add.u32", "atom.shared.add.f32", "atom.global.cas.b32", "atom.global.max.s64",
             "atom.global.exch.b64", "atom.global.min.s32")
    assert all(word in text for word in words)

    def agrees(text: str) -> bool:
        held = {name: a.copy() for name, a in before.items()}
        run_ptx(kernel, held, parse(text))
        got = [held[program.written[v.attrs["index"]].name] for v in y]
        return all(np.allclose(a, b.reshape(-1), rtol=1e-5, atol=1e-6) for a, b in zip(got, want, strict=True))

    assert agrees(text)
    assert not agrees(text.replace("atom.shared.add.u32", "atom.shared.max.u32"))
    assert not agrees(text.replace("atom.global.max.s64", "atom.global.min.s64"))
