"""Models of layers called on tensors: results, names, order and description."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError, ShapeError, ZtorchError

random = np.random.default_rng(4)


def numbers(*shape: int) -> np.ndarray:
    return random.normal(size=shape).astype(np.float32)


# Each function declares the same model with our layers or Keras'.


def residual(K: Any) -> tuple[Any, Any]:
    x = K.Input((6,), name="x")
    h = K.Dense(5, activation="relu")(x)
    return x, K.Dense(2)(K.Add()([h, K.Dense(5)(h)]))


def two_by_two(K: Any) -> tuple[Any, Any]:
    a, b = K.Input((4,), name="a"), K.Input((3,), name="b")
    h, g = K.Dense(5, name="h")(a), K.Dense(5, name="g")(b)
    return [a, b], [K.Dense(2, name="u")(K.Multiply()([h, g])), K.Dense(1, name="v")(b)]


def shared(K: Any) -> tuple[Any, Any]:
    a, b = K.Input((4,), name="a"), K.Input((4,), name="b")
    dense, norm = K.Dense(3, activation="tanh"), K.BatchNormalization()
    left, right = norm(dense(a)), norm(dense(b))
    return {"a": a, "b": b}, K.Dense(1)(K.Subtract()([left, right]))


def every_merge(K: Any) -> tuple[Any, Any]:
    a, b, c = (K.Input((5, 4), name=n) for n in "abc")
    result = [getattr(K, kind)()([a, b, c]) for kind in (
        "Add", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")]
    result += [K.Subtract()([a, b]), K.Dot(axes=2)([a, b]), K.Dot(axes=(1, 1), normalize=True)([b, c]),
               K.Concatenate(axis=1)([a, c])]
    return [a, b, c], K.Concatenate()([K.Flatten()(y) for y in result])


def attention(K: Any) -> tuple[Any, Any]:
    q, v = K.Input((5, 8), name="q"), K.Input((7, 6), name="v")
    mask = K.Input((5, 7), dtype="bool", name="mask")
    y = K.MultiHeadAttention(2, key_dim=4)(q, v, attention_mask=mask)
    y = K.MultiHeadAttention(2, key_dim=3, name="causal")(y, y, use_causal_mask=True)
    return [q, v, mask], K.GlobalAveragePooling1D()(y)


def arithmetic(K: Any) -> tuple[Any, Any]:
    x, y = K.Input((4,), name="x"), K.Input((4,), name="y")
    return [x, y], K.Dense(2)((x + y) * 2.0 - x * y + (1.0 - y) - (-x))


def uneven(K: Any) -> tuple[Any, Any]:
    """Layers at several distances from the outputs, declared in another order than they are met."""
    x = K.Input((4,), name="x")
    far = K.Dense(3, name="far")
    side = K.Dense(3, name="side")(x)
    deep = K.Dense(3, name="deep")(far(x))
    deep = K.Dense(3, name="deeper")(deep)
    return x, [K.Dense(1, name="out")(K.Add(name="sum")([side, deep])), K.Dense(2, name="aux")(side)]


DECLARED = [residual, two_by_two, shared, every_merge, attention, arithmetic, uneven]


def rows(model: zt.Model, count: int) -> Any:
    data = {n: random.random((count, *one.row_shape)) < 0.6 if one.dtype == "bool" else
            numbers(count, *one.row_shape) for n, one in model.inputs_by_name.items()}
    return data.get("", data)


@pytest.mark.parametrize("declare", DECLARED, ids=lambda f: f.__name__)
def test_models_are_those_of_keras(declare: Any) -> None:
    keras = references.keras()
    keras.utils.clear_session()
    theirs, ours = keras.Model(*declare(keras.layers)), zt.Model(*declare(L))
    named = declare is not arithmetic  # Keras has layers of its own for operators
    if named:
        def names(layers: list[Any]) -> list[str]:
            return ["an input" if "Input" in type(x).__name__ else x.name for x in layers]

        assert names(ours.layers) == names(theirs.layers)
    assert [(w.path, w.shape) for w in ours.weights] == [
        (w.path, tuple(w.shape)) for w in theirs.weights]
    assert ours.count_params() == theirs.count_params()
    theirs.set_weights(ours.get_weights())
    x = rows(ours, 3)
    got = ours.compile("cpu", batch_size=4, threads=1).predict(x)
    inputs = list(x.values()) if isinstance(x, dict) and not isinstance(theirs.input, dict) else x
    want = theirs.predict(inputs, verbose=0)
    assert isinstance(got, list) == isinstance(want, list)
    for a, b in zip(*((y if isinstance(y, list) else [y]) for y in (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("declare", DECLARED, ids=lambda f: f.__name__)
def test_json_describes_the_graph(declare: Any) -> None:
    model = zt.Model(*declare(L), name="m", seed=5)
    again = zt.Model.from_json(model.to_json())
    assert json.loads(again.to_json()) == json.loads(model.to_json())
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (again.input_shape, again.output_shape) == (model.input_shape, model.output_shape)


def test_a_layer_called_twice_is_one_layer() -> None:
    model = zt.Model(*shared(L))
    assert [w.path for w in model.weights][:2] == ["dense/kernel", "dense/bias"]
    assert len(model.layers) == 6 and model.count_params() == 15 + 12 + 4


def test_running_means_of_a_shared_layer_see_each_call() -> None:
    keras = references.keras()
    theirs, ours = keras.Model(*shared(keras.layers)), zt.Model(*shared(L))
    theirs.set_weights(ours.get_weights())
    theirs.compile("sgd", "mse")
    x, y = rows(ours, 8), numbers(8, 1)
    program = ours.compile("cpu", batch_size=8, optimizer="sgd", loss="mse", threads=1)
    program.fit(x, y, epochs=2, shuffle=False, verbose=0)
    theirs.fit(x, y, epochs=2, shuffle=False, verbose=0, batch_size=8)
    for a, b in zip(program.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_models_are_layers_of_models() -> None:
    x = L.Input((4,))
    encoder = zt.Model(x, L.Dense(3, activation="tanh")(x), name="encoder")
    a, b = L.Input((4,), name="a"), L.Input((4,), name="b")
    head = zt.Sequential([L.Dense(5), L.Dense(1)], name="head")
    both = zt.Model([a, b], head(L.Concatenate()([encoder(a), encoder(b)])), name="both")
    assert [w.path for w in both.weights] == [
        "encoder/dense/kernel", "encoder/dense/bias", "head/dense/kernel", "head/dense/bias",
        "head/dense_1/kernel", "head/dense_1/bias"]
    text = both.to_json()
    assert zt.Model.from_json(text).to_json() == text
    twins = zt.Model([a, b], both([b, a]))
    program, swapped = (m.compile("cpu", batch_size=2, threads=1) for m in (both, twins))
    data = {"a": numbers(2, 4), "b": numbers(2, 4)}
    np.testing.assert_array_equal(program.predict(data),
                                  swapped.predict([data["b"], data["a"]]))
    alone = encoder.compile("cpu", batch_size=2, threads=1).predict(data["a"])
    w = encoder.get_weights()
    np.testing.assert_allclose(alone, np.tanh(data["a"] @ w[0] + w[1]), rtol=1e-5, atol=1e-6)
    lines: list[str] = []
    both.summary(lines.append)
    assert "encoder (Model) " in "\n".join(lines) and "\n  dense (Dense) " in "\n".join(lines)


def test_a_model_of_several_outputs_is_a_layer_too() -> None:
    x = L.Input((4,))
    two = zt.Model(x, {"wide": L.Dense(6)(x), "thin": L.Dense(2)(x)}, name="two")
    y = L.Input((4,))
    parts = two(y)
    model = zt.Model(y, L.Concatenate()([parts["thin"], parts["wide"]]))
    assert model.output_shape == (None, 8) and list(two.output_shape) == ["wide", "thin"]
    assert zt.Model.from_json(model.to_json()).to_json() == model.to_json()
    data = numbers(2, 4)
    both = two.compile("cpu", batch_size=2, threads=1).predict(data)
    np.testing.assert_array_equal(model.compile("cpu", batch_size=2, threads=1).predict(data),
                                  np.concatenate([both["thin"], both["wide"]], 1))


def test_parts_of_one_graph_share_their_layers() -> None:
    x = L.Input((4,))
    code = L.Dense(3, name="code")(x)
    full = zt.Model(x, L.Dense(4)(code), name="full")
    part = zt.Model(x, code, name="part")
    assert part.weights[0] is full.weights[0] and part.weights[0].path == "code/kernel"
    other = zt.Model(x, L.Dense(2)(code), name="other")
    assert [layer.name for layer in other.layers[1:]] == ["code", "dense"]


def test_functions_see_several_tensors() -> None:
    a, b = L.Input((4,), name="a"), L.Input((4,), name="b")
    y = L.Lambda(lambda pair: ops.maximum(pair[0], ops.abs(pair[1])))([a, b])
    model = zt.Model([a, b], y)
    data = numbers(3, 4), numbers(3, 4)
    np.testing.assert_array_equal(model.compile("cpu", batch_size=4, threads=1).predict(data),
                                  np.maximum(data[0], np.abs(data[1])))


@pytest.mark.slow
def test_thousands_of_layers_in_a_row() -> None:
    x = L.Input((2,))
    y: Any = x
    for _ in range(1500):
        y = L.ReLU()(y)
    model = zt.Model(x, y)
    assert len(model.layers) == 1501 and model.layers[-1].name == "re_lu_1499"
    assert model.output_shape == (None, 2)


def test_unnamed_layers_are_numbered_in_order_of_creation() -> None:
    x = L.Input((4,))
    late, named = L.Dense(1), L.Dense(2, name="dense_1")
    model = zt.Model(x, late(L.Dense(3)(named(x))))
    assert [layer.name for layer in model.layers[1:]] == ["dense_1", "dense_2", "dense"]


def test_a_sequential_is_a_model() -> None:
    made = zt.Sequential([L.Input((3,)), L.Dense(2)])
    assert isinstance(made, zt.Model)
    again = zt.Model.from_json(made.to_json())
    assert type(again) is zt.Sequential and again.output_shape == (None, 2)
    with pytest.raises(ConfigError, match="does not describe a Sequential"):
        zt.Sequential.from_json(zt.Model(*residual(L)).to_json())


@pytest.mark.parametrize("change", [
    {"inputs": {}}, {"inputs": 3}, {"layers": None}, {"layers": [7]}, {"calls": [{}]},
    {"calls": [{"layer": "none", "args": [], "how": {}}]}, {"outputs": {"tensor": 99}},
    {"outputs": {"tensor": True}}, {"outputs": 5}, {"outputs": []}, {"seed": -1},
    {"inputs": {"": {"class_name": "Dense", "config": {"units": 2}}}}], ids=str)
def test_hostile_configs(change: dict[str, Any]) -> None:
    data = json.loads(zt.Model(*residual(L)).to_json())
    data["config"].update(change)
    with pytest.raises(ZtorchError):
        zt.Model.from_json(json.dumps(data))


def test_inputs_of_a_part_must_be_those_it_was_declared_for() -> None:
    both = zt.Model(*two_by_two(L), name="both")
    a, b = L.Input((4,)), L.Input((5,))
    with pytest.raises(ShapeError, match=r"layer 'both': input 'b' has another shape than "
                                         r"declared: \(3,\) and \(5,\)"):
        both([a, b])
    with pytest.raises(ShapeError, match=r"takes 2 tensors \(a, b\), not one"):
        both(a)
    with pytest.raises(ShapeError, match=r"not those named a, c"):
        both({"a": a, "c": b})
