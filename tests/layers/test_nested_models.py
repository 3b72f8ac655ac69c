"""Models in models: names, weights, seeds, files and descriptions."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ztorch as zt
from tests import parity, references
from tests.layers.built import build
from ztorch import layers as L
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, ShapeError, UnknownName, WeightsError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.layers import Context, States
from ztorch.model.sequential import Sequential

random = np.random.default_rng(6)


# -- nested models ---------------------------------------------------------------------------------


def encoder(**how):
    return Sequential([L.Input((6,)), L.Dense(5, activation="relu"), L.Dense(4)], name="encoder",
                      **how)


def decoder():
    return Sequential([L.Dense(5, activation="relu"), L.Dense(6)], name="decoder")


def autoencoder(**how):
    return Sequential([encoder(), L.Residual(L.Dense(4), name="block"), decoder()], name="auto",
                      **how)


def test_names_and_order_of_weights_are_those_of_keras():
    keras = references.keras()
    keras.utils.clear_session()
    K = keras.layers
    theirs = keras.Sequential([
        K.Input((5, 4)), K.TimeDistributed(K.Dense(3, name="each"), name="steps"),
        K.Bidirectional(K.LSTM(3, return_sequences=True), name="both"),
        keras.Sequential([K.Dense(3, name="wide"), K.GRU(2)], name="tail"),
        K.Dense(2, name="head")], name="m")
    ours = Sequential([
        L.Input((5, 4)), L.TimeDistributed(L.Dense(3, name="each"), name="steps"),
        L.Bidirectional(L.LSTM(3, return_sequences=True), name="both"),
        Sequential([L.Dense(3, name="wide"), L.GRU(2)], name="tail"),
        L.Dense(2, name="head")], name="m")
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        path = b.path.removeprefix("m/").replace("lstm_cell/", "").replace("gru_cell/", "")
        assert (a.path, a.shape) == (path, tuple(b.shape))


def test_a_nested_model_equals_its_layers():
    model = autoencoder()
    assert model.input_shape == model.output_shape == (None, 6)
    flat = Sequential([L.Input((6,)), *encoder().layers, L.Residual(L.Dense(4)),
                       *Sequential([L.Dense(5, activation="relu", name="c"),
                                    L.Dense(6, name="d")]).layers])
    flat.set_weights(model.get_weights())
    x = random.normal(size=(3, 6)).astype(np.float32)
    a, b = (m.compile("cpu", batch_size=3, threads=1).predict(x) for m in (model, flat))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_equal_layers_of_two_parts_have_different_initial_weights():
    model = Sequential([L.Input((4,)), Sequential([L.Dense(4)], name="a"),
                        Sequential([L.Dense(4)], name="b")])
    one, two = model.weights[0], model.weights[2]
    assert (one.path, two.path) == ("a/dense/kernel", "b/dense/kernel")
    assert (one.value != two.value).any()


def test_seeds_reach_inside_unless_a_part_has_its_own():
    def first(seed, own=None):
        model = Sequential([encoder(seed=own)], seed=seed)
        return model.get_weights()[0]

    assert (first(1) != first(2)).any()
    np.testing.assert_array_equal(first(1, own=7), first(2, own=7))


def test_weights_of_nested_models_survive_files(tmp_path):
    model = autoencoder(seed=1)
    model.save_weights(tmp_path / "w.safetensors")
    other = autoencoder(seed=2)
    other.load_weights(tmp_path / "w.safetensors")
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(WeightsError, match=r"lacks weight 'dense/kernel'"):
        encoder().load_weights(tmp_path / "w.safetensors")


def test_a_part_is_itself_a_model(tmp_path):
    """Its weights keep their own names when it becomes a part of another model."""
    part = encoder()
    names = [*part.named_weights()]
    model = Sequential([part, decoder()])
    assert model.weights[0].path == "encoder/dense/kernel"
    assert model.weights[0] is part.weights[0] and [*part.named_weights()] == names
    part.save_weights(tmp_path / "w.safetensors")
    fresh = encoder(seed=5)
    fresh.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(fresh.get_weights()[0], model.get_weights()[0])
    traced = part.trace(2)
    assert [w.name for w in traced.metadata.weights] == names
    assert {v.attrs["name"] for v in traced.functions["predict"].leaves("state")} == set(names)
    assert model.layers[0] is part and part.output_shape == (None, 4)


def test_parts_can_change_after_the_whole_was_built():
    part = encoder()
    model = Sequential([part])
    assert model.output_shape == (None, 4)
    part.add(L.Dense(9))
    assert model.output_shape == (None, 9) and len(model.weights) == 6
    part.pop()
    assert model.output_shape == (None, 4)


def test_frozen_parts_do_not_train():
    base = encoder()
    base.trainable = False
    model = Sequential([base, L.Dense(1)])
    assert [w.trains for w in model.weights] == [False] * 4 + [True] * 2
    program = model.compile("cpu", batch_size=4, optimizer="sgd", loss="mse", threads=1)
    before = program.get_weights()
    program.fit(random.normal(size=(8, 6)), random.normal(size=(8, 1)), verbose=0)
    changed = [(a != b).any() for a, b in zip(before, program.get_weights(), strict=True)]
    assert changed == [False] * 4 + [True] * 2
    assert not Sequential.from_json(model.to_json()).layers[0].trainable


def test_programs_of_nested_models_survive_artifacts(tmp_path):
    model = autoencoder()
    program = model.compile("cpu", batch_size=4, optimizer="adam", loss="mse", threads=1)
    x = random.normal(size=(8, 6)).astype(np.float32)
    program.fit(x, x, verbose=0)
    program.save(tmp_path / "m.zt")
    again = zt.load(tmp_path / "m.zt")
    np.testing.assert_array_equal(again.predict(x), program.predict(x))
    assert "block/dense/kernel" in again.weights
    program.save_weights(tmp_path / "w.safetensors")
    model.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(model.get_weights()[0], program.get_weights()[0])


def test_summary_shows_nesting():
    lines = []
    autoencoder().summary(lines.append)
    text = "\n".join(lines)
    assert "\nencoder (Sequential) " in text and "\n  dense_1 (Dense) " in text
    assert "\n  dense (Dense)  " in text and "\nblock (Residual) " in text
    rows = autoencoder().trace(1).metadata.layers
    assert [(r.name, r.depth) for r in rows[:5]] == [
        ("encoder", 0), ("encoder/dense", 1), ("encoder/dense_1", 1), ("block", 0),
        ("block/dense", 1)]
    assert sum(r.parameters for r in rows) == autoencoder().count_params()
    assert rows[3].flops == 4 and rows[4].flops == 2 * 4 * 4 + 4  # each counts its own work


def test_compiled_code_agrees_with_the_oracle():
    model = Sequential([
        L.Input((4, 6)), L.TimeDistributed(L.Residual(L.Dense(6, activation="tanh"))),
        L.Concatenate(L.Dense(5), L.Identity(), axis=-1),
        L.Multiply(L.Dense(7), L.Dense(7, activation="sigmoid"), name="gated")])
    x, context = leaf("input", "x", (3, 4, 6), f32), Context(states=States(f32))
    y = model.call(x, context)
    leaves = [x, *(context.read(w) for w in model.weights)]
    roots = [y, *gradients(OPS.sum(y * y), leaves)]
    feeds = {v: random.normal(size=v.shape) * 0.5 for v in leaves}
    job = parity.Job(Graph({f"r{k}": r for k, r in enumerate(roots)}), feeds)
    for target in ("scalar", parity.HERE[-1]):
        parity.agree(job, parity.compiled(job, target), terms=64)


# -- description -----------------------------------------------------------------------------------


def test_json_describes_nested_models():
    model = Sequential([
        L.Input((4, 6)), L.TimeDistributed(Sequential([L.Dense(5), L.Dense(6)], seed=3)),
        L.Residual(L.Dense(8), shortcut=L.Dense(8, name="project")),
        L.Concatenate(L.Dense(2), L.Identity(), axis=-1, name="wide"),
        L.Parallel([L.Identity(), L.Dense(10)], merge="average"),
        L.Parallel([L.Dense(2), L.Dense(3)], merge=L.Concatenate(axis=2), name="two"),
        L.Bidirectional(L.LSTM(3), merge_mode="sum"),
        L.Add(L.Dense(2, trainable=False), Sequential([L.Dense(4), L.Dense(2)], name="deep")),
    ], name="m", seed=9)
    again = Sequential.from_json(model.to_json())
    assert json.loads(again.to_json()) == json.loads(model.to_json())
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    assert [w.trains for w in again.weights] == [w.trains for w in model.weights]
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("spec", [
    {"class_name": "Residual", "config": {}}, {"class_name": "Residual", "config": {"layers": 3}},
    {"class_name": "Add", "config": {"branches": 3}}, {"class_name": "Sequential", "config": {}},
    {"class_name": "Parallel", "config": {}}, {"class_name": "Model", "config": {}},
    {"class_name": "Parallel", "config": {"branches": [], "merge": "add"}},
    {"class_name": "Add", "config": {"branches": [{"class_name": "Dens", "config": {}}]}},
    {"class_name": "TimeDistributed", "config": {"layer": 3}},
    {"class_name": "Bidirectional", "config": {"layer": {"class_name": "Dense", "config": {
        "units": 1}}}},
    {"class_name": "Residual", "config": {"layers": [3], "wrong": 1}}])
def test_hostile_configs(spec):
    text = json.dumps({"class_name": "Sequential", "config": {"layers": [spec]}})
    with pytest.raises((ConfigError, UnknownName)):
        Sequential.from_json(text)


def test_a_function_cannot_be_described():
    model = Sequential([L.Input((2,)), L.Lambda(ops.exp, name="grow")])
    assert "grow" in repr(model.layers[0])
    with pytest.raises(ConfigError, match=r"'grow' is a Lambda.*subclass of Layer"):
        model.to_json()


def test_inputs_of_a_part_must_be_those_it_was_declared_for():
    with pytest.raises(ShapeError, match=r"layer 'encoder': .*\(6,\) and \(7,\)"):
        build(L.Input((7,)), encoder())
    with pytest.raises(ConfigError, match=r"model 'empty' has no layers"):
        build(L.Input((7,)), Sequential(name="empty"))
