"""`model.input`, `layer.output` and their kin: models that begin and end at tensors of others."""

import copy

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.errors import ConfigError

rng = np.random.default_rng(3)


def _base(layers=L, sequential=zt.Sequential):
    return sequential([layers.Input((4,)), layers.Dense(8, activation="relu"),
                       layers.Dense(5, activation="tanh", name="features"), layers.Dense(3)])


def test_models_from_tensors_of_a_sequential_share_weights_and_train_as_in_keras():
    keras = references.keras()
    x, y = rng.normal(size=(16, 4)), rng.normal(size=(16, 2))
    ours, theirs = _base(), _base(keras.layers, keras.Sequential)
    ours.set_weights(theirs.get_weights())

    def features(model, kind):
        return kind(model.inputs, model.get_layer("features").output)

    def head(model, kind, layers):
        model.layers[0].trainable = False
        return kind(inputs=model.inputs, outputs=layers.Dense(2, name="head")(
            model.layers[-2].output))

    assert ours.input is ours.inputs[0]
    expected = features(theirs, keras.Model)
    inner = features(ours, zt.Model)
    np.testing.assert_allclose(inner.predict(x), expected.predict(x, verbose=0), atol=1e-5)
    a, b = head(ours, zt.Model, L), head(theirs, keras.Model, keras.layers)
    assert [w.path for w in a.weights] == [
        "dense/kernel", "dense/bias", "features/kernel", "features/bias", "head/kernel",
        "head/bias"]
    a.set_weights(b.get_weights())
    b.compile(keras.optimizers.SGD(0.5), "mse")
    for k in (0, 8, 0, 8):
        b.train_on_batch(x[k:k + 8], y[k:k + 8])
    a.compile("cpu", optimizer=zt.optimizers.SGD(0.5), loss="mse", batch_size=8)
    a.fit(x, y, epochs=2, shuffle=False, verbose=0)
    for mine, other in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    np.testing.assert_array_equal(ours.get_weights()[2], a.get_weights()[2])  # shared
    np.testing.assert_allclose(inner.predict(x), expected.predict(x, verbose=0), atol=1e-5)


def test_tensors_of_functional_models():
    a, b = L.Input((3,), name="a"), L.Input((2,), name="b")
    joined = L.Concatenate(name="joined")([L.Dense(4, name="left")(a), b])
    model = zt.Model([a, b], [L.Dense(1, name="y")(joined), joined])
    assert [s.layer.name for s in model.inputs] == ["a", "b"] and model.input == model.inputs
    assert [s.layer.name for s in model.outputs] == ["y", "joined"]
    assert model.get_layer("y").input is model.get_layer("joined").output
    assert [s.shape for s in model.get_layer("joined").input] == [(None, 4), (None, 2)]
    left = zt.Model(model.input[0], model.get_layer("left").output)
    x = rng.normal(size=(5, 3))
    kernel, bias = left.get_weights()
    np.testing.assert_allclose(left.predict(x), x @ kernel + bias, atol=1e-5)
    twin = copy.deepcopy(model)
    assert twin.get_layer("left").output is not model.get_layer("left").output
    assert zt.Model(twin.inputs, twin.outputs[0]).output_shape == (None, 1)


def test_a_model_may_begin_at_the_output_of_a_layer():
    base = _base()
    top = zt.Model(base.get_layer("features").output, base.output)
    assert top.input_shape == (None, 5)
    x = rng.normal(size=(6, 5)).astype("float32")
    kernel, bias = base.layers[-1].get_weights()
    np.testing.assert_allclose(top.predict(x), x @ kernel + bias, atol=1e-5)
    again = zt.Model.from_config(top.get_config())
    again.set_weights(top.get_weights())
    np.testing.assert_array_equal(again.predict(x), top.predict(x))


def test_a_layer_that_was_called_twice_has_the_tensors_of_its_first_call():
    shared = L.Dense(2)
    x = L.Input((3,))
    first = shared(x)
    second = shared(L.Input((3,)))
    assert shared.output is first and shared.output is not second
    assert shared.input is x.symbol and x.output is x.input
    keras = references.keras()
    theirs = keras.layers.Dense(2)
    k = keras.Input((3,))
    y = theirs(k)
    theirs(keras.Input((3,)))
    assert theirs.output is y and theirs.input is k


def test_layers_that_were_never_called_have_no_tensors():
    for layer in (L.Dense(3), zt.Sequential([L.Dense(3)]), zt.Sequential()):
        assert not hasattr(layer, "output") and not hasattr(layer, "input")
        with pytest.raises(ConfigError, match="was never called on a symbolic tensor, so it has "
                                              "no output"):
            _ = layer.output
    with pytest.raises(AttributeError, match="has no attribute"):
        _ = references.keras().layers.Dense(3).output
    model = zt.Sequential([L.Dense(3)])
    model.build((4,))
    assert model.output.shape == (None, 3)
    model.add(L.Dense(2))
    assert model.output.shape == (None, 2) and model.layers[1].input is model.layers[0].output


def test_layers_may_have_parts_called_input_and_output():
    class Doubled(L.Layer):
        def __init__(self):
            super().__init__()
            self.output = L.Dense(2, use_bias=False)

        def call(self, x):
            return self.output(x) * 2.0

    model = zt.Sequential([L.Input((3,)), Doubled()])
    x = rng.normal(size=(4, 3))
    np.testing.assert_allclose(model.predict(x), 2 * x @ model.get_weights()[0], atol=1e-5)


def test_inputs_declare_a_batch_size():
    for declared in (L.InputLayer(shape=(4,), batch_size=8), L.Input(batch_shape=(8, 4))):
        model = zt.Sequential([declared, L.Dense(1)])
        assert (declared.shape, declared.batch_size) == ((8, 4), 8)
        again = zt.Sequential.from_config(model.get_config())
        assert again.inputs_by_name[""].batch_size == 8
    assert model.compile("cpu").batch_size == 8
    keras, shapes = references.keras(), []
    for kind in (keras, zt):
        x = kind.layers.Input((4, 6), batch_size=5)
        y = kind.layers.Dense(3)(x)
        z = kind.ops.reshape(y, (y.shape[0], -1))
        shapes.append([v.shape for v in (x, y, z)] + [kind.Model(x, z).output_shape])
    assert shapes[0] == shapes[1]
    assert model.compile("cpu", batch_size=2).batch_size == 2
    assert L.Input(batch_shape=(None, 4)).batch_size is None
    a, b = L.Input((2,), batch_size=3), L.Input((2,), batch_size=4)
    with pytest.raises(ConfigError, match="different batch sizes"):
        zt.Model([a, b], L.Add()([a, b])).compile("cpu")
    for wrong in ({}, {"shape": (4,), "batch_shape": (2, 4)}, {"batch_shape": 4},
                  {"batch_shape": (2, 4), "batch_size": 2}, {"shape": (4,), "batch_size": 0}):
        with pytest.raises(ConfigError):
            L.Input(**wrong)
