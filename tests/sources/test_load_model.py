"""Whatever holds a model is a model: names, Python files, artifacts, weights, Keras and ONNX."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import changed, flowers, trainer
from ztorch import layers as L
from ztorch.errors import ArtifactError, ConfigError
from ztorch.runtime.load import open_artifact
from ztorch.sources.find import find
from ztorch.sources.recipe import optimizer, training_options

SIZES = {"batch_size": (2, 4), "sizes": {"time": (3, 5)}}


class Doubling(L.Layer):
    """A layer of a user's own."""

    def __init__(self, factor: float = 2.0, **common):
        super().__init__(**common)
        self.factor = factor

    def call(self, x):
        return x * self.factor


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "flowers.zt"
    program = trainer()
    program.fit(*flowers(), epochs=2, verbose=0)
    program.save(path)
    return path


def test_the_small_variant_of_a_model_is_smaller() -> None:
    whole, small = (find(name).model.weights[0].shape for name in ("resnet18", "resnet18:small"))
    assert whole == (7, 7, 3, 64) and small == (7, 7, 3, 16)


def test_a_trained_artifact_can_be_exported_everywhere(trained: Path, tmp_path: Path) -> None:
    model, x = zt.load_model(trained), flowers()[0]
    want = zt.load(trained).predict(x)
    assert (model.name, model.seed) == ("flowers", 1)
    for device, size in (("cpu:scalar", 3), ("cpu", 16)):
        again = model.compile(device, batch_size=size).predict(x)
        np.testing.assert_allclose(again, want, rtol=1e-6, atol=1e-7)
    for device, format_, name in (("cpu:neon", None, "arm.zt"), ("cuda:sm_90", None, "gpu.zt"),
                                  ("c", "c", "c"), ("auto", "web", "page")):
        files = model.export(tmp_path / name, device, format=format_, batch_size=1)
        assert files and all(file.stat().st_size for file in files)
    for name in ("arm.zt", "gpu.zt", "page/flowers.zt"):  # which carry the model on
        np.testing.assert_array_equal(zt.load_model(tmp_path / name).get_weights()[0],
                                      model.get_weights()[0])


def test_the_declaration_has_all_arguments_of_compile(trained: Path) -> None:
    recipe = find(str(trained))
    declaration = open_artifact(trained).manifest.program.declaration
    assert declaration is not None and declaration.custom == () and declaration.lacks == ""
    assert recipe.loss["class_name"] == "SparseCategoricalCrossentropy"
    assert [m["config"]["name"] for m in recipe.metrics] == ["accuracy"]
    assert recipe.optimizer["class_name"] == "Adam" and recipe.batch_size == 8
    program = recipe.model.compile("cpu:scalar", loss=recipe.loss, metrics=recipe.metrics,
                                   optimizer=recipe.optimizer)
    x, y = flowers()
    assert program.evaluate(x, y, verbose=0) == pytest.approx(
        zt.load(trained).evaluate(x, y, verbose=0), rel=1e-6)


@pytest.mark.parametrize(("name", "message"), [
    ("m.mlir", "MLIR, such as StableHLO")])
def test_programs_of_others_are_named(name: str, message: str) -> None:
    with pytest.raises(zt.errors.Unsupported, match=message):
        zt.load_model(name)


def test_rows_of_one_step_decide_too() -> None:
    """And the first position of an open axis, which no row is without."""
    ids = L.Input((None,), dtype="int32")
    table = L.Embedding(5, 2)
    model = zt.Model(ids, table(ids)[:, 0])
    model.compile("cpu:scalar", batch_size=2)
    expected = table.weights[0].value
    np.testing.assert_array_equal(model.predict(np.array([[3], [1]], np.int32)), expected[[3, 1]])
    np.testing.assert_array_equal(model.predict(np.array([[4, 1, 0]], np.int32)), expected[[4]])


