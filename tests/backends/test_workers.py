"""How workers start and meet: the frames of both languages alone, driven from Python threads."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from ztorch import abi
from ztorch.backends.library import load_library
from ztorch.backends.workers import Workers
from ztorch.codegen.assemblers import assemble_text
from ztorch.codegen.elf.link import link
from ztorch.codegen.targets import TARGETS
from ztorch.codegen.templates import environment
from ztorch.host.memory import aligned
from ztorch.host.settings import using
from ztorch.runtime.devices import best_level

# Internal functions of the frames, made visible.
EXPOSED = {
    "ll": """
define void @meet(ptr %control, i64 %worker, i64 %workers) {
  call void @zt.barrier(ptr %control, i64 %worker, i64 %workers) ret void }
define void @start(ptr %body, ptr %i, ptr %o, ptr %p, ptr %a, ptr %control) {
  call void @zt.dispatch(ptr %body, ptr %i, ptr %o, ptr %p, ptr %a, ptr %control) ret void }
attributes #0 = { nounwind }
""",
    "c": """
void meet(control *c, int64_t worker, int64_t workers);
void meet(control *c, int64_t worker, int64_t workers) { barrier(c, worker, workers); }
void start(body_type *body, void **i, void **o, unsigned char *p, unsigned char *a, control *c);
void start(body_type *body, void **i, void **o, unsigned char *p, unsigned char *a, control *c) {
  dispatch(body, i, o, p, a, c);
}
#include <stddef.h>
void layout(int64_t *at);
void layout(int64_t *at) {
"""}
BODY = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 5, ctypes.c_int64, ctypes.c_int64)
FRAMES = ["ll", *(["c"] if shutil.which("cc") else [])]


@cache
def library(suffix: str) -> ctypes.CDLL:
    """The frame of the workers and nothing else, as a library of ours."""
    target = TARGETS[best_level() if suffix == "ll" else "c"]
    language = {"ll": "llvm", "c": "c"}[suffix]
    text = environment().get_template(f"{language}/workers.{suffix}.j2").render(
        arch=target.arch, linkage="internal", offset_of=abi.CONTROL_OFFSETS, control_fields=abi.CONTROL_FIELDS,
        **dict(target.frame_data))
    text += EXPOSED[suffix]
    if suffix == "c":
        text = "#include <stdint.h>\n" + text + "".join(
            f"  at[{k}] = offsetof(control, {f.name}), at[{k + 20}] = sizeof(((control *)0)->{f.name});\n"
            for k, f in enumerate(abi.CONTROL_FIELDS)) + "}\n"
    exports = ["meet", "start", abi.WORKER_ENTRY, *(["layout"] if suffix == "c" else [])]
    made = load_library(link(assemble_text(text, target), soname="workers.so", exports=exports), "workers")
    made.meet.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    made.start.argtypes = [ctypes.c_void_p] * 6
    made.meet.restype = made.start.restype = None
    return made


def control(spin: int, workers: int = 0) -> np.ndarray:
    block = aligned(abi.CONTROL_BYTES).view(abi.CONTROL_BLOCK)
    block["spin"], block["workers"] = spin, workers
    block["syscall"] = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value
    return block


def in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for t in threads:
        t.start()
    return threads


def soon(condition: Callable[[], Any]) -> bool:
    """Whether something becomes true before one loses patience."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(condition())


def number(block: np.ndarray, name: str) -> int:
    return int(block[name][0])


# -- the table -------------------------------------------------------------------------------------


def test_fields_are_aligned_and_on_separate_cache_lines() -> None:
    end = 0
    for f in abi.CONTROL_FIELDS:
        assert f.offset >= end and f.offset % f.nbytes == 0 and f.offset - end == f.gap
        end = f.offset + f.nbytes
    assert end <= abi.CONTROL_BYTES and abi.CONTROL_BYTES % abi.CACHE_LINE == 0
    lines = {f.name: f.offset // abi.CACHE_LINE for f in abi.CONTROL_FIELDS}
    spun_on = ("generation", "arrived", "phase")  # each is written while others watch another one
    assert len({lines[n] for n in spun_on}) == 3
    assert not {lines[n] for n in lines if n not in spun_on} & {lines[n] for n in spun_on}
    assert [n for n in lines if lines[n] == lines["busy"]] == ["busy"]  # Python writes it twice a run


def test_saved_artifacts_find_the_fields_where_they_were() -> None:
    assert abi.CONTROL_OFFSETS == {
        "generation": 0, "arrived": 64, "phase": 128, "sleepers": 192, "workers": 200, "spin": 208,
        "syscall": 216, "waker": 224, "unused": 228, "caller": 232, "body": 256, "inputs": 264, "outputs": 272,
        "params": 280, "arena": 288, "lone": 296, "busy": 320}  # compiled code never reads the last one
    assert abi.WORKER_ENTRY == "zt_worker"


@pytest.mark.skipif("c" not in FRAMES, reason="needs a C compiler")
def test_the_c_compiler_lays_it_out_as_the_table_says() -> None:
    at = (ctypes.c_int64 * 40)()
    library("c").layout(at)
    got = {f.name: (at[k], at[k + 20]) for k, f in enumerate(abi.CONTROL_FIELDS)}
    assert got == {f.name: (f.offset, f.nbytes) for f in abi.CONTROL_FIELDS}


# -- the barrier -----------------------------------------------------------------------------------
# Both frames in each test, so that the first case of each covers both.


@pytest.mark.parametrize("workers", (3, 2))
def test_nobody_passes_a_barrier_before_all_have_come(workers: int) -> None:
    for suffix in FRAMES:
        for spin in (0, 1 << 40):  # they wait asleep, and awake
            _meet_three_times(suffix, spin, workers)


def test_sleepers_are_counted_and_wake() -> None:
    _meet_three_times("ll", 0, 2)


def _meet_three_times(suffix: str, spin: int, workers: int) -> None:
    meet, block = library(suffix).meet, control(spin)
    passed: list[tuple[int, int]] = []
    gates = [threading.Semaphore(0) for _ in range(workers)]

    def work(k: int) -> None:
        for turn in range(3):
            gates[k].acquire()
            meet(block.ctypes.data, k, workers)
            passed.append((turn, k))

    threads = in_threads(workers, work)
    for turn in range(3):
        order = [(k + turn) % workers for k in range(workers)]  # each is the last to come once
        for k in order[:-1]:
            gates[k].release()
        assert soon(lambda: number(block, "arrived") == workers - 1)
        time.sleep(0.01)
        assert len(passed) == turn * workers and number(block, "phase") == turn
        assert soon(lambda: number(block, "sleepers") == (0 if spin else workers - 1))
        gates[order[-1]].release()
        assert soon(lambda turn=turn: len(passed) == (turn + 1) * workers), "somebody was left behind"
        assert number(block, "arrived") == 0 and number(block, "phase") == turn + 1
        assert soon(lambda: number(block, "sleepers") == 0)
    for t in threads:
        t.join(5)
    assert sorted(passed) == [(turn, k) for turn in range(3) for k in range(workers)]


def test_one_worker_needs_no_barrier() -> None:
    for suffix in FRAMES:
        block = control(0)
        library(suffix).meet(block.ctypes.data, 0, 1)
        library(suffix).meet(None, 0, 1)  # not even a control block is needed
        assert number(block, "arrived") == number(block, "phase") == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
                    reason="needs two cores")
def test_a_worker_leaves_the_core_of_the_caller() -> None:
    """Linux may start both on one core: each barrier then takes the time for which one spins."""
    usable, core_of = os.sched_getaffinity(0), ctypes.CDLL(None).sched_getcpu
    shared = min(usable)
    for suffix in FRAMES:
        meet, block, cores = library(suffix).meet, control(1 << 40), list[int]()

        def work(k: int, meet: Any = meet, block: Any = block, cores: list[int] = cores) -> None:
            os.sched_setaffinity(0, {shared})
            if k:
                os.sched_setaffinity(0, usable)  # it stays there for now
            for _ in range(40):
                meet(block.ctypes.data, k, 2)
                cores += [core_of()] * k

        for thread in in_threads(2, work):
            thread.join(20)
        assert len(cores) == 40 and {*cores} - {shared}


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", (0, 1000))
def test_each_worker_runs_each_body_once_and_the_caller_waits(spin: int) -> None:
    """With the arguments of that very run."""
    for suffix in FRAMES:
        _run_five_times(suffix, spin)


def _run_five_times(suffix: str, spin: int) -> None:
    with using(spin=spin):
        pool = Workers(3, library(suffix))
    ran: list[tuple[int, ...]] = []

    @BODY
    def body(*args: int) -> None:
        if args[5]:
            time.sleep(0.005)  # the caller is done with its share first
        ran.append(tuple(int(a or 0) for a in args))

    PARKED.extend((pool, body))
    at = ctypes.cast(body, ctypes.c_void_p).value
    for turn in range(5):
        addends = [1000 * turn + 8 * k for k in range(1, 5)]
        done: list[int] = []

        def start(k: int, addends: list[int] = addends, done: list[int] = done) -> None:
            library(suffix).start(at, *addends, pool.control)
            done.append(len(ran))

        in_threads(1, start)
        assert soon(lambda done=done: done), "the caller waits for ever"
        assert done == [3], "the caller went on before the others were done"
        want = [(*addends, pool.control.value, k, 3) for k in range(3)]
        assert sorted(ran, key=lambda r: r[5]) == want
        assert number(pool.block, "generation") == turn + 1
        ran.clear()
    assert number(pool.block, "spin") == spin and number(pool.block, "workers") == 3


PARKED: list[Any] = []  # pools live as long as the process: their threads wait for a run
