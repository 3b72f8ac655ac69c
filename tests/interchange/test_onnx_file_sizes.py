"""Sizes, dtypes, inputs, outputs and functions of ONNX files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import (
    KERNEL,
    X,
    dense,
    model_of,
    ours,
    port,
    runtime,
    tensor,
    written,
)
from ztorch.dtypes import dtype, from_storage, to_storage
from ztorch.errors import ArtifactError, ConfigError, Unsupported, ZtorchError
from ztorch.interchange.onnx import load

# -- sizes, inputs, outputs ------------------------------------------------------------------------


def named(dims: list[Any]) -> onnx.ModelProto:
    made = dense()
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, dims))
    made.graph.node[0].CopyFrom(helper.make_node("MatMul", ["x", "w"], ["h"]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [None] * len(dims)))
    return made


def test_symbolic_sizes(tmp_path: Path) -> None:
    path = written(named(["n", "steps", 4]), tmp_path / "m.onnx")
    assert load(path).axis_names == ["steps"]
    assert load(path, sizes={"steps": 5}).output_shape == (None, 5, 3)
    with pytest.raises(ConfigError, match="sizes"):
        load(path, sizes={"steps": 0})
    fixed = load(path, sizes={"steps": 5, "n": 2})
    x = np.arange(60, dtype=np.float32).reshape(3, 5, 4) / 60  # without compile, in batches of 2
    np.testing.assert_allclose(fixed.predict(x), load(path, sizes={"steps": 5}).predict(x), rtol=1e-6)
    with pytest.raises(ConfigError, match="takes batches of 2"):
        fixed.trace(batch_size=3)
    assert load(written(named(["n", None, 4]), tmp_path / "m.onnx")).axis_names == ["axis1"]
    with pytest.raises(Unsupported, match="has no axes"):
        load(written(named([]), tmp_path / "m.onnx"))


def test_an_axis_that_is_halved_until_one_position_is_left(tmp_path: Path) -> None:
    """What follows from it is seen with longer rows: of those that are tried first, one position is left."""
    names = ["x", *(f"half{k}" for k in range(5)), "y"]
    nodes = [helper.make_node("MaxPool", [a], [b], kernel_shape=[2], strides=[2]) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", ["n", 2, "time"]), ("y", [None] * 3))]
    path = written(model_of(nodes, ends[:1], ends[1:]), tmp_path / "m.onnx")
    program = load(path).compile("cpu:scalar", batch_size=1, sizes={"time": (64, 192)})
    for size in (64, 192, 128):
        x = np.random.default_rng(size).normal(size=(1, 2, size)).astype(np.float32)
        np.testing.assert_array_equal(program.predict(x), runtime(path, x)[0])


def test_an_output_with_one_row_for_all(tmp_path: Path) -> None:
    """With one row in the batch it cannot be told, and is right."""
    made = dense()
    made.graph.node[1].CopyFrom(helper.make_node("ReduceMean", ["h"], ["y"], keepdims=1))
    model = load(written(made, tmp_path / "m.onnx"))
    model.trace(batch_size=1)
    with pytest.raises(Unsupported, match=r"output 'y' of shape \(1, 1\) has no row for each of 3"):
        model.trace(batch_size=3)
    with pytest.raises(ConfigError, match=r"cannot write an ONNX file to .*m\.gguf"):
        zt.onnx.save(zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(2)]), "m.gguf")


def test_an_output_of_another_shape_than_declared(tmp_path: Path) -> None:
    made = dense()
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["batch", 7]))
    with pytest.warns(UserWarning, match=r"'y' is declared with shape \('batch', 7\), but its nodes "
                                         r"compute \('batch', 3\)"):
        assert load(written(made, tmp_path / "m.onnx")).output_shape == (None, 3)


def test_an_output_without_a_batch(tmp_path: Path) -> None:
    made = dense()
    made.graph.node[1].CopyFrom(helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0))
    with pytest.raises(Unsupported, match=r"output 'y' of shape \(\) has no row .* outputs=.* leaves"):
        load(written(made, tmp_path / "m.onnx"))


def test_one_of_several_outputs(tmp_path: Path) -> None:
    made = dense()
    made.graph.output.append(helper.make_tensor_value_info("h", 1, ["batch", 3]))
    path = written(made, tmp_path / "m.onnx")
    both, one = load(path), load(path, outputs=["h"])
    assert isinstance(one, zt.Sequential) and both.output_names == ["y", "h"]
    np.testing.assert_array_equal(ours(one, X)[0], X @ KERNEL + 1)
    for mine, theirs in zip(ours(both, X), runtime(path, X), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ConfigError, match="unknown output 'g'"):
        load(path, outputs=["g"])


def test_halves_are_widened(tmp_path: Path) -> None:
    made = dense()
    made.graph.initializer[0].CopyFrom(tensor("w", KERNEL.astype(np.float16)))
    for value in (made.graph.input[0], made.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    made.graph.initializer[1].CopyFrom(tensor("b", np.ones(3, np.float16)))
    model = load(written(made, tmp_path / "m.onnx"))
    assert all(w.value.dtype == np.float32 for w in model.weights)
    np.testing.assert_array_equal(ours(model, X)[0], X @ KERNEL + 1)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_dtypes_of_the_file_are_kept_on_request(kind: str, tmp_path: Path) -> None:
    """Sums are rounded to them; weights have the dtype of the model, and train."""
    number = {"float16": 10, "bfloat16": 16, "float64": 11}[kind]
    wide = "float64" if kind == "float64" else "float32"
    kernel, x = KERNEL / 3, np.linspace(-3.0, 2.0, 8).reshape(2, 4)
    one = helper.make_tensor("one", number, (1,), [1.0])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "b"], ["s"]),
             helper.make_node("Constant", [], ["c"], value=one),
             helper.make_node("Shape", ["w"], ["columns"], start=1),
             helper.make_node("ConstantOfShape", ["columns"], ["ones"], value=one),
             helper.make_node("Mul", ["s", "c"], ["t"]), helper.make_node("Mul", ["t", "ones"], ["y"])]
    made = model_of(nodes, [helper.make_tensor_value_info("x", number, ["batch", 4])],
                    [helper.make_tensor_value_info("y", number, ["batch", 3])],
                    [helper.make_tensor("w", number, kernel.shape, kernel.ravel()),
                     helper.make_tensor("b", number, (3,), [1.0, 2.0, 3.0])])
    path = written(made, tmp_path / "narrow.onnx")

    def rounded(a: np.ndarray) -> np.ndarray:
        return from_storage(dtype(kind), to_storage(dtype(kind), a)).astype(np.float64)

    np.testing.assert_allclose(ours(load(path), x)[0], x @ rounded(kernel) + [1, 2, 3],
                               rtol=1e-5)
    model = load(path, keep_dtypes=True)
    program = model.compile("cpu", batch_size=2, dtype=wide, loss="mse", optimizer="sgd")
    y = program.predict(x)
    assert y.dtype == wide
    product = rounded(rounded(x) @ rounded(kernel))
    np.testing.assert_array_equal(y, rounded(product + np.array([1.0, 2.0, 3.0])))
    before = program.get_weights()[0]
    program.fit(x, np.zeros((2, 3)), verbose=0)
    assert program.get_weights()[0].dtype == wide and np.any(program.get_weights()[0] != before)


def test_what_is_no_weight(tmp_path: Path) -> None:
    """Single numbers, integers and masks of infinities are constants."""
    mask = np.array([0, -np.inf, 0], np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "s"], ["i"]),
             helper.make_node("Add", ["i", "mask"], ["j"]),
             helper.make_node("Softmax", ["j"], ["y"])]
    made = model_of(nodes, [port("x", X)], [port("y", np.ones((2, 3), np.float32))],
                    [tensor("w", KERNEL), tensor("s", np.float32(0.1)), tensor("mask", mask)])
    path = written(made, tmp_path / "m.onnx")
    model = load(path)
    assert [w.name for w in model.weights] == ["w"]
    np.testing.assert_allclose(ours(model, X)[0], runtime(path, X)[0], rtol=1e-6)
    with pytest.raises(ConfigError, match="ONNX graph"):
        model.get_config()


def test_functions_of_the_file_are_inlined(tmp_path: Path) -> None:
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="mine")]
    made = model_of(nodes, [port("x", X)], [port("y", X)])
    made.functions.append(helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)]))
    made.opset_import.append(helper.make_opsetid("mine", 1))
    np.testing.assert_array_equal(ours(load(written(made, tmp_path / "m.onnx")), X)[0], 2 * X)


def calling(*calls: list[str]) -> onnx.ModelProto:
    """Functions f0, f1, ..., each of which calls some others one after another."""
    made = dense()
    made.opset_import.append(helper.make_opsetid("here", 1))
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("here", 1)]
    for k, names in enumerate(calls):
        nodes = [helper.make_node(name, [f"v{n}"], [f"v{n + 1}"],
                                  domain="here" if name[0] == "f" else "")
                 for n, name in enumerate(names)]
        made.functions.append(helper.make_function("here", f"f{k}", ["v0"], [f"v{len(names)}"],
                                                   nodes, versions))
    made.graph.node[1].CopyFrom(helper.make_node("f0", ["h"], ["y"], domain="here"))
    return made


def test_functions_within_functions(tmp_path: Path) -> None:
    model = load(written(calling(["f1", "f1"], ["Relu", "Neg"]), tmp_path / "m.onnx"))
    h = X @ KERNEL + 1.0  # above zero, so the second Relu sees the values below
    np.testing.assert_array_equal(ours(model, X)[0], -np.maximum(-np.maximum(h, 0), 0))


@pytest.mark.parametrize(("calls", "message"), [
    ([[f"f{k + 1}"] * 10 for k in range(12)] + [["Relu"]], "functions that expand to 1,000,0"),
    ([["f0"]], "not a valid ONNX file"), ([["f1"], ["f0"]], "not a valid ONNX file"),
    ([[f"f{k + 1}"] for k in range(5000)] + [["Relu"]], "not a valid ONNX file"),
], ids=["more than memory", "itself", "each other", "deep"])
def test_functions_without_end(calls: list[list[str]], message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(written(calling(*calls), tmp_path / "m.onnx"))


def test_a_first_axis_that_is_not_a_batch(tmp_path: Path) -> None:
    """w @ x: the error names the axis taken for the batch, and a way to read such a file."""
    w, x = np.ones((5, 4), np.float32), np.ones((4, 3), np.float32)
    made = model_of([helper.make_node("MatMul", ["w", "x"], ["y"], name="mm")], [port("x", x)],
                    [port("y", w @ x, 5)], [tensor("w", w)])
    path = written(made, tmp_path / "m.onnx")
    with pytest.raises(ZtorchError, match=r"m.onnx: node MatMul 'mm': cannot multiply matrices .*The batch, the first "
                                          r"axis of each input, has one row here; zt.onnx.load_layer\(path\) takes"):
        load(path)
    assert np.array_equal(zt.onnx.load_layer(path)([zt.tensor(x)]).numpy(), w @ x)


@pytest.mark.parametrize(("first", "second", "message"), [
    ("n", 3, r"axis 0 of its inputs is open for 'x' and 3 for 'z', but it must be the batch, .*; pass "
             r"sizes=\{'n': 3\} if all have 3 rows, or use zt.onnx.load_layer\(path\), which takes inputs without"),
    (None, 3, r"open for 'x' and 3 for 'z', .* all inputs; use zt.onnx.load_layer\(path\), which takes"),
    (5, 3, r"5 for 'x' and 3 for 'z', .* all inputs; use zt.onnx.load_layer\(path\), which takes"), (3, 3, "")])
def test_a_second_input_without_a_batch(first: Any, second: int, message: str, tmp_path: Path) -> None:
    """x @ z for x of any number of rows, and z of three. As many rows of both may be a batch."""
    made = model_of([helper.make_node("MatMul", ["x", "z"], ["y"])],
                    [helper.make_tensor_value_info("x", 1, [first, 3]),
                     helper.make_tensor_value_info("z", 1, [second, 2])],
                    [helper.make_tensor_value_info("y", 1, [first, 2])])
    path = written(made, tmp_path / "m.onnx")
    if message:
        with pytest.raises(Unsupported, match=r"m\.onnx: .*" + message):
            load(path)
    sizes = {"n": 3} if first == "n" else {}
    x, z = np.arange(9, dtype="f").reshape(3, 3), np.ones((3, 2), np.float32)
    if first in ("n", 3):
        np.testing.assert_array_equal(ours(load(path, sizes=sizes), x, z)[0], x @ z)
    np.testing.assert_array_equal(zt.onnx.load_layer(path)([zt.tensor(x), zt.tensor(z)]).numpy(), x @ z)


def test_a_row_by_its_number(tmp_path: Path) -> None:
    """A batch of one row does not fit; the message says so, and a fixed batch computes it."""
    x, one = KERNEL[:3], tensor("one", np.array([1], np.int64))
    path = written(model_of([helper.make_node("Gather", ["x", "one"], ["r"], name="pick"),
                             helper.make_node("Sub", ["x", "r"], ["y"])],
                            [port("x", x, "n")], [port("y", x, "n")], [one]), tmp_path / "m.onnx")
    with pytest.raises(Unsupported, match=r"node Gather 'pick'.*The nodes accept 64 rows but not one"
                                          r".*sizes=\{'n': 64\} fixes it"):
        load(path)
    program = load(path, sizes={"n": 3}).compile("cpu", batch_size=3)
    np.testing.assert_array_equal(program.predict(x), x - x[1])


def test_a_model_with_large_rows_becomes_a_file_again(tmp_path: Path) -> None:
    """To find the batch it is traced for so many rows that no machine could hold them."""
    w = np.ones((4, 1 << 16), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ReduceMax", ["h"], ["y"], axes=[1])]
    path = written(model_of(nodes, [port("x", X)], [port("y", np.ones((2, 1), np.float32))],
                            [tensor("w", w)], opset=13), tmp_path / "m.onnx")
    zt.onnx.save(load(path), tmp_path / "again.onnx")
    np.testing.assert_array_equal(runtime(tmp_path / "again.onnx", X)[0], runtime(path, X)[0])
