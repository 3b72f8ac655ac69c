"""Memory and locks of a compiled program, where another process or thread could meet them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.abi import BUFFER_ALIGN
from ztorch.backends.workers import workers
from ztorch.errors import DeviceError, WeightsError
from ztorch.host.memory import HUGE_PAGE
from ztorch.runtime.executable import (
    SHARED_KERNEL_CYCLES,
    WORKER_CYCLES,
    Executable,
    HostCall,
    check_processor,
)
from ztorch.runtime.spec import PREPARE


def in_a_child(good: Callable[[], bool]) -> bool:
    """The message in a forked child."""
    child = os.fork()
    if child == 0:
        verdict = 1
        try:
            verdict = 0 if good() else 1
        finally:
            os._exit(verdict)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
def test_a_forked_child_trains_for_itself() -> None:
    """With weights that are large enough for huge pages."""
    model = zt.Sequential([L.Input((16,)), L.Dense(4096), L.Dense(64)])
    program = model.compile("cpu", batch_size=8, optimizer="sgd", loss="mse")
    assert program.executable.params.nbytes > HUGE_PAGE // 2
    x, y = np.ones((8, 16), np.float32), np.ones((8, 64), np.float32)
    before = program.get_weights()

    def train() -> bool:
        program.fit(x, y, epochs=1, verbose=0)
        return all((a != b).any() for a, b in zip(program.get_weights(), before, strict=True))

    assert in_a_child(train)
    for a, b in zip(program.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_call_that_was_redirected_twice_reads_its_own_arrays_again() -> None:
    program = zt.Sequential([L.Input((3,)), L.Activation("relu")]).compile("cpu", batch_size=2)
    call = program.executable.bind("predict")
    (x,), (y,) = call.inputs.values(), call.outputs.values()
    x[...] = 1.0
    for number in (2.0, 3.0):
        assert call.read_from(*call.inputs, np.full((2, 3), number, np.float32))
        assert call.write_to(*call.outputs, np.empty((2, 3), np.float32))
    call.release()
    call()
    np.testing.assert_array_equal(y, x)


# -- states ----------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that run, in order."""
    names: list[str] = []
    real = HostCall.run

    def noted(call: HostCall) -> None:
        names.append(call.function.name)
        real(call)

    monkeypatch.setattr(HostCall, "run", noted)
    return names


