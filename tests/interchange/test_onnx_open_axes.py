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


def counted(path: Path) -> Path:
    """The share of each element in the number of steps: a number that follows the size."""
    return written(model_of(
        [node("Shape", "x", "shape"), node("Gather", "shape one", "n"),
         node("Cast", "n", "count", to=TensorProto.FLOAT), node("Div", "x count", "y")],
        [port("x", ["rows", "time", 4])], [port("y", [None] * 3)], [tensor("one", np.array(1))]),
        path)


def sequences(path: Path) -> Path:
    """Each node that looks at several positions of a sequence, channels first."""
    large = np.array([1 << 62])
    arrays = {"k": RANDOM.normal(size=(4, 2, 3)), "up": RANDOM.normal(size=(2, 4, 4)),
              "gain": RANDOM.normal(size=2), "bias": RANDOM.normal(size=2)}
    numbers = {"axis": [2], "one": [1], "last": [-1], "two": [2], "zero": [0], "end": large,
               "front": -large, "pads": [0, 0, 2, 0, 0, 1], "scalar": 2}
    nodes = [
        node("Conv", "x k", "conv", strides=[2], pads=[1, 1]),
        node("Conv", "x k", "same", strides=[2], auto_pad="SAME_UPPER"),
        node("MaxPool", "conv", "max", kernel_shape=[3], strides=[2], pads=[0, 1]),
        node("MaxPool", "x", "up_to_end", kernel_shape=[2], strides=[3], ceil_mode=1),
        node("AveragePool", "same", "mean", kernel_shape=[3], strides=[2], pads=[1, 1]),
        node("AveragePool", "x", "counted", kernel_shape=[3], pads=[1, 1], count_include_pad=1),
        node("LpPool", "x", "lp", kernel_shape=[2], strides=[2]),
        node("ConvTranspose", "x up", "wide", strides=[2], pads=[1, 0], output_padding=[1]),
        node("GlobalAveragePool", "max", "all_mean"), node("GlobalMaxPool", "x", "all_max"),
        node("InstanceNormalization", "x gain bias", "norm"), node("Softmax", "x", "p", axis=2),
        node("LogSoftmax", "x", "log_p", axis=2), node("ReduceMean", "wide axis", "m", keepdims=0),
        node("ReduceLogSumExp", "x axis", "lse"), node("ReduceL2", "x axis", "l2"),
        node("CumSum", "x scalar", "sums"), node("CumSum", "x scalar", "rest", reverse=1,
                                                 exclusive=1),
        node("Pad", "x pads", "zeros"), node("Pad", "x pads", "mirror", mode="reflect"),
        node("Pad", "x pads", "edge", mode="edge"), node("Pad", "x pads", "round", mode="wrap"),
        node("Slice", "x one last axis", "inner"), node("Slice", "x one end axis two", "odd"),
        node("Slice", "x last front axis last", "backwards"),
        node("Gather", "x last", "final", axis=2), node("Slice", "x zero one axis", "first"),
        node("Concat", "first x", "behind", axis=2), node("Concat", "x first x", "between", axis=2),
        node("Resize", "x  half", "less"), node("Resize", "x  twice", "twice_linear",
                                                mode="linear"),
        node("Resize", "x  twice", "corners", mode="linear",
             coordinate_transformation_mode="align_corners"),
        node("Einsum", "x x", "gram", equation="bct,bdt->bcd"), node("TopK", "x two", "top at")]
    for made in nodes:  # the input of Resize that is left out
        if made.op_type == "Resize":
            made.input[:] = [made.input[0], "", made.input[1]]
    outputs = sorted({y for made in nodes for y in made.output} - {"at"})
    shapes = {"all_mean": 3, "m": 2}
    return written(model_of(nodes, [port("x", ["rows", 2, "time"])], [
        port(y, [None] * shapes.get(y, 3)) for y in outputs], [
            *(tensor(name, a.astype("f")) for name, a in arrays.items()),
            *(tensor(name, np.array(a)) for name, a in numbers.items()),
            tensor("half", np.array([1, 1, 0.5], "f")),
            tensor("twice", np.array([1, 1, 2], "f"))]), path)


