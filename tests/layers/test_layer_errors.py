"""Mistakes with layers: the error names the layer and a fix."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError, UnknownName, WeightsError
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential


def build(*layers):
    Sequential(layers).build()


def test_unknown_activation_suggests_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown activation 'rellu'; did you mean 'relu'"):
        L.Dense(3, activation="rellu")


def test_unknown_layer_suggests_the_nearest():
    with pytest.raises(AttributeError, match=r"did you mean 'Dense'"):
        L.Dens  # noqa: B018


def test_unknown_argument_suggests_the_nearest():
    with pytest.raises(UnknownName, match=r"argument of Dense 'unit'; did you mean 'units'"):
        L.Dense(3, unit=4)


@pytest.mark.parametrize("units", [0, -1, 2.5, True, "3", None])
def test_units_must_be_a_positive_integer(units):
    with pytest.raises(ConfigError, match=r"Dense.units=.*positive integer"):
        L.Dense(units)


def test_numpy_integers_are_accepted():
    assert L.Dense(np.int64(3)).units == 3


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "tab\t", "nul\0", "\x7f", "\u2028", 7,
                                  "optimizer", "random"])
def test_names_that_cannot_serve_are_refused(name):
    with pytest.raises(ConfigError, match=r"Dense.*use printable characters without '/'"):
        L.Dense(3, name=name)


@pytest.mark.parametrize("name", ['a"; drop', "größe 層", "%s{}", "${x}", "{{ 7*7 }}", "\\n"])
def test_printable_names_are_data(name, tmp_path):
    model = Sequential([L.Input((2,)), L.Dense(1, name=name)])
    assert model.weights[0].path == f"{name}/kernel"
    model.save_weights(tmp_path / "w.safetensors")
    before = model.get_weights()
    model.set_weights([w + 1 for w in before])
    model.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    assert Sequential.from_json(model.to_json()).layers[0].name == name


@pytest.mark.parametrize("shape", [(0,), (-1, 2), (2.5,), 7, (True,), None])
def test_input_shapes_are_fixed_tuples(shape):
    with pytest.raises(ConfigError, match=r"Input(.shape=...| takes shape=...)"):
        L.Input(shape)


def test_rank_errors_name_layer_shape_and_fix():
    with pytest.raises(ShapeError, match=r"layer 'rows'.*1 axes \(features\).*\(2, 3\).*Flatten"):
        build(L.Input((2, 3)), L.RepeatVector(2, name="rows"))
    with pytest.raises(ShapeError, match=r"layer 'dense'.*at least one axis.*\(\).*Input"):
        build(L.Input(()), L.Dense(2))


def test_reshape_names_both_shapes():
    with pytest.raises(ShapeError, match=r"layer 'reshape'.*\(6,\) to \(4, 2\).*6 elements"):
        build(L.Input((6,)), L.Reshape((4, 2)))
    with pytest.raises(ShapeError, match=r"\(-1, 4\)"):
        build(L.Input((6,)), L.Reshape((-1, 4)))
    with pytest.raises(ShapeError, match=r"layer 'permute'.*use each of 1 to 2 once"):
        build(L.Input((6, 2)), L.Permute((1, 3, 2)))


@pytest.mark.parametrize("dims", [(0, 1), (2, 3), (1, 1), (0,), (-1, 1)])
def test_a_permutation_counts_from_1_as_in_keras(dims):
    with pytest.raises(ConfigError, match=r"Permute\(dims=.*each of 1 to .* once"):
        L.Permute(dims)


def test_a_layer_used_at_another_width_names_both_shapes():
    layer = L.Dense(2, name="shared")
    build(L.Input((4,)), layer)
    with pytest.raises(ShapeError, match=r"layer 'shared'.*\(5,\) and \(4, 2\).*last axis of 4"):
        build(L.Input((5,)), layer)


def test_integer_inputs_to_dense_are_named():
    with pytest.raises(ShapeError, match=r"layer 'dense'.*int32.*cast"):
        build(L.Input((4,), dtype="int32"), L.Dense(2))


@pytest.mark.parametrize("axis", [0, 3, -3])
def test_normalization_axes_are_checked(axis):
    with pytest.raises(ShapeError, match=r"layer 'layer_normalization': axis .* out of range"):
        build(L.Input((2, 3)), L.LayerNormalization(axis=axis))


@pytest.mark.parametrize("rate", [1.0, -0.1, 2, "half", True])
def test_dropout_rates(rate):
    with pytest.raises(ConfigError, match=r"Dropout.rate=.*from 0 to 1, below 1"):
        L.Dropout(rate)


def test_a_layer_as_activation():
    with pytest.raises(ConfigError, match=r"PReLU\(...\) is a layer with weights"):
        L.Dense(3, activation=L.PReLU())
    with pytest.raises(ConfigError, match=r"activation=3"):
        L.Dense(3, activation=3)


def test_own_functions_cannot_be_saved():
    model = Sequential([L.Input((2,)), L.Dense(1, activation=lambda x: x)])
    with pytest.raises(ConfigError, match=r"Dense\(activation=...\).*registered name"):
        model.to_json()


def test_two_weights_of_one_name():
    class Twice(Layer):
        def build(self, input_shape):
            self.add_weight("w", ())
            self.add_weight("w", ())

    with pytest.raises(ConfigError, match=r"layer 'twice' has two weights named 'w'"):
        build(L.Input((2,)), Twice())
    del L.LAYERS["Twice"]


def test_weights_of_a_wrong_shape():
    model = Sequential([L.Input((2,)), L.Dense(1)])
    before = model.get_weights()
    with pytest.raises(WeightsError, match=r"'dense/bias' has shape \(1,\), .* \(2,\)"):
        model.set_weights([np.ones((2, 1)), np.ones(2)])
    np.testing.assert_array_equal(model.get_weights()[0], before[0])  # nothing was changed
    with pytest.raises(WeightsError, match=r"2 weights, not 1"):
        model.set_weights([np.ones((2, 1))])
    with pytest.raises(WeightsError, match=r"takes numbers"):
        model.set_weights([np.array([["a"], ["b"]]), np.ones(1)])