class Positive(L.Layer):
    """A product with the absolute values of a matrix."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.kernel = self.add_weight(shape=(64, 100))

    def call(self, x: Any) -> Any:
        return x @ zt.ops.abs(self.kernel)


def packed() -> zt.Program:
    """A program that predicts from values that it derives from its weights whenever they change."""
    model = zt.Sequential([L.Input((64,)), Positive()])
    program = model.compile("cpu", batch_size=256)
    assert PREPARE in program.executable.functions
    return program


def test_derived_states_are_computed_when_weights_changed_and_only_then(runs: list[str]) -> None:
    program = packed()
    e, x = program.executable, np.ones((256, 64), np.float32)
    assert e.stale and runs == []
    first = program.predict(x)
    assert not e.stale and runs == [PREPARE, "predict"]
    np.testing.assert_array_equal(program.predict(x), first)
    assert runs == [PREPARE, "predict", "predict"]
    (kernel,) = (n for n in e.states if n.endswith("kernel"))
    e.set_state(kernel, 2 * e.state(kernel))
    assert e.stale
    np.testing.assert_allclose(program.predict(x), 2 * first, rtol=1e-6)
    assert runs[3:] == [PREPARE, "predict"] and not e.stale
    e.restore({kernel: np.zeros_like(e.state(kernel))})
    assert not program.predict(x).any() and runs[5:] == [PREPARE, "predict"]


def test_features_that_this_processor_lacks_are_named() -> None:
    spec = packed().executable.spec
    for needs in (("avx9000",), ("avx9000", "sve9")):
        with pytest.raises(DeviceError, match=f"needs {', '.join(needs)}; this CPU"):
            check_processor(spec.replace(needs=(*spec.needs, *needs)))


def test_a_program_without_derived_states_is_never_stale(runs: list[str]) -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(3)])
    program = model.compile("cpu", batch_size=2, optimizer="sgd", loss="mse")
    e = program.executable
    assert PREPARE not in e.functions and not e.stale
    e.set_state("dense/kernel", np.ones((4, 3)))
    assert not e.stale
    np.testing.assert_array_equal(program.predict(np.ones((2, 4))), np.full((2, 3), 4.0))
    assert runs == ["predict"]


def test_states_are_copied_in_and_out() -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(3)])
    e = model.compile("cpu", batch_size=2).executable
    e.set_state("dense/bias", np.arange(3))
    snapshot, bias = e.states_snapshot(), e.state("dense/bias")
    assert bias.dtype == np.float32
    bias[:] = 7
    snapshot["dense/kernel"][:] = 7
    np.testing.assert_array_equal(e.state("dense/bias"), [0, 1, 2])
    assert not (e.state("dense/kernel") == 7).any()
    with pytest.raises(WeightsError, match=r"dense/bias has shape \(3,\), not \(4,\)"):
        e.set_state("dense/bias", np.zeros(4))


# -- workers ---------------------------------------------------------------------------------------


def test_kernels_run_on_as_many_workers_as_their_size_allows() -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(3)])
    e = Executable(*(getattr(model.compile("cpu", batch_size=2).executable, n) for n in ("spec", "code")),
                   threads=5)

    def keeps_busy(kernels: int, cycles: float) -> int:
        return e.workers_for(SimpleNamespace(cycles=cycles, runs=kernels))  # type: ignore[arg-type]

    shared, worker = SHARED_KERNEL_CYCLES, WORKER_CYCLES
    assert keeps_busy(100, 100 * shared - 1) == 1 and keeps_busy(100, 100 * shared) == 5
    assert [keeps_busy(1, n * worker) for n in range(7)] == [1, 2, 3, 4, 5, 5, 5]
    assert keeps_busy(1, worker - 1) == 1
    assert e.bind("predict").workers == 1


def test_single_runs_try_other_numbers_of_workers() -> None:
    model = zt.Sequential([L.Input((30, 8)), L.LSTM(64)])
    program = model.compile("cpu", batch_size=4, threads=2)
    call, x = program.executable.bind("predict"), np.ones((4, 30, 8))
    assert call.workers == 1
    seen, results = [], {}
    while 2 not in seen:  # a trial of one worker takes some runs, and milliseconds
        call.inputs["x"][...] = x
        call()
        seen.append(call.workers)
        results[call.workers] = call.outputs["y"].copy()
    assert seen[0] == 1 and len(seen) < 10_000
    np.testing.assert_array_equal(results[1], results[2])
    call.workers = 1  # whoever sets a number has it
    call()
    call()
    assert call.workers == 1


def test_buffers_are_aligned_for_the_widest_vectors() -> None:
    model = zt.Sequential([L.Input((5,)), L.Dense(3)])
    e = model.compile("cpu", batch_size=3).executable
    call = e.bind("predict")
    arrays = [e.params, e.arena, *call.inputs.values(), *call.outputs.values()]
    assert not any(a.ctypes.data % BUFFER_ALIGN for a in arrays if a.nbytes)
    assert BUFFER_ALIGN == 64


@forks
def test_a_forked_child_need_not_wait_for_a_run_of_its_parent() -> None:
    """The thread that holds the lock exists in the parent only."""
    program = packed()
    program.predict(np.ones((256, 64), np.float32))
    with program.executable.lock:
        assert in_a_child(lambda: program.executable.lock.acquire(timeout=5))


def test_several_workers_share_a_run_and_one_needs_no_pool() -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(3)])
    e = model.compile("cpu", batch_size=2).executable
    alone, shared, pool = e.bind("predict"), e.bind("predict"), workers(2, e.library)
    shared.workers = 2
    before = int(pool.block["generation"][0])
    for turn in range(1, 4):
        shared()
        assert pool.block["generation"] == before + turn
        alone()
        assert pool.block["generation"] == before + turn


def test_programs_that_are_dropped_leave_neither_descriptors_nor_maps() -> None:
    """Workers may still be at the last barrier of a program when its code is no longer referred to."""
    def left() -> tuple[int, int]:
        return (len(os.listdir("/proc/self/fd")),
                Path("/proc/self/maps").read_text().count("memfd:ztorch-dropped"))

    x, seen = np.ones((32, 64), np.float32), []
    for width in range(200, 207):
        model = zt.Sequential([L.Input((64,)), L.Dense(width), L.Dense(width)], name="dropped")
        program = model.compile("cpu", batch_size=32)
        call = program.executable.bind("predict")
        call.workers = 2
        for _ in range(20):
            call()
        assert program.predict(x).shape == (32, width)
        del model, program, call
        gc.collect()
        seen.append(left())
    assert {descriptors for descriptors, _ in seen} == {seen[0][0]}
    assert max(maps for _, maps in seen[1:]) <= 2 * seen[0][1]  # the last may wait for a later run


def test_the_scale_of_a_normalization_is_computed_once() -> None:
    """Though an epsilon, which no weight holds, is added to the variance."""
    model = zt.Sequential([L.Input((64,)), L.BatchNormalization(epsilon=0.25)])
    program = model.compile("cpu", batch_size=4)
    program.set_weights([np.full(64, n, np.float32) for n in (3.0, 0.5, 1.0, 2.0)])
    assert PREPARE in program.executable.functions
    assert [k.name.partition("_")[0] for k in program.explain().kernels] == ["k0"]
    y = program.predict(np.full((4, 64), 7.0, np.float32))
    np.testing.assert_allclose(y, (7 - 1) * 3 / 1.5 + 0.5, rtol=1e-6)


def growing(x: Any) -> Any:
    """A loop that ends early, around one that does not."""
    def step(state: Any) -> Any:
        return zt.ops.scan(lambda s, row: (zt.ops.tanh(s + row) * 1.5, None), state, length=9, xs=zt.ops.zeros((9, 1, 8)))[0] + 0.1

    return zt.ops.while_loop(lambda s: zt.ops.max(s) < 0.9, step, x * 0.01, max_steps=20)


@pytest.mark.parametrize("device", ["cpu", "c"])
@pytest.mark.parametrize("body", [[L.Bidirectional(L.LSTM(24)), L.Dense(3)], [L.Reshape((8,)), L.Lambda(growing), L.Dense(3)]])
def test_one_worker_may_run_loops_of_short_kernels(device: str, body: list[Any]) -> None:
    model = zt.Sequential([L.Input((12, 16) if len(body) == 2 else (8, 1)), *body], seed=1)
    program = model.compile(device, batch_size=4, loss="mse", optimizer="sgd", threads=3)
    first = program.executable.states_snapshot()
    results = []
    for count in (1, 3, -3, -2):
        call = program.executable.bind("train")
        program.executable.restore(first)
        for k, array in enumerate(call.inputs.values()):
            array[...] = np.random.default_rng(k).normal(size=array.shape) if array.ndim > 1 else 1
        call.workers = count
        for _ in range(20):
            call()
        assert call.workers == abs(count)
        results.append([np.array(w) for w in program.get_weights()])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
