"""Calls as Keras spells them: names and orders of arguments, names of modules, small helpers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L

random = np.random.default_rng(3)
X = random.normal(size=(3, 4)).astype(np.float32)
IMAGES = random.normal(size=(1, 6, 6, 3)).astype(np.float32)
KERNEL = random.normal(size=(3, 3, 3, 2)).astype(np.float32)

CALLS: dict[str, Any] = {  # of `ops`, here and there
    "one_hot": lambda o: o.one_hot(np.array([1, 2]), num_classes=4, axis=-1),
    "conv": lambda o: o.conv(IMAGES, KERNEL, strides=2, padding="same", dilation_rate=1),
    "conv_transpose": lambda o: o.conv_transpose(IMAGES, KERNEL.transpose(0, 1, 3, 2).copy(), strides=2, padding="same"),
    "max_pool": lambda o: o.max_pool(IMAGES, pool_size=2, strides=2, data_format="channels_last"),
    "average_pool": lambda o: o.average_pool(IMAGES, 2, strides=1),
    "pad": lambda o: o.pad(X, ((1, 0), (0, 2)), mode="constant", constant_values=2.0),
    "clip": lambda o: o.clip(X, x_min=-0.5, x_max=0.5), "top_k": lambda o: o.top_k(X, k=2, sorted=True)[0],
    "slice": lambda o: o.slice(X, [0, 1], [2, 2]), "tile": lambda o: o.tile(X, repeats=(2, 1)),
    "full": lambda o: o.full((2,), fill_value=3.0),
    "where": lambda o: o.where(X > 0, x1=X, x2=0.0), "matmul": lambda o: o.matmul(x1=X, x2=X.T),
    "add": lambda o: o.add(x1=X, x2=1.0), "exp": lambda o: o.exp(x=X), "stack": lambda o: o.stack(x=[X, X], axis=1),
    "reshape": lambda o: o.reshape(X, newshape=(4, 3)), "arctan2": lambda o: o.arctan2(x1=X, x2=X[::-1].copy()),
    "concatenate": lambda o: o.concatenate([X, X], 0), "eye": lambda o: o.eye(N=3),
}


def test_ops_accept_the_arguments_of_keras() -> None:
    keras = references.keras()
    for name, call in CALLS.items():
        want = keras.ops.convert_to_numpy(call(keras.ops))
        np.testing.assert_allclose(zt.ops.convert_to_numpy(call(zt.ops)), want, rtol=1e-4, atol=1e-5, err_msg=name)
    x = L.Input((4,))
    model = zt.Model(x, zt.ops.concatenate([zt.ops.pad(x, ((0, 0), (1, 1))), zt.ops.clip(x, x_min=0.0, x_max=1.0)], 1))
    np.testing.assert_array_equal(model.predict(X), np.concatenate([np.pad(X, ((0, 0), (1, 1))), X.clip(0, 1)], 1))
    with pytest.raises(zt.errors.Unsupported, match=r"ops.one_hot\(sparse=True\): only False"):
        zt.ops.one_hot([0, 1], 2, sparse=True)
    np.testing.assert_array_equal(zt.ops.pad(X, 1), np.pad(X, 1))
    assert zt.ops.nn.relu is not None and zt.ops.image.resize(IMAGES, (3, 3)).shape == (1, 3, 3, 3)


def test_models_accept_the_calls_of_keras(tmp_path: Any) -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(2)])
    model.compile("adam", "mse", jit_compile=True, run_eagerly=False, metrics=["mae"])
    y = np.zeros((3, 2), np.float32)
    history = model.fit(X, y, 2, 3, 0, validation_data=(X, y), validation_batch_size=2)
    assert len(history.history["loss"]) == 3 and len(model.evaluate(X, y, 2, 0)) == 2
    assert model.predict(X, 2, 0).shape == (3, 2)
    model.save(filepath=tmp_path / "m.keras", overwrite=True)
    again = zt.models.load_model(filepath=tmp_path / "m.keras", compile=False)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert L.Dense(5).compute_output_shape((None, 3)) == (None, 5)
    both = zt.Model(x := L.Input((4,)), [L.Dense(1, name="a")(x), L.Dense(1, name="b")(x)])
    both.compile("sgd", ["mse", None])
    a, b = np.ones((2, 3, 1), np.float32)
    losses = [both.evaluate(X, given, verbose=0) for given in ([a, None], [a, b], [a], {"a": a, "b": b}, a)]
    np.testing.assert_allclose(losses, np.square(both.predict(X)[0] - 1).mean(), rtol=1e-6)


def test_custom_functions_are_looked_up_by_name(tmp_path: Any) -> None:
    keras = references.keras()

    def twice(x: Any) -> Any:
        return 2.0 * x

    theirs = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation=twice)])
    theirs.compile("sgd", loss=lambda y, p: keras.ops.mean(keras.ops.square(y - p)))
    theirs.save(tmp_path / "m.keras")
    model = zt.load_model(tmp_path / "m.keras", custom_objects={"twice": twice})
    np.testing.assert_allclose(model.predict(X), theirs.predict(X, verbose=0), rtol=1e-5, atol=1e-6)
    with pytest.raises(zt.errors.ZtorchError, match="twice"):
        zt.load_model(tmp_path / "m.keras")
    zt.saving.register_keras_serializable("tests", "twice")(twice)
    try:
        model = zt.load_model(tmp_path / "m.keras", custom_objects=[twice])
        model.save(tmp_path / "m.zt")
        model.save(tmp_path / "again.keras")
        for path in ("m.zt", "again.keras"):
            np.testing.assert_array_equal(zt.load_model(tmp_path / path).predict(X), model.predict(X))
        assert zt.models.model_from_json(model.to_json()).layers[0].activation is twice
    finally:
        del zt.utils.get_custom_objects()["tests>twice"]


def test_a_summary_of_requested_width_and_depth(capsys: Any) -> None:
    inner = zt.Sequential([L.Input((8,)), L.Dense(4), L.Dense(4)], name="inner")
    model = zt.Sequential([L.Input((8,)), inner, L.Dense(3, name="a_name_of_thirty_characters_or")])
    model.summary(line_length=50, expand_nested=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[1]) == 50 and lines[4].startswith("inner (Se") and " 56 " in lines[4] and "…" in lines[5]
    assert len(lines) == 9
    model.summary(positions=[0.4, 0.6, 0.75, 0.9, 1.0], line_length=100, layer_range=("inner", "inner"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[1]) == 100 and len(lines) == 8
    for wrong in (["inner", 3], ["inner"], "inner", []):
        with pytest.raises(zt.errors.ConfigError, match="two names"):
            model.summary(layer_range=wrong)


def test_names_of_modules() -> None:
    assert zt.regularizers.l2(0.1).l2 == 0.1 and zt.initializers.he_normal().seed is None
    assert zt.constraints.max_norm(2).max_value == 2
    assert zt.activations.get("relu") is zt.ops.relu and zt.activations.serialize(zt.ops.gelu) == "gelu"
    for room, member in ((L, L.Dense(3)), (zt.losses, zt.losses.Huber(2.0)), (zt.optimizers, zt.optimizers.SGD(0.1)),
                         (zt.initializers, zt.initializers.HeNormal(seed=1)), (zt.metrics, zt.metrics.AUC(dtype="float32"))):
        assert room.deserialize(room.serialize(member)).get_config() == member.get_config()
    assert importlib.import_module("ztorch.preprocessing.sequence").pad_sequences([[1], [2, 3]]).shape == (2, 2)
    assert zt.config.floatx() == "float32" and zt.backend.epsilon() == 1e-7
    with pytest.raises(zt.errors.ConfigError, match="frozen"):
        settings = zt.utils.Config(a=1)
        settings.freeze()
        settings.a = 2


def test_a_layer_refuses_inputs_that_its_spec_excludes() -> None:
    class Twice(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.input_spec = L.InputSpec(ndim=2, axes={-1: 4})

        def call(self, x: Any) -> Any:
            return 2.0 * x

    np.testing.assert_array_equal(Twice()(X).numpy(), 2 * X)
    for wrong, words in ((X[:, :3], "of size 4 along axis -1"), (X[None], "with 2 axes")):
        with pytest.raises(zt.errors.ShapeError, match=words):
            Twice()(wrong)


def test_trees() -> None:
    references.keras()
    tree = importlib.import_module("keras.tree")
    nest = {"b": [1, (2, None)], "a": 3}
    for call in (lambda t: t.flatten(nest), lambda t: t.flatten_with_path(nest), lambda t: t.pack_sequence_as(nest, range(4)),
                 lambda t: t.map_structure(lambda x, y: (x, y), nest, nest), lambda t: t.lists_to_tuples(nest),
                 lambda t: t.map_structure_up_to([0, 0], len, [(1, 2, 3), "ab"])):
        assert call(zt.tree) == call(tree)


def test_batches_take_map_and_skip() -> None:
    batches = zt.preprocessing.timeseries_dataset_from_array(np.arange(10.0), np.arange(10.0), 2, batch_size=3)
    assert [len(x) for x, _ in batches] == [3, 3, 3]
    assert [float(y[0]) for _, y in batches.take(2)] == [0.0, 3.0]
    assert [float(y[0]) for _, y in batches.skip(2).map(lambda x, y: (x, -y))] == [-6.0]
