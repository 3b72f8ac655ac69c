"""Keras' files read and written: equal outputs, equal weights, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.weights.torch_cases import predicted
from ztorch import layers as L
from ztorch.errors import ConfigError
from ztorch.interchange.keras import load_keras
from ztorch.model.sequential import Sequential


def filled(model: Any, seed: int = 0) -> Any:
    """The Keras model with random numbers everywhere."""
    random = np.random.default_rng(seed)
    model.set_weights([np.abs(a) + 0.5 if w.path.endswith("variance") else a for w, a in (
        (w, random.normal(size=w.shape, scale=0.5)) for w in model.weights)])
    return model


def both_ways(theirs: Any, tmp_path: Path, x: np.ndarray, tolerance: float = 1e-5) -> Any:
    """.keras to a model of ours with equal predictions; .weights.h5 back, bit for bit."""
    theirs.save(tmp_path / "m.keras")
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours = load_keras(tmp_path / "m.keras")
    want = theirs.predict(x, verbose=0)
    np.testing.assert_allclose(predicted(ours, x), want, rtol=tolerance, atol=tolerance)
    first = ours.get_weights()
    ours.set_weights([a * 0 for a in first])
    ours.load_weights(tmp_path / "theirs.weights.h5")
    for a, b in zip(first, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    ours.save_weights(tmp_path / "ours.weights.h5")
    before = theirs.get_weights()
    filled(theirs, 1)
    theirs.load_weights(tmp_path / "ours.weights.h5")
    for a, b in zip(before, theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    return ours


# Keras layers by input shape: (class, arguments) in a row.
ROWS: dict[str, tuple[tuple[int, ...], list[tuple[str, dict[str, Any]]]]] = {
    "dense": ((4,), [("Dense", {"units": 5, "activation": "tanh"}),
                     ("Dense", {"units": 3, "use_bias": False})]),
    "conv1d": ((9, 3), [("Conv1D", {"filters": 4, "kernel_size": 3, "padding": "causal"})]),
    "conv2d": ((7, 6, 4), [("Conv2D", {"filters": 6, "kernel_size": (3, 2), "padding": "same",
                                       "strides": 2, "activation": "relu"})]),
    "depthwise": ((7, 6, 4), [("DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2})]),
    "separable": ((7, 6, 4), [("SeparableConv2D", {"filters": 5, "kernel_size": 3})]),
    "transposed": ((4, 5, 3), [("Conv2DTranspose", {"filters": 2, "kernel_size": 3, "strides": 2,
                                                    "padding": "same"})]),
    "norms": ((4, 5, 6), [("BatchNormalization", {}), ("LayerNormalization", {}),
                          ("GroupNormalization", {"groups": 3}), ("RMSNormalization", {}),
                          ("UnitNormalization", {})]),
    "norms without scale": ((4, 5, 6), [("BatchNormalization", {"scale": False}),
                                        ("LayerNormalization", {"center": False})]),
    "recurrent": ((5, 3), [("LSTM", {"units": 4, "return_sequences": True, "dropout": 0.1}),
                           ("GRU", {"units": 4, "return_sequences": True}),
                           ("GRU", {"units": 3, "return_sequences": True, "reset_after": False}),
                           ("SimpleRNN", {"units": 4, "use_bias": False})]),
    "activations": ((4, 3), [("PReLU", {"shared_axes": [1]}), ("LeakyReLU", {}), ("ELU", {}),
                             ("Activation", {"activation": "gelu"}), ("Softmax", {})]),
    "shapes": ((4, 6), [("Reshape", {"target_shape": (4, 3, 2)}), ("Permute", {"dims": (2, 1, 3)}),
                        ("UpSampling2D", {}), ("ZeroPadding2D", {"padding": 1}),
                        ("Cropping2D", {"cropping": ((1, 0), (0, 2))}), ("MaxPooling2D", {}),
                        ("AveragePooling2D", {"pool_size": 2, "padding": "same"}),
                        ("GlobalAveragePooling2D", {}), ("RepeatVector", {"n": 3}), ("Flatten", {}),
                        ("Rescaling", {"scale": 2.0, "offset": 1.0}), ("Dropout", {"rate": 0.5})]),
}


@pytest.mark.parametrize("case", ROWS)
def test_layers_round_trip(case: str, tmp_path: Path) -> None:
    keras = references.keras()
    shape, rows = ROWS[case]
    theirs = filled(keras.Sequential([keras.Input(shape), *(
        getattr(keras.layers, kind)(**how) for kind, how in rows)]))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, *shape)).astype("f"))


def test_layers_around_layers(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    theirs = filled(keras.Sequential([
        keras.Input((6, 4)), K.Bidirectional(K.LSTM(3, return_sequences=True)),
        K.Bidirectional(K.GRU(3, return_sequences=True), merge_mode="sum"),
        K.TimeDistributed(K.Dense(5)),
        keras.Sequential([K.Dense(3), K.BatchNormalization(), keras.Sequential([K.Dense(3)])]),
        K.Dense(2)]))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 6, 4)).astype("f"))


def test_functional_models_inside_models(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers

    def gate(width: int) -> Any:
        x = keras.Input((width,))
        return keras.Model(x, K.Multiply()([K.Dense(4)(x), K.Dense(4, activation="sigmoid")(x)]))

    x = keras.Input((5,))
    theirs = filled(keras.Model(x, K.Dense(2)(gate(4)(gate(5)(x)))))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 5)).astype("f"))


def test_channels_first_flattened(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    theirs = filled(keras.Sequential([
        keras.Input((2, 6, 5)), K.Conv2D(3, 2, data_format="channels_first"),
        K.Flatten(data_format="channels_first"), K.Dense(4)]))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 2, 6, 5)).astype("f"))


def test_loops_over_cells_and_convolutions(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    theirs = filled(keras.Sequential([
        keras.Input((4, 6, 5, 2)), K.ConvLSTM2D(3, 2, return_sequences=True), K.Reshape((4, -1)),
        K.RNN(K.LSTMCell(4), return_sequences=True),
        K.RNN([K.GRUCell(3), K.LSTMCell(4), K.GRUCell(5)], return_sequences=True),
        K.Bidirectional(K.RNN(K.SimpleRNNCell(3)))]))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 4, 6, 5, 2)).astype("f"))


def test_masks_of_a_sequential(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    theirs = filled(keras.Sequential([
        keras.Input((7,), dtype="int32"), K.Embedding(20, 6, mask_zero=True), K.Dropout(0.1),
        K.LSTM(5, return_sequences=True), K.GRU(4)]))
    x = np.random.default_rng(0).integers(0, 20, (4, 7)).astype(np.int32)
    x[1, 2:] = x[2, :3] = 0
    both_ways(theirs, tmp_path, x)


def test_masks_and_states_of_a_functional_model(tmp_path: Path) -> None:
    """Keras writes the ops that make masks into the file; ours travel by themselves."""
    keras = references.keras()
    K = keras.layers
    ids = keras.Input((7,), dtype="int32")
    x = K.Embedding(20, 6, mask_zero=True)(ids)
    y, h, c = K.LSTM(5, return_sequences=True, return_state=True)(K.Dense(4)(x))
    z = K.LSTM(5, return_sequences=True)(K.Masking(0.5)(y), initial_state=[h, c])
    z = K.Add()([z, K.MultiHeadAttention(2, 3)(z, y)])
    theirs = filled(keras.Model(ids, K.GlobalAveragePooling1D()(z)))
    x = np.random.default_rng(0).integers(0, 20, (4, 7)).astype(np.int32)
    x[1, 2:] = x[2, 4:] = 0
    both_ways(theirs, tmp_path, x)


def test_an_lstm_that_classifies_texts(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    theirs = filled(keras.Sequential([keras.Input((7,), dtype="int32"), K.Embedding(20, 6),
                                      K.LSTM(5), K.Dense(3, activation="softmax")]))
    x = np.random.default_rng(0).integers(0, 20, (4, 7)).astype(np.int32)
    both_ways(theirs, tmp_path, x)


def test_a_trained_cnn_predicts_the_same_when_compiled(tmp_path: Path) -> None:
    """With the optimizer's state in the file, which is not the model's."""
    keras = references.keras()
    K = keras.layers
    theirs = keras.Sequential([keras.Input((8, 8, 1)), K.Conv2D(4, 3, use_bias=False),
                               K.BatchNormalization(), K.ReLU(), K.MaxPooling2D(),
                               K.Dropout(0.3), K.Flatten(), K.Dense(3, activation="softmax")])
    theirs.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 8, 8, 1)).astype("f")
    theirs.fit(x, random.integers(0, 3, 16), verbose=0)
    ours = both_ways(theirs, tmp_path, x)
    theirs.load_weights(tmp_path / "theirs.weights.h5")
    np.testing.assert_allclose(ours.compile(batch_size=16).predict(x),
                               theirs.predict(x, verbose=0), atol=1e-5)


def test_a_transformer_block_of_a_functional_model(tmp_path: Path) -> None:
    keras = references.keras()
    K = keras.layers
    x = keras.Input((5, 8))
    a = K.MultiHeadAttention(2, 4, dropout=0.1)(x, x, use_causal_mask=True)
    b = K.LayerNormalization()(K.Add()([x, a]))
    c = K.Dense(8)(K.Dense(16, activation="relu")(b))
    y = K.GlobalAveragePooling1D()(K.LayerNormalization()(K.Add()([b, c])))
    theirs = filled(keras.Model(x, K.Dense(2)(y)))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 5, 8)).astype("f"))


def test_each_call_of_an_attention_has_its_own_mask(tmp_path: Path) -> None:
    keras = references.keras()
    x = keras.Input((5, 8))
    heads, scores = keras.layers.MultiHeadAttention(2, 4), keras.layers.Attention()
    y = heads(x, x, use_causal_mask=True) * 2.0 + heads(x, x)
    theirs = filled(keras.Model(x, y + scores([x, x], use_causal_mask=True) - scores([x, x])))
    both_ways(theirs, tmp_path, np.random.default_rng(0).normal(size=(3, 5, 8)).astype("f"))


def test_a_functional_model_of_several_inputs_and_outputs(tmp_path: Path) -> None:
    """With a layer called twice and a Sequential inside."""
    keras = references.keras()
    K = keras.layers
    a, b = keras.Input((4,), name="a"), keras.Input((6,), name="b", dtype="int32")
    shared = K.Dense(3)
    z = K.Concatenate()([shared(a), K.GlobalAveragePooling1D()(shared(K.Embedding(9, 4)(b)))])
    inner = keras.Sequential([keras.Input((6,)), K.Dense(5, activation="relu"), K.Dense(2)])
    theirs = filled(keras.Model([a, b], [inner(z), K.Dense(1, name="head")(z)]))
    theirs.save(tmp_path / "m.keras")
    ours = load_keras(tmp_path / "m.keras")
    random = np.random.default_rng(0)
    rows = {"a": random.normal(size=(2, 4)).astype("f"), "b": random.integers(0, 9, (2, 6))}
    run = references.Run(ours.trace(2).functions["predict"])
    got = run(**{f"x/{name}": array for name, array in rows.items()})
    for y, want in zip(got.values(), theirs.predict(list(rows.values()), verbose=0), strict=True):
        np.testing.assert_allclose(y, want, atol=1e-5)


def test_a_live_model_is_loaded_with_its_training() -> None:
    keras = references.keras()
    theirs = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    theirs.compile(optimizer="adam", loss="mse")
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("f")
    theirs.fit(x, x[:, :1], verbose=0)
    ours = load_keras(theirs)
    for model in (theirs, ours):
        model.fit(x, x[:, :1], shuffle=False, verbose=0)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="must be the name of a file, not 3"):
        load_keras(3)


def test_a_block_of_kerashub_is_ours(tmp_path: Path) -> None:
    """A layer with the attributes that KerasHub's TransformerEncoder has, from its public source."""
    keras = references.keras()
    K = keras.layers

    class TransformerEncoder(K.Layer):
        def build(self, shape: Any) -> None:
            self._self_attention_layer = K.MultiHeadAttention(2, 4)
            self._self_attention_layer_norm = K.LayerNormalization(epsilon=1e-5)
            self._feedforward_layer_norm = K.LayerNormalization(epsilon=1e-5)
            self._feedforward_intermediate_dense = K.Dense(12, activation="relu")
            self._feedforward_output_dense = K.Dense(8)

        def call(self, x: Any) -> Any:
            x = self._self_attention_layer_norm(x + self._self_attention_layer(x, x))
            return self._feedforward_layer_norm(x + self._feedforward_output_dense(
                self._feedforward_intermediate_dense(x)))

    rows = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("f")
    theirs = keras.Sequential([keras.Input((5, 8)), TransformerEncoder(), TransformerEncoder()])
    theirs(rows)
    filled(theirs).save_weights(tmp_path / "w.weights.h5")
    ours = Sequential([L.Input((5, 8)), L.TransformerEncoder(12, 2), L.TransformerEncoder(12, 2)])
    ours.load_weights(tmp_path / "w.weights.h5")
    want = theirs.predict(rows, verbose=0)
    np.testing.assert_allclose(predicted(ours, rows), want, atol=1e-5)
    ours.save_weights(tmp_path / "ours.weights.h5")
    filled(theirs, 1).load_weights(tmp_path / "ours.weights.h5")
    np.testing.assert_array_equal(theirs.predict(rows, verbose=0), want)


def test_layers_in_another_order_are_found_by_their_names(tmp_path: Path) -> None:
    """A model of Keras with attributes of its own has other paths, but layers keep their names."""
    keras = references.keras()

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.z = keras.layers.Dense(5, name="first")
            self.a = keras.layers.Dense(3, name="second")

        def call(self, x: Any) -> Any:
            return self.a(self.z(x))

    theirs, x = Net(), np.random.default_rng(0).normal(size=(2, 4)).astype("f")
    want = np.asarray(theirs(x).detach())
    theirs.save_weights(tmp_path / "w.weights.h5")
    ours = Sequential([L.Input((4,)), L.Dense(5, name="first"), L.Dense(3, name="second")])
    ours.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_allclose(predicted(ours, x), want, atol=1e-5)
