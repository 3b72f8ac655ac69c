"""The contents of a written artifact, and loading it again bit for bit."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import ztorch as zt
from tests.cases.artifacts import apart, flowers, predictor, same_states, trainer, whole
from tests.cases.processes import killed_after_writing
from ztorch.artifact.write import pack, write_artifact
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, f32
from ztorch.runtime.load import open_artifact, read_artifact
from ztorch.runtime.manifest import VERSION
from ztorch.runtime.snapshot import Metadata, Snapshot
from ztorch.runtime.spec import (
    FunctionSpec,
    ProgramSpec,
    StateSpec,
    TensorSpec,
    entry_point,
)
from ztorch.training.checkpoint import write_checkpoint


@pytest.mark.parametrize("device", ["cpu:scalar", "cpu"])
def test_predictions_are_the_same(device: str, tmp_path: Path) -> None:
    x, _ = flowers()
    program = predictor(device)
    program.save(tmp_path / "small.zt")
    again = zt.load(tmp_path / "small.zt")
    assert np.array_equal(program.predict(x), again.predict(x))
    assert (again.name, again.device, again.batch_size) == ("small", program.device, 2)
    again.set_weights([2 * w for w in again.get_weights()])  # derived states follow
    program.set_weights(again.get_weights())
    assert np.array_equal(program.predict(x), again.predict(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", ["cpu:scalar", "cpu"])
def test_training_resumes_bit_for_bit(device: str, dtype: str, tmp_path: Path) -> None:
    x, y = flowers()
    program = trainer(device, dtype)
    program.fit(x, y, epochs=3, verbose=0)
    program.save(tmp_path / "half.zt")
    again = zt.load(tmp_path / "half.zt")
    assert same_states(program, again) and again.history.history == program.history.history
    for _ in range(2):  # also the order of rows depends on how long it has trained
        a = program.fit(x, y, epochs=2, validation_split=0.2, verbose=0)
        b = again.fit(x, y, epochs=2, validation_split=0.2, verbose=0)
        assert a.history == b.history and same_states(program, again)
    assert program.evaluate(x, y, verbose=0) == again.evaluate(x, y, verbose=0)
    program.save(tmp_path / "a.zt")
    again.save(tmp_path / "b.zt")
    assert (tmp_path / "a.zt").read_bytes() == (tmp_path / "b.zt").read_bytes()


def test_a_checkpoint_that_was_loaded_is_resumed_after_loading_too(tmp_path: Path) -> None:
    x, y = flowers()
    a, b, straight = trainer(), trainer(), trainer()
    a.fit(x, y, epochs=2, verbose=0)
    a.save_checkpoint(tmp_path / "run.safetensors")
    b.load_checkpoint(tmp_path / "run.safetensors")
    b.save(tmp_path / "run.zt")
    again = zt.load(tmp_path / "run.zt")
    assert again.fit(x, y, epochs=5, verbose=0).epoch == [0, 1, 2, 3, 4]
    straight.fit(x, y, epochs=5, verbose=0)
    assert same_states(again, straight)


def test_the_seed_of_a_run_is_kept(tmp_path: Path) -> None:
    x, y = flowers()
    program = trainer()
    program.seed = 77
    program.save(tmp_path / "run.zt")
    again = zt.load(tmp_path / "run.zt")
    program.fit(x, y, verbose=0)
    again.fit(x, y, verbose=0)
    assert same_states(program, again)


def test_equal_programs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.zt", "b.zt"):
        trainer().save(tmp_path / name)
    assert (tmp_path / "a.zt").read_bytes() == (tmp_path / "b.zt").read_bytes()


def test_other_tools_read_it() -> None:
    with zipfile.ZipFile(io.BytesIO(whole())) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "weights.safetensors", "code/scalar.so"]
        weights = safetensors.numpy.load(archive.read("weights.safetensors"))
        manifest = json.loads(archive.read("manifest.json"))
    assert {n: w.shape for n, w in weights.items()} == {
        "hidden/kernel": (4, 6), "hidden/bias": (6,), "out/kernel": (6, 3), "out/bias": (3,)}
    assert manifest["format"] == "ztorch artifact" and manifest["version"] == VERSION
    assert b"pickle" not in whole()


def test_what_is_derived_is_not_stored(tmp_path: Path) -> None:
    net = zt.Sequential([zt.layers.Input((64,)), zt.layers.Dense(48), zt.layers.Dense(3)])
    program = net.compile("cpu", batch_size=16)
    program.save(tmp_path / "net.zt")
    artifact = open_artifact(tmp_path / "net.zt")
    assert list(artifact.weights) == program.weight_names


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small.zt"
    program = predictor()
    program.save(path)
    before = path.read_bytes()
    program.set_weights([w + 1 for w in program.get_weights()])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        program.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["small.zt"]


KILLED = """
import sys
from tests.cases.artifacts import trainer
program = trainer()
while True:
    program.epoch += 1
    program.save(sys.argv[1])
