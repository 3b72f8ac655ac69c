"""Callbacks, each compared with Keras' callback."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.callbacks.scripted import Scripted, X, Y, run
from tests.programs import classifier, flowers
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.callbacks.monitors import Monitor
from ztorch.errors import ConfigError, FileError

os.environ.setdefault("KERAS_BACKEND", "torch")  # for the tests that compare with Keras


def test_hooks_run_in_keras_order() -> None:
    seen: list[str] = []

    class Spy(C.Callback):
        pass

    for name in ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end",
                 "on_test_begin", "on_test_end", "on_epoch_end", "on_train_end"):
        setattr(Spy, name, lambda self, *a, _n=name: seen.append(_n[3:]))
    program = classifier(32)
    program.fit(X, Y, epochs=2, validation_data=(X, Y), callbacks=[Spy()], verbose=0)
    step = ["train_batch_begin", "train_batch_end"]
    epoch = ["epoch_begin", *step, *step, "test_begin", "test_end", "epoch_end"]
    assert seen == ["train_begin", *epoch, *epoch, "train_end"]


def test_hooks_of_evaluate_and_predict() -> None:
    seen: list[tuple[str, Any]] = []
    hooks = {f"on_{verb}{of}_{when}": lambda *a, n=f"{verb}{of}_{when}": seen.append((n, a))
             for verb in ("test", "predict") for of in ("", "_batch") for when in ("begin", "end")}
    spy, program = C.LambdaCallback(**hooks), classifier(32)
    want = program.evaluate(X, Y, verbose=0, return_dict=True)
    assert program.evaluate(X, Y, verbose=0, return_dict=True, callbacks=spy) == want
    order = ["begin", *["batch_begin", "batch_end"] * 2, "end"]
    assert [name for name, _ in seen] == [f"test_{name}" for name in order]
    assert [a[0] for name, a in seen if "batch_end" in name] == [0, 1]
    assert seen[-2][1][1] == seen[-1][1][0] == want
    seen.clear()
    outputs = program.predict(X)
    np.testing.assert_array_equal(program.predict(X, callbacks=[spy]), outputs)
    assert [name for name, _ in seen] == [f"predict_{name}" for name in order]
    np.testing.assert_array_equal(np.concatenate(
        [a[1]["outputs"] for name, a in seen if "batch_end" in name]), outputs)
    np.testing.assert_array_equal(program.predict(X, steps=1), outputs[:32])


def test_a_full_disk_behind_a_log_is_named(tmp_path: Path) -> None:
    log = C.CSVLogger(tmp_path / "log.csv")

    def fill(epoch: int, logs: Any) -> None:
        log._file = open("/dev/full", "w")  # noqa: SIM115

    x, y = flowers()
    with pytest.raises(FileError, match=r"cannot write '.*log\.csv': No space left on device"):
        classifier().fit(x, y, verbose=0, callbacks=[log, C.LambdaCallback(on_epoch_begin=fill)])


def test_hooks_that_nothing_calls() -> None:
    class Keras(C.Callback):
        on_line = True

        def on_batch_finish(self, batch: int, logs: Any = None) -> None:
            raise AssertionError

    x, y = flowers()
    with pytest.warns(UserWarning) as seen:
        classifier().fit(x, y, verbose=0, callbacks=[Keras()])
    [ours] = [w for w in seen if issubclass(w.category, UserWarning)]
    assert str(ours.message).startswith("nothing calls Keras.on_batch_finish; did you mean 'on_")
    assert ours.filename == __file__


def test_attributes_of_a_callback() -> None:
    class Spy(C.Callback):
        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            assert logs is not None
            logs["extra"] = epoch * 2.0
            assert self.model is self.program and self.program.epoch == epoch + 1
            assert self.params["epochs"] == 2 and self.params["steps"] == 8
            assert "val_accuracy" in self.params["metrics"]

    _, history = run(Spy(), 2)
    assert history.history["extra"] == [0.0, 2.0]


@pytest.mark.parametrize("batch_size", [8, 4])  # that of compile, and another
def test_the_model_of_a_callback_has_the_trained_weights(batch_size: int) -> None:
    x = np.random.default_rng(0).normal(size=(24, 3)).astype("f")
    y = x.sum(1, keepdims=True)
    rates = []

    class Watch(C.Callback):
        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            kernel, bias = self.model.get_weights()
            same = np.testing.assert_allclose
            same(self.model.predict(x[:5]), x[:5] @ kernel + bias, rtol=1e-5)
            hidden = zt.Model(self.model.inputs, self.model.get_layer("dense").output)
            same(hidden.predict(x[:5]), x[:5] @ kernel + bias, rtol=1e-5)
            same(self.model.evaluate(x, y), np.square(x @ kernel + bias - y).mean(), rtol=1e-4)
            rates.append(self.model.optimizer.learning_rate)
            self.model.optimizer.learning_rate = 0.05
            self.model.stop_training = epoch == 2

    model = zt.Sequential([L.Input((3,)), L.Dense(1)])
    model.compile("cpu:scalar", batch_size=8, optimizer=zt.optimizers.SGD(0.1, momentum=0.5), loss="mse")
    watch = Watch()
    losses = model.fit(x, y, batch_size=batch_size, epochs=9, callbacks=watch, verbose=0).history["loss"]
    assert watch.model is model and len(losses) == 3 and losses[2] < 0.1 * losses[0]
    assert rates == pytest.approx([0.1, 0.05, 0.05])
    after = model.fit(x, y, batch_size=batch_size, epochs=1, verbose=0).history["loss"]
    assert after[0] < losses[2]


def test_batch_logs_are_means_so_far() -> None:
    logs: list[dict] = []
    _, history = run(C.LambdaCallback(on_train_batch_end=lambda b, seen: logs.append(seen)), 1)
    assert len(logs) == 8 and logs[-1]["loss"] == history.history["loss"][0]


def test_changes_smaller_than_min_delta_are_no_improvement() -> None:
    for sign, mode in ((1, "max"), (-1, "min")):
        monitor = Monitor("score", mode, min_delta=0.5)
        assert [monitor.better(sign * x, than=sign * 2.0) for x in (1.0, 2.25, 2.5, 2.75)] == [
            False, False, False, True]


# -- EarlyStopping ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("course", "arguments", "epochs"), [
    ([5, 4, 3, 3, 3, 3, 3, 3, 3, 3], {"patience": 2}, 5),
    ([5, 4, 3, 3, 3, 3, 3, 3, 3, 3], {"patience": 0}, 4),
    ([5, 6, 4, 6, 6, 6, 3, 3, 3, 3], {"patience": 3}, 6),
    ([5, 4.9, 4.8, 4.7, 4, 3, 2, 1, 0, 0], {"patience": 2, "min_delta": 0.5}, 3),
    ([1, 2, 3, 3, 3, 3, 3, 3, 3, 3], {"patience": 2, "mode": "max"}, 5),
    ([9, 9, 9, 9, 9, 9, 9, 9, 9, 9], {"patience": 2, "start_from_epoch": 4}, 7),
    ([5, 4.5, 4.2, 4.1, 1, 1, 1, 1, 1, 1], {"patience": 3, "baseline": 4.0}, 8),
    ([float("nan")] * 10, {"patience": 2}, 2),
])
def test_early_stopping(course: list[float], arguments: dict, epochs: int) -> None:
    stop = C.EarlyStopping("score", **arguments)
    _, history = run([Scripted(score=course), stop])
    assert len(history.epoch) == epochs
    pytest.importorskip("torch")
    keras = pytest.importorskip("keras").callbacks.EarlyStopping(
        "score", **{"mode": "min", **arguments})
    program = type("Model", (), {"stop_training": False, "metrics": []})()
    keras.set_model(program)
    keras.on_train_begin()
    for epoch, value in enumerate(course):
        if np.isnan(value):
            return  # Keras takes a first NaN for the best value
        keras.on_epoch_end(epoch, {"score": value})
        if program.stop_training:
            break
    assert epoch + 1 == epochs


def test_early_stopping_restores_the_best_weights(capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[Any] = []
    keep = C.LambdaCallback(on_epoch_end=lambda e, logs: kept.append(program.get_weights()))
    program = classifier()
    stop = C.EarlyStopping("val_loss", patience=2, restore_best_weights=True, verbose=1)
    run([Scripted(val_loss=[3, 1, 2, 2, 2]), keep, stop], 5, program=program,
        validation_data=(X, Y))
    assert len(kept) == 4
    assert all(np.array_equal(a, b) for a, b in zip(kept[1], program.get_weights(), strict=True))
    printed = capsys.readouterr().out
    assert "Epoch 4: early stopping" in printed and "best epoch: 2" in printed
    run(stop, 1, program=program, validation_data=(X, Y))  # and may be used again


def test_an_unknown_monitor_warns_once_with_the_known_names() -> None:
    with pytest.warns(UserWarning, match="watches 'val_loss'.*pass validation_data.*"
                                         "Known: accuracy, loss$") as caught:
        run(C.EarlyStopping(), 3)
    # Nothing but ours counts: garbage of other tests may be collected here, with warnings of its own.
    assert [w.category for w in caught if "watches" in str(w.message)] == [UserWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(C.EarlyStopping(patience=9), 3, validation_data=(X, Y), validation_freq=2)


def test_terminate_on_nan_stops_quietly() -> None:
    x = X.copy()
    x[30] = np.nan
    program = classifier()
    history = program.fit(x, Y, epochs=5, shuffle=False, verbose=0, callbacks=C.TerminateOnNaN())
    assert len(history.epoch) == 1 and program.stop_training


def test_lambda_callback_checks_its_hooks() -> None:
    with pytest.raises(ConfigError, match=r"no on_epoch_stop; did you mean .on_epoch_end.*Known"):
        C.LambdaCallback(on_epoch_stop=print)


@pytest.mark.parametrize("make", [
    lambda: C.EarlyStopping(mode="up"), lambda: C.ReduceLROnPlateau(factor=1.0),
])
def test_impossible_arguments(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_bar_shows_an_evaluation_but_not_the_validation_of_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    bar = C.ProgbarLogger()

    def evaluation(loss: float) -> str:
        bar.on_test_begin()
        for batch in range(3):
            bar.on_test_batch_end(batch, {"loss": loss})
        bar.on_test_end({"loss": loss})
        return capsys.readouterr().out

    bar.set_params({"verbose": 2, "steps": 3, "epochs": 1})
    line = evaluation(0.5)
    assert line.startswith("3/3 - ") and line.endswith("loss: 0.5000\n") and line.count("\n") == 1
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    assert evaluation(0.5) == ""
    bar.on_epoch_end(0, {"loss": 0.25})
    bar.on_train_end()
    assert "loss: 0.2500" in capsys.readouterr().out
    assert "loss: 0.1250" in evaluation(0.125)
