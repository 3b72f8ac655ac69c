"""Models as a whole: names, shapes, weights and files, and the functions traced from them."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch import losses, schedules
from ztorch.dtypes import f64, i32
from ztorch.errors import ConfigError, ShapeError, UnknownName, WeightsError
from ztorch.files import safetensors
from ztorch.graph.op import first_value
from ztorch.model.sequential import Sequential
from ztorch.optimizers import Adam
from ztorch.runtime.snapshot import Metadata, WeightRow

random = np.random.default_rng(8)
X = random.normal(size=(8, 5))
LABELS = random.integers(0, 3, 8).astype(np.int32)
W = np.ones(8)


def classifier(**options):
    return Sequential([L.Input((5,)), L.Dense(7, activation="relu"), L.Dropout(0.0),
                       L.Dense(3, activation="softmax")], **options)


def traced(model=None, batch=8, optimizer="sgd", dtype="float64", metrics=("accuracy",), **more):
    return (model or classifier()).trace(batch, optimizer, "sparse_categorical_crossentropy",
                                         metrics, dtype, **more)


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


def test_shapes_are_found_by_input_or_first_layer_or_build():
    for layers in ([L.Input((5,)), L.Dense(2)], [L.Dense(2, input_shape=(5,))]):
        model = Sequential(layers)
        assert (model.input_shape, model.output_shape) == ((5,), (2,))
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
    assert model.output_shape == (2,) and len(model.weights) == 4
    np.testing.assert_array_equal(model.get_weights()[0], first[0])
    assert model.pop().name == "dense_1" and model.output_shape == (3,)


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
    with pytest.raises(ShapeError, match=r"layer 'square'.*\(4,\) and \(3, 3\)"):
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
    assert again.output_shape == (2,) and again.input_dtype == "uint8"
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


def test_float64_weights_keep_their_digits(tmp_path):
    model = Sequential([L.Input((1,)), L.Dense(1)])
    model.set_weights([np.array([[1 / 3]]), np.array([1e-20])])
    model.save_weights(tmp_path / "w")
    model.load_weights(tmp_path / "w")
    state = traced_states(model.trace(1, dtype="float64"))["dense/kernel"]
    assert first_value(state)[0, 0] == 1 / 3


def traced_states(functions, of="predict"):
    return {v.attrs["name"]: v for v in functions.functions[of].leaves("state")}


def test_weights_of_another_model_are_refused(tmp_path):
    path = tmp_path / "w"
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
    path = tmp_path / "w"
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


# -- functions -----------------------------------------------------------------------------------


def test_functions_depend_on_what_is_given():
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


def test_frozen_layers_stay():
    model = classifier()
    model.layers[0].trainable = False
    found = traced(model)
    assert set(found.functions["train"].updates) == {"dense_1/kernel", "dense_1/bias",
                                                     "optimizer/step"}
    assert [w.trainable for w in found.metadata.weights] == [False, False, True, True]
    model.layers[2].trainable = False
    with pytest.raises(ConfigError, match=r"no trainable weights"):
        traced(model)


def test_metadata_is_json_and_complete():
    found = traced(optimizer=Adam(schedules.CosineDecay(0.1, 10)), seed=3).metadata
    assert Metadata.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert (found.batch_size, found.dtype, found.seed) == (8, "float64", 3)
    assert (found.input_shape, found.target_shape, found.output_shape) == (
        {"": (5,)}, {"": ()}, {"": (3,)})
    assert (found.target_dtype, found.classes) == ({"": i32}, {"": 3})
    declared = found.declaration
    assert [m.name for m in declared.metrics[""]] == ["SparseCategoricalAccuracy"] and declared.optimizer.name == "Adam"
    assert found.loss[""].name == "sparse_categorical_crossentropy"
    assert found.weights[0] == WeightRow("dense/kernel", (5, 7), f64, True, "dense")
    assert found.to_json()["weights"][0] == {
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
