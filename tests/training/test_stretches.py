"""Stretches of full batches, which one native call runs: the same bits as batch by batch."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import count
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import same_states
from ztorch import layers as L
from ztorch.backends.workers import workers
from ztorch.callbacks import LambdaCallback
from ztorch.compile.pipeline import build
from ztorch.dtypes import f32
from ztorch.errors import NonFiniteLoss
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.runtime import executable, native_call, steps
from ztorch.runtime.steps import HostSteps
from ztorch.runtime.worker_trials import WorkerTrials

random = np.random.default_rng(4)
ROWS, BATCH = 52, 8  # six full batches, and one of four
# 68, 7 and 136 bytes a row: lines, words and bytes are copied
X = {"wide": random.normal(size=(ROWS, 17)).astype(np.float32),
     "codes": random.integers(0, 9, (ROWS, 7)).astype(np.uint8),
     "exact": random.normal(size=(ROWS, 17)).astype(np.float64)}
Y = {"kind": random.integers(0, 2, (ROWS, 1)).astype(np.float32),
     "size": random.normal(size=(ROWS, 1)).astype(np.float32)}
WEIGHTS = random.random(ROWS).astype(np.float32)


def compiled(device: str = "cpu", threads: int = 1) -> Any:
    wide, exact = L.Input((17,), name="wide"), L.Input((17,), name="exact")
    codes = L.Input((7,), name="codes", dtype="uint8")
    h = L.Concatenate()([L.Dense(6, activation="tanh")(wide), L.Flatten()(L.Embedding(9, 2)(codes)),
                         exact])
    outputs = {"kind": L.Dense(1, activation="sigmoid", name="kind")(L.Dropout(0.2)(h)),
               "size": L.Dense(1, name="size")(h)}
    model = zt.Model({"wide": wide, "codes": codes, "exact": exact}, outputs, seed=1)
    return model.compile(device, batch_size=BATCH, threads=threads, optimizer="adam",
                         loss={"kind": "binary_crossentropy", "size": "mse"},
                         metrics={"kind": ["accuracy", zt.metrics.AUC()], "size": ["mae"]})


CASES: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "as they lie": {"shuffle": False},
    "weights of rows": {"sample_weight": WEIGHTS},
    "weights as they lie": {"sample_weight": WEIGHTS, "shuffle": False},
    "steps beyond a pass": {"steps_per_epoch": 10},
    "validated": {"validation_split": 0.4},
}


def histories(program: Any) -> list[dict[str, list[float]]]:
    """Results of all cases, one after another: each begins with the weights of the one before."""
    result = []
    for how in CASES.values():
        result.append(program.fit(X, Y, epochs=2, verbose=0, **how).history)
        result.append(program.evaluate(X, Y, verbose=0, return_dict=True,
                                       sample_weight=how.get("sample_weight")))
    return result


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each native call has run."""
    counts: list[int] = []
    run = HostSteps.run

    def counted(self: HostSteps, order: Any, first: int, count: int) -> int:
        counts.append(run(self, order, first, count))
        return counts[-1]

    monkeypatch.setattr(HostSteps, "run", counted)
    return counts


