"""Attention layers and transformer blocks against Keras and PyTorch, up to twenty training steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.running import Traced, same
from tests.layers.torch_attention import attention_arrays, loaded
from ztorch import Model
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, first_value, leaf
from ztorch.layers import Context, Input, Layer, States
from ztorch.model.sequential import Sequential

random = np.random.default_rng(8)
X = random.normal(size=(3, 5, 8))


# -- Keras ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [
    {"num_heads": 2, "key_dim": 4},
    {"num_heads": 3, "key_dim": 2, "value_dim": 5, "use_bias": False},
    {"num_heads": 2, "key_dim": 3, "output_shape": 6},
], ids=lambda how: ",".join(how))
@pytest.mark.parametrize("causal", [False, True])
def test_names_shapes_first_values_and_results_are_keras(how: dict[str, Any], causal: bool) -> None:
    keras = references.keras()
    x = X.astype(np.float32)
    keras.utils.set_random_seed(0)
    theirs = keras.layers.MultiHeadAttention(**how, name="mha")
    theirs(x, x)
    case = Traced(L.MultiHeadAttention(**how, use_causal_mask=causal, name="mha"), x)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in case.layer.weights]
    for ours, v in zip(case.layer.weights, theirs.weights, strict=True):
        limit = np.abs(keras.ops.convert_to_numpy(v)).max()  # of the same uniform distribution
        assert np.abs(ours.value).max() == pytest.approx(limit, rel=0.2)
    theirs.set_weights(list(case.weights.values()))
    want = keras.ops.convert_to_numpy(theirs(x, x, use_causal_mask=causal))
    np.testing.assert_allclose(case.oracle()[0], want, rtol=1e-4, atol=1e-5)


def test_several_inputs_as_in_keras() -> None:
    """Queries, keys and values of different widths and lengths, under a mask."""
    keras = references.keras()
    arrays = {n: random.normal(size=s).astype(np.float32)
              for n, s in (("q", (2, 5, 8)), ("v", (2, 7, 6)), ("k", (2, 7, 4)))}
    mask = random.random((2, 5, 7)) < 0.7
    mask[:, :, 2] = True
    layer = L.MultiHeadAttention(2, 3, name="mha")
    q, v, k = (leaf("input", n, a.shape, "float32") for n, a in arrays.items())
    m = leaf("input", "m", mask.shape, "bool")
    context = Context(states=States())
    y = layer.attend(q, v, k, m, context=context)
    theirs = keras.layers.MultiHeadAttention(2, 3, name="mha")
    theirs(query=arrays["q"], value=arrays["v"], key=arrays["k"])
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in layer.weights]
    theirs.set_weights([w.value for w in layer.weights])
    want = theirs(arrays["q"], arrays["v"], arrays["k"], attention_mask=mask)
    feeds = {q: arrays["q"], v: arrays["v"], k: arrays["k"], m: mask}
    [got] = evaluate([y], feeds, oracle=True)
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_all_its_gradients_are_pytorchs(causal: bool) -> None:
    torch = references.torch()
    case = Traced(L.MultiHeadAttention(2, use_causal_mask=causal, name="mha"), X)
    module = loaded(torch.nn.MultiheadAttention(8, 2, batch_first=True),
                    attention_arrays(case.weights, "mha"))
    x = torch.tensor(X, requires_grad=True)
    hidden = torch.ones(5, 5).triu(1).bool() if causal else None
    y, _ = module(x, x, x, attn_mask=hidden)
    (y * torch.tensor(case.slope)).sum().backward()
    got = case.oracle()
    same(got[:2], [y, x.grad])
    result = dict(zip(case.weights, got[2:], strict=True))
    for name, want in attention_arrays(result, "mha").items():
        np.testing.assert_allclose(want, module.get_parameter(name).grad, rtol=1e-9, atol=1e-11)
    case.compiled_agrees()


# -- without a peer --------------------------------------------------------------------------------------


def test_rotary_attention_depends_on_distances_only() -> None:
    case = Traced(L.MultiHeadAttention(2, rotary=True), np.concatenate([X, X], axis=1))
    plain = Traced(L.MultiHeadAttention(2), np.concatenate([X, X], axis=1))
    [turned], [flat] = case.oracle()[:1], plain.oracle()[:1]
    np.testing.assert_allclose(flat[:, :5], flat[:, 5:])  # the same rows twice: nothing tells them
    assert np.abs(turned[:, :5] - turned[:, 5:]).max() > 1e-3
    case.compiled_agrees()


def test_a_frozen_block_trains_nothing() -> None:
    model = Sequential([L.Input((5, 8)), L.TransformerEncoder(16, 2, trainable=False), L.Dense(1)])
    assert [w.path for w in model.weights if w.trains] == ["dense/kernel", "dense/bias"]


def test_dropout_is_only_for_training_and_reproducible() -> None:
    layer = L.TransformerEncoder(16, 2, dropout=0.4)
    quiet, loud = Traced(layer, X), Traced(layer, X, training=True)
    graph = loud.graph
    feeds = {**loud.feeds, **{v: first_value(v) for v in graph.leaves("state")
                              if v not in loud.feeds}}
    first, second = (evaluate([loud.y], feeds, oracle=True)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - quiet.oracle()[0]).max() > 0.1
    streams = {v.attrs["stream"] for v in graph.nodes() if v.op.name == "random_bits"}
    assert len(streams) == 3  # weights of attention, and those of each part


@pytest.mark.parametrize("scale", [1e4, 0.0])
def test_hard_inputs_give_finite_numbers(scale: float) -> None:
    for layer in (L.TransformerEncoder(16, 2), L.TransformerDecoder(16, 2, normalize_first=True)):
        case = Traced(layer, (X * scale).astype(np.float32), True, "float32")
        feeds = {v: np.asarray(a, v.dtype.numpy) for v, a in case.feeds.items()}
        assert all(np.isfinite(a).all() for a in evaluate(case.graph.roots, feeds))


def test_a_layer_gradient_is_the_finite_difference() -> None:
    layer = L.TransformerDecoder(16, 2, activation="silu", rotary=True)
    case = Traced(layer, X)
    loss = OPS.sum(case.y * case.y)
    for v, g in zip(case.wrt, evaluate(gradients(loss, case.wrt), case.feeds, oracle=True),
                    strict=True):
        way, h = random.normal(size=v.shape), 1e-5
        up, down = (evaluate([loss], {**case.feeds, v: case.feeds[v] + s * h * way},
                             oracle=True)[0] for s in (1, -1))
        np.testing.assert_allclose((g * way).sum(), (up - down) / (2 * h), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("layer", "message"), [
    (L.TransformerEncoder(16, 3), r"layer 'transformer_encoder': num_heads=3 does not divide the 8 "
                                  r"features.*divides 8"),
    (L.MultiHeadAttention(3), r"layer 'multi_head_attention': num_heads=3 does not divide the 8 "
                              r"features.*key_dim"),
])
def test_heads_that_do_not_divide_the_width(layer: Layer, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Sequential([L.Input((5, 8)), layer]).build()


def test_other_mistakes_are_named() -> None:
    for layer in (L.TransformerDecoder(16, 2), L.MultiHeadAttention(2)):
        with pytest.raises(ShapeError, match=r"2 axes \(length, features\).*\(8,\)"):
            Sequential([L.Input((8,)), layer]).build()
    with pytest.raises(ConfigError, match=r"MultiHeadAttention\(key_dim=...\)"):
        L.MultiHeadAttention(2, key_dim=0)
    layer = L.MultiHeadAttention(2, name="mha")
    x, mask = leaf("input", "x", (3, 5, 8), "float32"), leaf("input", "m", (3, 5, 4), "bool")
    with pytest.raises(ShapeError, match=r"layer 'mha': the mask.*\(3, 1, 5, 4\) and \(3, 2, 5, 5\)"):
        layer.attend(x, x, attention_mask=mask)
    with pytest.raises(ShapeError, match=r"layer 'mha'.*\(3, 5, 4\) and \(8, 8\)"):
        layer(leaf("input", "x", (3, 5, 4), "float32"))


def test_heads_that_share_keys_and_values() -> None:
    """As if each had the same ones, with rotations of another wavelength."""
    cases = [Traced(L.MultiHeadAttention(4, 2, num_key_value_heads=shared, rotary=True,
                                         rotary_wavelength=50.0, name="mha"), X)
             for shared in (2, None)]
    few, all_heads = (case.context for case in cases)
    for ours, theirs in zip(cases[0].layer.weights, cases[1].layer.weights, strict=True):
        value = cases[0].feeds[few.read(ours)]
        shared = ours.shape != theirs.shape
        cases[1].feeds[all_heads.read(theirs)] = np.repeat(value, 2, -2) if shared else value
    assert cases[0].layer.weights[2].shape == (8, 2, 2)
    same(cases[0].oracle()[:1], cases[1].oracle()[:1])
    with pytest.raises(ConfigError, match=r"num_key_value_heads=3\) does not divide num_heads=4"):
        L.MultiHeadAttention(4, num_key_value_heads=3)


@pytest.mark.parametrize("layer", [
    L.MultiHeadAttention(2, 3, dropout=0.1, use_causal_mask=True),
    L.TransformerEncoder(16, 2, activation="gelu"), L.TransformerDecoder(16, 2, rotary=True)],
    ids=lambda v: v.name)
def test_configs_survive_json(layer: Layer) -> None:
    model = Sequential([L.Input((5, 8)), layer])
    model.build()
    again = Sequential.from_json(model.to_json())
    assert again.layers[0].get_config() == layer.get_config()
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


def test_calls_by_keras_names_and_masks_of_integers() -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    layer, seen = L.MultiHeadAttention(2, 4), np.tril(np.ones((1, 4, 4), np.int32))
    np.testing.assert_array_equal(layer(query=x, value=x, key=x, attention_mask=seen),
                                  layer(x, x, x, attention_mask=seen > 0))


def test_the_weights_of_heads_are_those_of_keras() -> None:
    keras = references.keras()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 4, 8)).astype(np.float32), rng.normal(size=(2, 6, 8)).astype(np.float32)
    ours, theirs = L.MultiHeadAttention(2, 4), keras.layers.MultiHeadAttention(2, 4)
    for options in ({}, {"use_causal_mask": True}):
        want = theirs(x, y, return_attention_scores=True, **options)
        if not ours.built:
            ours(x, y)
            ours.set_weights(theirs.get_weights())
        for mine, other in zip(ours(x, y, return_attention_scores=True, **options), want, strict=True):
            np.testing.assert_allclose(mine, np.asarray(other.detach()), rtol=1e-5, atol=1e-6)
    query, value = Input((4, 8)), Input((6, 8))
    result, weights = ours(query, value, return_attention_scores=True)
    model = Model([query, value], [result, weights])
    assert [v.shape for v in model.predict([x, y])] == [(2, 4, 8), (2, 2, 4, 6)]
