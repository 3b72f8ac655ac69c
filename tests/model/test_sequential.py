"""Models as a whole: names, shapes, weights and files, and the functions traced from them."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tests import references
from tests.model.classifiers import classifier, traced, traced_states
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError, UnknownName, WeightsError
from ztorch.files import safetensors
from ztorch.graph.op import first_value
from ztorch.model.sequential import Sequential

# -- names ---------------------------------------------------------------------------------------


def test_layers_are_named_within_the_model():
    for _ in range(2):  # the second model counts from the start
        model = Sequential([L.Dense(2), L.Dense(2), L.ReLU(), L.Dense(2, name="head"), L.Dense(2)])
        assert [layer.name for layer in model.layers] == [
            "dense", "dense_1", "re_lu", "head", "dense_2"]


def test_names_shapes_and_order_of_weights_are_those_of_keras():
    keras = references.keras()
    keras.utils.clear_session()
    theirs = keras.Sequential([
        keras.layers.Input((5, 4)), keras.layers.Dense(6), keras.layers.PReLU(),
        keras.layers.LayerNormalization(), keras.layers.Flatten(), keras.layers.LeakyReLU(),
        keras.layers.Dense(3)])
    ours = Sequential([L.Input((5, 4)), L.Dense(6), L.PReLU(), L.LayerNormalization(),
                       L.Flatten(), L.LeakyReLU(), L.Dense(3)])
    assert [x.name for x in ours.layers] == [x.name for x in theirs.layers]
    assert ([(w.path, w.shape) for w in ours.weights]
            == [(w.path.removeprefix("sequential/"), tuple(w.shape)) for w in theirs.weights])
    assert ours.count_params() == theirs.count_params()


def test_two_layers_of_one_name():
    with pytest.raises(ConfigError, match=r"two layers named 'a'"):
        Sequential([L.Dense(2, name="a"), L.Dense(2, name="a")])
    layer = L.Dense(2)
    with pytest.raises(ConfigError, match=r"'dense' is in model 'sequential' twice"):
        Sequential([layer, layer])


@pytest.mark.parametrize("name", ["", "a/b", "x\n", 5])
def test_model_names(name):
    with pytest.raises(ConfigError, match=r"name .* of a Sequential"):
        Sequential(name=name)


# -- declaration ---------------------------------------------------------------------------------


def test_shapes_come_from_input_or_first_layer_or_build():
    for layers in ([L.Input((5,)), L.Dense(2)], [L.Dense(2, input_shape=(5,))]):
        model = Sequential(layers)
        assert (model.input_shape, model.output_shape) == ((None, 5), (None, 2))
    model = Sequential([L.Dense(2)])
    with pytest.raises(ConfigError, match=r"does not know the shape of its inputs.*Input"):
        model.build()
    model.build((5,))
    assert model.count_params() == 12
    with pytest.raises(ConfigError, match=r"declared for inputs of shape \(5,\), not \(6,\)"):
        model.build((6,))


def test_add_and_pop():
    model = Sequential()
    with pytest.raises(ConfigError, match=r"no layers to pop"):
        model.pop()
    model.add(L.Input((4,)))
    with pytest.raises(ConfigError, match=r"has no layers; add one"):
        model.build()
    model.add(L.Dense(3))
    first = model.get_weights()
    model.add(L.Dense(2))
    assert model.output_shape == (None, 2) and len(model.weights) == 4
    np.testing.assert_array_equal(model.get_weights()[0], first[0])
    assert model.pop().name == "dense_1" and model.output_shape == (None, 3)


@pytest.mark.parametrize("wrong, message", [
    (10, "takes layers, not 10"), (L.Dense, "not the class Dense"), (None, "takes layers"),
    ([L.Dense(2)], r"takes layers, not \[.*Sequential\(\[...\]\) for several")])
def test_only_layers_can_be_added(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Sequential([wrong])


def test_input_is_first_and_once():
    for layers in ([L.Input((2,)), L.Input((2,))], [L.Dense(2), L.Input((2,))]):
        with pytest.raises(ConfigError, match=r"Input must be the first layer, once"):
            Sequential(layers)


def test_errors_deep_in_a_model_name_the_layer():
    model = Sequential([L.Input((5,)), L.Dense(4), L.Reshape((3, 3), name="square"), L.Dense(2)])
    with pytest.raises(ShapeError, match=r"layer 'square'.*\(4,\) to \(3, 3\)"):
        model.compile("cpu")


def test_layers_are_found_by_name():
    model = classifier()
    assert model.get_layer("dense_1") is model.layers[2] is model.get_layer(index=2)
    with pytest.raises(ConfigError, match=r"has no layer 'dens'.*dense, dropout, dense_1"):
        model.get_layer("dens")


def test_seeds():
    same, other = classifier().get_weights()[0], classifier(seed=1).get_weights()[0]
    np.testing.assert_array_equal(same, classifier(seed=0).get_weights()[0])
    assert (same != other).any()
    for seed in (-1, 1.5, "a", True, 1 << 64):
        with pytest.raises(ConfigError, match=r"seed must be"):
            Sequential(seed=seed)


def test_layers_shared_between_models_share_weights():
    base = Sequential([L.Input((4,)), L.Dense(3), L.Dense(2)])
    base.build()
    other = Sequential([L.Input((4,)), base.layers[0], L.Dense(5, name="head")], seed=9)
    assert other.weights[0] is base.weights[0]


# -- description -----------------------------------------------------------------------------------


def test_summary_counts_parameters_flops_and_bytes():
    lines = []
    classifier(name="digits").summary(lines.append)
    text = "\n".join(lines)
    assert "Model: digits" in text and "(batch, 7)" in text
    assert "Parameters: 66 (264 bytes as float32), of them 66 trainable" in text
    rows = {r.name: r for r in traced().metadata.layers}
    assert rows["dense"].parameters == 42 and rows["dense"].bytes == 42 * 8
    assert rows["dropout"].flops == 0
    plain = Sequential([L.Input((6, 5)), L.Dense(7, use_bias=False)]).trace(1).metadata.layers
    assert plain[0].flops == 2 * 6 * 5 * 7


def test_summary_draws_no_weights():
    model = Sequential([L.Input((10**6,)), L.Dense(10**6), L.Dense(10**6)])  # terabytes
    model.summary(lambda line: None)
    assert model.count_params() == 2 * (10**12 + 10**6)


def test_json_describes_the_model():
    model = Sequential([
        L.Input((6, 4), dtype="uint8"), L.Rescaling(1 / 255), L.LayerNormalization(axis=(1, 2)),
        L.Dense(3, "gelu", kernel_initializer="he_normal", name="mid"), L.Reshape((-1,)),
        L.Dropout(0.1), L.Dense(2, trainable=False)], name="m", seed=5)
    again = Sequential.from_json(model.to_json(indent=1))
    assert json.loads(again.to_json()) == json.loads(model.to_json())
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.output_shape == (None, 2) and again.input_dtype == "uint8"
    for text in ("", "[]", "{}", '{"class_name": "Functional", "config": {}}', "null"):
        with pytest.raises(ConfigError, match=r"does not describe a Sequential"):
            Sequential.from_json(text)
    with pytest.raises(UnknownName, match=r"did you mean 'Dense'"):
        Sequential.from_config({"layers": [{"class_name": "Dens", "config": {}}]})


# -- weights in files ----------------------------------------------------------------------------


def test_weights_survive_a_file(tmp_path):
    path = tmp_path / "w.safetensors"
    model = classifier(seed=1)
    model.save_weights(path)
    other = classifier(seed=2)
    other.load_weights(path)
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_array_equal(a, b)
    assert os.listdir(tmp_path) == ["w.safetensors"]  # nothing temporary is left


def test_float64_weights_keep_their_precision(tmp_path):
    model = Sequential([L.Input((1,)), L.Dense(1)])
    model.set_weights([np.array([[1 / 3]]), np.array([1e-20])])
    model.save_weights(tmp_path / "w.safetensors")
    model.load_weights(tmp_path / "w.safetensors")
    state = traced_states(model.trace(1, dtype="float64"))["dense/kernel"]
    assert first_value(state)[0, 0] == 1 / 3


def test_weights_of_another_model_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    classifier().save_weights(path)
    wide = Sequential([L.Input((5,)), L.Dense(8), L.Dense(3)])
    before = wide.get_weights()
    with pytest.raises(WeightsError, match=r"'dense/kernel' has shape \(5, 8\).*\(5, 7\).*load"):
        wide.load_weights(path)
    with pytest.raises(WeightsError, match=r"lacks weight 'other/kernel' of shape \(5, 7\)"):
        Sequential([L.Input((5,)), L.Dense(7, name="other")]).load_weights(path)
    with pytest.raises(WeightsError, match=r"'dense_1/.*which model 'short' lacks"):
        Sequential([L.Input((5,)), L.Dense(7)], name="short").load_weights(path)
    np.testing.assert_array_equal(before[0], wide.get_weights()[0])


def test_damaged_and_missing_files(tmp_path):
    path = tmp_path / "w.safetensors"
    classifier().save_weights(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(WeightsError, match=r"truncated"):
        classifier().load_weights(path)
    with pytest.raises(WeightsError, match=r"cannot read"):
        classifier().load_weights(tmp_path / "none")


def test_a_checkpoint_also_holds_weights(tmp_path):
    model = classifier(seed=3)
    named = {w.path: w.value for w in model.weights}
    named["optimizer/dense/kernel/m"] = np.ones((5, 7), np.float32)
    from ztorch.dtypes import f32

    safetensors.write(tmp_path / "c", {n: (f32, a) for n, a in named.items()})
    other = classifier()
    other.load_weights(tmp_path / "c")
    np.testing.assert_array_equal(other.get_weights()[0], named["dense/kernel"])


@pytest.mark.parametrize("spec", [
    {"class_name": "Dense", "config": {}}, {"class_name": "Dense", "config": 3},
    {"class_name": 3}, {"class_name": "Dense", "config": {"units": -1}}, 7, None,
    {"class_name": "Flatten", "config": {"wrong": 1}}])
def test_hostile_configs(spec):
    text = json.dumps({"class_name": "Sequential", "config": {"layers": [spec]}})
    with pytest.raises((ConfigError, UnknownName)):
        Sequential.from_json(text)
