"""Layers that read texts in .keras files, with vocabularies in the description and beside it."""

from __future__ import annotations

import inspect
import json
import zipfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.errors import Unsupported, WeightsError


def test_inputs_of_text_with_the_layers_that_read_them(tmp_path: Any) -> None:
    kind, text = (L.Input((1,), dtype="string", name=name) for name in ("kind", "text"))
    words = L.TextVectorization(vocabulary=["cat", "dog"], output_sequence_length=4)
    places = L.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(kind)
    model = zt.Model([kind, text], L.Dense(2)(L.Concatenate()([places, L.Flatten()(L.Embedding(6, 2)(words(text)))])))
    row = zt.Sequential([L.Input((1,), dtype="string"), L.TextVectorization(
        vocabulary=["cat", "dog"], output_sequence_length=4), L.Embedding(6, 2), L.Flatten()])
    texts = np.array([["the cat"], ["dog cat"]])
    for each, x in ((model, [np.array([["a"], ["q"]]), texts]), (row, texts)):
        each.compile("cpu:scalar", batch_size=2)
        each.save(tmp_path / "m.keras")
        again = zt.load_model(tmp_path / "m.keras")
        again.compile("cpu:scalar", batch_size=2)
        np.testing.assert_array_equal(again.predict(x, verbose=0), each.predict(x, verbose=0))
        layers = json.loads(zipfile.ZipFile(tmp_path / "m.keras").read("config.json"))["config"]["layers"]
        of_text = {s["class_name"]: s["config"] for s in layers}
        assert of_text["InputLayer"]["dtype"] == "string"
        for name in {"TextVectorization", "StringLookup"} & {*of_text}:
            theirs = inspect.signature(getattr(references.keras().layers, name).__init__).parameters
            assert {*of_text[name]} <= {*theirs}
        adapted(tmp_path / "m.keras")
        again = zt.load_model(tmp_path / "m.keras").compile("cpu:scalar", batch_size=2)
        np.testing.assert_array_equal(again.predict(x, verbose=0), each.predict(x, verbose=0))
    for change, fault in (({"vocabulary.txt": b"\xff"}, r"text_vectorization/vocabulary\.txt is not a vocabulary"),
                          ({"config.json": "/etc/passwd"}, "is a path, and a description reads no")):
        adapted(tmp_path / "m.keras", change)
        with pytest.raises((WeightsError, Unsupported), match=fault):
            zt.load_model(tmp_path / "m.keras")


def adapted(path: Any, change: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Moves vocabularies out of the description, as Keras does with those that `adapt` has found."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    described = json.loads(members["config.json"])
    for layer in described["config"]["layers"]:
        words, kind = layer["config"].get("vocabulary"), layer["class_name"]
        if isinstance(words, list) or kind == "TextVectorization":
            layer["config"]["vocabulary"] = change.get("config.json")
            special = ["", "[UNK]"] if kind == "TextVectorization" else ["[UNK]"]
            name = "text_vectorization" if kind == "TextVectorization" else "string_lookup"
            members.setdefault(f"assets/layers/{name}/vocabulary.txt", "\n".join(special + (words or [])).encode())
    members["config.json"] = json.dumps(described).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, change.get(name.rpartition("/")[2], data) if "assets" in name else data)
