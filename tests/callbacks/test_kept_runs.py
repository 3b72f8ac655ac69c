"""Callbacks that keep a run: backups, files of Keras, TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, same_states
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported

X, Y = flowers()


class Stops(C.Callback):
    """The machine goes down in an epoch."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.program.epoch == self.epoch and batch == 1:
            raise RuntimeError("down")


@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_an_interrupted_run_goes_on(tmp_path: Path, save_freq: Any) -> None:
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
    with pytest.raises(ConfigError, match="is for a model, and this is the fit of a program"):
        classifier().fit(X, Y, verbose=0, callbacks=C.ModelCheckpoint(tmp_path / "m.keras"))


class Written:
    """Stands for the writer of TensorBoard."""

    scalars: list[tuple[str, str, float, int]] = []
    closed = 0

    def __init__(self, folder: str):
        self.folder = Path(folder).name

    def add_scalar(self, tag: str, data: float, step: int) -> None:
        self.scalars.append((self.folder, tag, data, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        type(self).closed += 1


def test_scores_are_written_for_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = ModuleType("tensorboard.summary")
    summary.Writer = Written  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "tensorboard.summary", summary)
    history = classifier().fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y),
                               callbacks=C.TensorBoard("logs", update_freq=3))
    epochs = {(folder, tag, step): value for folder, tag, value, step in Written.scalars}
    for k in range(2):
        assert epochs["train", "epoch_loss", k] == history.history["loss"][k]
        assert epochs["validation", "epoch_accuracy", k] == history.history["val_accuracy"][k]
        assert epochs["train", "epoch_learning_rate", k] == pytest.approx(0.001)
    assert sorted(s for _, tag, s in epochs if tag == "batch_loss") == [3, 6, 9, 12, 15]
    assert Written.closed == 2
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(Unsupported, match=r"pip install \"ztorch\[tensorboard\]\""):
        C.TensorBoard()
    with pytest.raises(ConfigError, match="update_freq='step'"):
        C.TensorBoard(update_freq="step")


def test_tensorboard_reads_the_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    history = classifier().fit(X, Y, epochs=2, verbose=0, callbacks=C.TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    losses = [tensor_util.make_ndarray(e.tensor_proto).item() for e in events.Tensors("epoch_loss")]
    np.testing.assert_allclose(losses, history.history["loss"], rtol=1e-6)
