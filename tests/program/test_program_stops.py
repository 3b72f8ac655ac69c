"""Programs under errors, Ctrl-C and threads, and the cost of the loop."""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.numpy_executable import NullCall
from tests.programs import ON, classifier, compiled, flowers, regressor, same_states
from ztorch import layers as L
from ztorch.callbacks import LambdaCallback
from ztorch.errors import ConfigError, NonFiniteLoss
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD
from ztorch.program.program import Program

numpy_only = pytest.mark.skipif(ON != "numpy", reason="looks inside the NumPy executable")


# -- errors ----------------------------------------------------------------------------------------


def test_a_program_that_only_predicts_says_how_to_train() -> None:
    model = Sequential([L.Input((4,)), L.Dense(3)], name="net")
    program = compiled(model, 8)
    x, y = flowers(4)
    assert program.predict(x).shape == (4, 3)
    with pytest.raises(ConfigError, match=r"'net' cannot train.*loss= and optimizer="):
        program.fit(x, y)
    with pytest.raises(ConfigError, match=r"cannot evaluate.*loss="):
        program.evaluate(x, y)


@functools.cache
def untrained() -> Program:
    return classifier()


@pytest.mark.cheap
@pytest.mark.parametrize(("arguments", "message"), [
    ({"batch_size": 16}, "compiled for 8 rows"),
    ({"batch_size": 0}, "positive integer"),
    ({"batch_size": -3}, "positive integer"),
    ({"epochs": -1}, "epochs=-1"),
    ({"verbose": 7}, "verbose=7"),
    ({"nan": "maybe"}, "'stop' or 'ignore'"),
    ({"validation_split": 1.0}, "from 0 to 1, below 1, not 1.0"),
    ({"validation_split": 0.999}, "leaves one side empty"),
    ({"steps_per_epoch": 0}, "steps_per_epoch=0"),
    ({"validation_freq": 0}, "validation_freq=0"),
    ({"initial_epoch": -1}, "initial_epoch=-1"),
    ({"callbacks": [print]}, "not a ztorch.callbacks.Callback"),
    ({"callbacks": [LambdaCallback]}, r"add \(\)"),
])
def test_impossible_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        untrained().fit(*flowers(16), **arguments)


def test_the_same_batch_size_may_be_repeated() -> None:
    program = classifier()
    program.fit(*flowers(16), batch_size=8, verbose=0)
    program.predict(flowers(3)[0], batch_size=8)


def test_a_loss_that_is_not_finite_stops_with_advice() -> None:
    x, y = flowers(40)
    x[19] = np.nan
    program = classifier()
    with pytest.raises(NonFiniteLoss, match=(
            r"nan in epoch 1, step 3; try: row 3 of this batch of x is not finite.*"
            r"learning rate \(it is 0.001\)")) as caught:
        program.fit(x, y, shuffle=False, verbose=0)
    assert caught.value.history is program.history  # type: ignore[attr-defined]


def test_the_history_before_a_bad_loss_is_kept() -> None:
    x = np.random.default_rng(0).normal(size=(32, 2)) * 50
    program = regressor(optimizer=SGD(1.0))
    ended = []
    with pytest.raises(NonFiniteLoss, match="scale it to about 1"):
        program.fit(x, x.sum(1), epochs=50, verbose=0,
                    callbacks=LambdaCallback(on_train_end=lambda logs: ended.append(1)))
    assert 0 < len(program.history.history["loss"]) < 50 and ended == [1]
    again = regressor(optimizer=SGD(1.0))
    history = again.fit(x, x.sum(1), epochs=50, verbose=0, nan="ignore")
    assert len(history.epoch) == 50 and not np.isfinite(history.history["loss"][-1])


# -- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_stops_after_the_step_and_keeps_the_weights(
        capsys: pytest.CaptureFixture[str]) -> None:
    x, y = flowers()
    program = classifier()
    steps = []

    def press(batch: int, logs: dict) -> None:
        steps.append(batch)
        if len(steps) == 11:
            signal.raise_signal(signal.SIGINT)

    history = program.fit(x, y, epochs=5, verbose=0,
                          callbacks=LambdaCallback(on_train_batch_end=press))
    assert history.interrupted and history.epoch == [0] and len(steps) == 11
    assert "Interrupted in epoch 2 after step 3" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    expected = classifier()
    expected.fit(x, y, verbose=0)
    expected.fit(x, y, epochs=2, initial_epoch=1, verbose=0, steps_per_epoch=8, callbacks=(
        LambdaCallback(on_train_batch_end=lambda b, logs: setattr(
            expected, "stop_training", b == 2))))
    assert same_states(program, expected)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_twice_raises() -> None:
    def press(batch: int, logs: dict) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        classifier().fit(*flowers(), verbose=0,
                         callbacks=LambdaCallback(on_train_batch_end=press))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heard")
def test_ctrl_c_in_validation_keeps_the_epoch() -> None:
    x, y = flowers()
    history = classifier().fit(
        x, y, epochs=3, verbose=0, validation_data=(x, y),
        callbacks=LambdaCallback(on_test_begin=lambda logs: signal.raise_signal(signal.SIGINT)))
    assert history.interrupted and list(history.history) == ["loss", "accuracy"]


# -- threads ---------------------------------------------------------------------------------------


def test_many_threads_predict_at_once() -> None:
    program = classifier()
    x, _ = flowers(100)
    expected = program.predict(x)
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not np.array_equal(program.predict(x[k:k + 30]), expected[k:k + 30]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(0, 60, 10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_fit_in_a_thread_and_one_fit_at_a_time() -> None:
    x, y = flowers()
    program = classifier()
    refused = []

    def nested(epoch: int, logs: dict) -> None:
        with pytest.raises(ConfigError, match="already being trained"):
            program.fit(x, y, verbose=0)
        refused.append(epoch)

    thread = threading.Thread(target=lambda: program.fit(
        x, y, verbose=0, callbacks=LambdaCallback(on_epoch_end=nested)))
    thread.start()
    thread.join()
    assert refused == [0]
    program.fit(x, y, verbose=0)


# -- cost ------------------------------------------------------------------------------------------


@numpy_only
def test_the_loop_costs_microseconds_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    program = classifier(32)
    bind = program.executable.bind
    monkeypatch.setattr(program.executable, "bind", lambda f: NullCall(bind(f)))  # type: ignore
    x, y = np.zeros((32 * 3000, 4), np.float32), np.zeros(32 * 3000, np.int32)
    best = 1.0
    for _ in range(3):
        start = time.thread_time()  # not the clock: others may work on this machine
        program.fit(x, y, verbose=0)
        best = min(best, (time.thread_time() - start) / 3000)
    assert best < 30e-6  # about 3


def test_summary_and_repr(capsys: pytest.CaptureFixture[str]) -> None:
    program = classifier()
    program.summary()
    printed = capsys.readouterr().out
    assert "hidden (Dense)" in printed and "(8, 3)" in printed and "predict, train" in printed
    assert repr(program).startswith("<Program flowers on ")