def maps(path: Path) -> Path:
    """Maps of images with two open axes: a part of a network that segments them."""
    nodes = [
        node("Conv", "x k", "half", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", "half", "less", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "less", "all"), node("Expand", "all wide", "spread"),
        node("Shape", "less", "inner"), node("Slice", "inner two four", "size"),
        node("Shape", "x", "outer"), node("Slice", "outer two four", "whole"),
        node("Concat", "one_channel size", "wide", axis=0),
        node("Concat", "less spread", "joined", axis=1), node("Conv", "joined j", "scores"),
        node("Concat", "one_channel whole", "shape", axis=0),
        node("Resize", "scores shape", "full", mode="linear",
             coordinate_transformation_mode="pytorch_half_pixel"),
        node("DepthToSpace", "joined", "blocks", blocksize=2),
        node("LpNormalization", "x", "unit", axis=2),
        node("Resize", "x factors", "scaled", mode="linear")]
    nodes[12].input[:], nodes[15].input[:] = ["scores", "", "", "shape"], ["x", "", "factors"]
    nodes = [nodes[k] for k in (0, 1, 2, 4, 5, 8, 3, 6, 7, 11, 9, 10, 12, 13, 14, 15)]
    return written(model_of(nodes, [port("x", [1, 2, "height", "width"])], [
        port(y, [None] * 4) for y in ("half", "full", "blocks", "unit", "scaled")], [
            tensor("factors", np.array([1, 1, 1.5, 0.5], "f")),
            tensor("k", RANDOM.normal(size=(2, 2, 3, 3)).astype("f")),
            tensor("j", RANDOM.normal(size=(2, 4, 1, 1)).astype("f")),
            tensor("two", np.array([2])), tensor("four", np.array([4])),
            tensor("one_channel", np.array([1, 2]))]), path)


def recurrent(path: Path) -> Path:
    """A network both ways over steps that come first, then attention of rows of heads."""
    numbers = {"rows": [0, -1, 4], "split": [0, -1, 2], "one": [1]}
    weights = {"w": (2, 12, 2), "r": (2, 12, 3), "q": (6, 4)}
    nodes = [
        node("Transpose", "x", "steps", perm=[1, 0, 2]),
        node("LSTM", "steps w r", "ways last", direction="bidirectional", hidden_size=3),
        node("Transpose", "ways", "rows_of", perm=[0, 2, 1, 3]),
        node("Reshape", "rows_of six", "joined"), node("MatMul", "joined q", "h"),
        node("Reshape", "h split", "heads"), node("Transpose", "heads", "by_head", perm=[1, 0, 2]),
        node("Transpose", "by_head", "keys", perm=[0, 2, 1]),
        node("MatMul", "by_head keys", "scores"), node("Softmax", "scores", "p"),
        node("MatMul", "p by_head", "mixed"), node("Transpose", "mixed", "back", perm=[1, 0, 2]),
        node("Reshape", "back rows", "flat"), node("Transpose", "flat", "y", perm=[1, 0, 2]),
        node("Transpose", "last", "end", perm=[1, 0, 2])]
    return written(model_of(nodes, [port("x", ["batch", "time", 2])], [
        port("y", [None] * 3), port("end", [None] * 3)], [
            *(tensor(name, RANDOM.normal(size=shape).astype("f"))
              for name, shape in weights.items()),
            *(tensor(name, np.array(a)) for name, a in numbers.items()),
            tensor("six", np.array([0, 0, 6]))]), path)


def need_equal(path: Path, results: dict[str, np.ndarray], rows: list[np.ndarray]) -> None:
    """Each row as ONNX Runtime has it alone."""
    names = [y.name for y in onnx.load(path).graph.output]
    for k, row in enumerate(rows):
        for name, expected in zip(names, runtime(path, row[None]), strict=True):
            np.testing.assert_allclose(results[name][k], expected[0], rtol=2e-5, atol=3e-6,
                                       err_msg=f"{name} of {row.shape}")


def test_sequences(tmp_path: Path) -> None:
    """Rows of any size are filled up to the next one that is compiled."""
    path = reader(tmp_path / "reader.onnx")
    model = zt.onnx.load(path)
    assert model.axis_names == ["time"]
    assert [tuple(map(str, shape)) for shape in model.output_rows().values()] == [
        ("time", "4"), ("4",)]
    program = model.compile("cpu", batch_size=(1, 4), sizes={"time": (5, 9)}, threads=1)
    rows = [RANDOM.normal(size=(n, 4)).astype("f") for n in (5, 9, 1, 7, 2, 5, 8, 9, 3)]
    results = program.predict(rows)
    need_equal(path, results, rows)
    with pytest.raises(DataError, match=r"size 10, and this program is compiled for sizes up to 9"):
        program.predict(np.ones((1, 10, 4)))
    program.save(tmp_path / "reader.zt")
    again = zt.load(tmp_path / "reader.zt")
    np.testing.assert_array_equal(again.predict(rows)["end"], results["end"])


def test_padding_of_rows_has_no_effect_on_any_node(tmp_path: Path) -> None:
    path = sequences(tmp_path / "nodes.onnx")
    program = zt.onnx.load(path).compile("cpu", batch_size=3, sizes={"time": (8, 16)}, threads=1)
    rows = [RANDOM.normal(size=(2, n)).astype("f") for n in (8, 16, 5, 11, 14, 9)]
    need_equal(path, program.predict(rows), rows)


def test_rows_that_are_not_first(tmp_path: Path) -> None:
    path = recurrent(tmp_path / "recurrent.onnx")
    model = zt.onnx.load(path)
    program = model.compile("cpu", batch_size=2, sizes={"time": (4, 8)}, threads=1)
    rows = [RANDOM.normal(size=(n, 2)).astype("f") for n in (3, 8, 5, 1)]
    need_equal(path, program.predict(rows), rows)


def test_sizes_that_nodes_compute_with(tmp_path: Path) -> None:
    """Rows are not filled up where a number of the size, or an unknown part, reaches results."""
    path = counted(tmp_path / "counted.onnx")
    model = zt.onnx.load(path)
    assert "the node of 'y' computes with a number" in model.get_layer("graph").open_axes.mixes
    program = model.compile("cpu", batch_size=(1, 4), sizes={"time": (5, 9)}, threads=1)
    rows = [RANDOM.normal(size=(n, 4)).astype("f") for n in (5, 9, 9, 5, 5)]
    for k, row in enumerate(rows):
        np.testing.assert_allclose(program.predict(rows)[k], runtime(path, row[None])[0][0],
                                   rtol=2e-5, atol=1e-6)
    with pytest.raises(DataError, match=r"size 7, and this program is compiled for 5 and 9 only"):
        program.predict(rows[0][None].repeat(7, 1)[:, :7])
    with pytest.raises(DataError, match=r"rows of several sizes \('time': 5, 9\)"):
        program.predict_on_batch(rows[:2])
    with pytest.raises(Unsupported, match="mixes positions"):
        model.export(tmp_path / "page", format="web", sizes=(5, 9))
    model.compile("cpu", batch_size=2, threads=1)
    with pytest.raises(ConfigError, match="reduce them to at most 8 sizes"):
        model.predict([np.ones((n, 4)) for n in range(1, 12)])


@pytest.mark.parametrize(("made", "reason"), [
    (node("Slice", "x zero three axis", "y"), "positions 0 to 3 along the open axis 2"),
    (node("Mul", "x fixed", "y"), ""),
    (node("Conv", "x k", "y", strides=[2], auto_pad="SAME_LOWER"), "auto_pad='SAME_LOWER'"),
    (node("ReduceSum", "table axis", "y"), "combines positions of a table")])
def test_nodes_that_mix(made: onnx.NodeProto, reason: str, tmp_path: Path) -> None:
    """The reason is one that the file can be mended by; where there is none, rows are filled up."""
    nodes = [node("Shape", "x", "shape"), node("Slice", "shape two end", "n"),
             node("Add", "x bias", "unused")] if made.op_type == "ReduceSum" else []
    if made.op_type == "ReduceSum":
        nodes += [node("Concat", "one one n", "wide", axis=0), node("Expand", "bias wide", "table"),
                  made, node("Add", "x y", "sum")]
    model = model_of(nodes or [made], [port("x", ["rows", 2, "time"])], [
        port("sum" if nodes else "y", [None] * 3)], [
            tensor("k", np.ones((4, 2, 3), "f")), tensor("fixed", np.ones((1, 1, 1), "f")),
            tensor("bias", np.ones((1, 1, 1), "f")),
            *(tensor(name, np.array([a])) for name, a in (
                ("zero", 0), ("three", 3), ("axis", 2), ("two", 2), ("end", 3), ("one", 1)))])
    actual = zt.onnx.load(written(model, tmp_path / "m.onnx")).get_layer("graph").open_axes.mixes
    assert reason in actual
    assert bool(actual) == bool(reason)


def test_sizes_of_data(tmp_path: Path) -> None:
    """Without sizes, a model is compiled for those that its data need, and trains in all."""
    path = reader(tmp_path / "reader.onnx")
    model = zt.onnx.load(path, outputs=["steps"])
    model.compile("cpu", batch_size=2, optimizer="sgd", loss="mse", threads=1)
    for size in (3, 1):
        x = RANDOM.normal(size=(3, size, 4)).astype("f")
        np.testing.assert_allclose(model.predict(x), runtime(path, x)[0], rtol=2e-5, atol=1e-6)
    rows = [RANDOM.normal(size=(n, 4)).astype("f") for n in (3, 1, 3, 2, 1)]
    history = model.fit(rows, [np.zeros((len(row), 4)) for row in rows], epochs=3, verbose=0)
    losses = history.history["loss"]
    assert losses[2] < losses[1] < losses[0]
    means = [np.mean(runtime(path, row[None])[0][0] ** 2) for row in rows]
    model = zt.onnx.load(path, outputs=["steps"])
    model.compile("cpu", batch_size=2, loss="mse", sizes={"time": (2, 3)}, threads=1)
    actual = model.evaluate(rows, [np.zeros((len(row), 4)) for row in rows], return_dict=True)
    np.testing.assert_allclose(actual["loss"], np.mean(means), rtol=1e-5)


def test_images(tmp_path: Path) -> None:
    """An output may have sizes of its own, which no axis of an input has."""
    path = images(tmp_path / "images.onnx")
    model = zt.onnx.load(path)
    program = model.compile("cpu", batch_size=2, sizes={"height": (6, 8), "width": 10}, threads=1)
    rows = [RANDOM.normal(size=(2, *size)).astype("f")
            for size in ((6, 10), (8, 9), (5, 4), (7, 10))]
    need_equal(path, program.predict(rows), rows)


def test_maps(tmp_path: Path) -> None:
    path = maps(tmp_path / "maps.onnx")
    program = zt.onnx.load(path).compile("cpu", batch_size=1, sizes={
        "height": (12, 24), "width": 24}, threads=1)
    rows = [RANDOM.normal(size=(2, *size)).astype("f")
            for size in ((12, 24), (23, 17), (9, 11), (20, 24))]
    need_equal(path, program.predict(rows), rows)


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
