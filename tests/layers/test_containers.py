"""Layers made of layers: what they compute, their names, files and descriptions, and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ztorch as zt
from tests import parity, references
from ztorch import layers as L
from ztorch import ops
from ztorch.dtypes import f32, f64
from ztorch.errors import ConfigError, ShapeError, UnknownName, WeightsError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.layers import LAYERS, Context, States
from ztorch.model.sequential import Sequential

random = np.random.default_rng(6)


def run(layer, array, training=False):
    """(output, {path: weight}) in float64."""
    x = leaf("input", "x", array.shape, f64)
    context = Context(training, States(f64))
    y = layer(x, context)
    weights = {context.read(w): random.normal(size=w.shape) for w in layer.weights}
    named = {v.attrs["name"]: a for v, a in weights.items()}
    return evaluate([y], {x: array, **weights}, oracle=True)[0], named


def build(*layers):
    Sequential(layers).build()


# -- what they compute -----------------------------------------------------------------------------


def test_residual_adds_its_input():
    x = random.normal(size=(3, 4))
    y, w = run(L.Residual(L.Dense(6, activation="tanh"), L.Dense(4), name="r"), x)
    hidden = np.tanh(x @ w["r/dense/kernel"] + w["r/dense/bias"])
    np.testing.assert_allclose(y, x + hidden @ w["r/dense_1/kernel"] + w["r/dense_1/bias"])


def test_residual_with_a_shortcut():
    x = random.normal(size=(3, 4))
    y, w = run(L.Residual(L.Dense(6), shortcut=L.Dense(6, use_bias=False, name="s"), name="r"), x)
    np.testing.assert_allclose(
        y, x @ w["r/dense/kernel"] + w["r/dense/bias"] + x @ w["r/s/kernel"])


MERGES = {"Add": lambda a, b: a + b, "Subtract": lambda a, b: a - b, "Multiply": lambda a, b: a * b,
          "Average": lambda a, b: (a + b) / 2, "Maximum": np.maximum, "Minimum": np.minimum,
          "Concatenate": lambda a, b: np.concatenate([a, b], -1)}


@pytest.mark.parametrize("name", MERGES)
def test_branches_are_merged_as_keras_does(name):
    keras = references.keras()
    x = random.normal(size=(3, 4)).astype(np.float32)
    layer = LAYERS[name](L.Dense(5, name="a"), L.Dense(5, name="b"), name="m")
    y, w = run(layer, x.astype(np.float64))
    a, b = (x @ w[f"m/{k}/kernel"] + w[f"m/{k}/bias"] for k in "ab")
    np.testing.assert_allclose(y, MERGES[name](a, b))
    theirs = getattr(keras.layers, name)()([a.astype(np.float32), b.astype(np.float32)])
    np.testing.assert_allclose(y, keras.ops.convert_to_numpy(theirs), atol=1e-5)


@pytest.mark.parametrize("merge", ["concat", "add", "subtract", "multiply", "average", "maximum",
                                   "minimum"])
def test_parallel_branches_are_merged(merge):
    x = random.normal(size=(3, 4))
    y, w = run(L.Parallel([L.Dense(5, name="a"), L.Dense(5, name="b")], merge=merge, name="p"), x)
    a, b = (x @ w[f"p/{k}/kernel"] + w[f"p/{k}/bias"] for k in "ab")
    np.testing.assert_allclose(y, MERGES[{"concat": "Concatenate"}.get(merge, merge.title())](a, b))


def test_parallel_takes_a_merge_layer():
    x = random.normal(size=(2, 3, 4))
    y, _ = run(L.Parallel([L.Identity(name="a"), L.Identity(name="b")],
                          merge=L.Concatenate(axis=1)), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x], 1))


def test_a_gate_of_a_row_meets_every_position():
    pooled = Sequential([L.Lambda(lambda x: ops.mean(x, axis=(1, 2))),
                         L.Dense(3, activation="sigmoid")], name="gate")
    x = random.normal(size=(2, 4, 5, 3))
    y, w = run(L.Multiply(L.Identity(), pooled, name="m"), x)
    z = x.mean((1, 2)) @ w["m/gate/dense/kernel"] + w["m/gate/dense/bias"]
    np.testing.assert_allclose(y, x / (1 + np.exp(-z))[:, None, None])


def test_concatenate_along_any_axis():
    x = random.normal(size=(2, 3, 4))
    y, _ = run(L.Concatenate(L.Identity(), L.Identity(), axis=1), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x], 1))
    assert run(L.Concatenate(L.Identity(), L.Flatten(), name="f"), x[:, 0])[0].shape == (2, 8)


def test_time_distributed_is_the_layer_at_every_step():
    x = random.normal(size=(2, 3, 4, 5))
    y, w = run(L.TimeDistributed(Sequential([L.Flatten(), L.Dense(6)], name="each"), name="t"), x)
    expected = x.reshape(2, 3, 20) @ w["t/each/dense/kernel"] + w["t/each/dense/bias"]
    np.testing.assert_allclose(y, expected)


def test_a_loss_sees_the_logits_through_containers():
    scores = Sequential([L.Dense(3), L.Activation("softmax")])
    model = Sequential([L.Input((4, 5)), L.TimeDistributed(scores)])
    context = Context(states=States(f64))
    y = model.call(leaf("input", "x", (2, 4, 5), f64), context)
    activation, logits = context.probabilities[y]
    assert activation == "softmax" and logits.shape == y.shape == (2, 4, 3)


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


def test_a_model_in_a_model_computes_what_its_layers_do():
    model = autoencoder()
    assert model.input_shape == model.output_shape == (6,)
    flat = Sequential([L.Input((6,)), *encoder().layers, L.Residual(L.Dense(4)),
                       *Sequential([L.Dense(5, activation="relu", name="c"),
                                    L.Dense(6, name="d")]).layers])
    flat.set_weights(model.get_weights())
    x = random.normal(size=(3, 6)).astype(np.float32)
    a, b = (m.compile("cpu", batch_size=3, threads=1).predict(x) for m in (model, flat))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_equal_layers_of_two_parts_begin_differently():
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
    model.save_weights(tmp_path / "w")
    other = autoencoder(seed=2)
    other.load_weights(tmp_path / "w")
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(WeightsError, match=r"lacks weight 'dense/kernel'"):
        encoder().load_weights(tmp_path / "w")


def test_a_part_is_a_model_of_its_own(tmp_path):
    """Its weights keep their own names when it becomes a part of another model."""
    part = encoder()
    names = [*part.named_weights()]
    model = Sequential([part, decoder()])
    assert model.weights[0].path == "encoder/dense/kernel"
    assert model.weights[0] is part.weights[0] and [*part.named_weights()] == names
    part.save_weights(tmp_path / "w")
    fresh = encoder(seed=5)
    fresh.load_weights(tmp_path / "w")
    np.testing.assert_array_equal(fresh.get_weights()[0], model.get_weights()[0])
    traced = part.trace(2)
    assert [w.name for w in traced.metadata.weights] == names
    assert {v.attrs["name"] for v in traced.functions["predict"].leaves("state")} == set(names)
    assert model.layers[0] is part and part.output_shape == (4,)


def test_parts_can_change_after_the_whole_was_built():
    part = encoder()
    model = Sequential([part])
    assert model.output_shape == (4,)
    part.add(L.Dense(9))
    assert model.output_shape == (9,) and len(model.weights) == 6
    part.pop()
    assert model.output_shape == (4,)


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
    program.save_weights(tmp_path / "w")
    model.load_weights(tmp_path / "w")
    np.testing.assert_array_equal(model.get_weights()[0], program.get_weights()[0])


def test_summary_shows_what_lies_in_what():
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


# -- mistakes --------------------------------------------------------------------------------------


def test_branches_that_part_name_the_layer_and_both_shapes():
    with pytest.raises(ShapeError, match=r"layer 'residual': .*give \(4, 5\) and \(4, 6\); they diverge "
                                         r"at layer 'dense_2', which makes \(4, 5\) of \(4, 6\)"):
        build(L.Input((4, 6)), L.Residual(L.Dense(8), L.Dense(6), L.Dense(5), L.ReLU()))
    with pytest.raises(ShapeError, match=r"diverge at layer 'flatten'.*add shortcut="):
        build(L.Input((4, 6)), L.Residual(L.Flatten(), L.Dense(6)))
    with pytest.raises(ShapeError, match=r"\(7,\) and \(8,\).*layer 'dense'.*shortcut, layer 's'"):
        build(L.Input((6,)), L.Residual(L.Dense(7), shortcut=L.Dense(8, name="s")))


def test_branches_in_parallel_name_the_layers_at_which_they_part():
    deep = Sequential([L.Dense(7, name="wide"), L.ReLU(), L.Dense(5, name="last"), L.Dropout(0.1)],
                      name="deep")
    with pytest.raises(ShapeError, match=r"layer 'parallel': branches 'plain' and 'deep' do not fit "
                                         r"together: \(6,\) and \(5,\); they diverge at layer 'plain', "
                                         r"which makes \(6,\) of \(4,\), and layer 'last', which "
                                         r"makes \(5,\) of \(7,\)"):
        build(L.Input((4,)), L.Parallel([L.Dense(6, name="plain"), deep], merge="add"))
    with pytest.raises(ShapeError, match=r"they diverge at the input of shape \(4, 3\), and layer "
                                         r"'flatten', which makes \(12,\) of \(4, 3\)"):
        build(L.Input((4, 3)), L.Concatenate(L.Identity(), L.Flatten()))


def test_errors_inside_name_the_whole_way():
    with pytest.raises(ShapeError, match=r"layer 'outer/square': cannot reshape"):
        build(L.Input((6,)), Sequential([L.Reshape((4, 4), name="square")], name="outer"))


def test_branches_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"layer 'add'.*'a' and 'b'.*\(4,\) and \(5,\)"):
        build(L.Input((3,)), L.Add(L.Dense(4, name="a"), L.Dense(5, name="b")))
    with pytest.raises(ShapeError, match=r"'a' and 'b' cannot be joined along axis 1: \(3, 4\) "
                                         r"and \(3, 5\)"):
        build(L.Input((3, 2)), L.Concatenate(L.Dense(4, name="a"), L.Dense(5, name="b"), axis=1))
    for axis in (0, 3, -3):
        with pytest.raises(ShapeError, match=r"axis .* is out of range"):
            build(L.Input((3, 2)), L.Concatenate(L.Identity(), L.Identity(), axis=axis))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: L.Residual(), r"Residual needs layers"),
    (lambda: L.Parallel([]), r"Parallel needs branches"),
    (lambda: L.Parallel(L.Dense(2)), r"takes a list of branches, not <Dense 'dense'>"),
    (lambda: L.Parallel([L.Dense(2)], merge=L.Dense(2)), r"must be one of concat.*merge layer"),
    (lambda: L.Parallel([L.Dense(2)], merge="subtract"), r"takes 2 branches, not 1"),
    (lambda: L.Concatenate(1), r"write Concatenate\(axis=1\)"),
    (lambda: L.Dot(axes=(1, 2, 3)), r"Dot\(axes=\(1, 2, 3\)\)"),
    (lambda: L.Add([L.Dense(1)]), r"layer 'add' takes layers.*Sequential"),
    (lambda: L.Add(L.Dense), r"not the class Dense; write Dense\(10\)"),
    (lambda: L.Residual(L.Input((3,))), r"takes no Input"),
    (lambda: L.Subtract(L.Identity()), r"takes 2 branches, not 1"),
    (lambda: L.Concatenate(L.Identity(), axis="last"), r"axis='last'"),
    (lambda: L.Add(L.Dense(1, name="a"), L.Dense(1, name="a")), r"two layers named 'a'"),
    (lambda: L.Lambda(3), r"function of a tensor, not 3"),
    (lambda: L.Lambda(L.ReLU()), r"function of a tensor"),
    (lambda: L.TimeDistributed(L.Dense), r"takes layers, not the class Dense"),
], ids=lambda x: "given" if callable(x) else str(x))
def test_wrong_arguments(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: 3.0, r"layer 'lambda': its function returned float 3.0; return a tensor"),
    (lambda x: ops.sum(x), r"changed the batch axis: \(1, 4\) and \(\)"),
    (lambda x: ops.transpose(x), r"changed the batch axis"),
], ids=lambda x: "given" if callable(x) else str(x))
def test_functions_are_checked_when_the_model_is_built(function, message):
    with pytest.raises(ShapeError, match=message):
        build(L.Input((4,)), L.Lambda(function))


def test_functions_of_numbers_are_shown_the_way():
    """PyTorch's, and the same in losses and activations; also as the TypeError that it is."""
    torch = references.torch()
    mine = L.Lambda(torch.relu, name="mine")
    with pytest.raises(ConfigError, match=r"layer 'mine': its function.*relu\(\).*with zt\.ops"):
        build(L.Input((4,)), mine)
    with pytest.raises(TypeError, match=r"layer 'part/mine': .*ops\.relu\(x\), not with NumPy or Py"):
        build(L.Input((4,)), Sequential([L.Lambda(torch.relu, name="mine")], name="part"))
    with pytest.raises(ConfigError, match=r"layer 'a': its function.* a tensor has no 'tahn'; "
                                          r"compute with zt\.ops"):
        build(L.Input((4,)), L.Dense(3, activation=lambda x: x.tahn(), name="a"))
    with pytest.raises(ConfigError, match=r"loss 'away': its function.*truth value.*; use ops\.where"):
        def away(y, p):
            return y - p if y > p else p - y
        Sequential([L.Input((4,)), L.Dense(1)]).trace(2, "sgd", away)


