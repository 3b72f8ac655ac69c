"""Keras' models and files that are refused: the errors name the missing features."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.weights.keras_files import changed, model, replaced, written
from tests.weights.torch_cases import predicted
from ztorch.errors import Unsupported, WeightsError
from ztorch.interchange.keras import load_keras

h5py = pytest.importorskip("h5py")


# -- models that cannot be --------------------------------------------------------------------------


def test_an_activation_that_keras_computes_otherwise_is_refused(tmp_path: Path) -> None:
    keras = references.keras()
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="sparsemax")])
    theirs.save(tmp_path / "m.keras")
    with pytest.raises(Unsupported, match="with activation=sparsemax, whose results in Keras"):
        load_keras(tmp_path / "m.keras")


def test_all_missing_parts_are_listed(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    keras.Sequential([keras.Input((4, 3)), K.Dense(3, lora_rank=1, name="d"),
                      K.MaxNumBoundingBoxes(8, name="bent"),
                      K.LSTM(2, stateful=False, return_sequences=True, name="l",
                             activation="sparsemax")]).save(tmp_path / "m.keras")
    with pytest.raises(Unsupported) as error:
        load_keras(tmp_path / "m.keras")
    assert str(error.value).splitlines()[1:] == [
        "  Dense 'd' with lora_rank=1", "  Dense 'd' with lora_alpha=1",
        "  MaxNumBoundingBoxes 'bent'",
        "  LSTM 'l' with activation=sparsemax, whose results in Keras do not sum to 1 as those of "
        "ours do"]


def test_what_is_ignored_and_open_shapes(tmp_path: Path) -> None:
    keras = references.keras()
    theirs = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(
        3, kernel_regularizer="l2"), keras.layers.GlobalMaxPooling1D()])
    theirs.compile("adam", "mse")
    theirs.save(tmp_path / "m.keras")
    model = load_keras(tmp_path / "m.keras", input_shape=(6, 3), ignore=["kernel_regularizer"])
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype("f")
    np.testing.assert_allclose(predicted(model, x), theirs.predict(x, verbose=0), atol=1e-6)
    model = load_keras(tmp_path / "m.keras")
    for size in (4, 6):  # the axis stays open
        np.testing.assert_allclose(model.predict(x[:, :size], verbose=0), theirs.predict(
            x[:, :size], verbose=0), atol=1e-6)


def test_a_half_precision_policy_is_no_float32(tmp_path: Path) -> None:
    keras = references.keras()
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="bfloat16", name="d")]
                     ).save(tmp_path / "m.keras")
    with pytest.raises(Unsupported, match="bfloat16"):
        load_keras(tmp_path / "m.keras")


# -- files that are refused -------------------------------------------------------------------------


def external(file: Any) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_dataset("0", (4, 3), "f4", external=[("/etc/passwd", 0, 48)])


def virtual(file: Any) -> None:
    del file["layers/dense/vars/0"]
    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource("/etc/hosts", "x", (4, 3))
    file["layers/dense/vars"].create_virtual_dataset("0", layout)


def linked(link: Any) -> Any:
    def change(file: Any) -> None:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"]["0"] = link
    return change


def immense(file: Any) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_dataset("0", (1 << 40, 3), "f4", chunks=(1 << 10, 3))


def unwritten(file: Any) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_dataset("0", (4, 3), "f4")


def circular(file: Any) -> None:
    file["layers/dense/again"] = file["layers"]


BAD = {
    "other shape": (replaced(np.zeros((4, 4))), r"0 \(4, 4\).*dense: 0 \(4, 3\)"),
    "transposed": (replaced(np.zeros((3, 4))), r"0 \(3, 4\)"),
    "texts": (replaced(np.full((4, 3), b"x")), "not numbers"),
    "complex": (replaced(np.zeros((4, 3), complex)), "not numbers"),
    "another file": (external, "does not have its numbers"),
    "virtual": (virtual, "does not have its numbers"),
    "external link": (linked(h5py.ExternalLink("/etc/hosts", "/x")), "has a link '0'"),
    "soft link": (linked(h5py.SoftLink("/layers/dense/vars/1")), "has a link '0'"),
    "immense": (immense, "is stored in chunks"),
    "compressed": (replaced(np.zeros((4, 3)), compression="gzip"), "h5repack -l CONTI -f NONE"),
    "unwritten": (unwritten, "has 0 bytes, not 48"),
    "circular": (circular, "more groups than any model"),
    "a group": (lambda f: (f["layers/dense/vars"].__delitem__("0"),
                           f["layers/dense/vars"].create_group("0")), "does not have its numbers"),
    "one more": (lambda f: f.create_dataset("layers/dense_2/vars/0", data=[1.0]),
                 r"layers/dense_2: 0 \(1,\) \| -"),
    "one less": (lambda f: f["layers"].__delitem__("dense_1"), r"- +\| layers/dense_1: 0 \(3, 2\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(case: str, tmp_path: Path) -> None:
    change, match = BAD[case]
    ours = model()
    before = ours.get_weights()
    with pytest.raises(WeightsError, match=f"(?s){match}"):
        ours.load_weights(changed(tmp_path, change))
    for a, b in zip(before, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_truncated_files(tmp_path: Path) -> None:
    data, ours = written(tmp_path), model()
    file = tmp_path / "bad.weights.h5"
    for size in range(8, len(data), max(1, len(data) // 150)):
        file.write_bytes(data[:size])
        with pytest.raises(WeightsError):
            ours.load_weights(file)


def test_files_of_keras_2_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"written by Keras 2"):
        model().load_weights(changed(tmp_path, lambda f: f.attrs.__setitem__("layer_names", ["d"])))


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("_json", ".json").replace("_h5", ".h5"), data)
    return path


@pytest.mark.parametrize("text", [
    b"", b"{", b"[]", b"[" * 100_000, b"{}", b'{"class_name": "Sequential"}',
    b'{"class_name": "Sequential", "config": {"layers": 3}}',
    b'{"class_name": "Sequential", "config": {"layers": []}}',
    b'{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense", "config": 1}]}}',
    b'{"class_name": "Sequential", "config": {"layers": [{"class_name": "InputLayer", "config": '
    b'{"batch_shape": ["-1", 4]}}]}}',
    b'{"class_name": "Functional", "config": {"layers": [{"name": "a"}]}}',
    b'{"class_name": "Functional", "config": {"layers": [{"name": "a", "class_name": "ReLU", '
    b'"config": {}, "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__", "config": '
    b'{"keras_history": ["a", 0, 0]}}], "kwargs": {}}]}], "input_layers": [], "output_layers": []}}',
])
def test_damaged_configs(text: bytes, tmp_path: Path) -> None:
    members = {"config_json": text, "model.weights_h5": written(tmp_path)}
    with pytest.raises((WeightsError, Unsupported), match=r"m\.keras"):
        load_keras(archive(tmp_path / "m.keras", **members))


def test_without_h5py_the_error_names_the_package(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(Unsupported, match=r"pip install ztorch\[hdf5\]"):
        model().load_weights(tmp_path / "w.weights.h5")
