"""model.save("m.keras"): Keras loads it with equal outputs, and zt.load_keras the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.layers.keras_differences import beside_keras
from tests.layers.twin_cases import CASES, public
from tests.weights.torch_cases import predicted
from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.interchange.keras import load_keras
from ztorch.weights.keras_configs import MODULES_OF_LAYERS, NOT_IN_KERAS

pytest.importorskip("h5py")


def filled(model: Any) -> Any:
    """The model with random numbers in all weights; variances stay above zero."""
    random = np.random.default_rng(0)
    model.set_weights([random.normal(size=w.shape, scale=0.5) if "variance" not in w.name else
                       random.uniform(0.5, 1.5, w.shape) for w in model.weights])
    return model


def in_keras(path: Path, rows: list[np.ndarray]) -> Any:
    keras, torch = references.keras(), references.torch()
    model = keras.models.load_model(path)
    with torch.no_grad():
        y = model(rows if len(rows) > 1 else rows[0], training=False)
    return y


def test_every_layer_has_a_counterpart_or_a_listed_reason() -> None:
    layers = references.keras().layers
    assert {*public()} - {"Input", "Operation", "Encoded"} - {
        name for name in public() if hasattr(layers, name)} - {"Lambda"} == (
            NOT_IN_KERAS - {"Lambda"}) | {*MODULES_OF_LAYERS}


def test_all_layers_in_one_model(tmp_path: Path) -> None:
    cases = [case for case in CASES if beside_keras(case)]
    assert len({case.layer for case in cases}) > 50
    inputs = {f"x{k}": L.Input(case.shape, dtype="int32" if case.ids else None, name=f"x{k}")
              for k, case in enumerate(cases)}
    outputs = {f"y{k}": case.make()(x)
               for k, (case, x) in enumerate(zip(cases, inputs.values(), strict=True))}
    ours = filled(zt.Model(inputs, outputs))
    ours.save(tmp_path / "m.keras")
    rows = [case.rows().astype("i" if case.ids else "f") for case in cases]
    feeds = {f"x/{name}": x for name, x in zip(inputs, rows, strict=True)}
    want = references.Run(ours.trace(3).functions["predict"])(**feeds)
    theirs = in_keras(tmp_path / "m.keras", rows)
    again = load_keras(tmp_path / "m.keras")
    read = references.Run(again.trace(3).functions["predict"])(**feeds)
    for k, case in enumerate(cases):
        y = want[f"y/y{k}"]
        size = max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(theirs[f"y{k}"].numpy(), y, rtol=0, atol=1e-5 * size,
                                   err_msg=str(case))
        np.testing.assert_array_equal(read[f"y/y{k}"], y, err_msg=str(case))


def functional() -> tuple[Any, list[np.ndarray]]:
    """Shared layers, ops, masks, causal attention, models and wrappers inside."""
    random = np.random.default_rng(0)
    a, ids = L.Input((5, 8), name="a"), L.Input((4,), dtype="int32", name="ids")
    seen = L.LSTM(8)(L.Embedding(10, 6, mask_zero=True)(ids))
    shared = L.Dense(8, activation="tanh")
    h = L.MultiHeadAttention(2, use_causal_mask=True)(shared(shared(a))) + a * 2.0
    h = zt.ops.mean(zt.ops.gelu(h[:, 1:, ::2] / 2.0), axis=1)
    inner = zt.Sequential([L.Input((5, 8)), L.TimeDistributed(L.Dense(3)), L.Bidirectional(
        L.GRU(3)), L.BatchNormalization()])
    x = L.Input((6,))
    gate = zt.Model(x, L.Multiply()([L.Dense(4)(x), L.Dense(4, activation="sigmoid")(x)]))
    cells = L.RNN([L.GRUCell(3), L.LSTMCell(4)])(a)
    y = zt.ops.concat([h, seen, gate(inner(a)), cells, 1.0 - seen], axis=-1)
    scaled = L.Dense(2, kernel_initializer=zt.initializers.VarianceScaling(2.0))(y)
    rows = [random.normal(size=(3, 5, 8)).astype("f"), random.integers(0, 10, (3, 4)).astype("i")]
    return zt.Model([a, ids], {"scaled": scaled, "part": y[:, :3]}), rows


def test_a_functional_model(tmp_path: Path) -> None:
    ours, rows = functional()
    filled(ours).save(tmp_path / "m.keras")
    want = references.Run(ours.trace(3).functions["predict"])(**{"x/a": rows[0], "x/ids": rows[1]})
    theirs = in_keras(tmp_path / "m.keras", rows)
    for name in ("scaled", "part"):
        np.testing.assert_allclose(theirs[name].numpy(), want[f"y/{name}"], rtol=0, atol=1e-5)
    again = load_keras(tmp_path / "m.keras")
    for w, a in zip(again.get_weights(), ours.get_weights(), strict=True):
        np.testing.assert_array_equal(w, a)


def test_a_sequential_and_how_it_was_compiled(tmp_path: Path) -> None:
    model = zt.Sequential([
        L.Input((6, 6, 2)), L.Normalization(), L.Conv2D(4, 3, activation="relu"),
        L.MaxPooling2D(), L.Dropout(0.2), L.Flatten(), L.Dense(3, activation="softmax")])
    model.layers[0].adapt(np.random.default_rng(1).normal(2.0, 3.0, (20, 6, 6, 2)))
    model.compile("cpu:scalar", optimizer=zt.optimizers.AdamW(
        zt.schedules.CosineDecay(0.1, 10), clipnorm=1.0), loss="scce",
        metrics=["accuracy", zt.metrics.SparseTopKCategoricalAccuracy(2, name="two")])
    model.save(tmp_path / "m.keras")
    keras = references.keras()
    theirs = keras.models.load_model(tmp_path / "m.keras")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(9, 6, 6, 2)).astype("f"), random.integers(0, 3, 9)
    np.testing.assert_allclose(theirs.predict(x, verbose=0), predicted(model, x), atol=1e-6)
    assert type(theirs).__name__ == "Sequential" and theirs.loss == "sparse_categorical_crossentropy"
    assert isinstance(theirs.optimizer, keras.optimizers.AdamW) and theirs.optimizer.clipnorm == 1.0
    np.testing.assert_allclose(theirs.evaluate(x, y, verbose=0),
                               [*model.evaluate(x, y, verbose=0)], rtol=1e-5)


def test_attention_of_a_sequential(tmp_path: Path) -> None:
    """It attends to itself; Keras has to be given its input twice. One weight is a scalar."""
    ours = filled(zt.Sequential([
        L.Input((5, 6)), L.Attention(use_scale=True), L.AdditiveAttention(),
        L.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d")]))
    ours.save(tmp_path / "m.keras")
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("f")
    [want] = references.Run(ours.trace(2).functions["predict"])(x=x).values()
    np.testing.assert_allclose(in_keras(tmp_path / "m.keras", [x]).numpy(), want, atol=1e-5)
    [read] = references.Run(load_keras(tmp_path / "m.keras").trace(2).functions["predict"])(
        x=x).values()
    np.testing.assert_array_equal(read, want)


def sequential_with_branches() -> Any:
    return zt.Sequential([
        L.Input((6,)), L.Dense(4), L.Subtract(L.Dense(4), zt.Sequential([L.Dense(4), L.ReLU()])),
        L.Residual(L.Dense(4, activation="tanh"), L.Dense(4)),
        L.Residual(L.Dense(4), shortcut=L.Dense(4), name="wide", trainable=False),
        L.Concatenate(L.Dense(4), L.Dense(4), name="side"),
        L.Parallel([L.Dense(3), L.Identity()], merge=L.Concatenate(axis=1)), L.Dense(2)])


def functional_with_branches() -> Any:
    """Branches in branches, in a shared layer, in models inside, and beside layers of one shape."""
    x = L.Input((6,))
    first = L.Dense(6, name="add_dense")(x)
    deep = L.Add(L.Dense(6), L.Multiply(L.Dense(6), L.Add(L.Dense(6), L.Residual(L.Dense(6)))))
    y = L.Subtract()([deep(first), deep(x)])
    inner = zt.Sequential([L.Dense(6), L.Maximum(L.Dense(6), L.Dense(6)), L.Dense(6)])
    gate = L.Input((6,))
    gated = zt.Model(gate, L.Average(L.Dense(6), L.Dense(6))(L.Dense(6)(gate)))
    return zt.Model(x, L.Add()([inner(y), gated(first), L.Dense(6)(y)]))


@pytest.mark.parametrize("declared", [sequential_with_branches, functional_with_branches])
def test_branches_of_merge_layers_are_layers_of_keras(tmp_path: Path, declared: Any) -> None:
    """Their weights have one shape, so that only the right order gives equal outputs."""
    ours = filled(declared())
    ours.save(tmp_path / "m.keras")
    x = np.random.default_rng(0).normal(size=(3, 6)).astype("f")
    [want] = references.Run(ours.trace(3).functions["predict"])(x=x).values()
    theirs = in_keras(tmp_path / "m.keras", [x]).numpy()
    np.testing.assert_allclose(theirs, want, rtol=1e-5, atol=1e-5)
    again = load_keras(tmp_path / "m.keras")
    [read] = references.Run(again.trace(3).functions["predict"])(x=x).values()
    np.testing.assert_array_equal(read, want)
    assert sum(w.trainable for w in again.weights) == sum(w.trainable for w in ours.weights)
    ours.save_weights(tmp_path / "m.weights.h5")  # of a model of the same layers in Keras
    again.set_weights([np.zeros(w.shape) for w in again.weights])
    again.load_weights(tmp_path / "m.weights.h5")
    [read] = references.Run(again.trace(3).functions["predict"])(x=x).values()
    np.testing.assert_array_equal(read, want)


def test_masks_pass_branches_as_in_keras(tmp_path: Path) -> None:
    ours = filled(zt.Sequential([
        L.Input((5,), dtype="int32"), L.Embedding(9, 4, mask_zero=True),
        L.Add(L.Dense(4), L.Identity()), L.Concatenate(L.Dense(2), L.Dense(3), name="side"), L.LSTM(3)]))
    ours.save(tmp_path / "m.keras")
    x = np.array([[3, 1, 0, 0, 0], [4, 5, 6, 7, 8]], "i")
    [want] = references.Run(ours.trace(2).functions["predict"])(x=x).values()
    np.testing.assert_allclose(in_keras(tmp_path / "m.keras", [x]).numpy(), want, atol=1e-5)


def test_what_keras_lacks_is_listed(tmp_path: Path) -> None:
    model = zt.Sequential([
        L.Input((4,), dtype="int32"), L.Embedding(9, 8, mask_zero=True),
        L.Residual(L.Conv1D(8, 1), name="r"), L.PositionEmbedding(name="where"), L.TimeDistributed(
            L.Add(L.Dense(8), L.Dense(8), name="both")),
        L.Dense(8, activation=lambda x: x, name="own"), L.Dense(2)])
    with pytest.raises(Unsupported) as caught:
        model.save(tmp_path / "m.keras")
    message = str(caught.value)
    assert "PositionEmbedding 'where': Keras has no" in message and "Add 'both' with branches" in message
    assert "Residual 'r' whose branches drop a mask that it passes on" in message
    assert "Dense(activation=...): <lambda> cannot be written" in message
    assert not (tmp_path / "m.keras").exists()


def test_functions_leave_out_how_it_was_compiled(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    model.compile("cpu:scalar", optimizer="sgd",
                  loss=lambda y_true, y_pred: zt.ops.mean(y_pred - y_true, axis=-1))
    with pytest.warns(UserWarning, match="not the arguments of compile: .*lambda.* is not a valid loss") as said:
        model.save(tmp_path / "m.keras")
    assert said[0].filename == __file__
    assert not references.keras().models.load_model(tmp_path / "m.keras").compiled


@pytest.mark.parametrize("name, arguments", [
    ("Adam", {"amsgrad": True}), ("Adagrad", {})])
def test_training_continues_in_both_directions(tmp_path: Any, name: str,
                                               arguments: dict[str, Any]) -> None:
    """With the states of the optimizer, whose slots have the layout of Keras' weights."""
    keras = references.keras()
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, 4, 3)).astype("f"), random.integers(0, 3, 16)
    theirs = keras.Sequential([keras.Input((4, 3)), keras.layers.BatchNormalization(),
                               keras.layers.GRU(2), keras.layers.Dense(3)])
    theirs.compile(getattr(keras.optimizers, name)(0.01, **arguments),
                   keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                   metrics=["accuracy"])
    plain: dict[str, Any] = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    theirs.fit(x, y, **plain)
    theirs.save(tmp_path / "theirs.keras")
    ours = zt.load_model(tmp_path / "theirs.keras")
    history = ours.fit(x, y, **plain).history
    np.testing.assert_allclose(history["loss"], theirs.fit(x, y, **plain).history["loss"],
                               rtol=2e-6)
    assert len(history["accuracy"]) == 2
    ours.save(tmp_path / "ours.keras")
    again = zt.load_model(tmp_path / "ours.keras").fit(x, y, **plain).history
    there = keras.models.load_model(tmp_path / "ours.keras").fit(x, y, **plain).history
    assert again == ours.fit(x, y, **plain).history
    np.testing.assert_allclose(again["loss"], there["loss"], rtol=2e-6)