@pytest.fixture(scope="module")
def one_by_one() -> tuple[Any, list[dict[str, list[float]]]]:
    """A program that each batch has called, and its scores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostSteps, "of", classmethod(lambda *_: None))
        program = compiled()
        return program, histories(program)


@pytest.mark.parametrize(("device", "threads"), [("cpu", 2), ("cpu", 1), ("c", 2)])
def test_the_same_bits_as_batch_by_batch(device: str, threads: int, ran: list[int],
                                         one_by_one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "SHARED_KERNEL_CYCLES", 0)
    monkeypatch.setattr(executable, "WORKER_CYCLES", 1)
    want, scores = one_by_one
    program = compiled(device, threads)
    assert program.executable.workers_for(program.executable.functions["train"]) == threads
    got = histories(program)
    # 12 full batches of two epochs, or 17 of 20 steps, or 6 of the split and 4 to validate; 6 to evaluate
    assert sum(ran) == 4 * 12 + 17 + 6 + 4 + 6 * 6
    assert max(ran) == 6
    if device == "cpu":
        assert got == scores
        assert same_states(program, want)
    else:  # another compiler, which rounds otherwise
        for ours, theirs in zip(got, scores, strict=True):
            for name, values in theirs.items():
                np.testing.assert_allclose(ours[name], values, rtol=1e-4)


def test_code_without_the_entry_runs_batch_by_batch(ran: list[int], one_by_one: Any,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_call, "STEPS_ENTRY", "{}_of_no_artifact")
    assert histories(compiled()) == one_by_one[1] and ran == []


def test_python_wakes_in_between(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "TRIAL_SECONDS", 1.0)
    program = compiled()
    program.fit(X, Y, verbose=0)
    monkeypatch.setattr(steps, "WAKE_SECONDS", 0.0)
    program.fit(X, Y, verbose=0)
    assert ran == [6, *[1] * 6]


def test_hooks_of_batches_are_called_for_each(ran: list[int]) -> None:
    called: list[int] = []
    compiled().fit(X, Y, verbose=0, callbacks=LambdaCallback(
        on_train_batch_end=lambda k, logs: called.append(k)))
    assert called == [*range(7)] and ran == []


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_loss_that_is_not_finite_ends_the_stretch(shuffle: bool, ran: list[int],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    x = {**X, "wide": X["wide"].copy()}
    x["wide"][29, 3] = np.nan
    messages = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr(HostSteps, "of", classmethod(lambda *_: None))
        with pytest.raises(NonFiniteLoss) as caught:
            compiled().fit(x, Y, verbose=0, shuffle=shuffle)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "is not finite: clean the data" in messages[0]
    assert len(ran) == 1 and (shuffle or ran == [4])
    history = compiled().fit(x, Y, verbose=0, shuffle=shuffle, nan="ignore").history
    assert np.isnan(history["loss"])


def test_ctrl_c_is_heard_within_a_stretch(ran: list[int]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    many = {name: np.repeat(array, 2000, 0) for name, array in X.items()}, {
        name: np.repeat(array, 2000, 0) for name, array in Y.items()}
    program = compiled()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    try:
        timer.start()
        history = program.fit(*many, epochs=10_000, verbose=0)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert history.interrupted and time.monotonic() - begun < 5
    assert sum(ran) > 100


def test_a_thread_that_predicts_is_not_starved() -> None:
    program, begun, ended = compiled(), threading.Event(), threading.Event()

    def predict() -> None:
        begun.wait(10)
        for _ in range(3):
            program.predict(X, verbose=0)
        program.stop_training = True
        ended.set()

    many = {name: np.repeat(array, 2000, 0) for name, array in X.items()}, {
        name: np.repeat(array, 2000, 0) for name, array in Y.items()}
    threading.Thread(target=predict).start()
    program.fit(*many, epochs=400, verbose=0,
                callbacks=LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.set()))
    assert program.stop_training and ended.wait(10)


def test_the_fastest_number_of_workers_is_measured_repeatedly() -> None:
    seconds = {1: 20e-6, 2: 12e-6}
    trials, chosen = WorkerTrials(rule=1, most=2, cycles=70_000, guess=1e-4), []
    for turn in range(60):
        if turn == 20:
            seconds[2] = 300e-6  # other programs keep its core busy
        whole = 1e-3 if trials.trial else 0.05
        chosen.append((trials.workers, whole))
        trials.record(seconds[trials.workers], whole)
    assert [w for w, _ in chosen[:4]] == [1, 2, 2, 2] and chosen[3][1] == 0.05
    assert {w for w, whole in chosen[24:] if whole == 0.05} == {1}
    slow = sum(whole for w, whole in chosen[24:] if w == 2)
    assert 0 < slow < 0.03 * sum(whole for _, whole in chosen[24:])
    assert WorkerTrials(2, 2, 1e9, 1.0)._untried == []  # large steps follow the rule
    assert WorkerTrials(2, 2, 1e9, 1.0, runs=20_000)._untried == [1]  # unless workers meet all the time
    assert WorkerTrials(4, 4, 70_000, 1e-4)._untried == [2, 1]  # one more worker for each 40,000 cycles


def test_a_trial_of_single_calls_outlasts_the_waking_of_workers() -> None:
    """The first runs of a number of workers wait for those that sleep; they are not the verdict."""
    trials = WorkerTrials(rule=1, most=2, cycles=70_000, guess=0.0, single=True)
    for seconds in (*[2e-5] * 450, *[3e-4] * 10, *[1e-5] * 450):
        trials.record(seconds, seconds)
    assert trials.workers == 2


@pytest.mark.parametrize("seconds", [2e-5, 3e-3, 0.2])
def test_one_delayed_call_decides_no_trial(seconds: float) -> None:
    trials, chosen = WorkerTrials(2, 2, 3e7, 0.0, single=True), list[int]()
    for call in range(4000):
        chosen.append(trials.workers)
        trials.record(x := seconds * (1.4 if trials.workers == 1 else 1.0) + 8e-3 * (call == 2), x)
        if len(set(chosen)) == 2 and not trials.trial:
            break
    assert trials.workers == 2 and chosen.count(1) < 1000


def test_a_disturbed_first_trial_is_repeated_soon() -> None:
    """The system may take a second to give workers that have just started cores of their own."""
    trials = WorkerTrials(rule=2, most=2, cycles=3e7, guess=0.0, single=True)
    chosen = []
    for call in range(250):
        chosen.append(trials.workers)
        trials.record(x := 5e-3 if trials.workers == 1 else 8e-3 if call < 20 else 3e-3, x)
    assert chosen[20] == 1 and trials.workers == 2
    assert chosen[-100:].count(1) < 10


def test_a_number_that_was_once_faster_is_tried_again_soon() -> None:
    """A disturbed trial, after better ones, does not keep it out for long."""
    trials = WorkerTrials(rule=2, most=2, cycles=3e7, guess=0.0, single=True)
    chosen = []
    for call in range(3000):
        chosen.append(trials.workers)
        disturbed = trials.workers == 2 and 600 <= call < 1100
        trials.record(x := 2e-3 if trials.workers == 1 else 9e-3 if disturbed else 1e-3, x)
    assert chosen[600:1100].count(1) > 400 and chosen[2000:].count(1) < 100


def test_single_calls_are_judged_by_their_usual_time() -> None:
    """Two workers that are fast now and then, while others use their core, are slower than one."""
    trials = WorkerTrials(rule=2, most=2, cycles=70_000, guess=0.0, single=True)
    took = {1: (3e-5,), 2: (2e-5, 9e-5, 9e-5)}

    def after(calls: int) -> int:
        for k in range(calls):
            trials.record(x := took[trials.workers][k % len(took[trials.workers])], x)
        return trials.workers

    assert after(1000) == 1
    took[1] = (1.5e-4, 3e-5, 1.5e-4)  # now one has the busy core
    assert after(4000) == 2


def test_calls_between_timed_ones_run_by_the_chosen_number(monkeypatch: Any) -> None:
    monkeypatch.setattr(native_call, "perf_counter", count(0.0, 1e-5).__next__)
    program = build({"call": Graph({"y": leaf("input", "x", (64, 64), f32) * 2.0})}, "cpu", "t", 2, "float32", True)
    call = program.bind("call")
    native = call._native
    trials = native.call_trials = WorkerTrials(rule=2, most=2, cycles=70_000, guess=0.0, single=True)
    native.workers = 2
    for seconds in (*[3e-5] * 300, *[2e-5] * 400):  # by two workers, then by one
        trials.record(seconds, seconds)
    assert trials.workers == 1 and trials.untimed == 25  # half a millisecond
    trials.untimed = 0
    call.run()
    assert native.workers == 1
    trials.untimed = 3
    timed = trials._elapsed
    for _ in range(3):
        call.run()
    assert trials._elapsed == timed and native.workers == 1
    call.run()
    assert trials._elapsed > timed


def test_a_run_by_one_worker_does_not_wake_the_others() -> None:
    """After a shared run, too: it would share the work outside of the pool's lock."""
    x = np.ones((64, 64), np.float32)
    program = build({"call": Graph({"y": leaf("input", "x", x.shape, f32) * 2.0})}, "cpu", "t", 2, "float32", True)
    call = program.bind("call")
    call.inputs["x"][...] = x
    call.workers = 2
    call.run()
    block = workers(2, program.library).block.copy()
    call.workers = 1
    call.run()
    assert workers(2, program.library).block["generation"] == block["generation"]
    np.testing.assert_array_equal(call.outputs["y"], 2 * x)
