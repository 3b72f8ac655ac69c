"""Layers that run on the host: Keras' numbers for its documented examples, and configs that hold it all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, Unsupported, ZtorchError
from ztorch.tabular.host_layer import HostLayer, as_category_counts
from ztorch.tabular.text_hashes import fingerprint

ABCD = ["a", "b", "c", "d"]
TEXTS = ["The cat, the dog.", "A dog!"]
Made = tuple[Callable[[], Any], Any, Any]


def adapted(layer: Any, data: Any) -> Any:
    layer.adapt(data)
    return layer


# Layer, input, output. Those of lookups are the examples of Keras' documentation.
CASES: dict[str, Made] = {
    "lookup": (lambda: L.StringLookup(vocabulary=ABCD), [["a", "c", "d"], ["d", "z", "b"]], [[1, 3, 4], [4, 0, 2]]),
    "lookup adapted": (lambda: adapted(L.StringLookup(), [["a", "c", "d"], ["d", "z", "b"]]),
                       [["a", "c", "d"], ["d", "z", "b"]], [[5, 3, 1], [1, 2, 4]]),
    "lookup masked": (lambda: L.StringLookup(mask_token="", vocabulary=ABCD), ["a", "", "z"], [2, 0, 1]),
    "lookup one_hot": (lambda: L.StringLookup(vocabulary=ABCD, output_mode="one_hot"), ["a", "d", "z"],
                       [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]),
    "lookup multi_hot": (lambda: L.StringLookup(vocabulary=ABCD, output_mode="multi_hot"),
                         [["a", "c", "d", "d"], ["d", "z", "b", "z"]], [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
    "lookup count": (lambda: L.StringLookup(vocabulary=ABCD, output_mode="count"),
                     [["a", "c", "d", "d"], ["d", "z", "b", "z"]], [[0, 1, 0, 1, 2], [2, 0, 1, 0, 1]]),
    "lookup tf_idf": (lambda: L.StringLookup(vocabulary=ABCD, idf_weights=[0.25, 0.75, 0.6, 0.4], output_mode="tf_idf"),
                      [["a", "c", "d", "d"], ["d", "z", "b", "z"]], [[0, 0.25, 0, 0.6, 0.8], [1.0, 0, 0.75, 0, 0.4]]),
    "lookup padded": (lambda: L.StringLookup(6, vocabulary=ABCD, output_mode="multi_hot", pad_to_max_tokens=True),
                      [["a", "b"]], [[0, 1, 1, 0, 0, 0]]),
    "lookup inverted": (lambda: L.StringLookup(vocabulary=ABCD, invert=True), [[1, 3, 4], [4, 0, 2]],
                        [["a", "c", "d"], ["d", "[UNK]", "b"]]),
    "lookup of most": (lambda: adapted(L.StringLookup(3), ["a", "a", "b", "b", "b", "c"]), ["a", "b", "c"], [2, 1, 0]),
    "integers": (lambda: L.IntegerLookup(vocabulary=[12, 36, 1138, 42]), [[12, 1138, 42], [42, 1000, 36]],
                 [[1, 3, 4], [4, 0, 2]]),
    "integers adapted": (lambda: adapted(L.IntegerLookup(), [[12, 1138, 42], [42, 1000, 36]]),
                         [[12, 1138, 42], [42, 1000, 36]], [[5, 2, 1], [1, 3, 4]]),
    "integers masked": (lambda: L.IntegerLookup(mask_token=0, vocabulary=[12, 36]), [0, 12, 7], [0, 2, 1]),
    "categories one_hot": (lambda: L.CategoryEncoding(4, output_mode="one_hot"), [3, 2, 0, 1],
                           [[0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]),
    "categories multi_hot": (lambda: L.CategoryEncoding(4), [[0, 1], [0, 0], [1, 2], [3, 1]],
                             [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]),
    "categories of one": (lambda: L.CategoryEncoding(3), [0, 2], [1, 0, 1]),
    "bins": (lambda: L.Discretization([0.0, 1.0, 2.0]), [[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]],
             [[0, 2, 3, 1], [1, 3, 2, 1]]),
    "bins adapted": (lambda: adapted(L.Discretization(num_bins=4), np.arange(8.0)), [-5.0, 1.75, 3.4, 7.0], [0, 1, 1, 3]),
    "bins one_hot": (lambda: L.Discretization([1.0], output_mode="one_hot"), [0.5, 1.5], [[1, 0], [0, 1]]),
    "words": (lambda: L.TextVectorization(output_sequence_length=4, vocabulary=["earth", "wind", "and", "fire"]),
              ["earth, wind & fire", "fire and Earth and all?"], [[2, 3, 5, 0], [5, 4, 2, 4]]),
    "words adapted": (lambda: adapted(L.TextVectorization(), TEXTS), TEXTS, [[2, 4, 2, 3], [5, 3, 0, 0]]),
    "words multi_hot": (lambda: L.TextVectorization(vocabulary=["the", "dog"], output_mode="multi_hot"), TEXTS,
                        [[1, 1, 1], [1, 0, 1]]),
    "words count": (lambda: L.TextVectorization(vocabulary=["the", "dog"], output_mode="count"), TEXTS,
                    [[1, 2, 1], [1, 0, 1]]),
    "words tf_idf": (lambda: adapted(L.TextVectorization(output_mode="tf_idf"), TEXTS), ["dog dog cat"],
                     [[0, 0, 2 * np.log(1 + 2 / 3), np.log(2), 0]]),
    "letters": (lambda: L.TextVectorization(split="character", standardize=None, vocabulary=["a", "B"]), ["aBc"],
                [[2, 3, 1]]),
    "pairs of words": (lambda: L.TextVectorization(ngrams=(2,), vocabulary=["the cat"]), TEXTS[:1], [[2, 1, 1]]),
}
SPECIAL = {"words tf_idf": ["[UNK]", "the", "dog", "cat", "a"]}


@together()
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_configs(name: str) -> None:
    make, inputs, expected = CASES[name]
    layer = make()
    if name in SPECIAL:
        assert layer.get_vocabulary() == SPECIAL[name]
    output = layer(inputs)
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    for result in (output, again(inputs), again(np.array(inputs))):
        if np.asarray(expected).dtype.kind == "U":
            assert result.tolist() == expected
        else:
            np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert again.get_config() == layer.get_config()


def test_vocabularies_are_read_and_set(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes("\ufeffa\u2028\r\nb\x85\n".encode())
    assert L.StringLookup(vocabulary=str(tmp_path / "odd.txt")).get_vocabulary() == ["[UNK]", "a\u2028", "b\x85"]
    (tmp_path / "words.txt").write_text("a\nb\n")
    layer = L.StringLookup(vocabulary=str(tmp_path / "words.txt"), mask_token="")
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "b"] and layer.vocabulary_size() == 4
    assert layer.get_vocabulary(include_special_tokens=False) == ["a", "b"]
    layer.set_vocabulary(["", "[UNK]", "c"])
    assert layer(["c", "a"]).tolist() == [2, 1]
    words = L.TextVectorization()
    words.set_vocabulary(["x"])
    assert words.vocabulary_size() == 3 and words(["x y"]).tolist() == [[2, 1]]
    batches = L.StringLookup()
    batches.adapt(np.array(part) for part in (["a", "b"], ["b"]))
    assert batches.get_vocabulary() == ["[UNK]", "b", "a"]


FOX = ("The quick brown fox jumps over the lazy dog, and then it goes on to run around the pond of the farm until "
       "the evening comes at last.")
FINGERPRINTS = {  # of the first letters, by the package pyfarmhash
    5: 8805132910519014279, 12: 16046829537012271495, 20: 14682102640708416407, 40: 11893331242100975777,
    64: 15886855290232242624, 65: 3091623149166920957, 128: 2171361756862388315, 132: 11259259249961879218}


@pytest.mark.parametrize(("how", "numbers"), [  # those of Keras' documentation
    ({}, [1, 0, 1, 1, 2]), ({"salt": [133, 137]}, [1, 2, 1, 0, 2]), ({"salt": 133}, [0, 0, 2, 1, 0])])
def test_hashes_are_those_of_keras(how: dict[str, Any], numbers: list[int]) -> None:
    assert L.Hashing(num_bins=3, **how)(["A", "B", "C", "D", "E"]).tolist() == numbers
    masked = L.Hashing(num_bins=3, mask_value="")(["A", "B", "", "C", "D"])
    assert masked.tolist() == [1, 1, 0, 2, 2]


def test_fingerprints_are_those_of_farmhash() -> None:
    assert {n: fingerprint(FOX[:n].encode()) for n in FINGERPRINTS} == FINGERPRINTS
    assert L.IntegerLookup(num_oov_indices=3, vocabulary=[7])([7, 4, 11]).tolist() == [3, 1, 2]


def test_hashes_are_spread_and_stable() -> None:
    layer = L.Hashing(num_bins=8)
    values = [f"word {k}" for k in range(400)]
    numbers = layer(values)
    assert numbers.min() == 0 and numbers.max() == 7 and np.bincount(numbers).min() > 25
    assert not np.array_equal(L.Hashing(8, salt=3)(values), numbers)
    masked = L.Hashing(4, mask_value="")(["", *values])
    assert masked[0] == 0 and (masked[1:] > 0).all()
    several = L.StringLookup(num_oov_indices=3, vocabulary=["a"])([*values, "a"])
    assert set(several[:-1]) == {0, 1, 2} and several[-1] == 3


WRONG: dict[str, tuple[Callable[[], Any], type[ZtorchError], str]] = {
    "mode": (lambda: L.StringLookup(output_mode="onehot"), ConfigError, "must be one of 'int', 'one_hot'"),
    "twice": (lambda: L.StringLookup(vocabulary=["a", "a"]), ConfigError, "has 'a' twice"),
    "nothing learned": (lambda: L.StringLookup()(["a"]), ConfigError, r"call adapt\(data\) first"),
    "unknown": (lambda: L.StringLookup(num_oov_indices=0, vocabulary=["a"])(["b"]), DataError, "'b' is not in the vocab"),
    "too many": (lambda: L.StringLookup(2, vocabulary=["a", "b"]), ConfigError, "more than max_tokens=2"),
    "idf": (lambda: L.StringLookup(vocabulary=["a"], idf_weights=[1.0]), ConfigError, "idf_weights belong to"),
    "invert": (lambda: L.StringLookup(invert=True, output_mode="count"), ConfigError, "must be 'int'"),
    "sparse": (lambda: L.Hashing(3, sparse=True), Unsupported, "no sparse arrays"),
    "integers": (lambda: L.IntegerLookup(vocabulary=[1])(["a"]), DataError, "takes integers"),
    "out of range": (lambda: L.CategoryEncoding(3)([3]), DataError, "from 0 to 2"),
    "too wide": (lambda: L.CategoryEncoding(10**10)([3]), DataError, "10,000,000,000 numbers are too many"),
    "too long": (lambda: L.TextVectorization(output_sequence_length=10**10, vocabulary=["a"])(["a"]), DataError, "too many"),
    "descending": (lambda: L.Discretization([1.0, 0.0]), ConfigError, "must ascend"),
    "a function": (lambda: L.TextVectorization(standardize=str.upper), ConfigError, "a function cannot be saved"),
    "in a model": (lambda: L.StringLookup(vocabulary=["a"])(L.Input((1,))), Unsupported, "StringLookup runs on the host, before a model"),
    "in a Sequential": (lambda: zt.Sequential([L.Input((1,)), L.Hashing(3)]), ZtorchError, "Hashing runs on the host"),
}


@pytest.mark.cheap
@together()
@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_explained(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_artifacts_store_them(tmp_path: Path) -> None:
    """Texts in, names out, without the code that trained."""
    words = adapted(L.TextVectorization(output_sequence_length=4), ["good fine good", "bad sad"])
    model = zt.Sequential([L.Input((4,), dtype="int32"), L.Embedding(words.vocabulary_size(), 2), L.Flatten(),
                           L.Dense(2, activation="softmax")])
    program = model.compile("cpu:scalar", batch_size=2)
    program.pipeline = zt.Pipeline.of_layer(words, ["sad", "glad"])
    program.save(tmp_path / "t.zt")
    loaded = zt.load(tmp_path / "t.zt")
    predictions = loaded.predict_table(["a good day", "bad"])
    assert np.array_equal(predictions.probabilities, program.predict(words(["a good day", "bad"])))
    assert set(predictions.names) <= {"sad", "glad"}
    assert loaded.pipeline is not None and isinstance(loaded.pipeline.layer, HostLayer)
    code = "import ztorch; print(*ztorch.load('t.zt').predict_table(['a good day', 'bad']).names)"
    fresh = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                           env={**os.environ, "PYTHONPATH": str(Path(zt.__file__).parents[1])})
    assert fresh.stdout.split() == predictions.names, fresh.stderr
    with pytest.raises(ConfigError, match="a layer that runs on the host"):
        zt.Pipeline.of_layer(L.Dense(3))  # type: ignore[arg-type]


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "a path": ({"name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}}, "vocabulary is '/etc/passwd'; it must be a list"),
    "a class": ({"name": "Dense", "config": {}}, "name is 'Dense'"),
    "an argument": ({"name": "Hashing", "config": {"bins": 3}}, "does not describe a Hashing"),
    "a number": ({"name": "StringLookup", "config": {"max_tokens": "many"}}, "positive integer"),
    "a boundary": ({"name": "Discretization", "config": {"bin_boundaries": ["a"]}}, "finite number"),
    "no list": ({"name": "Discretization", "config": {"bin_boundaries": 3}}, "is damaged"),
    "weights": ({"name": "StringLookup", "config": {"vocabulary": ["a"], "output_mode": "tf_idf", "idf_weights": ["x"]}},
                "damaged|could not convert"),
}


@together()
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_records_are_explained(name: str) -> None:
    encoder, message = DAMAGED[name]
    with pytest.raises(ConfigError, match=message):
        zt.Pipeline.from_config({"version": 1, "source": "values", "encoder": encoder}).inputs(["a"])


def test_categories_are_counted_or_marked() -> None:
    numbers = np.array([[[0, 2, 2]], [[1, -1, 0]]])
    for mode, rows in (("count", [[1, 0, 2], [1, 1, 0]]), ("multi_hot", [[1, 0, 1], [1, 1, 0]])):
        marks = as_category_counts(numbers, mode, 3)
        assert marks.shape == (2, 1, 3) and marks[:, 0].tolist() == rows
    assert as_category_counts(np.array([2, 0]), "one_hot", 3).tolist() == [[0, 0, 1], [1, 0, 0]]
