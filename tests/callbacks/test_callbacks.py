"""Callbacks, each against what Keras does."""

from __future__ import annotations

import csv
import io
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, regressor
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import ConfigError, FileError
from ztorch.optimizers import SGD

os.environ.setdefault("KERAS_BACKEND", "torch")  # for the tests that compare with Keras
X, Y = flowers()


class Scripted(C.Callback):
    """Overwrites what an epoch measured, so that other callbacks see a known course."""

    order = -1

    def __init__(self, **values: Sequence[float]):
        self.values = values

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        assert logs is not None
        logs.update({k: v[epoch] for k, v in self.values.items()})


def run(callbacks: Any, epochs: int = 10, **how: Any) -> Any:
    program = how.pop("program", None) or classifier()
    return program, program.fit(X, Y, epochs=epochs, verbose=0, callbacks=callbacks, **how)


def test_hooks_run_in_keras_order() -> None:
    seen: list[str] = []

    class Spy(C.Callback):
        pass

    for name in ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end",
                 "on_test_begin", "on_test_end", "on_epoch_end", "on_train_end"):
        setattr(Spy, name, lambda self, *a, _n=name: seen.append(_n[3:]))
    classifier(32).fit(X, Y, epochs=2, validation_data=(X, Y), callbacks=[Spy()], verbose=0)
    step = ["train_batch_begin", "train_batch_end"]
    epoch = ["epoch_begin", *step, *step, "test_begin", "test_end", "epoch_end"]
    assert seen == ["train_begin", *epoch, *epoch, "train_end"]


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
    assert str(ours.message).partition("?")[0] == (
        "fit never calls Keras.on_batch_finish; did you mean 'on_train_batch_begin'")
    assert ours.filename == __file__


def test_what_a_callback_knows() -> None:
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
def test_the_model_of_a_callback_has_what_was_learned(batch_size: int) -> None:
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


# -- ModelCheckpoint -------------------------------------------------------------------------------


def test_checkpoint_names(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "{epoch:02d}-{val_loss:.2f}.safetensors")
    run([Scripted(val_loss=[1.5, 0.254]), C.ModelCheckpoint(path)], 2, validation_data=(X, Y))
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "01-1.50.safetensors", "02-0.25.safetensors"]
    run(C.ModelCheckpoint(str(tmp_path / "b{epoch}-{val_loss}")), 1)
    assert (tmp_path / "b1-na").exists()
    for bad, message in (("{val_los}", "names 'val_los'. Known: .*val_loss"),
                         ("{epoch.__class__}", "names 'epoch.__class__'"),
                         ("{val_loss:02d}", "Unknown format"), ("{epoch", "filepath")):
        with pytest.raises(ConfigError, match=message):
            run(C.ModelCheckpoint(str(tmp_path / bad)), 1)


def test_only_the_best_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "best.safetensors"
    program = classifier()
    kept: list[Any] = []
    keep = C.LambdaCallback(on_epoch_end=lambda e, logs: kept.append(program.get_weights()))
    best = C.ModelCheckpoint(path, "score", save_best_only=True, save_weights_only=True,
                             mode="max", verbose=1)
    run([Scripted(score=[1, 3, 2]), keep, best], 3, program=program)
    program.load_weights(path)
    assert all(np.array_equal(a, b) for a, b in zip(kept[1], program.get_weights(), strict=True))
    assert "score improved from 1.0000 to 3.0000" in capsys.readouterr().out


def test_a_resumed_run_does_not_replace_a_better_file(tmp_path: Path) -> None:
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    program = classifier()
    saver = C.ModelCheckpoint(best, "score", save_best_only=True)
    run([Scripted(score=[1, 2]), saver, C.ModelCheckpoint(last)], 2, program=program)
    before = best.read_bytes()
    resumed = classifier()
    resumed.load_checkpoint(last)
    saver = C.ModelCheckpoint(best, "score", save_best_only=True)
    run([Scripted(score=[0, 0, 1.5, 1.2]), saver], 4, program=resumed)
    assert best.read_bytes() == before


