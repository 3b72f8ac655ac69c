"""Classes of users' own in .keras files: one source for Keras and for us, files in both directions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported

pytest.importorskip("h5py")

SOURCE = '''
@keras.saving.register_keras_serializable(package="my")
class Bridge(keras.layers.Layer):
    def __init__(self, units=4, core=None, **common):
        super().__init__(**common)
        self.units, self.core = units, core
        self.z = keras.layers.Dense(units)
        self.many = [keras.layers.Dense(units, activation="relu"), keras.layers.Dense(units)]

    def build(self, input_shape):
        self.shift = self.add_weight(shape=(self.units,), name="shift", trainable=False)
        self.scale = self.add_weight(shape=(self.units,), initializer="ones", name="scale")
        super().build(input_shape)

    def call(self, x):
        y = self.many[1](self.many[0](self.z(x))) * self.scale + self.shift
        return y if self.core is None else self.core(y)

    def get_config(self):
        return {**super().get_config(), "units": self.units,
                "core": keras.saving.serialize_keras_object(self.core)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "core": keras.saving.deserialize_keras_object(config["core"])})

class PlainBridge(Bridge):
    pass

class Bridged(keras.Model):
    def __init__(self, units=3, **common):
        super().__init__(**common)
        self.units, self.b, self.out = units, Bridge(units), keras.layers.Dense(2)

    def call(self, x):
        return self.out(self.b(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}

@keras.saving.register_keras_serializable()
class Chart(keras.Model):
    pass

class Slope(keras.losses.Loss):
    def __init__(self, k=1.0, name="slope", **common):
        super().__init__(name=name, **common)
        self.k = k

    def call(self, y_true, y_pred):
        return keras.ops.mean(self.k * (y_true - y_pred) ** 2, axis=-1)

    def get_config(self):
        return {**super().get_config(), "k": self.k}

def row():
    return keras.Sequential([keras.Input((3,)), Bridge(4, keras.layers.Dense(4)), PlainBridge(4),
                             keras.layers.Dense(2)])

def functional():
    x = keras.Input((3,))
    return Chart(x, keras.layers.Dense(2)(Bridge(4)(x)))
'''


def classes(keras: Any) -> tuple[SimpleNamespace, dict[str, Any]]:
    """The definitions of the source for a library, and its classes by name."""
    names: dict[str, Any] = {"keras": keras, "__name__": "users_own"}
    exec(SOURCE, names)
    made = {name: x for name, x in names.items() if isinstance(x, type)}
    return SimpleNamespace(**names), made


@pytest.mark.parametrize("make", ["row", "Bridged", "functional"])
def test_files_convert_in_both_directions_and_continue_training(make: str, tmp_path: Path) -> None:
    keras = references.keras()
    (theirs, there), (_, here) = classes(keras), classes(zt)
    random = np.random.default_rng(0)
    x, y = random.random((8, 3), "f"), random.random((8, 2), "f")
    model = getattr(theirs, make)()
    model(x)
    model.compile("adam", loss=theirs.Slope(2.0))
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "theirs.keras")
    ours = zt.load_model(tmp_path / "theirs.keras", custom_objects=here)
    want = model(x).detach().numpy()
    np.testing.assert_allclose(ours.predict(x), want, rtol=1e-5, atol=1e-6)
    assert ours.fit(x, y, verbose=0).history["loss"] == pytest.approx(
        model.fit(x, y, verbose=0).history["loss"], rel=1e-5)
    ours.save(tmp_path / "ours.keras")
    again = keras.models.load_model(tmp_path / "ours.keras", custom_objects=there)
    np.testing.assert_allclose(again(x).detach().numpy(), ours.predict(x), rtol=1e-5, atol=1e-6)
    assert again.loss.k == 2.0 and int(again.optimizer.iterations) == 3


class Scaling(L.Layer):
    """A layer whose config equals its arguments."""

    def __init__(self, by: float = 2.0, **common: Any):
        super().__init__(**common)
        self.by = by

    def call(self, x: Any) -> Any:
        return x * self.by


class Forgetful(L.Layer):
    """A layer that does not keep its argument."""

    def __init__(self, by: float = 2.0, **common: Any):
        super().__init__(**common)

    def call(self, x: Any) -> Any:
        return x


class Unwritable(Scaling):
    """A layer whose config JSON cannot hold."""

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "by": np.float32(self.by), "held": object()}


@pytest.mark.parametrize("layer, message", [
    (Forgetful(), r"Forgetful has no attribute 'by', .*write self.by = by in its __init__"),
    (Unwritable(name="u"), r"Unwritable.get_config\(\) of 'u': .*serialize_keras_object")])
def test_what_cannot_be_written_is_named(layer: L.Layer, message: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=message):
        zt.Sequential([L.Input((3,)), layer]).save(tmp_path / "m.keras")


def test_an_unknown_class_is_requested_by_name(tmp_path: Path) -> None:
    class Hidden(Scaling):
        pass

    zt.Sequential([L.Input((3,)), Hidden(3.0)]).save(tmp_path / "m.keras")
    again = zt.load_model(tmp_path / "m.keras")  # defined, so known
    assert again.layers[0].by == 3.0
    del L.Layer.known["Hidden"]
    with pytest.raises(Unsupported, match=r"pass it: zt.load_model\(path, custom_objects=\[Hid"):
        zt.load_model(tmp_path / "m.keras")
    custom_objects = {"Hidden": Scaling}
    assert isinstance(zt.load_model(tmp_path / "m.keras", custom_objects=custom_objects).layers[0], Scaling)


def test_attributes_may_have_everyday_names() -> None:
    class Wrapped(zt.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.seed = L.Dense(3), L.Dense(1), 7

        def call(self, x: Any) -> Any:
            return self.outer(self.inner(x))

    model = Wrapped()
    assert model(np.ones((2, 4), "f")).shape == (2, 1) and model.seed == 7
    assert [w.path for w in model.weights] == [
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]


@pytest.mark.parametrize("name, kind", [("walk", "method"), ("stands_for", "property")])
def test_names_in_use_are_errors(name: str, kind: str) -> None:
    class Wrapped(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, name, L.Dense(3))

        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(ConfigError, match=rf"Wrapped.{name} is a {kind} of every layer and model "
                                          rf"here; .* such as self.own_{name}"):
        Wrapped()


class Several(L.Layer):
    """A layer of any number of arguments."""

    def __init__(self, *sizes: int):
        super().__init__()
        self.sizes = sizes

    def call(self, x: Any) -> Any:
        return x


class Nameless(L.Layer):
    """A layer that takes none of the arguments that all layers have."""

    def __init__(self, by: float = 2.0):
        super().__init__()
        self.by = by

    def call(self, x: Any) -> Any:
        return x


def test_errors_of_configs_suggest_a_fix() -> None:
    with pytest.raises(ConfigError, match=r"Several takes \*sizes.*define get_config and from_config"):
        Several(1, 2).get_config()
    with pytest.raises(ConfigError, match=r"Nameless: .*'name'; write __init__\(self, ..., \*\*common\)"):
        Nameless.from_config(Nameless().get_config())
    with pytest.raises(ConfigError, match=r"a get_config in model 'sequential' returned a value that JSON cannot hold.*serialize"):
        zt.Sequential([L.Input((3,)), Unwritable()]).to_json()


def test_functions_and_layers_as_arguments_are_in_files_of_both(tmp_path: Path) -> None:
    """Functions are named, and found in custom_objects. All change the numbers of the test."""
    keras = references.keras()
    x, y = np.linspace(-1, 1, 24, dtype="f").reshape(8, 3), np.ones((8, 2), "f")

    def functions(ops: Any) -> dict[str, Any]:
        def bent(x: Any) -> Any:
            return ops.tanh(x) * 2.0

        def halves(shape: Any, dtype: Any = None) -> Any:
            return ops.zeros(shape, dtype=dtype) + 0.5

        def penalty(w: Any) -> Any:
            return 0.1 * ops.sum(ops.abs(w))

        def positive(w: Any) -> Any:
            return ops.maximum(w, 0.6)

        return {f.__name__: f for f in (bent, halves, penalty, positive)}

    def built(kind: Any, own: dict[str, Any]) -> Any:
        model = kind.Sequential([kind.Input((3,)), kind.layers.Dense(
            4, activation=own["bent"], kernel_initializer=own["halves"],
            kernel_regularizer=own["penalty"], kernel_constraint=own["positive"]),
            kind.layers.Dense(2, activation=kind.layers.LeakyReLU(0.1),
                              kernel_initializer="ones")])
        model.compile(kind.optimizers.SGD(0.1), "mse")
        return model

    ours, theirs = functions(zt.ops), functions(keras.ops)
    model, reference = built(zt, ours), built(keras, theirs)
    model.save(tmp_path / "ours.keras")
    reference.save(tmp_path / "theirs.keras")
    read = zt.load_model(tmp_path / "theirs.keras", custom_objects=ours)
    written = keras.saving.load_model(tmp_path / "ours.keras", custom_objects=theirs)
    np.testing.assert_array_equal(model.get_weights()[0], np.full((3, 4), 0.5))
    for each in (model, read, written):
        expected = reference.predict(x, verbose=0)
        np.testing.assert_allclose(each.predict(x, verbose=0), expected, atol=1e-5)
    losses = [each.train_on_batch(x, y) for each in (model, read, written, reference)]
    np.testing.assert_allclose(losses, losses[-1], rtol=1e-5)
    np.testing.assert_allclose(read.get_weights()[0], reference.get_weights()[0], rtol=1e-5)


def test_own_classes_with_names_of_keras_do_not_take_their_place(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(L.Layer, abstract=True):
        def call(self, x: Any) -> Any:
            return x * 2.0

    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    model.save(tmp_path / "m.keras")
    monkeypatch.setitem(L.Layer.known, "Dense", Doubled)  # as class Dense(L.Layer) does
    x = np.linspace(-1, 1, 12, dtype="f").reshape(4, 3)
    loaded = zt.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
