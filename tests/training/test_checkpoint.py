"""Weights files and checkpoints: exact, atomic, and refused when they do not fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.processes import killed_after_writing
from tests.programs import classifier, compiled, flowers, same_states
from ztorch import layers as L
from ztorch.callbacks import ModelCheckpoint, ReduceLROnPlateau
from ztorch.dtypes import ALL, bf16, f32, f64
from ztorch.errors import WeightsError
from ztorch.files import safetensors
from ztorch.model.sequential import Sequential

X, Y = flowers()


# -- resuming --------------------------------------------------------------------------------------


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    how: dict[str, Any] = {"verbose": 0, "validation_split": 0.2}
    whole, first, second = classifier(), classifier(), classifier(seed=9)
    expected = whole.fit(X, Y, epochs=6, **how)
    first.fit(X, Y, epochs=2, **how)
    first.save_checkpoint(path)
    second.load_checkpoint(path)
    assert second.epoch == 2 and same_states(first, second)
    history = second.fit(X, Y, epochs=6, **how)
    assert same_states(whole, second)
    assert history.history == expected.history and history.epoch == expected.epoch


def test_a_second_fit_is_resumed_at_its_own_epoch(tmp_path: Path) -> None:
    path = tmp_path / "{epoch}.ckpt"
    whole, second = classifier(), classifier()
    whole.fit(X, Y, epochs=3, verbose=0)
    whole.fit(X, Y, epochs=3, verbose=0, callbacks=ModelCheckpoint(path))
    second.load_checkpoint(tmp_path / "1.ckpt")
    assert second.epoch == 1 and second.epochs_trained == 4
    second.fit(X, Y, epochs=3, verbose=0)
    assert same_states(whole, second)


def test_a_checkpoint_has_the_changes_of_other_callbacks(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    program, resumed = classifier(), classifier()
    slower = ReduceLROnPlateau("loss", patience=1, min_delta=1e9)
    program.fit(X, Y, epochs=2, verbose=0, callbacks=[ModelCheckpoint(path), slower])
    resumed.load_checkpoint(path)
    assert resumed.learning_rate == program.learning_rate < 1e-3
    assert resumed.history.history["learning_rate"] == pytest.approx([1e-3, 1e-3])


def test_a_finished_checkpoint_says_so(tmp_path: Path) -> None:
    program = classifier()
    program.fit(X, Y, epochs=2, verbose=0)
    program.save_checkpoint(tmp_path / "run.ckpt")
    program.load_checkpoint(tmp_path / "run.ckpt")
    with pytest.warns(UserWarning, match="already at epoch 2"):
        program.fit(X, Y, epochs=2, verbose=0)


def test_a_checkpoint_of_a_restarted_run(tmp_path: Path) -> None:
    program = classifier()
    program.fit(X, Y, epochs=2, verbose=0)
    program.save_checkpoint(tmp_path / "run.ckpt")
    program.load_checkpoint(tmp_path / "run.ckpt")
    assert program.fit(X, Y, epochs=1, initial_epoch=0, verbose=0).epoch == [0]
    assert program.fit(X, Y, epochs=1, verbose=0).epoch == [0]


KILLED = """
import sys
import numpy as np
from tests.programs import classifier, flowers
from ztorch.callbacks import ModelCheckpoint
print("ready", flush=True)
program = classifier()
program.fit(*flowers(), epochs=100000, verbose=0, callbacks=ModelCheckpoint(sys.argv[1]))
"""


def test_a_killed_run_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    killed_after_writing(KILLED, path)
    resumed, straight = classifier(), classifier()
    resumed.load_checkpoint(path)
    assert resumed.epoch == len(resumed.history.history["loss"]) > 0
    straight.fit(X, Y, epochs=resumed.epoch, verbose=0)
    assert same_states(resumed, straight)


# -- weights files ---------------------------------------------------------------------------------


def test_weights_round_trip(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "new" / "w.safetensors"
    a, b = classifier(), classifier(seed=5)
    a.save_weights(path)
    b.load_weights(path)
    assert all(np.array_equal(p, q) for p, q in zip(a.get_weights(), b.get_weights(), strict=True))
    others = safetensors.load_file(path)  # by other tools
    assert set(others) == {"hidden/kernel", "hidden/bias", "out/kernel", "out/bias"}
    assert np.array_equal(others["hidden/kernel"], a.weight_arrays()["hidden/kernel"])
    safetensors.save_file({k: v.astype(np.float64) for k, v in others.items()}, path)
    b.load_weights(path)  # another float dtype is converted
    assert np.array_equal(b.weight_arrays()["out/kernel"], a.weight_arrays()["out/kernel"])


def test_a_checkpoint_is_a_weights_file_too(tmp_path: Path) -> None:
    a, b = classifier(), classifier(seed=5, optimizer="sgd")
    a.fit(X, Y, verbose=0)
    a.save_checkpoint(tmp_path / "run.ckpt")
    b.load_weights(tmp_path / "run.ckpt")
    assert np.array_equal(a.weight_arrays()["out/kernel"], b.weight_arrays()["out/kernel"])
    with pytest.raises(WeightsError, match="compile with the same settings as when it was saved"):
        b.load_checkpoint(tmp_path / "run.ckpt")


def other(*layers: L.Layer) -> Sequential:
    return Sequential([L.Input((4,)), *layers], name="other")


@pytest.mark.parametrize(("layers", "message"), [
    ([L.Dense(8, name="hidden"), L.Dense(5, name="out")],
     r"weight 'out/kernel' has shape \(8, 3\) in model 'flowers' and \(8, 5\) in .*; load it"),
    ([L.Dense(8, name="hidden"), L.Dense(3, name="last")],
     r"lacks weight 'out/kernel' of shape \(8, 3\); load it"),
    ([L.Dense(8, name="hidden"), L.Dense(3, name="out"), L.Dense(3, name="more")],
     r"holds weight 'more/kernel' of shape \(3, 3\), which model 'flowers' lacks"),
])
def test_foreign_weights_are_refused_by_name(tmp_path: Path, layers: list, message: str) -> None:
    path = tmp_path / "w.safetensors"
    compiled(other(*layers), 4).save_weights(path)
    program = classifier()
    before = program.get_weights()
    with pytest.raises(WeightsError, match=message):
        program.load_weights(path)
    assert all(np.array_equal(a, b) for a, b in zip(before, program.get_weights(), strict=True))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    program = classifier()
    program.save_checkpoint(path)
    whole = path.read_bytes()
    for cut in (0, 5, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(WeightsError, match="not a complete safetensors file"):
            program.load_checkpoint(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(WeightsError):
        program.load_checkpoint(path)
    with pytest.raises(WeightsError, match=r"cannot read .*No such file"):
        program.load_weights(tmp_path / "none")
    weights = tmp_path / "run.safetensors"
    program.save_weights(weights)
    with pytest.raises(WeightsError, match=r"is not a checkpoint.*load_weights"):
        program.load_checkpoint(weights)


def test_damaged_or_newer_metadata(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    program = classifier()
    program.save_checkpoint(path)
    tensors, metadata = safetensors.read(path)
    run = json.loads(metadata["training"])
    for change, message in (({"version": 9}, "version 9"), ({"epoch": "x"}, "damaged"),
                            ({"history": []}, "damaged")):
        safetensors.write(path, tensors, {**metadata, "training": json.dumps({**run, **change})})
        with pytest.raises(WeightsError, match=message):
            program.load_checkpoint(path)


def test_writing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {"a": (f32, np.ones(3, np.float32))})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        safetensors.write(path, {"a": (f32, np.zeros(3, np.float32))})
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["w.safetensors"]


def test_every_dtype_survives(tmp_path: Path) -> None:
    path = tmp_path / "all.safetensors"
    tensors = {d.name: (d, np.arange(6).reshape(2, 3).astype(d.numpy)) for d in ALL}
    tensors |= {"scalar": (f64, np.array(0.5)), "none": (bf16, np.zeros((0, 2), np.uint16))}
    safetensors.write(path, tensors, {"key": "\u00e9 value"})
    back, metadata = safetensors.read(path)
    assert metadata == {"key": "\u00e9 value"} and set(back) == set(tensors)
    for name, (d, array) in tensors.items():
        assert back[name][0] is d and np.array_equal(back[name][1], array)
        assert back[name][1].shape == array.shape