def test_open_axes_several_outputs_and_16_bits_come_back(tmp_path: Path) -> None:
    x = L.Input(("time", 3), name="x")
    h = L.GlobalMaxPooling1D()(L.Dense(4)(x))
    model = zt.Model(x, {"kind": L.Dense(2, activation="softmax")(h), "size": L.Dense(1)(h)})
    model.export(tmp_path / "m.zt", "cpu:scalar", train=True, dtype="mixed_bfloat16",
                 loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
                 loss_weights={"size": 0.5}, metrics={"size": ["mae"]}, optimizer="sgd", **SIZES)
    recipe = find(str(tmp_path / "m.zt"))
    assert recipe.loss_weights == {"kind": 1.0, "size": 0.5}
    assert [m["class_name"] for m in recipe.metrics["size"]] == ["LossMetric"]
    assert (recipe.batch_size, recipe.sizes) == ((2, 4), {"time": (3, 5)})
    assert recipe.dtype == "mixed_bfloat16"
    for mine, loaded in zip(model.get_weights(), recipe.model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, loaded)
    traced = recipe.model.trace(recipe.batch_size, recipe.optimizer, recipe.loss, recipe.metrics,
                                recipe.dtype, loss_weights=recipe.loss_weights, sizes=recipe.sizes)
    assert {"train@2x3", "size_mae"} <= {*traced.functions, *traced.functions["train"].outputs}


def test_a_model_with_a_function_says_why_it_cannot_train(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Lambda(lambda x: x * 2.0, name="double"), L.Dense(1)])
    model.export(tmp_path / "f.zt", "cpu:scalar")
    with pytest.raises(ArtifactError, match=r"f.zt declares no model, .*Lambda"):
        zt.load_model(tmp_path / "f.zt")
    assert zt.load(tmp_path / "f.zt").predict(np.ones((1, 3))).shape == (1, 1)


def test_custom_classes_are_passed_and_never_imported(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), Doubling(3.0), L.Dense(1)], seed=3)
    x = np.ones((2, 3), np.float32)
    model.export(tmp_path / "own.zt", "cpu:scalar", batch_size=2)
    declaration = open_artifact(tmp_path / "own.zt").manifest.program.declaration
    assert declaration is not None and declaration.custom == ("Doubling",)
    own = (tmp_path / "own.py")
    own.write_text("import ztorch as zt\nclass Doubling(zt.layers.Layer):\n"
                   "    def __init__(self, factor=2.0, **common):\n"
                   "        super().__init__(**common)\n        self.factor = factor\n"
                   "    def call(self, x):\n        return x * self.factor\n")
    script = ("import sys, json, ztorch as zt\n"
              "try:\n    zt.load_model('own.zt')\nexcept zt.errors.ArtifactError as e: print(e)\n"
              "m = zt.load_model('own.zt', custom_objects='own.py')\n"
              "print(json.dumps(m.compile('cpu:scalar').predict([[1., 1., 1.]] * 2).tolist()))\n")
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True,
                         text=True, check=False)
    refusal, values = ran.stdout.splitlines() or [ran.stderr, ""]
    assert "uses custom classes, which files do not contain: Doubling; pass them: zt.load_model" in refusal
    np.testing.assert_array_equal(json.loads(values), model.compile("cpu:scalar").predict(x))

    class Tripling(Doubling):
        pass

    named = zt.load_model(tmp_path / "own.zt", custom_objects={"Doubling": Tripling})
    assert type(named.layers[0]) is Tripling and L.Layer.known["Doubling"] is Doubling
    for wrong in ({"Doubling": 3}, 7, ["len"]):
        with pytest.raises(ConfigError, match="custom_objects"):
            zt.load_model(tmp_path / "own.zt", custom_objects=wrong)


@pytest.mark.parametrize("damage", [
    {"class_name": "Sequential"}, {"class_name": 3, "config": {}}, {"config": {"layers": []}},
    {"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense", "config": 3}]}},
    {"class_name": "Sequential", "config": {"layers": [{"class_name": "os.system"}]}},
    {"class_name": "Sequential", "config": {"layers": [
        {"class_name": "Input", "config": {"shape": [4]}},
        {"class_name": "Dense", "config": {"name": "hidden", "units": 5}}]}},
    {"class_name": "Dense", "config": {"units": 3}}], ids=lambda d: str(d)[:40])