def test_mistakes_that_are_not_about_tensors_stay_what_they_are():
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        build(L.Input((4,)), L.Lambda(lambda x: x * (1 / 0)))
    with pytest.raises(ConfigError, match=r"required positional argument: 'b'$"):
        build(L.Input((4,)), L.Lambda(lambda a, b: a + b))


def test_a_layer_has_one_place():
    layer = L.Dense(3)
    with pytest.raises(ConfigError, match=r"'dense' is in layer 'add' twice"):
        L.Add(layer, layer)
    with pytest.raises(ConfigError, match=r"'dense' is in layer 'residual' and in layer 'add'; to share it"):
        build(L.Input((3,)), L.Residual(layer), L.Add(layer))
    model = Sequential([L.Input((3,))], name="m")
    with pytest.raises(ConfigError, match=r"'m' cannot be a layer of itself"):
        model.add(Sequential([model]))


def test_inputs_of_a_part_must_be_those_it_was_declared_for():
    with pytest.raises(ShapeError, match=r"layer 'encoder': .*\(6,\) and \(7,\)"):
        build(L.Input((7,)), encoder())
    with pytest.raises(ConfigError, match=r"model 'empty' has no layers"):
        build(L.Input((7,)), Sequential(name="empty"))


def test_time_distributed_needs_steps():
    with pytest.raises(ShapeError, match=r"layer 'time_distributed'.*\(time, features\).*\(4,\)"):
        build(L.Input((4,)), L.TimeDistributed(L.Dense(2)))
