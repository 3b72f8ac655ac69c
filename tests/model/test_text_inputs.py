"""Inputs of text: a layer of the host reads them, in memory and in artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.commands.data import read_inputs
from ztorch.errors import ArtifactError, ConfigError, DataError, Unsupported
from ztorch.feed.texts import TextReader
from ztorch.tabular.record import TextRecord

REVIEWS = ["A good day", "a bad day", "good, good food!", "bad bad food"]
GLAD = np.array([1, 0, 1, 0])
TREES = [["oak", "fir"], ["fir", "fir"], ["elm", "oak"]]
WORDS = ["good", "bad", "day"]
KNOWN = {"vocabulary": ["oak", "fir"]}

# A layer of the host, the shape of a row of texts, and rows of them.
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], Any]] = {
    "words": (lambda: L.TextVectorization(vocabulary=WORDS, output_sequence_length=3), (1,), REVIEWS),
    "bags of words": (lambda: L.TextVectorization(vocabulary=WORDS, output_mode="count"), (), REVIEWS),
    "tf_idf": (lambda: L.TextVectorization(vocabulary=WORDS, output_mode="tf_idf", idf_weights=[1, 2, 3]), (), REVIEWS),
    "places": (lambda: L.StringLookup(**KNOWN), (2,), TREES),
    "a place": (lambda: L.StringLookup(**KNOWN), (), ["oak", "elm"]),
    "known places alone": (lambda: L.StringLookup(**KNOWN, num_oov_indices=0), (1,), [["oak"], ["fir"]]),
    "one-hot": (lambda: L.StringLookup(**KNOWN, output_mode="one_hot"), (1,), ["fir", "oak"]),
    "several": (lambda: L.StringLookup(**KNOWN, output_mode="multi_hot"), (2,), TREES),
    "hashes": (lambda: L.Hashing(5, output_mode="count"), (2,), TREES),
}


def model_of(layer: Any, shape: tuple[int, ...]) -> zt.Model:
    """A model of text whose outputs are sums that are easy to write down."""
    x = L.Input(shape, dtype="string")
    y = layer(x)
    return zt.Model(x, L.Rescaling(2.0, 1.0)(y if y.dtype.is_float else zt.ops.cast(y, "float32")), seed=1)


@together()
@pytest.mark.parametrize("name", CASES)
def test_models_receive_the_layers_output(name: str) -> None:
    make, shape, texts = CASES[name]
    layer = make()
    model = model_of(layer, shape)
    program = model.compile("cpu:scalar", batch_size=2)
    rows = np.array(texts, object).reshape(len(texts), *(shape or (1,)))
    want = layer(rows).astype(np.float32)
    want = want[:, 0] if shape == () and want.shape == (len(texts), 1) else want
    assert program.predict(texts).shape == (len(texts), *model.output_shape[1:]) == want.shape
    for inputs in (texts, rows, rows.astype(str), rows.astype(bytes)):
        np.testing.assert_allclose(program.predict(inputs), 2 * want + 1, rtol=1e-6)
    again = zt.Model.from_json(model.to_json())
    assert again.to_json() == model.to_json() and again.output_shape == model.output_shape


def classifier(words: Any) -> zt.Sequential:
    return zt.Sequential([words, L.Embedding(words.vocabulary_size(), 4, mask_zero=True), L.GlobalAveragePooling1D(),
                          L.Dense(1, activation="sigmoid")], seed=3)


class Reviews:
    def __len__(self) -> int:
        return len(REVIEWS)

    def __getitem__(self, k: int) -> tuple[str, Any]:
        return REVIEWS[k], GLAD[k]


def batches() -> Iterator[Any]:
    yield REVIEWS[:3], GLAD[:3]
    yield np.array(REVIEWS[3:]), GLAD[3:]


HOW: dict[str, Any] = {"batch_size": 4, "optimizer": "adam", "loss": "binary_crossentropy", "seed": 1}


def test_training_is_that_on_numbers_and_artifacts_read_text(tmp_path: Path) -> None:
    import pandas

    words = L.TextVectorization(output_sequence_length=4)
    words.adapt(REVIEWS)
    program = classifier(words).compile("cpu:scalar", **HOW)
    numbers = zt.Sequential([L.Input((4,), dtype="int32"), *classifier(words).adopted], seed=3).compile("cpu:scalar", **HOW)
    for x, y in ((REVIEWS, GLAD), (np.array(REVIEWS), GLAD), (pandas.Series(REVIEWS), GLAD), (list(batches()), None),
                 (Reviews(), None)):
        got = program.fit(x, y, epochs=2, shuffle=False, verbose=0).history["loss"]
        want = numbers.fit(words(REVIEWS), GLAD, epochs=2, shuffle=False, verbose=0).history["loss"]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    want = numbers.predict(words(REVIEWS))
    assert program.evaluate(REVIEWS, GLAD, verbose=0) == numbers.evaluate(words(REVIEWS), GLAD, verbose=0)
    program.save(tmp_path / "reviews.zt")
    for loaded in (zt.load(tmp_path / "reviews.zt"), zt.load_model(tmp_path / "reviews.zt")):
        assert np.array_equal(loaded.predict(REVIEWS), want)
    (tmp_path / "reviews.txt").write_text("\n".join(REVIEWS))
    (tmp_path / "reviews.csv").write_text("review\n" + "\n".join(f'"{text}"' for text in REVIEWS))
    for file in ("reviews.txt", "reviews.csv"):
        assert np.array_equal(program.predict(read_inputs(str(tmp_path / file), program)), want)
    zt.load_model(tmp_path / "reviews.zt").save(tmp_path / "reviews.keras")
    again = zt.load_model(tmp_path / "reviews.keras")
    again.compile("cpu:scalar", batch_size=4)
    assert np.array_equal(again.predict(REVIEWS), want)


def test_the_default_length_is_that_of_the_longest_text() -> None:
    words = L.TextVectorization(vocabulary=WORDS)
    model = classifier(words)
    model.compile("cpu:scalar", **HOW)
    model.fit(REVIEWS, GLAD, verbose=0)
    kernel, *dense = model.get_weights()
    for texts in (REVIEWS, ["good " * 20, "day"]):
        ids = words(texts)
        means = (kernel[ids] * (ids > 0)[..., None]).sum(1) / (ids > 0).sum(1, keepdims=True)
        want = 1 / (1 + np.exp(-(means @ dense[0] + dense[1])))
        np.testing.assert_allclose(model.predict(texts, verbose=0), want, rtol=1e-5)


def test_texts_and_numbers_can_be_inputs_together(tmp_path: Path) -> None:
    import pandas

    kind, size, place = L.Input((1,), dtype="string", name="kind"), L.Input((1,), name="size"), L.Input(
        (), dtype="string", name="place")
    trees, places = L.StringLookup(**KNOWN, output_mode="one_hot"), L.Hashing(4, output_mode="one_hot")
    model = zt.Model([kind, size, place], L.Concatenate()([trees(kind), size, places(place)]))
    program = model.compile("cpu:scalar", batch_size=4)
    data = {"kind": ["oak", "fir", "elm"], "size": [1.0, 2.0, 3.0], "place": ["p", "q", "r"]}
    want = np.concatenate([trees(data["kind"]), np.array(data["size"])[:, None], places(data["place"])], 1)
    frame = pandas.DataFrame(data)
    frame.to_csv(tmp_path / "trees.csv", index=False)
    program.save(tmp_path / "trees.zt")
    for x in (data, list(data.values()), frame, read_inputs(str(tmp_path / "trees.csv"), program)):
        np.testing.assert_allclose(program.predict(x), want)
    np.testing.assert_allclose(zt.load(tmp_path / "trees.zt").predict(data), want)


TEXT = L.Input((1,), dtype="string", name="text")
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a layer of numbers": (lambda: L.Dense(1)(TEXT), ConfigError, "Input 'text' holds text; call TextVectorization"),
    "a model of it": (lambda: zt.Model(TEXT, L.Dense(1)(L.Input((2,)))), ConfigError, "Input 'text' holds text"),
    "categories": (lambda: L.CategoryEncoding(3)(TEXT), ConfigError, "CategoryEncoding cannot encode Input 'text' of dtype string"),
    "no vocabulary": (lambda: L.StringLookup(output_mode="one_hot")(TEXT), ConfigError, r"call adapt\(data\) first"),
    "backwards": (lambda: L.StringLookup(**KNOWN, invert=True)(TEXT), ConfigError, "takes numbers, not texts"),
    "numbers": (lambda: L.StringLookup(**KNOWN)(L.Input((1,))), Unsupported, r"Input\(\(1,\), dtype='string'\)"),
    "one text": (lambda: TextReader(L.Hashing(3), ()).numbers("good", "x"), DataError, "x is a single text; pass a list"),
    "a gap": (lambda: TextReader(L.Hashing(3), ()).numbers(["a", float("nan")], "x"), DataError, "x holds nan in row 1"),
    "another shape": (lambda: TextReader(L.Hashing(3), (1,)).numbers(TREES, "x"), DataError, r"texts of \(N, 1\)"),
    "none": (lambda: TextReader(L.Hashing(3), (1,)).numbers([], "x"), DataError, "shape|empty"),
    "a damaged file": (lambda: TextReader.of(TextRecord("Hashing", {"bins": 3})), ArtifactError, "does not describe a Hashing"),
}


@together()
@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_explained(name: str) -> None:
    use, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        use()


def test_a_second_layer_needs_its_own_input() -> None:
    x = L.Input((1,), dtype="string", name="text")
    words = L.TextVectorization(vocabulary=WORDS, output_sequence_length=3)
    assert words(x) is words(x)
    with pytest.raises(ConfigError, match="TextVectorization already encodes Input 'text'; create another Input for Hashing"):
        L.Hashing(3)(x)


@pytest.mark.parametrize("modes", [("one_hot", "int"), ("int", "one_hot"), ("int", "int")])
@pytest.mark.parametrize("unknown", [0, 1])
def test_two_lookups_in_one_vocabulary_read_one_input(modes: tuple[str, str], unknown: int) -> None:
    words = ["a", "b", "c"]
    text = zt.Input((), dtype="string")
    results = [L.StringLookup(vocabulary=words, mask_token=None, num_oov_indices=unknown,
                              output_mode=mode)(text) for mode in modes]
    model = zt.Model(text, [zt.ops.cast(y, "float32") + 0.0 for y in results])
    texts = np.array(["c", "a", "b", *["other"] * unknown])
    places = np.array([2, 0, 1]) + unknown
    places = np.array([*places, *[0] * unknown])
    for mode, y in zip(modes, model.predict(texts), strict=True):
        expected = places if mode == "int" else np.eye(3 + unknown)[places]
        np.testing.assert_array_equal(y.reshape(expected.shape), expected)
    with pytest.raises(ConfigError, match="already encodes"):
        L.StringLookup(vocabulary=["a"], mask_token=None)(text)
