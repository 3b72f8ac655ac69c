"""Folders of Hugging Face: results of transformers with the same weights, and damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.interchange.folders.write import MODELS
from ztorch.interchange.hugging_face.load import BY_CLASS

FOLDERS = Path(__file__).parent / "folders"


def stored(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Inputs of the model here, channels and bins last, and the results of transformers."""
    with np.load(FOLDERS / name / "expected.npz") as arrays:
        x = {k[2:]: v for k, v in arrays.items() if k[0] == "x"}
        y = {k[2:]: v for k, v in arrays.items() if k[0] == "y"}
    x = {k: np.moveaxis(v, 1, -1) if v.dtype == np.float32 else v.astype(np.int32)
         for k, v in x.items()}
    y = {k: np.moveaxis(v, 1, -1) if v.ndim == 4 and v.shape[-1] > 1 else v for k, v in y.items()}
    return (x if len(x) > 1 else next(iter(x.values()))), y


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_gives_the_model_of_transformers(name: str) -> None:
    x, expected = stored(name)
    model = zt.load_model(FOLDERS / name, size=16 if name.startswith("ResNet") else None)
    y = model.compile("cpu", batch_size=2, threads=1).predict(x)
    results = y if isinstance(y, dict) else {"": y}
    assert results.keys() == expected.keys()
    for key, result in results.items():
        theirs = expected[key].reshape(result.shape)
        assert np.abs(result - theirs).max() <= 2e-6 * np.abs(theirs).max(), key


def test_weights_have_the_names_of_modules() -> None:
    names = zt.load_model(FOLDERS / "LlamaForCausalLM").named_weights()
    assert names["layers.0.self_attn/key/kernel"].shape == (8, 2, 2)
    assert {"embed_tokens/embeddings", "layers.0.mlp.gate_proj/kernel", "norm/scale"} <= set(names)
    # Two modules of one config share a matrix there: here each has its own.
    names = zt.load_model(FOLDERS / "GPT2LMHeadModel").named_weights()
    assert np.array_equal(names["lm_head/kernel"].value, names["wte/embeddings"].value.T)


def test_a_model_of_a_folder_generates() -> None:
    """With caches for shared heads of keys: the same as predictions of whole rows."""
    model = zt.load_model(FOLDERS / "LlamaForCausalLM")
    model.compile("cpu", batch_size=1, sizes={"length": 10}, decode=True, threads=1)
    row = [3, 7, 11]
    for _ in range(4):
        row.append(int(model.predict(np.array([row], np.int32))[0, -1].argmax()))
    assert [int(n) for n in model.generate(row[:3], 4, temperature=0)] == row[3:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FOLDERS / "GPT2LMHeadModel", tmp_path / "gpt2")
    return tmp_path / "gpt2"


def changed(folder: Path, file: str = "config.json", **values: Any) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | values))


@pytest.mark.parametrize(("values", "error", "message"), [
    ({"architectures": ["GPTJForCausalLM"]}, zt.errors.Unsupported,
     r"config.json is of the class 'GPTJForCausalLM'; ztorch reads BertModel, .*zt\.onnx\.load"),
    ({"architectures": None}, zt.errors.Unsupported, "class 'None'"),
    ({"n_embd": "8"}, zt.errors.WeightsError, "'n_embd' is '8', not a positive integer"),
    ({"n_head": 3}, zt.errors.WeightsError, "3 heads do not divide 8 features"),
    ({"n_layer": 2}, zt.errors.WeightsError,
     r"has no tensor 'transformer.h.1.ln_1.weight', which its config.json needs"),
    ({"vocab_size": 21}, zt.errors.WeightsError,
     r"'wte' has embeddings of shape \(20, 8\), but its config needs \(21, 8\)"),
    ({"activation_function": "mish2"}, zt.errors.Unsupported, "activation_function='mish2'"),
    ({"n_layer": 10**9}, zt.errors.WeightsError, "'n_layer' means 1000000000 blocks; ztorch reads models of up to 4096"),
    ({"resid_pdrop": 2.0}, zt.errors.WeightsError,
     r"config.json describes an invalid model: Dropout\(rate=...\) must be a number"),
    ({"add_cross_attention": True}, zt.errors.Unsupported, "add_cross_attention=True"),
])
def test_a_config_that_does_not_fit(folder: Path, values: dict[str, Any], error: type[Exception],
                                    message: str) -> None:
    changed(folder, **values)
    with pytest.raises(error, match=message):
        zt.load_model(folder)


