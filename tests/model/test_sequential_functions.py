"""Functions of a Sequential: training, weights of rows, states and metadata."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests import references
from tests.model.classifiers import classifier, traced, traced_states
from ztorch import layers as L
from ztorch import losses, schedules
from ztorch.dtypes import f64
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.graph.op import first_value
from ztorch.model.sequential import Sequential
from ztorch.optimizers import Adam
from ztorch.runtime.snapshot import Metadata, WeightRow

random = np.random.default_rng(8)
X = random.normal(size=(8, 5))
LABELS = random.integers(0, 3, 8).astype(np.int32)
W = np.ones(8)


# -- functions -----------------------------------------------------------------------------------


def test_functions_depend_on_compile_arguments():
    model = classifier()
    assert set(model.trace(4).functions) == {"predict"}
    assert set(model.trace(4, loss="mse").functions) == {"predict", "evaluate"}
    functions = traced().functions
    assert set(functions) == {"predict", "train", "evaluate"}
    assert set(functions["train"].outputs) == {"loss", "accuracy"}
    assert [v.attrs["name"] for v in functions["predict"].leaves("input")] == ["x"]
    assert {v.attrs["name"] for v in functions["train"].leaves("input")} == {
        "x", "y", "w", "real"}
    assert not functions["evaluate"].updates and not functions["predict"].updates
    shared = set(functions["predict"].leaves("state"))
    assert shared <= set(functions["train"].leaves("state"))
    own = [set(functions[n].leaves("input")) for n in ("train", "evaluate")]
    assert not own[0] & own[1]


def test_training_agrees_with_pytorch():
    torch = references.torch()
    model = Sequential([L.Input((5,)), L.Dense(7, activation="gelu"), L.LayerNormalization(),
                        L.Dense(3, activation="softmax")], seed=4)
    train = references.Run(traced(model, optimizer=Adam(0.05, epsilon=1e-18)).functions["train"])
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(),
                                 torch.nn.LayerNorm(7, eps=1e-3), torch.nn.Linear(7, 3)).double()
    with torch.no_grad():
        for p, w in zip(theirs.parameters(), model.get_weights(), strict=True):
            p.copy_(torch.tensor(w.T))
    optimizer = torch.optim.Adam(theirs.parameters(), 0.05, eps=1e-18)
    for _ in range(50):
        optimizer.zero_grad()
        logits = theirs(torch.tensor(X))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS).long())
        loss.backward()
        optimizer.step()
        right = (logits.argmax(1).numpy() == LABELS).mean()
        ours = train(x=X, y=LABELS, w=W, real=W)
        np.testing.assert_allclose(ours["loss"], loss.item(), rtol=1e-7)
        np.testing.assert_allclose(ours["accuracy"], right)
    for p, w in zip(theirs.parameters(), model.weights, strict=True):
        np.testing.assert_allclose(train.values[w.path].T, p.detach().numpy(), rtol=1e-6, atol=1e-9)


def test_rows_that_fill_up_a_batch_count_for_nothing():
    functions = traced().functions
    whole, part = (references.Run(functions["train"]) for _ in range(2))
    small = references.Run(traced(batch=5).functions["train"])
    w = np.array([1.0] * 5 + [0.0] * 3)
    got = part(x=X, y=LABELS, w=W, real=w)
    expected = small(x=X[:5], y=LABELS[:5], w=W[:5], real=W[:5])
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-12)
    np.testing.assert_allclose(part.values["dense/kernel"], small.values["dense/kernel"])
    before = whole.values["dense/kernel"]
    assert whole(x=X, y=LABELS, w=W, real=W * 0) == {"loss": 0, "accuracy": 0}
    np.testing.assert_array_equal(whole.values["dense/kernel"], before)


def test_sample_weights_weigh_the_mean():
    w = np.arange(1.0, 9.0)
    run = references.Run(traced(metrics=()).functions["evaluate"])
    each = [run(x=np.repeat(X[k:k + 1], 8, 0), y=np.repeat(LABELS[k:k + 1], 8), w=W,
                real=W)["loss"] for k in range(8)]
    np.testing.assert_allclose(run(x=X, y=LABELS, w=w, real=W)["loss"], (each * w).mean())


def test_dropout_trains_and_does_not_evaluate():
    model = Sequential([L.Input((5,)), L.Dropout(0.5), L.Dense(3)])
    functions = model.trace(8, "sgd", "mse", dtype="float64", seed=(7 << 32) + 3).functions
    assert "random/step" not in traced_states(model.trace(8, "sgd", "mse"), "evaluate")
    train = references.Run(functions["train"])
    np.testing.assert_array_equal(train.values["random/seed"], [3, 7])
    inputs = {"x": X, "y": np.zeros((8, 3)), "w": W, "real": W}
    train.values["optimizer/learning_rate"] = 0.0
    first, second = train(**inputs)["loss"], train(**inputs)["loss"]
    assert first != second and train.values["random/step"] == 2


def test_frozen_layers_do_not_change():
    model = classifier()
    model.layers[0].trainable = False
    actual = traced(model)
    assert set(actual.functions["train"].updates) == {"dense_1/kernel", "dense_1/bias",
                                                      "optimizer/step"}
    assert [w.trainable for w in actual.metadata.weights] == [False, False, True, True]
    model.layers[2].trainable = False
    with pytest.raises(ConfigError, match=r"no trainable weights"):
        traced(model)


def test_metadata_is_json_and_complete():
    actual = traced(optimizer=Adam(schedules.CosineDecay(0.1, 10)), seed=3).metadata
    assert Metadata.from_json(json.loads(json.dumps(actual.to_json()))) == actual
    assert (actual.batch_size, actual.dtype, actual.seed) == (8, "float64", 3)
    assert (actual.input_shape, actual.target_shape, actual.output_shape) == (
        {"": (5,)}, {"": ()}, {"": (3,)})
    assert actual.classes == {"": 3}
    declared = actual.declaration
    assert [m.name for m in declared.metrics[""]] == ["SparseCategoricalAccuracy"] and declared.optimizer.name == "Adam"
    assert actual.loss[""].name == "sparse_categorical_crossentropy"
    assert actual.weights[0] == WeightRow("dense/kernel", (5, 7), f64, True, "dense")
    assert actual.to_json()["weights"][0] == {
        "name": "dense/kernel", "shape": [5, 7], "dtype": "float64", "trainable": True,
        "layer": "dense"}
    assert json.dumps(classifier().trace(2, loss=losses.Huber(0.2)).metadata.loss[""].config)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_float_has_the_dtype_of_the_model(dtype):
    model = Sequential([L.Input((5,)), L.Dense(4, "gelu"), L.LayerNormalization(), L.Dropout(0.1),
                        L.Dense(3, "softmax")])
    optimizer = Adam(schedules.CosineDecay(0.1, 10), weight_decay=0.1, global_clipnorm=1.0)
    for graph in traced(model, optimizer=optimizer, dtype=dtype).functions.values():
        assert {str(v.dtype) for v in graph.nodes() if v.dtype.is_float} == {dtype}


def test_state_names_are_unique_and_cover_the_updates():
    graph = traced(optimizer="adam").functions["train"]
    names = [v.attrs["name"] for v in graph.leaves("state")]
    assert len(names) == len(set(names)) and set(graph.updates) <= set(names)
    for v in graph.leaves("state"):
        assert first_value(v).shape == v.shape and v.attrs["kind"]


def test_native_code_agrees_with_the_oracle():
    model = Sequential([L.Input((5,)), L.Dense(7, "gelu"), L.LayerNormalization(), L.Dropout(0.2),
                        L.Dense(3, "softmax")])
    options = {"batch_size": 8, "optimizer": Adam(schedules.CosineDecay(0.05, 20), clipnorm=1.0),
               "loss": "sparse_categorical_crossentropy", "dtype": "float64"}
    train = references.Run(model.trace(**options).functions["train"])
    with model.compile("cpu", **options) as program:
        history = program.fit(X, LABELS, epochs=5, shuffle=False, verbose=0).history
        expected = [float(train(x=X, y=LABELS, w=W, real=W)["loss"]) for _ in range(5)]
        np.testing.assert_allclose(history["loss"], expected, rtol=1e-6)
        for w, array in zip(model.weights, program.get_weights(), strict=True):
            np.testing.assert_allclose(array, train.values[w.path], rtol=1e-9, atol=1e-12)
        model.set_weights(program.get_weights())
    assert model.weights[0].value.dtype == np.float64


@pytest.mark.parametrize("arguments, message", [
    ({"batch_size": 0}, "batch_size must be a positive integer, not 0"),
    ({"batch_size": 2.5}, "batch_size"), ({"batch_size": True}, "batch_size"),
    ({"optimizer": "adam"}, "an optimizer but no loss"), ({"metrics": ["mae"]}, "metrics but no"),
    ({"dtype": "float16"}, "models compute in 'float32', 'float64'"), ({"dtype": "float"}, "unknown dtype"),
    ({"loss": "mse", "optimizer": 3}, "not a valid optimizer; give a name such as 'sgd'"),
    ({"loss": "msee"}, "did you mean 'mse'"), ({"loss": "mse", "metrics": ["mse", "mse"]}, "two"),
    ({"loss": "mse", "seed": -1}, "seed must be")])
def test_impossible_compiles(arguments, message):
    with pytest.raises((ConfigError, UnknownName), match=message):
        classifier().compile("cpu", **arguments)


def test_loss_and_outputs_that_do_not_fit():
    model = Sequential([L.Input((5,)), L.Dense(1)])
    with pytest.raises(ShapeError, match=r"at least 2 classes"):
        model.compile("cpu", loss="sparse_categorical_crossentropy")
