"""Files with symbolic axes besides the batch: sizes are chosen when a model is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import model_of, runtime, tensor, written
from ztorch.errors import ConfigError, DataError, Unsupported

RANDOM = np.random.default_rng(3)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"{op}_{outputs}", **attrs)


def port(name: str, dims: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def reader(path: Path) -> Path:
    """Positions by Range, attention over all steps, a state of the last step: shapes are computed
    from the shape of the input, as exporters write them."""
    w = RANDOM.normal(size=(4, 4)).astype("f")
    made = model_of(
        [node("Shape", "x", "shape"), node("Gather", "shape one", "n"),
         node("Range", "zero n one", "at"), node("Gather", "places at", "p"),
         node("Add", "x p", "h"), node("MatMul", "h w", "q"),
         node("Transpose", "h", "t", perm=[0, 2, 1]), node("MatMul", "q t", "scores"),
         node("Softmax", "scores", "probabilities"), node("MatMul", "probabilities h", "steps"),
         node("Gather", "steps last", "end", axis=1)],
        [port("x", ["rows", "time", 4])], [port("steps", [None] * 3), port("end", [None] * 2)],
        [tensor("w", w), tensor("places", RANDOM.normal(size=(64, 4)).astype("f")),
         *(tensor(name, np.array(k)) for name, k in (("zero", 0), ("one", 1), ("last", -1)))])
    return written(made, path)


def images(path: Path) -> Path:
    """A map of half the size, and one brought back to the size of the image."""
    made = model_of(
        [node("Conv", "x k", "half", strides=[2, 2], pads=[1, 1, 1, 1]),
         node("Shape", "x", "shape"), node("Resize", "half none none shape", "full",
                                           mode="nearest")],
        [port("x", ["rows", 2, "height", "width"])],
        [port("half", [None] * 4), port("full", [None] * 4)],
        [tensor("k", RANDOM.normal(size=(2, 2, 3, 3)).astype("f"))])
    made.graph.node[2].input[1:3] = ["", ""]
    return written(made, path)


def test_sequences(tmp_path: Path) -> None:
    path = reader(tmp_path / "reader.onnx")
    model = zt.onnx.load(path)
    assert model.axis_names == ["time"]
    assert [tuple(map(str, shape)) for shape in model.output_shape.values()] == [
        ("time", "4"), ("4",)]
    program = model.compile("cpu", batch_size=(1, 4), sizes={"time": (5, 9)}, threads=1)
    rows = [RANDOM.normal(size=(n, 4)).astype("f") for n in (5, 9, 9, 5, 5, 5, 5, 5)]
    results = program.predict(rows)
    for k, row in enumerate(rows):
        for found, expected in zip(results.values(), runtime(path, row[None]), strict=True):
            np.testing.assert_allclose(found[k], expected[0], rtol=2e-5, atol=1e-6)
    with pytest.raises(DataError, match=r"size 7, and this program is compiled for 5 and 9 alone"):
        program.predict(rows[0][None].repeat(7, 1)[:, :7])
    with pytest.raises(DataError, match=r"rows of several sizes \('time': 5, 9\)"):
        program.predict_on_batch(rows[:2])
    program.save(tmp_path / "reader.zt")
    again = zt.load(tmp_path / "reader.zt")
    np.testing.assert_array_equal(again.predict(rows)["end"], results["end"])
    with pytest.raises(DataError, match="compiled for 5 and 9 alone"):
        again.predict(np.ones((1, 6, 4)))
    with pytest.raises(Unsupported, match="mixes positions"):
        model.export(tmp_path / "page", format="web", sizes=(5, 9))


def test_sizes_of_data(tmp_path: Path) -> None:
    """Without sizes, a model is compiled for those that its data have, and trains in all."""
    path = reader(tmp_path / "reader.onnx")
    model = zt.onnx.load(path, outputs=["steps"])
    model.compile("cpu", batch_size=2, optimizer="sgd", loss="mse", threads=1)
    for size in (3, 1):
        x = RANDOM.normal(size=(3, size, 4)).astype("f")
        np.testing.assert_allclose(model.predict(x), runtime(path, x)[0], rtol=2e-5, atol=1e-6)
    rows = [np.ones((n, 4)) for n in (3, 1, 3, 1, 1)]
    history = model.fit(rows, [np.zeros((len(row), 4)) for row in rows], epochs=3, verbose=0)
    assert model.program.buckets.axes["time"] == (1, 3)
    losses = history.history["loss"]
    assert losses[2] < losses[1] < losses[0]
    with pytest.raises(ConfigError, match="bring rows to 8 sizes at most"):
        model.predict([np.ones((n, 4)) for n in range(1, 12)])


def test_images(tmp_path: Path) -> None:
    """An output may have sizes of its own, which no axis of an input has."""
    path = images(tmp_path / "images.onnx")
    model = zt.onnx.load(path)
    program = model.compile("cpu", batch_size=2, sizes={"height": (6, 8), "width": 10}, threads=1)
    rows = [RANDOM.normal(size=(2, n, 10)).astype("f") for n in (6, 8, 6, 6)]
    results = program.predict(rows)
    for k, row in enumerate(rows):
        for found, expected in zip(results.values(), runtime(path, row[None]), strict=True):
            np.testing.assert_allclose(found[k], expected[0], rtol=2e-5, atol=1e-6)
    with pytest.raises(Unsupported, match=r"targets of shape \(2, 4, 5\) or \(2, 3, 5\)"):
        zt.onnx.load(path, outputs=["half"]).compile(
            "cpu", batch_size=2, sizes={"height": (6, 8), "width": 10}, optimizer="sgd", loss="mse")


def test_names_of_axes(tmp_path: Path) -> None:
    """Axes that must be as long have one name, and names are such as axes may have."""
    made = model_of(
        [node("Add", "a b", "y")],
        [port(name, ["n", f"{name}/axis"]) for name in "ab"], [port("y", [None] * 2)])
    model = zt.onnx.load(written(made, tmp_path / "two.onnx"))
    assert model.axis_names == ["a_axis"]
    made.graph.node[0].op_type = "MatMul"
    with pytest.raises(ConfigError, match=r"sizes=\{'a_axis': 128, 'b_axis': 128\}.*MatMul"):
        zt.onnx.load(written(made, tmp_path / "two.onnx"))
