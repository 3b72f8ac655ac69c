"""Ids and positions: compared with PyTorch and Keras, and ids out of range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.layers.running import Traced, same
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, ShapeError
from ztorch.graph.op import constant
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential
from ztorch.program.program import Program

random = np.random.default_rng(9)
IDS = np.array([[0, 4, 4, 2], [6, 6, 6, 1]], np.int32)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64])
def test_embedding_and_its_gradient_are_pytorchs(kind: Any) -> None:
    torch = references.torch()
    case = Traced(L.Embedding(7, 3), IDS.astype(kind))
    table = torch.tensor(case.weights["embedding/embeddings"], requires_grad=True)
    y = torch.nn.functional.embedding(torch.tensor(IDS), table)
    (y * torch.tensor(case.slope)).sum().backward()
    same(case.oracle(), [y, table.grad])
    case.compiled_agrees()


def test_embedding_is_keras() -> None:
    keras = references.keras()
    theirs = keras.layers.Embedding(7, 3, name="words")
    case = Traced(L.Embedding(7, 3, name="words"), IDS)
    theirs.build(IDS.shape)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in case.layer.weights]
    assert theirs.get_config()["embeddings_initializer"]["class_name"] == "RandomUniform"
    assert np.abs(case.layer.weights[0].value).max() <= 0.05
    theirs.set_weights(list(case.weights.values()))
    np.testing.assert_allclose(case.oracle()[0], keras.ops.convert_to_numpy(theirs(IDS)), rtol=1e-6)


# -- ids that do not exist -------------------------------------------------------------------------------


def words(ids: int = 7, dtype: str = "int32", **how: Any) -> Program:
    model = Sequential([L.Input((4,), dtype=dtype), L.Reshape((2, 2)),
                        L.Embedding(ids, 3, name="words"), L.Flatten(), L.Dense(1)])
    return model.compile("cpu", batch_size=2, **how)


@pytest.mark.parametrize(("bad", "message"), [
    (np.add(IDS, [[0], [1]]), r"x holds 7 in row 1; layer 'words' takes integers from 0 to 6"),
    (IDS - 1, r"x holds -1 in row 0; layer 'words'"),
    (IDS + 2.5, r"x holds 2\.5 in row 0"),
    (np.full((1, 4), np.nan), r"x holds nan in row 0"),
    (np.full((3, 4), 2**63, np.uint64), r"x holds 9223372036854775808 in row 0"),
    (np.full((3, 4), -np.inf), r"x holds -inf in row 0"),
])
def test_ids_out_of_range_are_refused_with_their_row(bad: np.ndarray, message: str) -> None:
    program = words(optimizer="sgd", loss="mse")
    y = np.zeros(len(bad))
    for call in (lambda: program.predict(bad), lambda: program.evaluate(bad, y),
                 lambda: program.fit(bad, y, verbose=0), lambda: program.train_on_batch(
                     bad[:2], y[:2]), lambda: program.predict_on_batch(bad[:2])):
        with pytest.raises(DataError, match=message):
            call()
    with pytest.raises(DataError, match="of batch 1 holds"):
        program.fit([(IDS, np.zeros(2)), (bad, y)], verbose=0)


@pytest.mark.parametrize("good", [IDS, IDS.astype(np.int64), IDS.astype(float), IDS.astype(bool),
                                  IDS.tolist(), np.zeros((2, 4), np.uint64)],
                         ids=["int32", "int64", "float", "bool", "list", "uint64"])
def test_any_integers_are_ids(good: Any) -> None:
    program = words()
    np.testing.assert_array_equal(program.predict(good),
                                  program.predict(np.asarray(good).astype(np.int32)))


def test_an_artifact_checks_ids_too(tmp_path: Path) -> None:
    program = words()
    program.save(tmp_path / "words.zt")
    again = zt.load(tmp_path / "words.zt")
    np.testing.assert_array_equal(again.predict(IDS), program.predict(IDS))
    with pytest.raises(DataError, match=r"x holds 9 in row 0; layer 'words'"):
        again.predict(IDS + 9)


def test_a_damaged_range_is_no_artifact() -> None:
    from ztorch.files.kinds import BadValue
    from ztorch.runtime.snapshot import Metadata

    metadata = words().metadata.to_json()
    metadata["input_range"] = {"low": 0, "high": "many", "layer": "words"}
    with pytest.raises(BadValue, match=r"^input_range\.high is 'many'; it must be an integer"):
        Metadata.from_json(metadata)
    del metadata["input_range"]  # as the first artifacts were
    assert Metadata.from_json(metadata).input_range == {}


def test_integer_inputs_without_ids_have_the_range_of_their_dtype() -> None:
    model = Sequential([L.Input((4,), dtype="uint8"), L.Rescaling(1 / 255)])
    program = model.compile("cpu", batch_size=2)
    np.testing.assert_allclose(program.predict([[0, 51, 102, 255.0]]), [[0, 0.2, 0.4, 1]],
                               rtol=1e-6)
    with pytest.raises(DataError, match=r"x holds 256 in row 1; an input of uint8 takes "
                                        r"integers from 0 to 255"):
        program.predict([[0, 1, 2, 3], [0, 0, 0, 256]])


def test_two_embeddings_accept_ids_valid_for_both() -> None:
    class Both(Layer):
        def __init__(self, **common: Any):
            super().__init__(**common)
            self.many, self.few = L.Embedding(9, 2, name="many"), L.Embedding(5, 2, name="few")
            self.adopt(self.many)
            self.adopt(self.few)

        def call(self, x: Any, context: Any) -> Any:
            return self.many(x, context) + self.few(x, context)

    try:
        program = Sequential([L.Input((4,), dtype="int32"), Both()]).compile("cpu", batch_size=1)
        with pytest.raises(DataError, match=r"layer 'both/few' takes integers from 0 to 4"):
            program.predict(IDS + 2)
    finally:
        del L.LAYERS["Both"]


def test_ids_may_be_floats_that_hold_integers() -> None:
    """As in Keras, whose inputs are floats unless they say otherwise."""
    whole = Sequential([L.Input((4,), dtype="int32"), L.Embedding(7, 2, mask_zero=True), L.LSTM(2)])
    model = Sequential([L.Input((4,)), L.Embedding(7, 2, mask_zero=True), L.LSTM(2)])
    model.set_weights(whole.get_weights())
    y = [m.compile("cpu:scalar", batch_size=len(IDS)).predict(IDS) for m in (whole, model)]
    np.testing.assert_array_equal(*y)
    for wrong, bad in ((IDS + 7, "7"), (IDS.astype("f") + 0.5, "0.5")):
        with pytest.raises(DataError, match=rf"holds {bad}.* 'embedding' takes integers from 0 to 6"):
            model.compile("cpu:scalar", batch_size=len(IDS)).predict(wrong)


def test_ids_need_an_integer_input() -> None:
    with pytest.raises(ShapeError, match=r"layer 'embedding': Embedding takes integers, not "
                                         r"bool; .*Input\(\(4,\), dtype='int32'\)"):
        Sequential([L.Input((4,), dtype="bool"), L.Embedding(5, 2)]).build()
    with pytest.raises(ConfigError, match=r"Embedding\(input_dim=...\)"):
        L.Embedding(0, 2)


def test_embeddings_learn() -> None:
    """Which of seven words means yes."""
    program = words(optimizer=zt.optimizers.Adam(0.05), loss="mse")
    x = random.integers(0, 7, (64, 4)).astype(np.int32)
    y = (x % 2).sum(1)
    assert program.fit(x, y, epochs=60, verbose=0).history["loss"][-1] < 0.05


# -- positions -------------------------------------------------------------------------------------------

X = random.normal(size=(3, 5, 8))


def test_learned_positions() -> None:
    case = Traced(L.PositionEmbedding(9), X)
    [table] = case.weights.values()
    want = np.zeros((9, 8))
    want[:5] = case.slope.sum(0)
    same(case.oracle(), [X + table[:5], case.slope, want])
    case.compiled_agrees()
    assert Traced(L.PositionEmbedding(), X).layer.weights[0].shape == (5, 8)


def test_sinusoids_are_those_of_the_paper() -> None:
    case = Traced(L.SinusoidalPosition(), X)
    p, k = np.arange(5)[:, None], np.arange(4)
    added = np.empty((5, 8))
    added[:, 0::2] = np.sin(p / 10000 ** (2 * k / 8))
    added[:, 1::2] = np.cos(p / 10000 ** (2 * k / 8))
    same(case.oracle(), [X + added, case.slope])
    case.compiled_agrees()


@pytest.mark.parametrize("shape", [(3, 5, 8), (2, 6, 3, 4)])
def test_rotary_embeddings_rotate_pairs_and_keep_lengths(shape: tuple[int, ...]) -> None:
    torch = references.torch()
    x = random.normal(size=shape)
    case = Traced(L.RotaryEmbedding(), x)
    half = shape[-1] // 2
    angle = np.arange(shape[1])[:, None] / 10000 ** (np.arange(half) / half)
    angle = torch.tensor(angle.reshape(shape[1], *[1] * (len(shape) - 3), half))
    z = torch.tensor(x, requires_grad=True)
    turned = torch.complex(z[..., :half], z[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    y = torch.cat([turned.real, turned.imag], -1)
    (y * torch.tensor(case.slope)).sum().backward()
    same(case.oracle(), [y, z.grad])
    case.compiled_agrees()


def test_rotated_products_depend_only_on_the_distance() -> None:
    q, k = np.broadcast_to(random.normal(size=(2, 1, 8)), (2, 12, 8))
    a, b = (Traced(L.RotaryEmbedding(), x[None]).oracle()[0][0] for x in (q, k))
    products = a @ b.T
    for distance in range(-3, 4):
        np.testing.assert_allclose(np.diag(products, distance), np.diag(products, distance)[0],
                                   rtol=1e-9)


@pytest.mark.parametrize(("layer", "message"), [
    (L.PositionEmbedding(4), r"sequence_length=4 is too short for inputs of \(5, 8\)"),
    (L.RotaryEmbedding(sequence_axis=2), r"sequence_axis=2 does not fit inputs of \(5, 8\)"),
])
def test_positions_that_do_not_fit(layer: Layer, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Sequential([L.Input((5, 8)), layer]).build()


def test_rotations_need_pairs() -> None:
    with pytest.raises(ShapeError, match=r"pairs of the last axis.*\(1, 5, 7\)"):
        zt.ops.rotary(constant(np.zeros((1, 5, 7))))
    with pytest.raises(ShapeError, match=r"2 axes \(length, features\).*Embedding"):
        Sequential([L.Input((5,)), L.PositionEmbedding()]).build()
