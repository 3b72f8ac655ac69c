"""Layers as people from other frameworks write them: mistakes that would train
nothing, or something else, are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, UnknownName


def run(layer: L.Layer) -> zt.Program:
    made = zt.Sequential([L.Input((3,)), layer, L.Dense(1)])
    return made.compile("cpu:scalar", batch_size=4, optimizer="sgd", loss="mse")


class Weighted(L.Layer):
    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight("w", (input_shape[-1], 2), "ones")


class Linear(L.Layer):
    """As in Keras' guide."""

    def __init__(self, units: int = 3, **common: Any) -> None:
        super().__init__(**common)
        self.units = units

    def build(self, input_shape: Any) -> None:
        assert input_shape[0] is None
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal")
        self.b = self.add_weight((self.units,), "ones", trainable=True)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        return zt.ops.matmul(inputs, self.w) + self.b


class TwoParts(L.Layer):
    """Layers as attributes and in a list, with their weights and Keras' `training`."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.scale = self.add_weight(name="factor", shape=(), initializer="ones")
        self.first, self.rest = Linear(4), []
        for _ in range(2):
            self.rest.append(L.Dense(4, name=None))
        self.norm = L.BatchNormalization()

    def call(self, x: Any, training: bool = False) -> Any:
        x = zt.ops.relu(self.first(x)) * self.scale
        for layer in self.rest:
            x = layer(x)
        return self.norm(x, training=training) * (2.0 if training else 1.0)


class Twin(L.Layer):
    """The same for this project: with a context."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.factor = self.add_weight("factor", (), "ones")
        self.first = self.adopt(Row(name="linear"))
        self.rest = [self.adopt(L.Dense(4)) for _ in range(2)]
        self.norm = self.adopt(L.BatchNormalization())

    def call(self, x: Any, context: Any) -> Any:
        x = zt.ops.relu(self.first(x, context)) * context.read(self.factor)
        for layer in self.rest:
            x = layer(x, context)
        return self.norm(x, context) * (2.0 if context.training else 1.0)


class Row(L.Layer):
    def build(self, input_shape: Any) -> None:
        self.w = self.add_weight("w", (input_shape[-1], 4), "random_normal")
        self.b = self.add_weight("b", (4,), "ones")

    def call(self, x: Any, context: Any) -> Any:
        return zt.ops.matmul(x, context.read(self.w)) + context.read(self.b)


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_layers_as_in_keras_are_those_with_a_context() -> None:
    """Alike in names of weights, training and predictions, bit for bit."""
    plain, ours = run(TwoParts(name="block")), run(Twin(name="block"))
    assert plain.weight_names == ours.weight_names
    assert plain.weight_names[:3] == ["block/factor", "block/linear/w", "block/linear/b"]
    for program in (plain, ours):
        program.fit(X, X[:, :1], epochs=3, verbose=0)
    for a, b in zip(plain.get_weights(), ours.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(plain.predict(X), ours.predict(X))


def test_layers_as_in_keras_on_tensors_and_in_configs() -> None:
    layer = Linear(2, name="row")
    y = layer(zt.tensor(X))
    np.testing.assert_allclose(y.numpy(), X @ layer.w.value + 1, rtol=1e-6)
    assert [w.path for w in layer.weights] == ["row/w", "row/b"]
    made = zt.Sequential([L.Input((3,)), TwoParts(), Linear(1)])
    again = zt.Sequential.from_json(made.to_json())
    assert [w.path for w in again.weights] == [w.path for w in made.weights]


def test_the_training_argument_of_a_call() -> None:
    """As in transfer learning: a part that behaves as in predictions, in training too."""
    x = L.Input((3,))
    normal = L.BatchNormalization()
    made = zt.Model(x, L.Dense(1)(normal(x, training=False)))
    made.compile("cpu:scalar", batch_size=4, optimizer="sgd", loss="mse")
    made.fit(X + 5, X[:, :1], verbose=0)
    mean, variance = normal.get_weights()[2:]
    assert (mean == 0).all() and (variance == 1).all()
    again = zt.Model.from_json(made.to_json())
    again.compile("cpu:scalar", batch_size=4, optimizer="sgd", loss="mse")
    again.fit(X + 5, X[:, :1], verbose=0)
    assert (again.layers[1].get_weights()[2] == 0).all()


def test_configs_need_the_arguments() -> None:
    class Forgets(L.Layer):
        def __init__(self, units: int, **common: Any) -> None:
            super().__init__(**common)
            self.dense = L.Dense(units)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    class Tells(Forgets):
        def __init__(self, units: int, **common: Any) -> None:
            super().__init__(units, **common)
            self.n = units

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "units": self.n}

    with pytest.raises(ConfigError, match=r"Forgets has no attribute 'units'.*write self.units = units"):
        Forgets(3).get_config()
    assert Tells(3, name="a").get_config() == {"name": "a", "units": 3}
    assert run(Forgets(3)).metadata.declaration.model is None  # it runs all the same


