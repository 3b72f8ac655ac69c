"""Artifacts and checkpoints of earlier versions of the formats load, predict and train on.

`tests/artifact/old/VERSION` holds the output of `tests/artifact/old/remember.py` with the last ztorch of that version.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.artifact.old import remember
from tests.cases.artifacts import apart, changed
from tests.cases.available import device
from ztorch.host.processor import architecture
from ztorch.runtime.load import open_artifact
from ztorch.runtime.manifest import OLDEST, VERSION
from ztorch.runtime.snapshot import Metadata

OLD = Path(__file__).with_name("old")
VERSIONS = sorted(int(folder.name) for folder in OLD.iterdir() if folder.name.isdigit())
HOW = {"epochs": 2, "validation_split": 0.2, "verbose": 0}
# Code is in the artifact, and scalar code rounds alike on every machine; a GPU's driver compiles it.
CLOSE = {"cpu": 0.0, "webgpu": 1e-5}


def recorded(version: int, kind: str) -> dict[str, np.ndarray]:
    if kind == "cpu" and architecture() != "x86_64":
        pytest.skip("the code of the old artifact is for x86-64")
    if kind == "webgpu":
        device(kind)
    return dict(np.load(OLD / str(version) / f"{kind}.npz"))


def test_the_version_before_is_read_and_remembered() -> None:
    assert OLDEST in (VERSION, VERSION - 1) and (VERSION == 5 or OLDEST == VERSION - 1)
    assert OLDEST in VERSIONS
    for version in VERSIONS:
        for path in (OLD / str(version)).glob("*.zt"):
            assert open_artifact(path).manifest.version == version


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["cpu", "webgpu"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_artifact_predicts_and_trains_on(version: int, kind: str, threads: int) -> None:
    want, close = recorded(version, kind), CLOSE[kind]
    program = zt.load(OLD / str(version) / f"{kind}.zt", threads)
    assert program.history.history["loss"] == pytest.approx(list(want["first"]), rel=0, abs=close)
    np.testing.assert_allclose(program.predict(want["x"]), want["predicted"], rtol=0, atol=close)
    losses = program.fit(want["x"], want["y"], **HOW).history["loss"]
    assert losses == pytest.approx(list(want["more"]), rel=0, abs=close)
    np.testing.assert_allclose(program.predict(want["x"]), want["then"], rtol=0, atol=close)


def test_the_old_artifact_trains_with_several_workers() -> None:
    """So the way in which workers are called is remembered, too."""
    if architecture() != "x86_64":
        pytest.skip("the code of the old artifact is for x86-64")
    program = zt.load(OLD / str(OLDEST) / "cpu.zt", 3)
    train = program.executable.functions["train"]
    assert program.executable.workers_for(train) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_artifact_for_a_device_runs(version: int) -> None:
    program = zt.load(OLD / str(version) / "dummy.zt")
    assert program.device == "dummy:0" and program.epochs_trained == 2
    x = np.zeros((20, 4), np.float32)
    assert program.predict(x).shape == (20, 3)
    program.fit(x, np.zeros((20, 3), np.float32), epochs=1, verbose=0)
    assert program.epochs_trained == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_artifact_is_written_again_in_this_version(version: int, tmp_path: Path) -> None:
    want = recorded(version, "cpu")
    zt.load(OLD / str(version) / "cpu.zt").save(tmp_path / "new.zt")
    assert open_artifact(tmp_path / "new.zt").manifest.version == VERSION
    again = zt.load(tmp_path / "new.zt")
    assert again.fit(want["x"], want["y"], **HOW).history["loss"] == list(want["more"])
    assert np.array_equal(again.predict(want["x"]), want["then"])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_checkpoint_resumes(version: int) -> None:
    """In a program that is compiled by this ztorch, whose code may round in another way."""
    want = recorded(version, "cpu")
    program = remember.model("cpu").compile("cpu:scalar", **remember.HOW["cpu"])
    program.load_checkpoint(OLD / str(version) / "cpu.safetensors")
    assert (program.epoch, program.epochs_trained) == (2, 2)
    np.testing.assert_allclose(program.predict(want["x"]), want["predicted"], rtol=0, atol=1e-6)
    losses = program.fit(want["x"], want["y"], **{**HOW, "epochs": 4}).history["loss"]
    assert losses[:2] == list(want["first"]) and len(losses) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_an_artifact_without_a_declaration_says_so(version: int, tmp_path: Path) -> None:
    data = (OLD / str(version) / "cpu.zt").read_bytes()
    (tmp_path / "cpu.zt").write_bytes(changed(lambda m: m["program"].pop("declaration"), data))
    written_by = open_artifact(tmp_path / "cpu.zt").manifest.ztorch
    with pytest.raises(zt.errors.ArtifactError, match=f"cpu.zt lacks the declaration of its model: "
                       f"it was written by ztorch {written_by}"):
        zt.load_model(tmp_path / "cpu.zt")


def test_a_key_that_an_old_artifact_lacks_gets_its_default(tmp_path: Path) -> None:
    data = (OLD / str(OLDEST) / "dummy.zt").read_bytes()
    written = set(apart(data)[0]["program"])
    optional = {name for name, f in Metadata.fields.items() if f.has_default and name in written}
    assert {"input_range", "probabilities", "weights"} <= optional

    def cut(manifest: dict) -> None:
        manifest["program"] = {k: v for k, v in manifest["program"].items() if k not in optional}

    (tmp_path / "cut.zt").write_bytes(changed(cut, data))
    program = zt.load(tmp_path / "cut.zt")
    assert program.predict(np.zeros((3, 4), np.float32)).shape == (3, 3)
    assert sorted(program.weight_names) == ["hidden/bias", "hidden/kernel", "out/bias",
                                            "out/kernel"]
    assert program.metadata == Metadata(
        "flowers", 1, {"": None}, program.metadata.loss, program.metadata.layers)