def test_a_false_declaration_is_an_error(damage: dict, trained: Path, tmp_path: Path) -> None:
    def lie(manifest: dict) -> None:
        manifest["program"]["declaration"]["model"] = damage

    (tmp_path / "lie.zt").write_bytes(changed(lie, trained.read_bytes()))
    with pytest.raises(ArtifactError, match=r"lie\.zt"):
        zt.load_model(tmp_path / "lie.zt")
    assert zt.load(tmp_path / "lie.zt").predict(flowers()[0]).shape == (60, 3)


def test_weights_with_a_recipe_and_names(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from ztorch import Sequential, layers as L\n"
        "def build():\n    return Sequential([L.Input((3,)), L.Dense(2)])\nother = build()\n")
    model = zt.load_model(f"{tmp_path}/net.py:other")
    model.set_weights([np.full((3, 2), 5.0), np.ones(2)])
    model.save_weights(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(zt.load_model(tmp_path / "net.safetensors").get_weights()[0], 5.0)
    zoo = zt.load_model("digits_mlp")
    zoo.save_weights(tmp_path / "w.safetensors")
    assert zt.load_model(tmp_path / "w.safetensors").name == "digits_mlp"
    model.save_weights(tmp_path / "alone.safetensors")
    with pytest.raises(ConfigError, match=r"alone.safetensors holds only weights, there is no "
                       r"alone.py beside it, and the zoo has no model 'sequential"):
        zt.load_model(tmp_path / "alone.safetensors")
    with pytest.raises(ConfigError, match="holds only weights; name their model"):
        zt.load_model("weights.h5")
    with pytest.raises(ConfigError, match=r"unknown model 'digts_mlp'; did you mean 'digits_mlp'"):
        zt.load_model("digts_mlp")


def test_onnx_and_back(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)], seed=5)
    assert model.export(tmp_path / "m.onnx") == [tmp_path / "m.onnx"]
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(zt.load_model(tmp_path / "m.onnx").predict(x), model.predict(x),
                               rtol=1e-6)


@pytest.mark.parametrize("arguments, message", [
    ({"path": "out"}, "has no known format"),
    ({"path": "x.zt", "format": "c"}, "'x.zt' does not look like one"),
    ({"path": "x", "format": "dll"}, "unknown format 'dll'"),
    ({"path": "x.zt", "loss": "mse"}, r"export\(loss=...\) requires training: add train=True"),
    ({"path": "x.zt", "train": True}, "needs a loss and an optimizer"),
    ({"path": "x.onnx", "train": True}, "an ONNX file only predicts"),
    ({"path": "x.onnx", "batch_size": (1, 2)}, "takes any batch size, or one"),
    ({"path": "x", "format": "web", "device": "cpu"}, "a web page runs on WebGPU"),
])
def test_wrong_exports_teach(arguments: dict, message: str) -> None:
    with pytest.raises(zt.errors.ZtorchError, match=message):
        zt.Sequential([L.Input((3,)), L.Dense(2)]).export(**arguments)