def test_weights_are_arrays_outside_of_calls() -> None:
    class Forgets(Weighted):
        def call(self, x: Any, context: Any) -> Any:
            return x + np.asarray(self.w)

    with pytest.raises(ConfigError, match=r"weight 'forgets/w' has no numbers.*context.read\(self.w\)"):
        run(Forgets())
    dense = L.Dense(2)
    dense(L.Input((3,)))
    np.testing.assert_array_equal(np.asarray(dense.kernel), dense.get_weights()[0])


def test_layers_inside_are_adopted() -> None:
    class Forgets(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner_dense = L.Dense(2, name="part")

        def call(self, x: Any, context: Any) -> Any:
            return self.inner_dense(x, context)

    with pytest.raises(ConfigError, match=(
            r"layer 'forgets' calls layer 'part' without adopting it; write self.part = "
            r"self.adopt\(Dense\(...\)\) in its __init__")):
        run(Forgets())


def test_layers_inside_are_called_with_the_context() -> None:
    class Adopts(L.Layer):
        def __init__(self, hand_on: bool) -> None:
            super().__init__()
            self.hand_on = hand_on
            self.part = self.adopt(L.Dense(2, name="part"))

        def call(self, x: Any, context: Any) -> Any:
            return self.part(x, context) if self.hand_on else self.part(x)

    for program in (run(Adopts(True)), run(Adopts(False))):  # it is known without, too
        before = program.weights["adopts/part/kernel"]
        program.train_on_batch(np.ones((4, 3)), np.ones((4, 1)))
        assert (program.weights["adopts/part/kernel"] != before).all()


def test_layers_call_their_base() -> None:
    class Hasty(L.Layer):
        def __init__(self, units: int) -> None:
            self.units = units

        def call(self, x: Any, context: Any) -> Any:
            return x

    with pytest.raises(AttributeError, match=r"a Hasty is not initialized yet: .*super\(\).__init__\(\)"):
        run(Hasty(3))
    with pytest.raises(AttributeError, match="'Dense' object has no attribute 'kernal'"):
        _ = L.Dense(3).kernal


def test_models_have_inputs_and_outputs() -> None:
    class Mine(zt.Model):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(ConfigError, match=r"Mine takes inputs and outputs, .*define a class with layers"):
        Mine()


def test_regularizers_of_own_layers() -> None:
    """By the initializers that they take, or weight by weight."""
    class Scaled(L.Layer):
        def __init__(self, kernel_initializer: Any = "ones", **more: Any):
            super().__init__(**more)
            self.kernel_initializer = kernel_initializer

        def build(self, input_shape: Any) -> None:
            self.kernel = self.add_weight(shape=(3,), initializer=self.kernel_initializer,
                                          name="kernel")
            self.offset = self.add_weight(shape=(3,), constraint="non_neg")

        def call(self, x: Any) -> Any:
            return x * self.kernel + self.offset

    layer = Scaled(kernel_regularizer="l1")
    assert layer(L.Input((3,))).shape == (None, 3)
    assert [w.regularizer for w in layer.weights] == [layer.kernel_regularizer, None]
    assert repr(layer.weights[1].constraint) == "NonNeg()"
    with pytest.raises(UnknownName, match="argument of Scaled 'bias_regularizer'"):
        Scaled(bias_regularizer="l1")
    with pytest.raises(ConfigError, match="add_loss must be called within call"):
        layer.add_loss(0.0)


def test_integers_of_a_call_on_numbers_are_integers() -> None:
    """They were tensors, which `range` and shapes refuse."""
    class Repeated(L.Layer):
        def call(self, x: Any, times: int = 0, shape: Any = ()) -> Any:
            for k in range(times):
                x = 2.0 * x + k
            return zt.ops.reshape(x, (-1, *shape)) if shape else x

    layer = Repeated()
    for times, expected in ((0, X), (1, 2 * X), (3, 8 * X + 4)):
        np.testing.assert_allclose(layer(zt.tensor(X), times=times).numpy(), expected, rtol=1e-6)
    assert layer(zt.tensor(X), shape=(3, 1)).shape == layer(zt.tensor(X), shape=[3, 1]).shape == (4, 3, 1)
