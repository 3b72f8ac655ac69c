"""Models written as ONNX files: ONNX Runtime computes the same as ztorch, and ztorch reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.cases.samples import Case, cases
from tests.cases.zoo import NAMES, small
from tests.interchange.exported import randomized
from tests.interchange.onnx_files import UNWRITABLE, agrees, kinds, ours, rows, runtime
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import Unsupported, WeightsError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.op_calls import record_calls
from ztorch.interchange.onnx import load
from ztorch.interchange.onnx.save import drafted, encode
from ztorch.interchange.onnx.selection import WriteSelector
from ztorch.layers.activation import ACTIVATIONS
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.model.model import Model

# -- the zoo ---------------------------------------------------------------------------------------

SLOW = {"unet", "mobilenet", "bert_base"}
FULL = {"resnet18", "cifar_resnet"}  # consist of the same layers as mobilenet and unet
ZOO = [pytest.param(n, marks=pytest.mark.full if n in FULL else pytest.mark.slow if n in SLOW else ())
       for n in NAMES]


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo(name: str, tmp_path: Path) -> None:
    model = small(name).model
    path = tmp_path / "model.onnx"
    zt.onnx.save(model, path)
    x = rows(model, 2)
    program = model.compile("cpu", batch_size=2)
    inputs = x[0] if len(x) == 1 else dict(zip(model.inputs_by_name, x, strict=True))
    mine = program.predict(inputs)
    again = load(path).compile("cpu", batch_size=2).predict(inputs)
    for k, theirs in enumerate(runtime(path, *x)):
        a = mine if isinstance(mine, np.ndarray) else list(
            mine.values() if isinstance(mine, dict) else mine)[k]
        b = again if isinstance(again, np.ndarray) else list(again.values())[k]
        np.testing.assert_allclose(theirs, a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


# -- layers, and the nodes that people expect ------------------------------------------------------

LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], list[Layer]], dict[str, int]]] = {
    "wider on one side": ((9, 3), lambda: [  # first, as the fast path takes it
        L.Conv1D(4, 3, padding="causal", dilation_rate=2), L.Conv1DTranspose(2, 3, 2, padding="same"),
        L.MaxPooling1D(2, strides=1, padding="same")],
        {"Conv": 1, "ConvTranspose": 1, "MaxPool": 1, "Transpose": 2}),
    "dense": ((5,), lambda: [L.Dense(4, activation="relu"), L.Dense(3, use_bias=False)],
              {"Gemm": 1, "Relu": 1, "MatMul": 1}),
    "dense in rows": ((3, 5), lambda: [L.Dense(4)], {"MatMul": 1, "Add": 1}),
    "two convolutions": ((8, 7, 3), lambda: [
        L.Conv2D(4, 3, activation="relu", padding="same"), L.BatchNormalization(),
        L.Conv2D(6, (3, 2), strides=2, groups=2, activation="silu"), L.MaxPooling2D(2)],
        {"Conv": 2, "Relu": 1, "BatchNormalization": 1, "Sigmoid": 1, "Mul": 1, "MaxPool": 1,
         "Transpose": 2}),
    "channels first": ((3, 8, 7), lambda: [
        L.Conv2D(4, 3, data_format="channels_first"),
        L.AveragePooling2D(2, data_format="channels_first")], {"Conv": 1, "AveragePool": 1}),
    "depthwise": ((8, 7, 3), lambda: [L.DepthwiseConv2D(3, depth_multiplier=2, padding="same")],
                  {"Conv": 1, "Transpose": 2}),
    "separable": ((8, 7, 3), lambda: [L.SeparableConv2D(5, 3)],
                  {"Conv": 1, "Transpose": 2, "MatMul": 1, "Add": 1}),
    "transposed, valid": ((4, 3), lambda: [L.Conv1DTranspose(2, 2, 3)],
                          {"ConvTranspose": 1, "Transpose": 2}),
    "transposed, longer": ((4, 5, 3), lambda: [L.Conv2DTranspose(2, 3, 2, padding="same",
                                                                 output_padding=1)],
                           {"ConvTranspose": 1, "Transpose": 2}),
    "pooling at borders": ((7, 5, 3), lambda: [
        L.AveragePooling2D(3, strides=2, padding="same"), L.MaxPooling2D(2, strides=1,
                                                                         padding="same")],
                           {"AveragePool": 1, "MaxPool": 1, "Transpose": 2}),
    "global pooling": ((7, 5, 3), lambda: [L.Conv2D(4, 3), L.GlobalAveragePooling2D()],
                       {"Conv": 1, "Transpose": 1, "ReduceMean": 1}),
    "global maximum": ((7, 3), lambda: [L.GlobalMaxPooling1D()], {"ReduceMax": 1}),
    "upsampling": ((4, 3, 2), lambda: [L.UpSampling2D((2, 3)),
                                       L.UpSampling2D(2, interpolation="bilinear")],
                   {"Resize": 2, "Transpose": 2}),
    "frames": ((6, 5, 2), lambda: [L.ZeroPadding2D(((1, 0), (2, 1))), L.Cropping2D(1)],
               {"Pad": 1, "Slice": 1}),
    "layer norm": ((3, 4), lambda: [L.LayerNormalization(), L.LayerNormalization(
        axis=(1, 2), center=False), L.LayerNormalization(scale=False)], {"LayerNormalization": 3}),
    "group norm": ((4, 4, 6), lambda: [L.GroupNormalization(3)],
                   {"GroupNormalization": 1, "Transpose": 2}),
    "batch norm": ((4,), lambda: [L.BatchNormalization(scale=False)], {"BatchNormalization": 1}),
    "lstm": ((5, 3), lambda: [L.LSTM(4, return_sequences=True), L.LSTM(3, go_backwards=True)],
             {"LSTM": 2, "Squeeze": 2, "Transpose": 1}),
    "gru": ((5, 3), lambda: [L.GRU(4, return_sequences=True), L.GRU(3, reset_after=False)],
            {"GRU": 2, "Squeeze": 2, "Transpose": 1}),
    "rnn": ((5, 3), lambda: [L.SimpleRNN(4, activation="relu", use_bias=False)],
            {"RNN": 1, "Squeeze": 1, "Transpose": 1}),
    "hard gates": ((5, 3), lambda: [L.LSTM(4, recurrent_activation="hard_sigmoid")],
                   {"LSTM": 1, "Squeeze": 1, "Transpose": 1}),
    "both ways": ((5, 3), lambda: [L.Bidirectional(L.GRU(4, return_sequences=True))],
                  {"GRU": 2, "Squeeze": 2, "Transpose": 2, "Slice": 2, "Concat": 1}),
    "causal attention": ((5, 8), lambda: [L.MultiHeadAttention(2, use_causal_mask=True)],
                         {"MatMul": 6, "Add": 4, "Reshape": 4, "Transpose": 4, "Mul": 1,
                          "Where": 1, "Softmax": 1}),
    "embedding": ((5,), lambda: [L.Embedding(7, 3), L.PositionEmbedding()],
                  {"Gather": 1, "Add": 1}),
}


@together()
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    shape, make, expected = LAYERS[name]
    dtype = "int32" if name == "embedding" else None
    model = randomized(zt.Sequential([L.Input(shape, dtype=dtype), *make()]))
    assert kinds(agrees(model)) == expected


OTHERS: dict[str, tuple[tuple[int, ...], Callable[[], list[Layer]]]] = {
    "rms norm": ((3, 4), lambda: [L.RMSNormalization()]),
    "unit norm": ((3, 4), lambda: [L.UnitNormalization()]),
    "norm of axis 1": ((3, 4), lambda: [L.LayerNormalization(axis=1)]),
    "group norm of rows": ((6,), lambda: [L.GroupNormalization(2)]),
    "unrolled": ((4, 3), lambda: [L.LSTM(2, activation="silu"), L.RepeatVector(2),
                                  L.SimpleRNN(2, activation="gelu", return_sequences=True)]),
    "merged": ((4, 4, 3), lambda: [L.Residual(L.Conv2D(3, 3, padding="same"), L.PReLU()),
                                   L.Add(L.Identity(), L.Dense(3)), L.Permute((2, 1, 3))]),
    "steps": ((4, 6), lambda: [L.TimeDistributed(L.Dense(3)), L.Flatten(), L.Reshape((2, -1))]),
    "transformer": ((5, 8), lambda: [L.TransformerEncoder(6, 2, activation="gelu"),
                                     L.TransformerDecoder(6, 2, rotary=True)]),
    "convolved states": ((3, 5, 4, 2), lambda: [L.ConvLSTM2D(2, (3, 2), strides=(2, 1), padding="same")]),
    "rescaled": ((4,), lambda: [L.Rescaling(0.5, 1.0), L.ReLU(max_value=1.2, negative_slope=0.1),
                                L.LeakyReLU(), L.ELU(0.5), L.Softmax()]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_layers_that_become_smaller_nodes(name: str) -> None:
    shape, make = OTHERS[name]
    agrees(randomized(zt.Sequential([L.Input(shape), *make()])))


@together()
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    agrees(zt.Sequential([L.Input((3, 4)), L.Activation(name)]), 1e-5)


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    a, b = L.Input((4,), name="first"), L.Input((3,), name="second")
    joined = L.Concatenate()([L.Dense(5)(a), b])
    model = Model([a, b], {"scores": L.Softmax()(joined), "sum": L.Dense(1)(joined)})
    data = agrees(model)
    (tmp_path / "m.onnx").write_bytes(data)
    graph = onnx.load_from_string(data).graph
    assert [i.name for i in graph.input] == ["x/first", "x/second"]
    assert [o.name for o in graph.output] == ["y/scores", "y/sum"]
    x = rows(model, 2)
    again = load(tmp_path / "m.onnx")
    assert list(again.inputs_by_name) == ["x_first", "x_second"]
    for mine, theirs in zip(ours(again, *x), runtime(data, *x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# -- ops, from the registry ------------------------------------------------------------------------


@together(of=120)
@pytest.mark.parametrize("case", [c for c in cases() if c.dtype.name in ("f32", "i32", "bool")],
                         ids=str)
def test_every_op(case: Case) -> None:
    """Traced as layers do, through OPS; ops without an ONNX equivalent are named."""
    arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in case.arrays()]
    x = {f"x{k}": v for k, v in enumerate(case.leaves("float32"))}
    with record_calls() as calls:
        y = case._one(getattr(OPS, case.public.name)(
            *case.public.grouped(list(x.values())), **case.sample.attrs))
    try:
        data = drafted("op", x, {"y": y}, Context(), calls).packed()
    except Unsupported as error:
        missing = {line.split()[0].strip(":") for line in str(error).splitlines()[1:]}
        assert missing <= UNWRITABLE, error
        return
    [expected] = evaluate([y], dict(zip(x.values(), arrays, strict=True)))
    if not x:
        assert onnx.load_from_string(data).graph.output
        return
    used = {i.name for i in onnx.load_from_string(data).graph.input}
    inputs = [a for name, a in zip(x, arrays, strict=True) if f"x/{name}" in used]
    [actual] = runtime(data, *inputs)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("short", ["float16", "bfloat16"])
def test_roundings(short: str) -> None:
    x = {"x0": leaf("input", "x0", (6,), "float32")}
    y = ops.rounded_to(x["x0"], short)
    array = np.array([1.001, -3.7, 1e-9, 0.0, 6e4, np.inf], np.float32)
    data = drafted("op", x, {"y": y}, Context(), {}).packed()
    [expected] = evaluate([y], {x["x0"]: array})
    assert (expected != array).any()
    np.testing.assert_array_equal(runtime(data, array)[0], expected)


def test_weights_have_their_names_and_can_be_others(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((6, 6, 2)), L.Conv2D(3, 3, name="see"), L.Flatten(),
                           L.Dense(2, name="end")])
    program = model.compile("cpu", batch_size=2, loss="mse", optimizer="sgd")
    x = rows(model, 2)[0]
    program.fit(x, np.ones((2, 2), np.float32), epochs=2, verbose=0)
    zt.onnx.save(model, tmp_path / "m.onnx", weights=program.weights)
    arrays = {i.name: onnx.numpy_helper.to_array(i)
              for i in onnx.load(str(tmp_path / "m.onnx")).graph.initializer}
    np.testing.assert_array_equal(arrays["end/kernel"], program.weights["end/kernel"])
    np.testing.assert_array_equal(arrays["see/kernel"],
                                  program.weights["see/kernel"].transpose(3, 2, 0, 1))
    np.testing.assert_allclose(runtime(tmp_path / "m.onnx", x)[0], program.predict(x), rtol=1e-5,
                               atol=1e-6)
    with pytest.raises(WeightsError, match="shape"):
        encode(model, weights={"end/bias": np.zeros(3)})
    with pytest.raises(WeightsError, match="end/bais"):
        encode(model, weights={"end/bais": np.zeros(2)})


def test_a_layer_that_depends_on_more_is_no_single_node() -> None:
    """A mask or a state from elsewhere would be lost; so would additions of a subclass."""
    a, b = (leaf("input", name, (1, 4), "float32") for name in "ab")
    norm, context = L.LayerNormalization(), Context()
    alone = norm(a, context)
    masked = alone * b
    context.producers[masked] = (norm, [a])
    selector = WriteSelector(context, {}, Counter())
    for y, needs in ((alone, (a,)), (masked, masked.args)):
        pending = selector.pending(y)
        assert pending is not None and pending.needs == needs

    class Doubled(L.LSTM):
        def call(self, x: Any, context: Context, *more: Any, **how: Any) -> Any:
            return super().call(x, context, *more, **how) * 2.0

    assert "LSTM" not in kinds(agrees(zt.Sequential([L.Input((3, 2)), Doubled(2)])))


def test_a_bias_along_another_axis_is_no_bias() -> None:
    steps = np.arange(4, dtype=np.float32)

    def shifted(x: Any) -> Any:
        return x + ops.reshape(constant(steps), (4, 1))

    model = zt.Sequential([L.Input((4, 2)), L.Conv1D(4, 1, use_bias=False), L.Lambda(shifted)])
    assert kinds(agrees(model))["Add"] == 1


def test_names_that_look_like_ours() -> None:
    layers = [L.Dense(3, name=name, activation="relu") for name in ("x", "y", "Gemm", "constant",
                                                                    "Gemm_1")]
    agrees(zt.Sequential([L.Input((4,)), zt.Sequential(layers, name="x"),
                          L.Lambda(lambda v: v * 0.5 + 0.25, name="y")]))


def test_float64() -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])
    x = np.random.default_rng(0).normal(size=(2, 4))
    expected = np.exp(x @ model.get_weights()[0].astype(np.float64))
    actual = runtime(encode(model, dtype="float64"), x)[0]
    np.testing.assert_allclose(actual, expected / expected.sum(1, keepdims=True), rtol=1e-12)


def test_a_deep_model_needs_no_deep_stack() -> None:
    model = zt.Sequential([L.Input((2,)), *(L.Activation("tanh") for _ in range(600))])
    assert kinds(encode(model)) == {"Tanh": 600}


def test_no_numbers_are_computed_in_the_file() -> None:
    """Values that depend only on weights are computed while writing."""
    model = zt.Sequential([L.Input((3, 4)), L.Lambda(
        lambda x: x * ops.exp(OPS.full((4,), math.log(2.0))))])
    assert kinds(agrees(model)) == {"Mul": 1}