def test_export_uses_the_arguments_of_compile(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    model.compile("cpu:scalar", batch_size=4, loss="mse", optimizer="sgd", metrics=["mae"])
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.export(tmp_path / "t.zt", "cpu:scalar", train=True)
    program = zt.load(tmp_path / "t.zt")
    assert program.metadata.batch_size == 4 and program.metrics_names == ["loss", "mae"]
    np.testing.assert_array_equal(program.get_weights()[0], model.get_weights()[0])


def test_the_zoo_has_the_names_of_keras_models() -> None:
    """Importing a model of it makes the zoo what `zt.models` is."""
    zoo = importlib.import_module("ztorch.models")
    assert (zoo.Model, zoo.Sequential, zoo.load_model) == (zt.Model, zt.Sequential, zt.load_model)


@pytest.mark.parametrize("name", ["net.keras", "net.py"])
def test_how_a_model_was_compiled_is_how_it_is_trained(tmp_path: Path, name: str) -> None:
    source = ("import ztorch as zt\nmodel = zt.Sequential([zt.Input((3,)), zt.layers.Dense(2)])\n"
              "model.compile('cpu:scalar', loss='huber', optimizer='nadam', metrics=['mae'])\n")
    (tmp_path / "net.py").write_text(source)
    if name == "net.keras":
        find(str(tmp_path / "net.py")).model.save(tmp_path / name)
    recipe = find(str(tmp_path / name))
    program = recipe.model.compile("cpu:scalar", batch_size=2, **training_options(recipe, recipe.loss))
    x, y = np.eye(3, dtype=np.float32), np.full((3, 2), 4, np.float32)
    error = np.abs(program.predict(x) - y)
    want = np.where(error < 1, error**2 / 2, error - 0.5).mean(), error.mean()
    np.testing.assert_allclose(program.evaluate(x, y, verbose=0), want, rtol=1e-6)
    assert isinstance(zt.optimizers.get(recipe.optimizer), zt.optimizers.Nadam)


def test_a_batch_size_that_the_model_declares(tmp_path: Path) -> None:
    """Commands and exports take it where nothing else is said."""
    fixed = zt.Sequential([L.Input((3,), batch_size=2), L.Dense(1)])
    for name in ("net.onnx", "net.keras"):
        path = tmp_path / name
        zt.onnx.save(fixed, path) if path.suffix == ".onnx" else fixed.save(path)
        model = find(str(path))
        assert (model.batch_size, model.model.output_shape) == (2, (2, 1))
    (tmp_path / "net.py").write_text(
        "from ztorch import Sequential, layers as L\nmodel = Sequential([L.Input((3,), batch_size=5), L.Dense(1)])")
    assert find(str(tmp_path / "net.py")).batch_size == 5
    onnx = zt.load_model(tmp_path / "net.onnx")
    onnx.export(tmp_path / "net.zt", "cpu:scalar")
    x = np.ones((3, 3), np.float32)
    np.testing.assert_allclose(zt.load(tmp_path / "net.zt").predict(x), fixed.predict(x), rtol=1e-6)


def test_several_losses_and_their_weights_come_back(tmp_path: Path) -> None:
    x = L.Input((3,))
    model = zt.Model(x, {"kind": L.Dense(2, "softmax")(x), "size": L.Dense(1)(x)})
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    for name in ("sgd", None):
        program = model.compile("cpu:scalar", batch_size=2, loss=losses, loss_weights={"size": 0.5},
                                optimizer=name)
        program.save(tmp_path / "two.zt")
        loaded = zt.load_model(tmp_path / "two.zt")
        if name is None:  # it cannot continue to train
            assert loaded.compile_arguments == {}
        else:
            assert loaded.compile_arguments["loss_weights"] == {"kind": 1.0, "size": 0.5}
            assert {*loaded.compile_arguments["loss"]} == {"kind", "size"}
    one = zt.Sequential([L.Input((3,)), L.Dense(1)])
    one.compile("cpu:scalar", batch_size=2, loss="mse", optimizer="sgd").save(tmp_path / "one.zt")
    arguments = zt.load_model(tmp_path / "one.zt").compile_arguments
    assert arguments["loss_weights"] is None and arguments["loss"]["class_name"] == "MeanSquaredError"


def test_the_optimizer_of_a_name_and_a_rate() -> None:
    assert type(optimizer(None, None)) is zt.optimizers.Adam
    assert optimizer(None, 0.5).get_config() == zt.optimizers.Adam(0.5).get_config()
    assert optimizer("sgd", None).get_config() == zt.optimizers.SGD().get_config()
    spec = {"class_name": "SGD", "config": {"momentum": 0.5}}
    assert optimizer(spec, 0.25).get_config() == zt.optimizers.SGD(0.25, momentum=0.5).get_config()