"""


def test_a_killed_writer_leaves_a_complete_artifact(tmp_path: Path) -> None:
    path = tmp_path / "run.zt"
    killed_after_writing(KILLED, path)
    training = open_artifact(path).manifest.training
    assert training is not None and training.epoch > 0
    assert same_states(zt.load(path), trainer())


def test_a_snapshot_does_not_change_when_the_program_trains_on(tmp_path: Path) -> None:
    x, y = flowers()
    program = trainer()
    program.fit(x, y, epochs=1, verbose=0)
    before = program.snapshot()
    program.save(tmp_path / "before.zt")
    program.fit(x, y, epochs=1, verbose=0)
    write_artifact(tmp_path / "again.zt", before)
    assert (tmp_path / "again.zt").read_bytes() == (tmp_path / "before.zt").read_bytes()
    write_checkpoint(tmp_path / "again.safetensors", before.spec.name, before.states(), before.training)
    other = trainer()
    other.load_checkpoint(tmp_path / "again.safetensors")
    assert same_states(other, zt.load(tmp_path / "before.zt")) and not same_states(other, program)


def test_a_program_for_another_machine_is_written_but_not_run(tmp_path: Path) -> None:
    net = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(3)])
    traced = net.trace(2)
    for name in ("neon", "scalar"):
        made = compile_functions(traced.functions, TARGETS[name], "net")
        write_artifact(tmp_path / f"{name}.zt",
                       Snapshot(made.spec, made.code, made.params, traced.metadata))
        assert open_artifact(tmp_path / f"{name}.zt").targets[0].spec == made.spec


def test_scores_that_are_not_finite_survive(tmp_path: Path) -> None:
    program = trainer()
    program.history.on_epoch_end(0, {"loss": float("nan"), "mae": float("-inf"), "accuracy": 0.1})
    program.save(tmp_path / "run.zt")
    assert b"NaN" not in (tmp_path / "run.zt").read_bytes()
    history = zt.load(tmp_path / "run.zt").history.history
    assert np.isnan(history["loss"][0]) and history["mae"] == [-np.inf]
    assert history["accuracy"] == [0.1]


# -- every dtype, and constants, which no small model has ------------------------------------------


def synthetic() -> tuple[ProgramSpec, np.ndarray]:
    random = np.random.default_rng(3)
    states, at = {}, 0
    for d in ALL:
        states[d.long] = StateSpec(d.long, (3, 5), d, at, "slot", False)
        at += -(-states[d.long].nbytes // 64) * 64
    constants = ((at, 40), (at + 64, 7))
    params = np.zeros(at + 128, np.uint8)
    for s in states.values():
        params[s.offset:s.offset + s.nbytes] = random.integers(0, 2 if s.name == "bool" else 100,
                                                               s.nbytes)
    for start, size in constants:
        params[start:start + size] = random.integers(1, 256, size)
    x, y = TensorSpec("x", (2, 3), f32), TensorSpec("y", (2,), f32)
    symbol = entry_point("predict", [x], [y], len(params), 64)
    predict = FunctionSpec("predict", symbol, {"x": x}, {"y": y}, 10.0)
    return ProgramSpec("odd", "scalar", "x86_64", (), {"predict": predict}, states, len(params),
                       64, constants, ("k0",)), params


METADATA = Metadata("odd", 0, {"": None}, {"": None}, ())


def test_every_dtype_and_constants_survive(tmp_path: Path) -> None:
    spec, params = synthetic()
    code = b"code\0%s\0" % spec.functions["predict"].symbol.encode()
    (tmp_path / "odd.zt").write_bytes(pack(Snapshot(spec, code, params, METADATA)))
    _, files = apart((tmp_path / "odd.zt").read_bytes())
    assert len(files["constants/scalar.bin"]) == 47
    artifact = open_artifact(tmp_path / "odd.zt")
    assert artifact.targets[0].spec == spec
    assert np.array_equal(artifact.params(artifact.targets[0]), params)
    assert bytes(artifact.targets[0].code) == code
    assert artifact.manifest.program == METADATA and artifact.manifest.training is None


def test_names_in_any_language(tmp_path: Path) -> None:
    net = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(3)], name="Blüten 花")
    program = net.compile("cpu:scalar", batch_size=2)
    program.save(tmp_path / "ü.zt")
    again = zt.load(tmp_path / "ü.zt")
    assert again.name == "Blüten 花"
    assert read_artifact(tmp_path / "ü.zt").metadata.name == again.name


def test_a_model_without_weights(tmp_path: Path) -> None:
    net = zt.Sequential([zt.layers.Input((2, 2)), zt.layers.Flatten(), zt.layers.ReLU()])
    net.compile("cpu:scalar", batch_size=2).save(tmp_path / "net.zt")
    x = np.array([[[1.0, -1.0], [2.0, -2.0]]])
    assert zt.load(tmp_path / "net.zt").predict(x).tolist() == [[1.0, 0.0, 2.0, 0.0]]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "net.zt").mkdir()
    with pytest.raises(OSError):
        predictor().save(tmp_path / "net.zt")
