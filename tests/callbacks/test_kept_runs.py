"""Callbacks that keep a run: backups, files of Keras, TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, same_states
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported, WeightsError

X, Y = flowers()


class Stops(C.Callback):
    """The machine goes down in an epoch."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.program.epoch == self.epoch and batch == 1:
            raise RuntimeError("down")


@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_an_interrupted_run_resumes(tmp_path: Path, save_freq: Any) -> None:
    whole, broken, again = classifier(), classifier(), classifier()
    history = whole.fit(X, Y, epochs=4, verbose=0)
    backup = C.BackupAndRestore(tmp_path / "b", save_freq=save_freq)
    with pytest.raises(RuntimeError, match="down"):
        broken.fit(X, Y, epochs=4, verbose=0, callbacks=[Stops(2), backup])
    assert backup.file.exists()
    goes_on = again.fit(X, Y, epochs=4, verbose=0, callbacks=C.BackupAndRestore(
        tmp_path / "b", save_freq=save_freq))
    if save_freq == "epoch":
        assert same_states(whole, again) and goes_on.history == history.history
    assert goes_on.epoch == [0, 1, 2, 3] and not backup.file.exists()
    kept = C.BackupAndRestore(tmp_path / "b", delete_checkpoint=False)
    again.fit(X, Y, epochs=5, verbose=0, callbacks=kept)
    assert kept.file.exists()


def test_a_damaged_backup_falls_back_to_the_previous_one(tmp_path: Path) -> None:
    broken, again = classifier(), classifier()
    backup = C.BackupAndRestore(tmp_path, double_checkpoint=True)
    with pytest.raises(RuntimeError, match="down"):
        broken.fit(X, Y, epochs=4, verbose=0, callbacks=[Stops(3), backup])
    backup.file.write_bytes(backup.file.read_bytes()[:100])
    goes_on = C.BackupAndRestore(tmp_path, double_checkpoint=True)
    goes_on.before_fit(again)
    assert again.epoch == 2
    backup.file_before.unlink()
    with pytest.raises(WeightsError):
        goes_on.before_fit(again)


def test_files_of_keras_are_of_models(tmp_path: Path) -> None:
    saved: list[str] = []

    class Kept(zt.Sequential):
        def save(self, path: Any) -> None:
            saved.append(Path(path).name)

    model = Kept([L.Input((4,)), L.Dense(3, activation="softmax")])
    model.compile("cpu:scalar", batch_size=8, optimizer="sgd",
                  loss="sparse_categorical_crossentropy")
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[
        C.ModelCheckpoint(tmp_path / "m-{epoch:02d}.keras"),
        C.ModelCheckpoint(tmp_path / "m.weights.h5", "loss", save_best_only=True)])
    assert saved == ["m-01.keras", "m-02.keras"]
    other = zt.Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
    other.load_weights(tmp_path / "m.weights.h5")
    for a, b in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ConfigError, match="is for models, and this is the fit of a program"):
        classifier().fit(X, Y, verbose=0, callbacks=C.ModelCheckpoint(tmp_path / "m.keras"))


def test_tensorboard_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.util import tensor_util

    history = classifier().fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y),
                               callbacks=C.TensorBoard(tmp_path, histogram_freq=2, update_freq=3))
    written = {}
    for folder in ("train", "validation"):
        events = event_accumulator.EventAccumulator(str(tmp_path / folder))
        events.Reload()
        written |= {(folder, tag): {e.step: tensor_util.make_ndarray(e.tensor_proto)
                                    for e in events.Tensors(tag)} for tag in events.Tags()["tensors"]}
    for (folder, tag), name in {("train", "epoch_loss"): "loss", ("validation", "epoch_accuracy"): "val_accuracy"}.items():
        assert list(written[folder, tag]) == [0, 1]
        np.testing.assert_allclose([*written[folder, tag].values()], history.history[name], rtol=1e-6)
    np.testing.assert_allclose([*written["train", "epoch_learning_rate"].values()], 0.001, rtol=1e-6)
    assert sorted(written["train", "batch_loss"]) == [3, 6, 9, 12, 15]
    [kernel] = next(v for (_, tag), v in written.items() if tag.endswith("/kernel")).values()  # of the first epoch: left, right, count
    assert kernel[:, 2].sum() > 0
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(Unsupported, match=r"pip install \"ztorch\[tensorboard\]\""):
        C.TensorBoard()
    with pytest.raises(ConfigError, match="update_freq='step'"):
        C.TensorBoard(update_freq="step")
