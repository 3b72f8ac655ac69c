"""Each layer against NumPy and PyTorch, and its gradients against finite differences."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.layers import LAYERS, Context, Layer, States

random = np.random.default_rng(5)


def traced(layer, shape, training=False, dtype="float64"):
    """(input leaf, output, context) of a layer on a batch of this shape."""
    x = leaf("input", "x", shape, dtype)
    context = Context(training, States(f64))
    return x, layer(x, context), context


def run(layer, array, training=False, weights=()):
    x, y, context = traced(layer, array.shape, training, str(array.dtype))
    values = {context.read(w): a for w, a in zip(layer.weights, weights, strict=False)}
    return evaluate([y], {x: array, **values}, oracle=True)[0]


def weights_of(layer):
    return [w.value.astype(np.float64) for w in layer.weights]


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 2, 3, 4)])
def test_dense_applies_to_the_last_axis(shape):
    layer, x = L.Dense(3), random.normal(size=shape)
    y = run(layer, x)
    kernel, bias = weights_of(layer)
    assert kernel.shape == (4, 3) and bias.shape == (3,)
    np.testing.assert_allclose(y, x @ kernel + bias, rtol=1e-12)


def test_dense_without_bias_and_with_a_function():
    layer, x = L.Dense(2, activation=lambda v: OPS.tanh(v) * 2.0, use_bias=False), np.ones((3, 4))
    y = run(layer, x)
    assert len(layer.weights) == 1
    np.testing.assert_allclose(y, 2 * np.tanh(x @ weights_of(layer)[0]), rtol=1e-12)


def test_dense_weights_start_as_keras_says():
    layer = L.Dense(50)
    traced(layer, (1, 40))
    kernel, bias = weights_of(layer)
    limit = np.sqrt(6 / 90)
    assert abs(kernel).max() <= limit and abs(kernel).max() > 0.98 * limit and not bias.any()


@pytest.mark.parametrize("layer, torch_function", [
    (L.ReLU(), lambda t, x: t.relu(x)),
    (L.ReLU(max_value=1.0), lambda t, x: x.clamp(0, 1)),
    (L.LeakyReLU(0.1), lambda t, x: t.nn.functional.leaky_relu(x, 0.1)),
    (L.LeakyReLU(), lambda t, x: t.nn.functional.leaky_relu(x, 0.3)),
    (L.ELU(0.7), lambda t, x: t.nn.functional.elu(x, 0.7)),
    (L.Softmax(), lambda t, x: x.softmax(-1)),
    (L.Softmax(axis=1), lambda t, x: x.softmax(1)),
    (L.Activation("gelu"), lambda t, x: t.nn.functional.gelu(x)),
    (L.Activation("silu"), lambda t, x: t.nn.functional.silu(x)),
    (L.Activation("softplus"), lambda t, x: t.nn.functional.softplus(x)),
    (L.Activation("tanh"), lambda t, x: x.tanh()),
    (L.Activation("log_softmax"), lambda t, x: x.log_softmax(-1)),
    (L.Activation("selu"), lambda t, x: t.nn.functional.selu(x)),
    (L.Activation("mish"), lambda t, x: t.nn.functional.mish(x)),
    (L.Activation("hard_sigmoid"), lambda t, x: t.nn.functional.hardsigmoid(x)),
    (L.Activation("linear"), lambda t, x: x),
    (L.LayerNormalization(epsilon=1e-5), lambda t, x: t.nn.functional.layer_norm(x, (4,))),
], ids=lambda v: repr(v) if isinstance(v, Layer) else "")
def test_layer_agrees_with_pytorch(layer, torch_function):
    torch = references.torch()
    x = random.normal(size=(5, 3, 4)) * 3
    expected = torch_function(torch, torch.tensor(x)).numpy()
    np.testing.assert_allclose(run(layer, x), expected, rtol=1e-10, atol=1e-12)


def test_every_activation_name_is_an_op_and_a_layer():
    x = random.normal(size=(2, 4))
    for name in L.activation.ACTIVATIONS:
        assert np.isfinite(run(L.Activation(name), x)).all(), name


def test_every_keras_activation_exists():
    keras = references.keras()
    names = {n for n, f in vars(keras.activations).items() if inspect.isfunction(f)}
    assert names - {"get", "serialize", "deserialize"} <= set(L.activation.ACTIVATIONS)


def test_prelu_learns_a_slope_and_shares_axes():
    layer = L.PReLU(alpha_initializer="ones", shared_axes=[1])
    x = random.normal(size=(2, 3, 4))
    y = run(layer, x, weights=[np.full((1, 4), 0.5)])
    np.testing.assert_allclose(y, np.where(x > 0, x, 0.5 * x))


@pytest.mark.parametrize("axis, shape", [(-1, (4,)), ((1, 2), (3, 4)), (1, (3,)), ([-2], (3,))])
def test_layer_normalization(axis, shape):
    layer, x = L.LayerNormalization(axis=axis, epsilon=1e-3), random.normal(size=(2, 3, 4)) * 5
    gamma, beta = random.normal(size=shape), random.normal(size=shape)
    y = run(layer, x, weights=[gamma, beta])
    axes = tuple(a % 3 for a in (axis if isinstance(axis, (list, tuple)) else [axis]))
    spread = [n if k in axes else 1 for k, n in enumerate(x.shape)]
    centered = x - x.mean(axes, keepdims=True)
    expected = centered / np.sqrt(x.var(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(y, expected * gamma.reshape(spread) + beta.reshape(spread),
                               rtol=1e-10)


def test_layer_normalization_without_weights():
    layer = L.LayerNormalization(center=False, scale=False)
    run(layer, np.ones((2, 3)))
    assert layer.weights == []


def test_shapes_only():
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(L.Flatten(), x), x.reshape(2, 12))
    np.testing.assert_array_equal(run(L.Reshape((-1, 2)), x), x.reshape(2, 6, 2))
    np.testing.assert_array_equal(run(L.Permute((2, 1)), x), x.transpose(0, 2, 1))
    np.testing.assert_array_equal(run(L.RepeatVector(3), x[:, 0]),
                                  np.repeat(x[:, :1], 3, axis=1))
    pixels = np.array([[0, 255]], np.uint8)
    np.testing.assert_allclose(run(L.Rescaling(1 / 127.5, -1.0), pixels), [[-1, 1]], atol=1e-15)


def test_dropout_works_in_training_only_and_keeps_the_mean():
    x = np.ones((200, 100))
    np.testing.assert_array_equal(run(L.Dropout(0.25), x), x)
    y = run(L.Dropout(0.25), x, training=True)
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    assert abs((y == 0).mean() - 0.25) < 0.01


def test_dropout_depends_on_step_and_position_but_not_on_the_run():
    x = leaf("input", "x", (50, 20), "float64")
    context = Context(True, States(f64, seed=3))
    first, second = L.Dropout(0.5)(x, context), L.Dropout(0.5, name="other")(x, context)
    [step] = [s for s in context.updates if s.attrs["name"] == "random/step"]
    feeds = {x: np.ones((50, 20))}
    a, b, after = evaluate([first, second, context.updates[step]], feeds)
    assert after == 1 and (a != b).any()
    assert (evaluate([first], feeds)[0] == a).all()
    assert (evaluate([first], {**feeds, step: after})[0] != a).any()


def test_dropout_with_a_noise_shape_and_its_own_seed():
    y = run(L.Dropout(0.5, noise_shape=(None, 1, 4)), np.ones((20, 6, 4)), training=True)
    assert (y == y[:, :1]).all() and (y == 0).any() and (y == 2).any()
    x = leaf("input", "x", (50, 20), "float64")
    context = Context(True, States(f64))
    layers = [L.Dropout(0.5, seed=s, name=f"d{k}") for k, s in enumerate((1, 1, 2, None))]
    same, again, other, place = evaluate([d(x, context) for d in layers], {x: np.ones((50, 20))})
    assert (same == again).all() and (same != other).any() and (same != place).any()


def test_random_state_is_absent_without_dropout():
    _, _, context = traced(L.Dropout(0.0), (2, 3), training=True)
    assert not context.states.leaves and not context.updates


@pytest.mark.parametrize("layer", [
    L.Dense(3, activation="softmax"), L.Dense(2, activation="gelu"), L.LayerNormalization(),
    L.PReLU("random_normal"), L.Softmax(axis=1), L.ELU(0.3), L.Dropout(0.4)], ids=repr)
def test_gradients_against_differences(layer):
    array = random.normal(size=(3, 4, 4))
    x, y, context = traced(layer, array.shape, training=True)
    loss = OPS.sum(y * y * np.arange(float(y.size)).reshape(y.shape))
    leaves = [x, *(context.read(w) for w in layer.weights)]
    feeds = {x: array, **{context.read(w): random.normal(size=w.shape) for w in layer.weights}}
    for v, g in zip(leaves, evaluate(gradients(loss, leaves), feeds, oracle=True), strict=True):
        way, h = random.normal(size=v.shape), 1e-6
        up, down = (evaluate([loss], {**feeds, v: feeds[v] + s * h * way}, oracle=True)[0]
                    for s in (1, -1))
        np.testing.assert_allclose((g * way).sum(), (up - down) / (2 * h), rtol=2e-6, atol=1e-6)


SAMPLES = {"Dense": {"units": 3}, "Reshape": {"target_shape": (2, 2)}, "Permute": {"dims": (1,)},
           "Dropout": {"rate": 0.5}, "Activation": {"activation": "relu"}, "Input": {"shape": (4,)},
           "RepeatVector": {"n": 2}, "Rescaling": {"scale": 2.0}}


@pytest.mark.parametrize("name", ["Dense", "Flatten", "Reshape", "Permute", "Dropout", "Softmax",
                                  "Activation", "ReLU", "PReLU", "LayerNormalization", "Input",
                                  "RepeatVector", "Rescaling", "ELU", "LeakyReLU"])
def test_config_round_trip(name):
    import json

    layer = LAYERS[name](**SAMPLES.get(name, {}), name="mine")
    config = json.loads(json.dumps(layer.get_config()))
    again = LAYERS[name].from_config(config)
    assert again.get_config() == layer.get_config() and again.name == "mine"


def test_a_subclass_is_a_registered_layer():
    class Doubled(Layer):
        def build(self, input_shape):
            self.by = self.add_weight("by", input_shape[-1:], "ones", trainable=False)

        def call(self, x, context):
            factor = context.read(self.by)
            context.write(self.by, factor + 1.0)
            return x * factor * 2.0

    try:
        assert L.Doubled is Doubled
        assert Doubled().name == "doubled"
        layer = Doubled()
        np.testing.assert_array_equal(run(layer, np.ones((2, 3))), 2 * np.ones((2, 3)))
        assert layer.weights[0].path == "doubled/by" and not layer.weights[0].trains
        _, _, context = traced(layer, (2, 3), training=True)
        assert [s.attrs["name"] for s in context.updates] == ["doubled/by"]
    finally:
        del LAYERS["Doubled"]


# -- the family of dropout -------------------------------------------------------------------------


@pytest.mark.parametrize("layer, shape, same", [
    (L.SpatialDropout1D(0.5), (20, 6, 8), 1), (L.SpatialDropout2D(0.5), (20, 5, 6, 8), (1, 2)),
    (L.SpatialDropout2D(0.5, data_format="channels_first"), (20, 8, 5, 6), (2, 3))], ids=repr)
def test_spatial_dropout_drops_whole_channels(layer, shape, same):
    y = run(layer, np.ones(shape), training=True)
    assert set(np.unique(y)) == {0.0, 2.0} and (y == y.max(same, keepdims=True)).all()
    np.testing.assert_array_equal(run(layer, np.ones(shape)), np.ones(shape))
    with pytest.raises(ShapeError, match=r"needs inputs of . axes"):
        run(layer, np.ones((3, 4)))


@pytest.mark.parametrize("layer, mean, deviation", [
    (L.GaussianNoise(0.5), 3.0, 0.5), (L.GaussianDropout(0.2), 3.0, 3.0 * 0.5)], ids=repr)
def test_gaussian_noise(layer, mean, deviation):
    y = run(layer, np.full((200, 300), 3.0), training=True)
    assert abs(y.mean() - mean) < 0.02 and abs(y.std() - deviation) < 0.02
    np.testing.assert_array_equal(run(layer, np.ones((2, 3))), np.ones((2, 3)))


def test_alpha_dropout_keeps_mean_and_variance():
    x = random.normal(size=(300, 400))
    y = run(L.AlphaDropout(0.3), x, training=True)
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02
    torch = references.torch()
    theirs = torch.nn.functional.alpha_dropout(torch.ones(100, 100, dtype=torch.float64), 0.3, True)
    ours = run(L.AlphaDropout(0.3), np.ones((100, 100)), training=True)
    np.testing.assert_allclose(np.unique(ours), np.unique(theirs.numpy()), rtol=1e-6)
    shared = run(L.AlphaDropout(0.5, noise_shape=(None, 1)), np.ones((50, 4)), training=True)
    assert (shared == shared[:, :1]).all() and len(np.unique(shared)) == 2


@pytest.mark.parametrize("axis", [-1, 1, (1, 2)])
def test_softmax_of_masked_elements_is_keras(axis):
    """Elements that a mask hides get 0, also where it hides all; before, `mask=` had no effect."""
    keras = references.keras()
    x, shown = random.normal(size=(2, 3, 4)).astype("f"), random.random((2, 3, 4)) > 0.4
    shown[0, 0] = False
    want = np.asarray(keras.ops.convert_to_numpy(keras.layers.Softmax(axis)(x, mask=shown)))
    np.testing.assert_allclose(L.Softmax(axis)(x, mask=shown), want, rtol=1e-5, atol=1e-7)


def test_the_average_of_integers_keeps_halves():
    y = L.Average()([np.array([[1, 2]], np.int32), np.array([[2, -5]], np.int32)])
    np.testing.assert_array_equal(y, [[1.5, -1.5]])