def test_an_optimizer_for_each_group_of_weights_in_both_directions(tmp_path: Any) -> None:
    keras = references.keras()
    x = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    scores, kernels = [], []
    for kind in (zt, keras):
        model = kind.Sequential([kind.layers.Input((3,)), kind.layers.Dense(2)])
        rates = kind.optimizers.OptimizerMap(kind.optimizers.SGD(0.1), {".*bias": kind.optimizers.SGD(0.5)})
        model.compile(optimizer=kind.optimizers.MultiOptimizer(rates), loss="mse")
        model.set_weights([np.eye(3, 2, dtype=np.float32), np.ones(2, np.float32)])
        model.save(tmp_path / "m.keras")
        for loaded in (zt.load_model(tmp_path / "m.keras"), keras.models.load_model(tmp_path / "m.keras")):
            scores.append(loaded.fit(x, x[:, 1:], epochs=2, batch_size=8, verbose=0).history["loss"])
            kernels.append(np.concatenate([w.ravel() for w in loaded.get_weights()]))
    np.testing.assert_allclose(scores, [scores[0]] * 4, rtol=1e-5)
    np.testing.assert_allclose(kernels, [kernels[0]] * 4, rtol=1e-5, atol=1e-6)


def test_optimizers_with_other_states_start_fresh(tmp_path: Any) -> None:
    model = zt.Sequential([zt.Input((3,)), zt.layers.Dense(2)])
    model.compile("cpu:scalar", optimizer="nadam", loss="mse")
    x = np.ones((4, 3), np.float32)
    model.fit(x, x[:, :2], verbose=0)
    model.save(tmp_path / "m.keras")
    again = zt.load_model(tmp_path / "m.keras")
    assert again.evaluate(x, x[:, :2], verbose=0) == model.evaluate(x, x[:, :2], verbose=0)
    assert again.optimizer.learning_rate == np.float32(0.001)
