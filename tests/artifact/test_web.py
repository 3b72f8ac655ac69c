"""Pages for browsers: their script runs in Deno, a browser's engine without a window, and computes the same as programs
here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.artifact.web_pages import asked
from tests.cases import generating
from ztorch import layers as L
from ztorch.artifact.web import write_web
from ztorch.codegen.targets import TARGETS, WASM
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.web_page import export_web
from ztorch.errors import ConfigError, Unsupported
from ztorch.runtime.snapshot import Snapshot

ROWS = 11  # which is not a multiple of a batch


def images() -> tuple[zt.Model, Any, np.ndarray]:
    model = zt.Sequential([
        L.Input((6, 6, 2)), L.Conv2D(5, 3, activation="relu"), L.BatchNormalization(),
        L.MaxPooling2D(), L.Flatten(), L.Dropout(0.2), L.Dense(3, activation="softmax")],
        name="images", seed=3)
    random = np.random.default_rng(0)
    return model, random.normal(size=(ROWS, 6, 6, 2)).astype(np.float32), random.integers(0, 3, ROWS)


def words() -> tuple[zt.Model, Any, np.ndarray]:
    model = zt.Sequential([
        L.Input((7,), dtype="int32"), L.Embedding(20, 8), L.LSTM(6), L.LayerNormalization(),
        L.Dense(3, activation="softmax")], name="words", seed=4)
    random = np.random.default_rng(1)
    return model, random.integers(0, 20, (ROWS, 7)).astype(np.int32), random.integers(0, 3, ROWS)


def pixels() -> tuple[zt.Model, Any, np.ndarray]:
    """Bytes as they come from a picture."""
    model = zt.Sequential([
        L.Input((5, 5), dtype="uint8"), L.Rescaling(1 / 255), L.Flatten(),
        L.Dense(9, activation="gelu"), L.Dense(3, activation="softmax")], name="pixels", seed=5)
    random = np.random.default_rng(2)
    return model, random.integers(0, 256, (ROWS, 5, 5)).astype(np.uint8), random.integers(0, 3, ROWS)


MODELS = {f.__name__: f for f in (images, words, pixels)}


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", MODELS)
def test_predicts(name: str, policy: str, tmp_path: Path) -> None:
    model, x, _ = MODELS[name]()
    want = model.compile("cpu", batch_size=4, dtype=policy).predict(x)
    both = policy == "float32" or name == "images"
    files = export_web(model.trace(batch_size=4, dtype=policy), tmp_path / "page", webassembly=both)
    assert [f.name for f in files] == [f"{name}.zt", "ztorch.js", "index.html"]
    for on in ("WebGPU", "WebAssembly") if both else ("WebGPU",):
        made, actual = asked(tmp_path / "page", f"{name}.zt", [
            ["predict", x.reshape(-1).tolist()], ["predict", x[:2].tolist()], ["train", [], []]], on,
            together=[x[:5].reshape(-1).tolist(), x[5:].reshape(-1).tolist()])
        bound = 1e-5 if policy == "float32" else 5e-3  # a rounding of an operand may go the other way
        np.testing.assert_allclose(np.reshape(actual[0], want.shape), want, rtol=0, atol=bound)
        assert actual[1] == actual[0][:2 * want.shape[1]]
        assert "exported without --train" in actual[2]["error"]
        assert actual[3] + actual[4] == actual[0]  # asked for together, they take turns
        assert made["on"] == on
        assert made["inputs"] == [{"name": "", "shape": list(x.shape[1:]), "dtype": x.dtype.name}]
        assert made["outputs"] == [{"name": "", "shape": [3], "dtype": "float32"}]
        assert made["weights"] == [w.path for w in model.weights] and not made["trains"]


@pytest.mark.parametrize("name", MODELS)
def test_trains(name: str, tmp_path: Path) -> None:
    """Losses, metrics and weights after two epochs; the last batch of each is not full."""
    model, x, y = MODELS[name]()
    how: dict[str, Any] = {"optimizer": zt.optimizers.Adam(0.01), "metrics": ["accuracy"],
                           "loss": "sparse_categorical_crossentropy"}
    w = np.linspace(0.5, 1.5, ROWS)
    program = model.compile("cpu", batch_size=4, **how)
    last = model.weights[-1].path
    export_web(model.trace(4, **how), tmp_path)
    history = program.fit(x, y, sample_weight=w, epochs=2, shuffle=False, verbose=0)
    inputs = [x.reshape(-1).tolist(), y.tolist(), w.tolist()]
    want = program.evaluate(x, y, sample_weight=w, verbose=0)
    for on, bound in (("WebGPU", 1e-4), ("WebAssembly", 1e-6)):
        made, actual = asked(tmp_path, f"{name}.zt", [
            ["train", *inputs], ["train", *inputs], ["weight", last], ["evaluate", *inputs],
            ["setWeight", last, [0.0] * 3], ["weight", last], ["reset"], ["train", *inputs]], on)
        assert made["trains"]
        assert not [error for one in actual if (error := isinstance(one, dict) and one.get("error"))]
        for epoch in range(2):
            np.testing.assert_allclose(actual[epoch]["loss"], history.history["loss"][epoch], rtol=bound)
            assert actual[epoch]["accuracy"] == pytest.approx(history.history["accuracy"][epoch])
        np.testing.assert_allclose(actual[2], program.get_weights()[-1], rtol=0, atol=bound)
        assert actual[3]["loss"] == pytest.approx(want[0], rel=10 * bound)
        assert actual[5] == [0.0] * 3
        assert actual[7]["loss"] == actual[0]["loss"]  # dropout draws the same again, too


def test_scores_that_are_no_means_of_rows(tmp_path: Path) -> None:
    """Metrics that sums over all batches make, of masked steps, and weighted ones."""
    model = zt.Sequential([L.Input((5, 3)), L.Masking(), L.Dense(2, activation="sigmoid")],
                          name="steps", seed=2)
    how: dict[str, Any] = {"loss": "mse", "optimizer": "sgd", "metrics": [
        "mae", "rmse", "auc", zt.metrics.WeightedMetric("mse")]}
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 5, 3)).astype(np.float32)
    x[::2, 1:], x[9:, 3:] = 0.0, 0.0  # batches of few real steps and of many
    y, w = random.integers(0, 2, (ROWS, 5, 2)), np.linspace(0.1, 2.0, ROWS)
    program = model.compile("cpu", batch_size=4, **how)
    export_web(model.trace(4, **how), tmp_path)
    inputs = [a.reshape(-1).tolist() for a in (x, y, w)]
    first = program.evaluate(x, y, sample_weight=w, verbose=0, return_dict=True)
    trained = program.fit(x, y, sample_weight=w, shuffle=False, verbose=0).history
    for on in ("WebGPU", "WebAssembly"):
        _, actual = asked(tmp_path, "steps.zt", [["evaluate", *inputs], ["train", *inputs]], on)
        assert actual[0] == pytest.approx(first, rel=1e-5)
        assert actual[1] == pytest.approx({name: one for name, (one,) in trained.items()}, rel=1e-4)


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    a, b = L.Input((4,), name="left"), L.Input((3,), name="right")
    both = L.Concatenate()([a, b])
    model = zt.Model([a, b], {"sum": L.Dense(2)(both), "flag": L.Dense(1, activation="sigmoid")(both)},
                     name="two", seed=1)
    random = np.random.default_rng(0)
    x = {"left": random.normal(size=(5, 4)).astype(np.float32),
         "right": random.normal(size=(5, 3)).astype(np.float32)}
    inputs = {k: v.reshape(-1).tolist() for k, v in x.items()}
    export_web(model.trace(2), tmp_path, webassembly=False)
    made, actual = asked(tmp_path, "two.zt", [
        ["predict", inputs], ["predict", {"left": inputs["left"]}],
        ["predict", {**inputs, "right": inputs["right"][:-3]}],
        ["predict", {**inputs, "left": inputs["left"][:-1]}], ["weight", "nothing"]])
    for name, want in model.compile("cpu", batch_size=2).predict(x).items():
        np.testing.assert_allclose(np.reshape(actual[0][name], want.shape), want, rtol=0, atol=1e-6)
    assert "takes x.right, and it is missing" in actual[1]["error"]
    assert "x.right has 4 rows, and x.left 5" in actual[2]["error"]
    assert "x.left has 19 numbers; a row of it is [4], 4 numbers" in actual[3]["error"]
    assert "has no weight nothing; it has dense" in actual[4]["error"]
    assert [t["name"] for t in made["inputs"]] == ["left", "right"]


def test_generates(tmp_path: Path) -> None:
    """The numbers that programs here draw, from prompts of several lengths; WebGPU, which is imitated,
    is asked once."""
    name, prompts = "recurrent", [[1, 2, 3], [4], [5, 6]]
    export_web(generating.MODELS[name]().trace(1, decode=2), tmp_path)
    program = generating.compiled(name, rows=2)
    how: dict[str, Any] = {"temperature": 0.9, "seed": 2**32 - 1}
    several = ["generate", prompts, 7, {**how, "topK": 4, "topP": 0.95, "stop": 5}]
    want = [t.tolist() for t in program.generate(prompts, 7, top_k=4, top_p=0.95, stop=5, **how)]
    assert {len(t) for t in want} != {7}  # some end early
    made, actual = asked(tmp_path, "writer.zt", [
        several, ["generate", [1, 2, 3], 25, {**how, "repetitionPenalty": 1.5}],
        ["generate", [1], 9, {"beams": 2, "lengthPenalty": 0.5}],
        ["generate", [1], 9, {"temperature": 0}], ["generate", [1], 9, {"top_k": 3}],
        ["generate", [1], 9, {"topP": 0}], ["generate", [], 9], ["generate", [1], 9, {"stop": 7}],
        ["generate", [1], 9, {"beams": 3}], ["generate", [1], 9, {"beams": 2, "seed": 1}],
        ["generate", [1.5], 9], ["generate", [[1], [7]], 9], ["generate", [1], 0]], "WebAssembly")
    assert actual[0] == want
    assert actual[1] == program.generate([1, 2, 3], 25, repetition_penalty=1.5, **how).tolist()
    assert actual[2] == program.generate([1], 9, beams=2, length_penalty=0.5).tolist()
    assert actual[3] == program.generate([1], 9, temperature=0).tolist()
    for one, message in zip(actual[4:], (
            "no option top_k; it has temperature, topK", "topP }) must be a number above 0 and at most 1, not 0",
            "the prompt is empty", "has 7; this model gives 0 to 6", "generates 2 at once; export it with decode=3",
            "leave out seed, or beams", "the prompt has 1.5",
            "the prompt has 7; layer embedding takes integers from 0 to 6", "takes an integer above 0, not 0"), strict=True):
        assert message in one["error"]
    made, actual = asked(tmp_path, "writer.zt", [["generate", *several[1:2], 4, several[3]]])
    assert made["on"] == "WebGPU" and actual[0] == [t[:4] for t in want]


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def test_damage_is_named(tmp_path: Path) -> None:
    model, _, _ = images()
    artifact = export_web(model.trace(4), tmp_path, webassembly=False)[0]
    good = artifact.read_bytes()
    cases = {
        "the hash of weights.safetensors": _flipped(good, good.index(b"data_offsets") + 2),
        "the hash of code/webgpu.bin": _flipped(good, good.index(b"workgroupBarrier")),
        "the hash of manifest.json": _flipped(good, good.index(b'"arena_bytes"') + 2),
        "no seal at its end": good[:-10],
        "this is not an artifact": b"hello",
        "not an artifact of ztorch": _flipped(good, len(good) - 64 - 22),
    }
    for words, data in cases.items():
        artifact.write_bytes(data)
        made, actual = asked(tmp_path, artifact.name, [])
        assert made is None and words in actual[0]["error"], words


def test_what_a_device_cannot_do_is_named(tmp_path: Path) -> None:
    """Before the driver sees anything."""
    traced = zt.Sequential([L.Input((4,)), L.Dense(3)], name="small", seed=0).trace(4)
    c = compile_functions(traced.functions, TARGETS["webgpu"], "small")
    f = c.spec.functions["predict"]
    entry, at, size, group = c.spec.entries[0]
    far = f.launches[0].replace(places=(("arena", 1 << 20, 64, True), *f.launches[0].places[1:]))
    wide = f.launches[0].replace(grid=(1 << 20, 1, 1))
    for words, spec in {
        "reaches outside of its arena": c.spec.replace(
            functions={"predict": f.replace(launches=(far,))}),
        "needs 1,048,576 groups": c.spec.replace(
            functions={"predict": f.replace(launches=(wide,))}),
        "is outside of the artifact's code": c.spec.replace(
            entries=((entry, at, size + (1 << 20), group), *c.spec.entries[1:])),
        "threads in a group": c.spec.replace(
            entries=((entry, at, size, (1 << 20, 1, 1)), *c.spec.entries[1:])),
        "bytes of arena": c.spec.replace(arena_bytes=1 << 42),
    }.items():
        write_web(tmp_path, Snapshot(spec, c.code, c.params, traced.metadata))
        made, actual = asked(tmp_path, "small.zt", [])
        assert made is None and words in actual[0]["error"], actual
    small = compile_functions(traced.functions, WASM, "small")
    write_web(tmp_path, Snapshot(spec, c.code, c.params, traced.metadata),
              Snapshot(small.spec, small.code, small.params, traced.metadata))
    made, actual = asked(tmp_path, "small.zt", [["predict", [0.0] * 4]], None)
    assert made["on"] == "WebAssembly" and len(actual[0]) == 3


def test_other_devices_have_no_page(tmp_path: Path) -> None:
    traced = zt.Sequential([L.Input((4,)), L.Dense(3)], name="small").trace(4)
    c = compile_functions(traced.functions, TARGETS["vulkan"], "small")
    with pytest.raises(Unsupported, match="compiled for vulkan; export it for the device webgpu"):
        write_web(tmp_path, Snapshot(c.spec, c.code, c.params, traced.metadata))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; pass a folder"):
        export_web(traced, tmp_path / "file", webassembly=False)


def test_names_reach_the_page_only_as_text(tmp_path: Path) -> None:
    name = "<b onload=1>'\"${x}"
    files = export_web(zt.Sequential([L.Input((4,)), L.Dense(3)], name=name).trace(4), tmp_path, webassembly=False)
    page = files[-1].read_text()
    assert files[0].name.replace("_", "").removesuffix(".zt").isalnum()
    assert name not in page and "<b " not in page and "&lt;b onload" in page
