"""Convolutions against Keras and PyTorch: names, shapes, values, gradients, training, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.covering import pairs
from tests.layers.against_keras import is_keras
from ztorch import layers as L
from ztorch.commands.train import compiled
from ztorch.compile.pipeline import build
from ztorch.errors import ConfigError, ShapeError
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace
from ztorch.optimizers import SGD
from ztorch.sources.find import find

random = np.random.default_rng(8)
LINE, IMAGE = (2, 9, 4), (2, 7, 8, 4)

CASES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "1d": ("Conv1D", {"filters": 5, "kernel_size": 3}, LINE),
    "1d, causal": ("Conv1D", {"filters": 5, "kernel_size": 3, "padding": "causal",
                              "dilation_rate": 2}, LINE),
    "1d, same": ("Conv1D", {"filters": 4, "kernel_size": 4, "padding": "same", "strides": 2,
                            "groups": 2, "activation": "tanh"}, LINE),
    "2d": ("Conv2D", {"filters": 5, "kernel_size": 3}, IMAGE),
    "2d, same": ("Conv2D", {"filters": 5, "kernel_size": (4, 3), "padding": "same",
                            "use_bias": False}, IMAGE),
    "2d, strides": ("Conv2D", {"filters": 6, "kernel_size": (2, 3), "strides": (3, 2),
                               "groups": 2, "padding": "same"}, IMAGE),
    "2d, dilation": ("Conv2D", {"filters": 3, "kernel_size": 2, "dilation_rate": (3, 2),
                                "padding": "same", "activation": "sigmoid"}, IMAGE),
    "depthwise 1d": ("DepthwiseConv1D", {"kernel_size": 3, "depth_multiplier": 2}, LINE),
    "depthwise": ("DepthwiseConv2D", {"kernel_size": 3}, IMAGE),
    "depthwise, same": ("DepthwiseConv2D", {"kernel_size": 4, "strides": 2, "padding": "same",
                                            "depth_multiplier": 2}, IMAGE),
    "separable 1d": ("SeparableConv1D", {"filters": 5, "kernel_size": 3}, LINE),
    "separable": ("SeparableConv2D", {"filters": 5, "kernel_size": 3, "depth_multiplier": 2,
                                      "padding": "same", "activation": "tanh"}, IMAGE),
    "transposed 1d": ("Conv1DTranspose", {"filters": 5, "kernel_size": 3, "strides": 2}, LINE),
    "transposed": ("Conv2DTranspose", {"filters": 5, "kernel_size": 3}, IMAGE),
    "transposed, same": ("Conv2DTranspose", {"filters": 3, "kernel_size": (4, 3),
                                             "strides": (2, 3), "padding": "same"}, IMAGE),
    "transposed, wide": ("Conv2DTranspose", {"filters": 3, "kernel_size": 2, "strides": 4}, IMAGE),
    "transposed, more": ("Conv2DTranspose", {"filters": 3, "kernel_size": (3, 4), "strides": (2, 3),
                                             "output_padding": (1, 2), "padding": "same"}, IMAGE),
    "transposed, valid and more": ("Conv2DTranspose", {
        "filters": 3, "kernel_size": 3, "strides": 2, "output_padding": (0, 1)}, IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_keras(name: str) -> None:
    layer, how, shape = CASES[name]
    is_keras(layer, how, random.normal(size=shape)).compiled_agrees()


@pytest.mark.parametrize("name", ["1d", "2d, strides", "depthwise, same", "separable",
                                  "transposed, same"])
def test_channels_first(name: str) -> None:
    layer, how, (batch, *axes, channels) = CASES[name]
    x = random.normal(size=(batch, channels, *axes))
    is_keras(layer, {**how, "data_format": "channels_first"}, x).compiled_agrees()


PADDED: dict[str, tuple[str, dict[str, Any], tuple[int, ...], Any]] = {
    "a number": ("Conv2D", {"filters": 5, "kernel_size": 3, "strides": 2}, IMAGE, 1),
    "one for each axis": ("Conv2D", {"filters": 4, "kernel_size": (5, 3), "groups": 2}, IMAGE,
                          (2, 1)),
    "before and after": ("Conv2D", {"filters": 3, "kernel_size": 3, "dilation_rate": 2}, IMAGE,
                         ((3, 0), (1, 2))),
    "of a line": ("Conv1D", {"filters": 3, "kernel_size": 4, "strides": 3}, LINE, (3, 1)),
    "depthwise": ("DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2}, IMAGE, 1),
    "separable": ("SeparableConv1D", {"filters": 5, "kernel_size": 3}, LINE, 2),
}


@pytest.mark.parametrize(("name", "first"), pairs(list(PADDED), [False, True]))
def test_padding_in_numbers_is_a_layer_of_zeros_before(name: str, first: bool) -> None:
    """When predicting, and after three training steps."""
    kind, how, (_, *axes, channels), padding = PADDED[name]
    shape, more = (channels, *axes) if first else (*axes, channels), {
        "data_format": "channels_first" if first else "channels_last"}
    zeros = getattr(L, f"ZeroPadding{len(axes)}D")(padding, **more)
    inside = getattr(L, kind)(padding=padding, name="conv", **how, **more)
    before = getattr(L, kind)(name="conv", **how, **more)
    x, programs = random.normal(size=(6, *shape)), []
    for layers in ([inside], [zeros, before]):
        model = Sequential([L.Input(shape), *layers, L.Flatten(), L.Dense(2)])
        programs.append(model.compile(batch_size=3, optimizer="sgd", loss="mse", dtype="float64"))
    one, two = programs
    np.testing.assert_allclose(one.predict(x), two.predict(x), rtol=1e-12, atol=1e-12)
    for program in programs:
        program.fit(x, np.ones((6, 2)), epochs=3, shuffle=False, verbose=0)
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_padding_in_numbers_is_torchs() -> None:
    torch = references.torch()
    layer = L.Conv2D(4, 3, strides=2, padding=1)
    model = Sequential([L.Input((8, 7, 3)), layer])
    x = random.normal(size=(2, 8, 7, 3))
    got = model.compile(batch_size=2, dtype="float64").predict(x)
    kernel, bias = (torch.tensor(w.value.astype("float64")) for w in model.weights)
    want = torch.nn.functional.conv2d(torch.tensor(x).movedim(-1, 1), kernel.permute(3, 2, 0, 1),
                                      bias, stride=2, padding=1)
    np.testing.assert_allclose(got, want.movedim(1, -1).numpy(), rtol=1e-12, atol=1e-12)


def test_kernels_start_with_the_spread_of_keras() -> None:
    keras = references.keras()
    for name, shape in (("Conv2D", (9, 9, 16)), ("Conv2DTranspose", (9, 9, 16))):
        ours = Sequential([L.Input(shape), getattr(L, name)(64, 5)]).layers[-1]
        theirs = getattr(keras.layers, name)(64, 5)
        theirs.build((1, *shape))
        spread = keras.ops.convert_to_numpy(theirs.weights[0]).std()
        Sequential([L.Input(shape), ours]).build()
        np.testing.assert_allclose(ours.weights[0].value.std(), spread, rtol=0.02)


@pytest.mark.parametrize("layer", [
    L.Conv2D(8, (3, 2), 2, "same", groups=2, name="c"), L.Conv1D(4, 3, padding="causal"),
    L.SeparableConv2D(8, 3, depth_multiplier=2), L.Conv2DTranspose(8, 3, 2, output_padding=1),
    L.Conv2D(8, 3, padding=((1, 2), (0, 1))), L.Conv1D(4, 3, padding=2),
    L.DepthwiseConv2D(3, data_format="channels_first")], ids=lambda v: v.name)
def test_configs_survive_json(layer: Layer) -> None:
    model = Sequential([L.Input((6, 4) if layer.axes == 1 else (6, 6, 4)), layer])
    again = Sequential.from_json(model.to_json())
    assert again.layers[0].get_config() == layer.get_config()


def test_other_names() -> None:
    assert L.Convolution2D is L.Conv2D and L.SeparableConvolution1D is L.SeparableConv1D
    assert Layer.get({"class_name": "Convolution1D", "config": {
        "filters": 2, "kernel_size": 3}}).filters == 2


# -- training --------------------------------------------------------------------------------------

BATCH, STEPS = 8, 20


def network() -> Sequential:
    return Sequential([
        L.Input((8, 9, 2)),
        L.Conv2D(6, 3, padding="same", activation="relu"), L.MaxPooling2D(2),
        L.DepthwiseConv2D(3, padding="same"), L.Conv2D(4, 2, strides=(2, 1), activation="tanh"),
        L.Conv2DTranspose(3, 3), L.GlobalAveragePooling2D(), L.Dense(5, activation="softmax"),
    ], name="small", seed=3)


def theirs(torch: Any, x: Any, w: list[Any]) -> Any:
    """The same, of PyTorch."""
    f = torch.nn.functional
    x = x.movedim(-1, 1)
    kernels = [k.movedim((-1, -2), (0, 1)) if k.ndim == 4 else k for k in w]
    x = f.max_pool2d(torch.relu(f.conv2d(x, kernels[0], w[1], padding=1)), 2)
    x = f.conv2d(x, w[2].movedim((-2, -1), (0, 1)), w[3], padding=1, groups=6)
    x = torch.tanh(f.conv2d(x, kernels[4], w[5], stride=(2, 1)))
    x = f.conv_transpose2d(x, kernels[6], w[7])
    return x.mean((2, 3)) @ w[8] + w[9]


@pytest.mark.parametrize(("dtype", "device"), [
    ("float64", "cpu"), ("float32", "cpu"), ("float32", "cpu:scalar")])
def test_twenty_steps_are_pytorchs(dtype: str, device: str) -> None:
    torch = references.torch()
    traced = trace(network(), BATCH, SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy",
                   dtype_=dtype)
    executable = build(traced.functions, device, "small")
    names = [w.name for w in traced.metadata.weights]
    first = [executable.state(n) for n in names]
    weights = [torch.tensor(a, requires_grad=True) for a in first]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    call = executable.bind("train")
    for _ in range(STEPS):
        x = random.normal(size=(BATCH, 8, 9, 2)).astype(dtype)
        y = random.integers(0, 5, BATCH).astype(np.int32)
        call.inputs["x"][...] = x
        call.inputs["w"][...] = call.inputs["real"][...] = 1.0
        call.inputs["y"][...] = y.reshape(call.inputs["y"].shape)
        call()
        loss = torch.nn.functional.cross_entropy(
            theirs(torch, torch.tensor(x), weights), torch.tensor(y, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(call.outputs["loss"], loss.detach().numpy(),
                                   atol=1e-9 if dtype == "float64" else 2e-5)
    for name, was, want in zip(names, first, weights, strict=True):
        got = executable.state(name)
        np.testing.assert_allclose(got, want.detach().numpy(), err_msg=name, rtol=0,
                                   atol=1e-9 if dtype == "float64" else 2e-5)
        assert np.abs(got - was).max() > 1e-3


@pytest.mark.slow
def test_the_zoos_net_reads_digits() -> None:
    recipe = find("digits_cnn")
    program = compiled(recipe, "cpu", threads=1)
    (x, y), (x_test, y_test) = zt.data.load("digits")
    program.fit(x, y, epochs=8, verbose=0)
    assert program.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"] > 0.94


# -- mistakes --------------------------------------------------------------------------------------


def built(shape: tuple[int, ...], *layers: Layer) -> None:
    Sequential([L.Input(shape), *layers]).build()


SHAPES = {
    "rank": (lambda: built((8, 8), L.Conv2D(3, 3)),
             r"layer 'conv2d': Conv2D needs inputs of 3 axes \(rows, columns, channels\) besides "
             r"the batch, not \(8, 8\); add a Reshape"),
    "rank, first": (lambda: built((8, 8), L.Conv2D(3, 3, data_format="channels_first")),
                    r"3 axes \(channels, rows, columns\)"),
    "kernel": (lambda: built((4, 9, 2), L.Conv2D(3, 5, name="wide")),
               r"layer 'wide': the kernel is larger than the inputs: \(5, 5, 2, 3\) and "
               r"\(\d+, 4, 9, 2\); use a smaller kernel, or padding='same'"),
    "groups": (lambda: built((9, 9, 4), L.Conv2D(6, 3, groups=3)),
               r"layer 'conv2d': 3 groups do not divide the 4 channels of inputs \(9, 9, 4\)"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_named(name: str) -> None:
    call, message = SHAPES[name]
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize("layer", [L.Conv2D(3, 2), L.DepthwiseConv2D(2), L.Conv2DTranspose(3, 2),
                                   L.SeparableConv2D(3, 2)], ids=lambda v: v.name)
def test_a_layer_used_again_for_other_channels(layer: Layer) -> None:
    built((9, 9, 4), layer)
    with pytest.raises(ShapeError, match=rf"layer '{layer.name}': channels of inputs and kernel do "
                                         r"not fit: \(9, 9, 5\) and .* built for 4 channels"):
        built((9, 9, 5), layer)


CONFIGS = {
    "strides": (lambda: L.Conv2D(3, 3, strides=0),
                r"Conv2D\(strides=...\) must be an integer of at least 1, not 0"),
    "kernel_size": (lambda: L.Conv2D(3, (3, 3, 3)),
                    r"Conv2D\(kernel_size=...\) must be one integer or 2, not \(3, 3, 3\)"),
    "filters": (lambda: L.Conv1D(0, 3), r"Conv1D\(filters=...\) must be a positive integer"),
    "groups": (lambda: L.Conv2D(4, 3, groups=3), r"filters=4, groups=3\): groups must divide filters"),
    "padding": (lambda: L.Conv2D(3, 3, padding="causal"),
                r"Conv2D\(padding='causal'\) must be 'valid' or 'same'"),
    "data_format": (lambda: L.Conv2D(3, 3, data_format="NCHW"), r"data_format='NCHW'"),
    "output_padding": (lambda: L.Conv2DTranspose(3, 3, 2, output_padding=2),
                       r"output_padding=2\) must be less than strides=\(2, 2\)"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_arguments_that_make_no_sense_are_named(name: str) -> None:
    call, message = CONFIGS[name]
    with pytest.raises(ConfigError, match=message):
        call()
