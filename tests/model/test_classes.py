"""Models that are classes with a custom `call`, as in Keras."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.errors import ConfigError, UnknownName

X = np.random.default_rng(0).normal(size=(24, 4)).astype("f")
Y = np.arange(24) % 3
LEARN: dict[str, Any] = {"batch_size": 8, "optimizer": "adam", "metrics": ["accuracy"],
                         "loss": "sparse_categorical_crossentropy"}


class Block(zt.Model):
    """Is a model, and a part of one."""

    def __init__(self, units: int, **more: Any):
        super().__init__(**more)
        self.units = units
        self.dense = [L.Dense(units, activation="tanh"), L.Dense(units)]
        self.drop = L.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        for dense in self.dense:
            x = dense(x)
        return self.drop(x, training=training)


class Net(zt.Model):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block(8)
        self.out = L.Dense(3, activation="softmax")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.out(self.block(x) + 1.0)


def test_a_subclass_equals_the_same_layers_in_sequence() -> None:
    """Fitted before its shapes are known, beside a functional model."""
    ours = Net()
    assert not ours.knows_inputs
    with pytest.raises(ConfigError, match=r"'net' does not know the shape of its inputs yet; .*"
                                          r"net\.build\(\(None, 4\)\)"):
        ours.summary()
    assert ours.compile("cpu:scalar", **LEARN) is ours and ours.program is None
    x = L.Input((4,))
    inner = zt.Sequential([L.Input((4,)), L.Dense(8, activation="tanh"), L.Dense(8),
                           L.Dropout(0.5)], name="block")
    twin = zt.Model(x, L.Dense(3, activation="softmax")(inner(x) + 1.0), name="net")
    twin.compile("cpu:scalar", **LEARN)
    history = ours.fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y))
    assert history.history == twin.fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y)).history
    for a, b in zip(ours.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ours.predict(X), twin.predict(X))
    assert [w.path for w in ours.weights] == [w.path for w in twin.weights]
    np.testing.assert_allclose(ours(zt.tensor(X)).numpy(), twin.predict(X), atol=1e-6)
    lines: list[str] = []
    ours.summary(lines.append)
    assert "block (Block)" in lines[1] and "(batch, 3)" in lines[1]
    assert [layer.name for layer in ours.layers] == ["block", "dense"]


def test_files_and_copies(tmp_path: Path) -> None:
    ours = Net()
    ours.build((None, 4))
    expected = ours.predict(X)
    ours.save(tmp_path / "m.zt")
    np.testing.assert_array_equal(zt.load(tmp_path / "m.zt").predict(X), expected)
    for name in ("m.safetensors", "m.weights.h5"):
        ours.save_weights(tmp_path / name)
        other = Net()
        other.build((None, 4))
        other.set_weights([w * 0 for w in other.get_weights()])
        other.load_weights(tmp_path / name)
        np.testing.assert_array_equal(other.predict(X), expected)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        np.testing.assert_array_equal(twin.predict(X), expected)
    config = Block(5, name="b").get_config()
    assert config == {"units": 5, "name": "b"}
    assert Block.from_config(config).units == 5
    assert Net.from_json(ours.to_json()).knows_inputs is False


def test_own_weights_and_added_losses() -> None:
    class Scaled(zt.Model):
        def build(self, input_shape: Any) -> None:
            assert input_shape == (None, 4)
            self.scale = self.add_weight(shape=input_shape[-1:], initializer="ones")
            super().build(input_shape)

        def call(self, x: Any) -> Any:
            self.add_loss(zt.ops.sum(self.scale) * 0.5)
            return x * self.scale

    model = Scaled()
    model.compile("cpu:scalar", optimizer="sgd", loss="mse")
    np.testing.assert_allclose(model.evaluate(X, X, verbose=0), 2.0)
    assert [w.path for w in model.weights] == ["scale"]


def test_several_inputs_and_outputs() -> None:
    class Both(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.look_up, self.dense = L.Embedding(5, 3), L.Dense(3)

        def call(self, inputs: Any) -> Any:
            a = self.dense(inputs["x"])
            return {"sum": a + zt.ops.mean(self.look_up(inputs["ids"]), axis=1), "a": a}

    class Listed(Both):
        def call(self, inputs: Any) -> Any:
            return list(super().call({"x": inputs[0], "ids": inputs[1]}).values())

    ids = np.arange(48).reshape(24, 2) % 5
    model = Both()
    model.build({"x": L.Input((4,)), "ids": L.Input((2,), dtype="int32")})
    by_name = model.predict({"x": X, "ids": ids})
    assert list(by_name) == ["sum", "a"]
    np.testing.assert_allclose(by_name["sum"] - by_name["a"], model.look_up.weights[0].value[
        ids].mean(1), atol=1e-6)


def of_torch(loader: bool) -> Any:
    torch = references.torch()
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(rows, 5) if loader else rows


@pytest.mark.parametrize("make", [
    lambda: X, X.tolist, lambda: of_torch(loader=True), lambda: of_torch(loader=False),
    lambda: [(X[:5], Y[:5]), (X[5:], Y[5:])],
], ids=["array", "lists", "loader", "dataset", "batches"])
def test_shapes_come_from_the_data(make: Callable[[], Any]) -> None:
    data, model = make(), Net()
    model.build((None, 4))
    other = Net()
    np.testing.assert_array_equal(other.predict(data), model.predict(X))


def test_ids_are_integers() -> None:
    class Words(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.look_up = L.Embedding(5, 3)

        def call(self, x: Any) -> Any:
            return zt.ops.mean(self.look_up(x), axis=1)

    model = Words()
    assert model.predict(np.arange(8).reshape(2, 4) % 5).shape == (2, 3)
    assert model.inputs_by_name[""].dtype == "int32"


def test_wrong_classes() -> None:
    class Empty(zt.Model):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(ConfigError, match=r"Empty takes inputs and outputs, .*; or define a "
                                          r"class with .* call\(self, x, training=False\)"):
        Empty()

    class Headless(zt.Model):
        def __init__(self) -> None:
            self.dense = L.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    with pytest.raises(AttributeError, match=r"a Headless is not initialized yet: start its __init__ "
                                             r"with super\(\).__init__\(\)"):
        Headless().predict(X)

    class Chooses(zt.Model):
        def call(self, x: Any) -> Any:
            return x if zt.ops.sum(x) > 0 else -x

    with pytest.raises(TypeError, match=r"has no truth value.*ops\.where.*ops\.cond"):
        Chooses().predict(X)

    class Forgets(zt.Model):
        def call(self, x: Any) -> Any:
            return L.Dense(3)(x)

    with pytest.raises(ConfigError, match=r"the call of a model calls layer 'dense' without adopting it; write "
                                          r"self\.dense = Dense\(\.\.\.\) in its __init__"):
        Forgets().predict(X)

    class Nothing(zt.Model):
        def call(self, x: Any) -> Any:
            return None

    with pytest.raises(ConfigError, match="the call of model 'nothing' returned None; return a"):
        Nothing().predict(X)
    with pytest.raises(ConfigError, match=r"build takes the shape .* not 4"):
        Net().build(4)
    assert Net().predict(row for row in [X]).shape == Net().predict(X).shape  # a generator is looked at


def test_notebooks_show_the_summary() -> None:
    model = Net()
    assert model._repr_html_().endswith(">&lt;Net &#x27;net&#x27; of 0 layers&gt;</pre>")
    model.build((None, 4))
    shown = model._repr_html_()
    assert shown.startswith("<pre ") and ">Model: net\n" in shown and "block (Block)" in shown
    assert "Parameters: 139" in shown
    program = model.compile("cpu:scalar")
    assert "dense_1 (Dense)" in program._repr_html_()


def test_saving_before_shapes_are_known_is_an_error(tmp_path: Path) -> None:
    open_axis = zt.Sequential([L.Input((None, 4)), L.LSTM(2)])
    for model, said in ((type("Unbuilt", (zt.Model,), {"call": lambda self, x: x})(), "know the shape of its inputs"),
                        (zt.Sequential([L.Dense(2)]), "start with Input"), (open_axis, "open axes from data")):
        with pytest.raises(ConfigError, match=said):
            model.save(tmp_path / "a.zt")


def test_a_compile_that_fails_leaves_the_model_as_it_was() -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    model.compile(loss="mse", optimizer="sgd")
    with pytest.raises(UnknownName, match="acuracy"):
        model.compile(loss="mse", optimizer="sgd", metrics="acuracy")
    assert model.predict(np.ones((1, 3))).shape == (1, 2)
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