def test_files_that_are_missing_or_damaged(folder: Path) -> None:
    index, shard = "model.safetensors.index.json", "model-00002-of-00002.safetensors"
    data = (folder / shard).read_bytes()
    (folder / shard).write_bytes(data[:-4])
    with pytest.raises(zt.errors.WeightsError, match=f"{shard} is not a complete safetensors file"):
        zt.load_model(folder)
    (folder / shard).unlink()
    with pytest.raises(zt.errors.WeightsError, match=f"cannot read .*{shard}"):
        zt.load_model(folder)
    changed(folder, index, weight_map={"wte.weight": "../other/model.safetensors"})
    with pytest.raises(zt.errors.WeightsError, match="does not say which file beside it"):
        zt.load_model(folder)
    (folder / index).unlink()
    with pytest.raises(zt.errors.WeightsError, match=r"has neither model\.safetensors nor"):
        zt.load_model(folder)
    (folder / "config.json").write_text("[" * 10_000)
    with pytest.raises(zt.errors.WeightsError, match=r"config\.json is not the JSON of a model"):
        zt.load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(zt.errors.ConfigError, match=r"has no config\.json"):
        zt.load_model(folder)


def test_positions_that_are_scaled_are_refused(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "LlamaForCausalLM", tmp_path / "llama")
    changed(tmp_path / "llama", rope_parameters={"rope_type": "llama3", "rope_theta": 5e5})
    with pytest.raises(zt.errors.Unsupported, match="positions are scaled by 'llama3'"):
        zt.load_model(tmp_path / "llama")


def test_every_class_has_a_folder() -> None:
    """Those that only leave out a head are not stored."""
    without = {"GPT2Model", "LlamaModel", "ViTModel", "WhisperForConditionalGeneration"}
    assert set(BY_CLASS) == set(MODELS) | without


def test_sizes_are_only_for_open_axes() -> None:
    with pytest.raises(zt.errors.ConfigError, match="fixes the size of images, image_size"):
        zt.load_model(FOLDERS / "ViTForImageClassification", size=16)
    with pytest.raises(zt.errors.ConfigError, match="is not a folder of Hugging Face"):
        zt.load_model("digits_mlp", size=16)


def test_settings_mean_what_transformers_makes_of_them(tmp_path: Path) -> None:
    """Its Whisper reads `scale_embedding` and does not scale; a Llama's heads may have any size."""
    shutil.copytree(FOLDERS / "WhisperModel", tmp_path / "whisper")
    changed(tmp_path / "whisper", scale_embedding=True)
    x, expected = stored("WhisperModel")
    y = zt.load_model(tmp_path / "whisper").compile("cpu:scalar", batch_size=2).predict(x)
    assert np.abs(y - expected[""]).max() <= 2e-6 * np.abs(expected[""]).max()
    shutil.copytree(FOLDERS / "LlamaForCausalLM", tmp_path / "llama")
    changed(tmp_path / "llama", head_dim=6, num_attention_heads=3, num_key_value_heads=1)
    with pytest.raises(zt.errors.WeightsError, match=r"self_attn.* shape|tensor of shape"):  # the tensors are of 2
        zt.load_model(tmp_path / "llama")
    shutil.copytree(FOLDERS / "ResNetModel", tmp_path / "resnet")
    changed(tmp_path / "resnet", hidden_act="gelu")
    with pytest.raises(zt.errors.Unsupported, match="hidden_act='gelu'; ztorch reads models with 'relu'"):
        zt.load_model(tmp_path / "resnet")
