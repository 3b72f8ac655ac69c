"""Recurrent layers against PyTorch and Keras, forwards and backwards, and compiled."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests import parity, references
from ztorch import layers as L
from ztorch.dtypes import f32, f64
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.layers import Context, States
from ztorch.model.sequential import Sequential
from ztorch.optimizers import Adam

random = np.random.default_rng(12)
BATCH, STEPS, FEATURES, UNITS = 3, 4, 5, 6
KINDS = {"SimpleRNN": 1, "LSTM": 4, "GRU": 3}


def traced(layer, dtype=f64, training=False, shape=(BATCH, STEPS, FEATURES)):
    """(input, output, weights as values, context)."""
    x = leaf("input", "x", shape, dtype)
    context = Context(training, States(dtype))
    y = layer(x, context)
    return x, y, [context.read(w) for w in layer.weights], context


def draws(*values):
    return [random.normal(size=v.shape) * 0.5 for v in values]


def with_gradients(layer, dtype=f64):
    """The output, and the gradients of a weighted sum of it: a graph with data for its leaves."""
    x, y, weights, _ = traced(layer, dtype)
    into = leaf("input", "into", y.shape, dtype)
    roots = [y, *gradients(OPS.sum(y * into), [x, *weights])]
    leaves = [x, *weights, into]
    return roots, dict(zip(leaves, draws(*leaves), strict=True))


# -- PyTorch ---------------------------------------------------------------------------------------


def columns_in_torch(kind, a):
    """Gates side by side become PyTorch's gates one above the other, in its order."""
    gates = np.split(a, KINDS[kind], axis=-1)
    if kind == "GRU":
        gates = [gates[1], gates[0], gates[2]]  # PyTorch begins with reset
    return np.concatenate([g.T for g in gates], axis=0)


def in_torch(kind, kernel, recurrent, bias):
    both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    return {"weight_ih_l0": columns_in_torch(kind, kernel),
            "weight_hh_l0": columns_in_torch(kind, recurrent),
            "bias_ih_l0": columns_in_torch(kind, both[0]),
            "bias_hh_l0": columns_in_torch(kind, both[1])}


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_all_gradients_are_those_of_pytorch(kind, sequences):
    torch = references.torch()
    roots, feeds = with_gradients(getattr(L, kind)(UNITS, return_sequences=sequences))
    x, *weights, into = feeds.values()
    theirs = getattr(torch.nn, "RNN" if kind == "SimpleRNN" else kind)(
        FEATURES, UNITS, batch_first=True).double()
    theirs.load_state_dict({n: torch.tensor(a) for n, a in in_torch(kind, *weights).items()})
    tensor = torch.tensor(x, requires_grad=True)
    y = theirs(tensor)[0] if sequences else theirs(tensor)[0][:, -1]
    (y * torch.tensor(into)).sum().backward()
    ours, dx, *dweights = evaluate(roots, feeds, oracle=True)
    np.testing.assert_allclose(ours, y.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dx, tensor.grad.numpy(), rtol=1e-10, atol=1e-13)
    grads = {n: p.grad.numpy() for n, p in theirs.named_parameters()}
    for name, mine in in_torch(kind, *dweights).items():
        if name == "bias_hh_l0" and kind != "GRU":
            continue  # Keras adds one bias where PyTorch adds two of the same gradient
        np.testing.assert_allclose(mine, grads[name], rtol=1e-10, atol=1e-13, err_msg=name)


def test_bidirectional_equals_pytorch():
    torch = references.torch()
    layer = L.Bidirectional(L.LSTM(UNITS, return_sequences=True))
    x, y, weights, _ = traced(layer)
    feeds = dict(zip([x, *weights], draws(x, *weights), strict=True))
    theirs = torch.nn.LSTM(FEATURES, UNITS, batch_first=True, bidirectional=True).double()
    arrays = list(feeds.values())[1:]
    theirs.load_state_dict({n + way: torch.tensor(a) for way, part in (
        ("", arrays[:3]), ("_reverse", arrays[3:])) for n, a in in_torch("LSTM", *part).items()})
    expected = theirs(torch.tensor(feeds[x]))[0].detach().numpy()
    np.testing.assert_allclose(evaluate([y], feeds, oracle=True)[0], expected, rtol=1e-12)


