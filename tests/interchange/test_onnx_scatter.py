"""Scatter: values by loops of NumPy, and rows of a batch that stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.cases.grouping import together
from tests.interchange.onnx_files import model_of, ours, runtime, written
from ztorch.interchange.onnx import load, save
from ztorch.model.model import Model

RANDOM = np.random.default_rng(0)
REDUCED: dict[str, Any] = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply,
                           "max": np.maximum, "min": np.minimum}
# x, indices, axis: fewer indices than elements beside the axis, and more than 64 along it.
ELEMENTS = [((3, 4), (3, 6), 1), ((3, 4, 5), (3, 2, 4), 1), ((4, 3, 2), (4, 3, 5), -1),
            ((3, 2), (3, 90), 1), ((3, 4), (3, 2), 0)]
ROWS = [((4, 3, 2), "own", 2), ((4, 3, 2), "own", 3), ((4, 3), "any", 2), ((4, 3, 2), "any", 1)]


def scatter(name: str, x: np.ndarray, at: np.ndarray, updates: np.ndarray, path: Path,
            dynamic: bool = True, **attributes: Any) -> Model:
    batch = [helper.make_tensor_value_info(
        n, TensorProto.INT64 if n == "at" else TensorProto.FLOAT,
        ["batch" if dynamic else len(a), *a.shape[1:]])
        for n, a in (("x", x), ("at", at), ("u", updates))]
    nodes = [helper.make_node(name, ["x", "at", "u"], ["y"], **attributes)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", *x.shape[1:]])
    return load(written(model_of(nodes, batch, [y]), path / "model.onnx"))


def elements(x: np.ndarray, at: np.ndarray, updates: np.ndarray, axis: int, by: str) -> np.ndarray:
    y = x.copy()
    for place in np.ndindex(*at.shape):
        target = list(place)
        target[axis] = at[place]
        y[tuple(target)] = REDUCED[by](y[tuple(target)], updates[place])
    return y


@together()
@pytest.mark.parametrize("by", REDUCED)
@pytest.mark.parametrize("case", ELEMENTS, ids=str)
def test_elements(case: tuple, by: str, tmp_path: Path) -> None:
    shape, many, axis = case
    x, u = RANDOM.normal(size=shape).astype("f"), RANDOM.normal(size=many).astype("f")
    at = RANDOM.integers(-shape[axis], shape[axis], many)
    model = scatter("ScatterElements", x, at, u, tmp_path, False, axis=axis, reduction=by)
    [y] = ours(model, x, at, u)
    np.testing.assert_allclose(y, elements(x, at, u, axis, by), rtol=1e-5, atol=1e-6)


@together()
@pytest.mark.parametrize("by", ["none", "add", "max"])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_rows(case: tuple, by: str, tmp_path: Path) -> None:
    shape, kind, depth = case
    at = np.stack([RANDOM.integers(-n, n, (shape[0], 3)) for n in shape[:depth]], -1)
    if kind == "own":
        at[..., 0] = np.arange(shape[0])[:, None]
    x = RANDOM.normal(size=shape).astype("f")
    u = RANDOM.normal(size=(*at.shape[:-1], *shape[depth:])).astype("f")
    expected = x.copy()
    for place in np.ndindex(*at.shape[:-1]):
        target = tuple(at[place])
        expected[target] = REDUCED[by](expected[target], u[place])
    model = scatter("ScatterND", x, at, u, tmp_path, False, reduction=by)
    [y] = ours(model, x, at, u)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by", ["none", "max"])
def test_rows_of_a_batch_stay_apart(by: str, tmp_path: Path) -> None:
    """Rows are padded, batches are large, and the file that is written has an open batch."""
    x, u = (RANDOM.normal(size=(3, 80, 16)).astype("f") for _ in range(2))
    at = RANDOM.integers(0, 80, u.shape)
    expected = elements(x, at, u, 1, by)
    model = scatter("ScatterElements", x, at, u, tmp_path, axis=1, reduction=by)
    y = model.compile(batch_size=(1, 4)).predict([x, at, u])
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    save(model, tmp_path / "written.onnx")
    [z] = runtime(tmp_path / "written.onnx", x, at, u)
    np.testing.assert_allclose(z, expected, rtol=1e-6)


def test_an_entry_of_each_row(tmp_path: Path) -> None:
    """`x[arange(batch), at] = u`, and `x[arange(batch), at]`, as exporters write it."""
    x, u = RANDOM.normal(size=(3, 5, 2)).astype("f"), RANDOM.normal(size=(3, 2)).astype("f")
    at = np.array([[4], [0], [2]])
    nodes = [helper.make_node("Shape", ["x"], ["shape"], start=0, end=1),
             helper.make_node("Squeeze", ["shape"], ["rows"]),
             helper.make_node("Constant", [], ["zero"], value_int=0),
             helper.make_node("Constant", [], ["one"], value_int=1),
             helper.make_node("Constant", [], ["last"], value_ints=[1]),
             helper.make_node("Range", ["zero", "rows", "one"], ["ramp"]),
             helper.make_node("Unsqueeze", ["ramp", "last"], ["row"]),
             helper.make_node("Concat", ["row", "at"], ["both"], axis=1),
             helper.make_node("GatherND", ["x", "both"], ["old"]),
             helper.make_node("Add", ["old", "u"], ["new"]),
             helper.make_node("ScatterND", ["x", "both", "new"], ["y"])]
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
        ("x", TensorProto.FLOAT, ["b", 5, 2]), ("at", TensorProto.INT64, ["b", 1]),
        ("u", TensorProto.FLOAT, ["b", 2]), ("y", TensorProto.FLOAT, ["b", 5, 2]))]
    model = load(written(model_of(nodes, ports[:3], ports[3:]), tmp_path / "model.onnx"))
    expected = x.copy()
    expected[np.arange(3), at[:, 0]] += u
    y = model.compile(batch_size=(1, 4)).predict([x, at, u])
    np.testing.assert_array_equal(y, expected)