def test_saving_every_few_batches(tmp_path: Path) -> None:
    run(C.ModelCheckpoint(tmp_path / "{epoch}-{batch}", save_freq=5, save_weights_only=True), 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1-5", "2-2", "2-7"]
    with pytest.raises(ConfigError, match="save_freq"):
        C.ModelCheckpoint("x", save_freq=0)


def test_a_zt_path_saves_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = classifier()
    saved: list[str] = []
    monkeypatch.setattr(type(program), "save", lambda self, path: saved.append(path))
    run(C.ModelCheckpoint(tmp_path / "m.zt"), 1, program=program)
    assert saved == [str(tmp_path / "m.zt")]


# -- learning rates --------------------------------------------------------------------------------


def test_reduce_on_plateau_as_keras_does() -> None:
    course = [5, 4, 4, 4, 4, 4, 3, 3, 3, 3]
    how: dict[str, Any] = {"factor": 0.5, "patience": 2, "cooldown": 1, "min_lr": 0.2,
                           "mode": "min"}
    program = regressor(optimizer=SGD(1.0))
    rates = []
    program.fit(np.zeros((8, 2)), np.zeros(8), epochs=10, verbose=0, callbacks=[
        Scripted(score=course), C.ReduceLROnPlateau("score", **how),
        C.LambdaCallback(on_epoch_end=lambda e, logs: rates.append(program.learning_rate))])
    pytest.importorskip("torch")
    keras = pytest.importorskip("keras")
    theirs = keras.callbacks.ReduceLROnPlateau("score", **how)
    model = type("Model", (), {"metrics": [], "optimizer": keras.optimizers.SGD(1.0)})()
    theirs.set_model(model)
    theirs.on_train_begin()
    expected = []
    for epoch, value in enumerate(course):
        theirs.on_epoch_end(epoch, {"score": value})
        expected.append(float(model.optimizer.learning_rate))
    assert rates == pytest.approx(expected)
    assert rates[-1] == pytest.approx(0.2)


def test_schedules_and_their_trace() -> None:
    program, history = run(C.LearningRateScheduler(lambda e, rate: rate / 2), 3)
    assert history.history["learning_rate"] == pytest.approx([5e-4, 2.5e-4, 1.25e-4])
    assert program.learning_rate == pytest.approx(1.25e-4)


# -- the others ------------------------------------------------------------------------------------


def test_csv_log(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    program, history = run(C.CSVLogger(path), 2, validation_data=(X, Y), validation_freq=2)
    run(C.CSVLogger(path, append=True), 3, program=program, initial_epoch=2,
        validation_data=(X, Y))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [r["epoch"] for r in rows] == ["0", "1", "2"]
    assert list(rows[0]) == ["epoch", "loss", "accuracy", "val_loss", "val_accuracy"]
    assert rows[0]["val_loss"] == "NA" and float(rows[1]["loss"]) == history.history["loss"][1]
    run(C.CSVLogger(path, separator=";"), 1)
    assert path.read_text().splitlines()[0] == "epoch;loss;accuracy"


def test_terminate_on_nan_stops_quietly() -> None:
    x = X.copy()
    x[30] = np.nan
    program = classifier()
    history = program.fit(x, Y, epochs=5, shuffle=False, verbose=0, callbacks=C.TerminateOnNaN())
    assert len(history.epoch) == 1 and program.stop_training


def test_lambda_callback_knows_its_hooks() -> None:
    with pytest.raises(ConfigError, match=r"no on_epoch_stop; did you mean .on_epoch_end.*Known"):
        C.LambdaCallback(on_epoch_stop=print)


@pytest.mark.parametrize("make", [
    lambda: C.EarlyStopping(mode="up"), lambda: C.ReduceLROnPlateau(factor=1.0),
])
def test_impossible_arguments(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_running_means_of_weights_in_validation_and_at_the_end() -> None:
    """With one step an epoch, as the formula says; validation measures the means."""
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    y, seen = x.sum(1, keepdims=True), []
    made = zt.Sequential([L.Input((4,)), L.Dense(1)])
    program = made.compile("cpu:scalar", batch_size=8, loss="mse",
                           optimizer=zt.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    keep = C.LambdaCallback(on_epoch_end=lambda e, logs: seen.append(
        [program.get_weights()[0], logs["val_loss"]]))
    program.fit(x, y, epochs=3, verbose=0, validation_data=(x, y), callbacks=[
        C.SwapEMAWeights(), keep])
    mean = seen[0][0]
    for weights, _ in seen[1:]:
        mean = 0.5 * mean + 0.5 * weights
    np.testing.assert_allclose(program.get_weights()[0], mean, rtol=1e-6)
    assert program.evaluate(x, y, verbose=0) == seen[2][1]
    with pytest.raises(ConfigError, match=r"no running means of weights; .*Adam\(use_ema=True\)"):
        made.compile("cpu:scalar", batch_size=8, loss="mse", optimizer="sgd").swap_averages()


def test_scores_are_sent_to_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form, or JSON; a server that is not there costs a warning."""
    sent: list[urllib.request.Request] = []

    def urlopen(request: urllib.request.Request, timeout: float) -> Any:
        sent.append(request)
        if "absent" in request.full_url:
            raise urllib.error.URLError("nobody there")
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    for as_json in (False, True):
        monitor = C.RemoteMonitor("http://here", headers={"X-run": "7"}, send_as_json=as_json)
        monitor.on_epoch_end(3, {"loss": np.float32(0.5)})
    form, as_json = sent
    for request in sent:
        assert (request.full_url, request.get_method()) == ("http://here/publish/epoch/end/", "POST")
        assert request.get_header("X-run") == "7"
    assert json.loads(as_json.data) == {"epoch": 3, "loss": 0.5}
    assert as_json.get_header("Content-type") == "application/json"
    assert urllib.parse.parse_qs(form.data.decode())["data"] == [as_json.data.decode()]
    with pytest.warns(UserWarning, match=r"http://absent did not take the scores of epoch 1: .*nobody there"):
        C.RemoteMonitor("http://absent").on_epoch_end(0, {})
    with pytest.raises(ConfigError, match="must begin with http"):
        C.RemoteMonitor("localhost")