# -- Keras -----------------------------------------------------------------------------------------

VARIANTS = [
    ("SimpleRNN", {}), ("SimpleRNN", {"activation": "relu", "return_sequences": True}),
    ("LSTM", {}), ("LSTM", {"go_backwards": True, "return_sequences": True}),
    ("LSTM", {"use_bias": False, "recurrent_activation": "hard_sigmoid"}),
    ("LSTM", {"unit_forget_bias": False, "activation": "gelu"}),
    ("GRU", {}), ("GRU", {"reset_after": False}), ("GRU", {"use_bias": False}),
    ("GRU", {"reset_after": False, "use_bias": False, "go_backwards": True}),
]


def agrees_with_keras(ours, theirs):
    """Names, shapes, configs, and outputs from the same weights."""
    keras = references.keras()
    model = keras.Sequential([keras.layers.Input((STEPS, FEATURES)), theirs])
    x, y, weights, _ = traced(ours)
    paths = [w.path.split("/", 1)[1].replace(f"{kind.lower()}_cell/", "")
             for w in model.weights for kind in [next(
                 k for k in ("simple_rnn", "lstm", "gru") if f"{k}_cell" in w.path)]]
    assert [w.path for w in ours.weights] == paths
    assert [w.shape for w in ours.weights] == [tuple(w.shape) for w in model.weights]
    feeds = dict(zip([x, *weights], draws(x, *weights), strict=True))
    model.set_weights(list(feeds.values())[1:])
    expected = keras.ops.convert_to_numpy(model(feeds[x].astype(np.float32)))
    np.testing.assert_allclose(evaluate([y], feeds, oracle=True)[0], expected, atol=2e-6)


@pytest.mark.parametrize(("kind", "how"), VARIANTS, ids=str)
def test_every_variant_is_that_of_keras(kind, how):
    keras = references.keras()
    keras.utils.clear_session()
    theirs = getattr(keras.layers, kind)(UNITS, **how)
    ours = getattr(L, kind)(UNITS, **how)
    known, said = ours.get_config(), theirs.get_config()
    for name, value in known.items():
        if not name.endswith("initializer") and name != "seed":
            assert said[name] == value, name
        elif name != "seed":
            assert said[name]["class_name"].lower() == value.replace("_", "")
    agrees_with_keras(ours, theirs)


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave"])
def test_merge_modes_are_those_of_keras(mode):
    keras = references.keras()
    keras.utils.clear_session()
    sequences = mode == "concat"
    agrees_with_keras(
        L.Bidirectional(L.GRU(UNITS, return_sequences=sequences), merge_mode=mode),
        keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=sequences),
                                   merge_mode=mode))


def test_initial_weights_equal_keras():
    layer = L.LSTM(UNITS)
    traced(layer)
    kernel, recurrent, bias = (w.value for w in layer.weights)
    assert abs(kernel).max() <= np.sqrt(6 / (FEATURES + 4 * UNITS))
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(UNITS), atol=1e-6)
    assert bias.tolist() == [0] * UNITS + [1] * UNITS + [0] * 2 * UNITS
    plain = L.LSTM(UNITS, unit_forget_bias=False)
    traced(plain)
    assert not plain.weights[2].value.any()


# -- compiled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["scalar", parity.HERE[-1]])
def test_compiled_code_agrees_with_the_oracle(target):
    if target not in parity.HERE:
        pytest.skip(f"this host has no {target}")
    layers = [L.SimpleRNN(UNITS, return_sequences=True), L.LSTM(UNITS, return_sequences=True),
              L.GRU(UNITS), L.GRU(UNITS, reset_after=False), L.Bidirectional(L.LSTM(UNITS))]
    jobs = []
    for layer in layers:
        roots, feeds = with_gradients(layer, f32)
        jobs.append(parity.Job(Graph({f"r{k}": r for k, r in enumerate(roots)}), feeds))
    module = parity.Module(jobs, target)
    for k, job in enumerate(jobs):
        parity.agree(job, module.run(k), terms=32)


