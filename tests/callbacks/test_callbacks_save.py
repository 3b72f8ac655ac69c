"""Callbacks that save, log, average weights and change the learning rate."""

from __future__ import annotations

import csv
import io
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.callbacks.scripted import Scripted, X, Y, run
from tests.programs import classifier, regressor
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import ConfigError
from ztorch.optimizers import SGD

# -- ModelCheckpoint -------------------------------------------------------------------------------


def test_checkpoint_names(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "{epoch:02d}-{val_loss:.2f}.safetensors")
    run([Scripted(val_loss=[1.5, 0.254]), C.ModelCheckpoint(path)], 2, validation_data=(X, Y))
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "01-1.50.safetensors", "02-0.25.safetensors"]
    run(C.ModelCheckpoint(str(tmp_path / "b{epoch}-{val_loss}.ckpt")), 1)
    assert (tmp_path / "b1-na.ckpt").exists()
    for bad, message in (("{val_los}", "names 'val_los'. Known: .*val_loss"),
                         ("{epoch.__class__}", "names 'epoch.__class__'"),
                         ("{val_loss:02d}", "Unknown format"), ("{epoch", "filepath")):
        with pytest.raises(ConfigError, match=message):
            run(C.ModelCheckpoint(str(tmp_path / f"{bad}.ckpt")), 1)


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
    run(C.ModelCheckpoint(tmp_path / "{epoch}-{batch}.safetensors", save_freq=5, save_weights_only=True), 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "1-5.safetensors", "2-2.safetensors", "2-7.safetensors"]
    with pytest.raises(ConfigError, match="save_freq"):
        C.ModelCheckpoint("x.ckpt", save_freq=0)


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


def test_running_means_of_weights_in_validation_and_at_the_end() -> None:
    """With one step an epoch, as the formula says; validation measures the means."""
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    y, seen = x.sum(1, keepdims=True), []
    made = zt.Sequential([L.Input((4,)), L.Dense(1)])
    program = made.compile("cpu:scalar", batch_size=8, loss="mse",
                           optimizer=zt.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    first = program.get_weights()[0]
    program.swap_averages()
    np.testing.assert_array_equal(program.get_weights()[0], first)  # there are no means before the first step
    keep = C.LambdaCallback(on_epoch_end=lambda e, logs: seen.append(
        [program.get_weights()[0], logs["val_loss"]]))
    program.fit(x, y, epochs=3, verbose=0, validation_data=(x, y), callbacks=[
        C.SwapEMAWeights(), keep])
    mean = seen[0][0]
    for weights, _ in seen[1:]:
        mean = 0.5 * mean + 0.5 * weights
    np.testing.assert_allclose(program.get_weights()[0], mean, rtol=1e-6)
    assert program.evaluate(x, y, verbose=0) == seen[2][1]
    with pytest.raises(ConfigError, match=r"no moving averages of weights; .*Adam\(use_ema=True\)"):
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
    with pytest.warns(UserWarning, match=r"http://absent did not accept the scores of epoch 1: .*nobody there"):
        C.RemoteMonitor("http://absent").on_epoch_end(0, {})
    with pytest.raises(ConfigError, match="must start with http"):
        C.RemoteMonitor("localhost")


def test_a_backup_into_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        C.BackupAndRestore(tmp_path / "b").on_train_begin()
    for wrong in (0, -1, "batch", 1.5):
        with pytest.raises(ConfigError, match="save_freq="):
            C.BackupAndRestore(tmp_path / "c", save_freq=wrong)
    assert C.BackupAndRestore(tmp_path / "c", save_freq=1).save_freq == 1


def test_misspelled_hooks_are_named() -> None:
    with pytest.warns(UserWarning, match="Mine defines on_epoch_ends, .* did you mean 'on_epoch_end'"):
        type("Mine", (C.Callback,), {"on_epoch_ends": lambda self, epoch, logs=None: None})