@pytest.mark.slow
def test_a_long_sequence_trains():
    """Carrying a bit over 20 steps of noise; also that compiling does not blow up with length."""
    model = Sequential([L.Input((40, 2)), L.LSTM(16), L.Dense(2, activation="softmax")], seed=3)
    program = model.compile("cpu", batch_size=32, optimizer=Adam(1e-2), threads=1,
                            loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x = random.normal(size=(512, 40, 2)).astype(np.float32) * 0.1
    y = random.integers(0, 2, 512).astype(np.int32)
    x[:, 20, 0] += 2.0 * y - 1.0
    program.fit(x, y, epochs=40, verbose=0)
    assert program.evaluate(x, y, verbose=0, return_dict=True)["accuracy"] > 0.98


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_draws_one_mask_for_all_steps():
    layer = L.SimpleRNN(FEATURES, activation=None, dropout=0.5, use_bias=False,
                        kernel_initializer="identity", recurrent_initializer="zeros",
                        return_sequences=True)
    x, y, weights, context = traced(layer, training=True)
    feeds = {x: np.ones(x.shape), **{v: w.value for v, w in zip(weights, layer.weights, strict=True)}}
    out = evaluate([y], feeds, oracle=True)[0]
    assert set(np.unique(out)) == {0.0, 2.0} and (out == out[:, :1]).all()
    assert len(context.updates) == 1


def test_recurrent_dropout_only_while_training():
    layer = L.LSTM(UNITS, recurrent_dropout=0.5, seed=4)
    x, y, weights, _ = traced(layer, training=True)
    feeds = dict(zip([x, *weights], draws(x, *weights), strict=True))
    _, still, same, context = traced(layer)
    assert not context.updates
    again = dict(zip([_, *same], feeds.values(), strict=True))
    plain = evaluate([still], again, oracle=True)[0]
    assert (evaluate([y], feeds, oracle=True)[0] != plain).any()


# -- description and errors ------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [
    L.SimpleRNN(3, activation="relu", seed=5), L.LSTM(3, dropout=0.1, unit_forget_bias=False),
    L.GRU(3, reset_after=False, return_sequences=True, name="mine"),
    L.Bidirectional(L.LSTM(3, return_sequences=True), merge_mode="sum"),
    L.Bidirectional(L.GRU(3), backward_layer=L.GRU(2, go_backwards=True))], ids=repr)
def test_configs_make_the_same_layer_again(layer):
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert again.get_config() == layer.get_config()
    if not isinstance(layer, L.Bidirectional) or layer.backward_layer is None:
        first, second = (Sequential([L.Input((4, 2)), one], seed=1) for one in (layer, again))
        for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_inputs_without_steps_are_named():
    with pytest.raises(ShapeError, match=r"layer 'lstm'.*\(steps, features\).*\(4,\).*Reshape"):
        Sequential([L.Input((4,)), L.LSTM(3)]).build()


def test_a_layer_used_at_another_width_names_both_shapes():
    layer = L.GRU(3)
    traced(layer)
    with pytest.raises(ShapeError, match=r"layer 'gru'.*\(4, 2\) and \(5, 9\)"):
        traced(layer, shape=(3, 4, 2))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: L.LSTM(0), r"LSTM\(units=...\) must be a positive integer"),
    (lambda: L.GRU(2, dropout=1.0), r"GRU\(dropout=...\).*below 1"),
    (lambda: L.Bidirectional(L.Dense(2)), r"takes a recurrent layer"),
    (lambda: L.Bidirectional(L.LSTM), r"takes a recurrent layer"),
    (lambda: L.Bidirectional(L.LSTM(2), merge_mode="max"), r"must be one of concat, sum"),
    (lambda: L.Bidirectional(L.LSTM(2), backward_layer=L.LSTM(2, name="b")),
     r"both layers have go_backwards=False"),
    (lambda: L.Bidirectional(L.LSTM(2), backward_layer=L.LSTM(
        2, go_backwards=True, return_sequences=True, name="b")), r"same return_sequences"),
], ids=lambda x: "given" if callable(x) else str(x))
def test_wrong_arguments(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_unsupported_features_are_refused_by_name():
    with pytest.raises(UnknownName, match=r"argument of LSTM 'unroll': its steps are one compiled loop"):
        L.LSTM(3, unroll=True)
    with pytest.raises(UnknownName, match=r"did you mean 'sigmoid'"):
        L.LSTM(3, recurrent_activation="sigmoyd")
