"""Loops and branches of ONNX files: imported, exported, and beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import (
    agrees,
    kinds,
    model_of,
    ours,
    port,
    runtime,
    tensor,
    written,
)
from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.interchange.onnx import load
from ztorch.interchange.onnx.save import encode

random = np.random.default_rng(2)


def floats(*shape: int) -> np.ndarray:
    return random.normal(size=shape).astype(np.float32)


def info(name: str, shape: tuple[int, ...] = (), kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def same(nodes: list[Any], x: np.ndarray, y: np.ndarray, arrays: list[Any], tmp_path: Path) -> Any:
    """The model, after a check that it computes the same as ONNX Runtime."""
    path = written(model_of(nodes, [port("x", x, len(x))], [port("y", y, len(y))], arrays),
                   tmp_path / "f.onnx")
    model = load(path)
    np.testing.assert_allclose(ours(model, x)[0], runtime(path, x)[0], rtol=1e-5, atol=1e-6)
    return model


# -- import --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inwards", [0, 1])
@pytest.mark.parametrize("outwards", [0, 1])
def test_a_scan_with_a_weight_around_it(inwards: int, outwards: int, tmp_path: Path) -> None:
    """y[t] = h = tanh(x[t] @ w + h), over axis 1."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["row", "w"], ["z"]),
         helper.make_node("Add", ["z", "before"], ["sum"]),
         helper.make_node("Tanh", ["sum"], ["after"]),
         helper.make_node("Identity", ["after"], ["kept"])], "body",
        [info("before", (2, 3)), info("row", (2, 4))], [info("after", (2, 3)), info("kept", (2, 3))])
    nodes = [helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1,
                              scan_input_axes=[1], scan_output_axes=[1],
                              scan_input_directions=[inwards], scan_output_directions=[outwards])]
    model = same(nodes, floats(2, 5, 4), floats(2, 5, 3),
                 [tensor("w", floats(4, 3)), tensor("first", floats(2, 3))], tmp_path)
    assert sorted(w.name for w in model.weights) == ["first", "w"]


@pytest.mark.parametrize(("axes", "directions"), [((0, 0, 0, 0), (0, 1, 1, 0)),
                                                  ((-1, 1, 2, -2), (1, 0, 0, 1))])
def test_a_scan_of_several_sequences(axes: tuple[int, ...], directions: tuple[int, ...],
                                     tmp_path: Path) -> None:
    """s = s + a[t] * b[t], which is kept twice: along any axes, in either direction."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["a.t", "b.t"], ["m"]), helper.make_node("Add", ["s", "m"], ["after"]),
         helper.make_node("Tanh", ["after"], ["y.t"]), helper.make_node("Sub", ["s", "b.t"], ["z.t"])],
        "body", [info(n, (4, 3)) for n in ("s", "a.t", "b.t")],
        [info(n, (4, 3)) for n in ("after", "y.t", "z.t")])
    node = helper.make_node(
        "Scan", ["first", "a", "b"], ["last", "y", "z"], body=body, num_scan_inputs=2,
        scan_input_axes=axes[:2], scan_input_directions=directions[:2],
        scan_output_axes=axes[2:], scan_output_directions=directions[2:])
    shapes = [[4, 3] for _ in axes]
    for shape, axis in zip(shapes, axes, strict=True):
        shape.insert(axis % 3, 6)
    given = {"first": floats(4, 3), "a": floats(*shapes[0]), "b": floats(*shapes[1])}
    path = written(model_of([node], [info(n, x.shape) for n, x in given.items()], [
        info("last", (4, 3)), info("y", tuple(shapes[2])), info("z", tuple(shapes[3]))]), tmp_path / "s.onnx")
    got = zt.onnx.load_layer(path)([zt.tensor(x) for x in given.values()])
    for name, y in zip(("last", "y", "z"), runtime(path, *given.values()), strict=True):
        np.testing.assert_allclose(got[name].numpy(), y, rtol=1e-6, atol=1e-6)


def looped(goes_on: list[Any], kept: bool = False) -> Any:
    """h = h * 1.5 + k, until the nodes that make `more` of h say so."""
    return helper.make_graph(
        [helper.make_node("Cast", ["k"], ["number"], to=1),
         helper.make_node("Mul", ["before", "growth"], ["grown"]),
         helper.make_node("Add", ["grown", "number"], ["after"]), *goes_on,
         *([helper.make_node("Identity", ["after"], ["every"])] if kept else [])], "body",
        [info("k", (), TensorProto.INT64), info("go", (), TensorProto.BOOL), info("before", (2, 3))],
        [info("more", (), TensorProto.BOOL), info("after", (2, 3)),
         *([info("every", (2, 3))] if kept else [])])


ALWAYS = [helper.make_node("Identity", ["go"], ["more"])]
SMALL = [helper.make_node("ReduceSum", ["after"], ["size"], keepdims=0),
         helper.make_node("Less", ["size", "limit"], ["more"])]
ARRAYS = [tensor("growth", np.float32(1.5)), tensor("limit", np.float32(60.0)),
          tensor("many", np.int64(9)), tensor("none", np.int64(0)),
          tensor("endless", np.int64(2**63 - 1)), tensor("yes", np.array(True))]


@pytest.mark.parametrize(("count", "goes_on"), [("many", SMALL), ("many", ALWAYS), ("none", SMALL)])
def test_a_loop_that_is_bounded(count: str, goes_on: list[Any], tmp_path: Path) -> None:
    nodes = [helper.make_node("Loop", [count, "yes", "x"], ["y"], body=looped(goes_on))]
    same(nodes, abs(floats(2, 3)), floats(2, 3), ARRAYS, tmp_path)


def test_scan_outputs_of_loops(tmp_path: Path) -> None:
    nodes = [helper.make_node("Loop", ["many", "", "x"], ["last", "all"], body=looped(ALWAYS, True)),
             helper.make_node("ReduceSum", ["all", "axis"], ["y"], keepdims=0)]
    same(nodes, floats(2, 3), floats(2, 3), [*ARRAYS, tensor("axis", np.array([0]))], tmp_path)


def test_turns_of_other_sizes(tmp_path: Path) -> None:
    """Sums of columns from one known place to the next, as exporters write EmbeddingBag."""
    body = helper.make_graph(
        [helper.make_node("Gather", ["starts", "k"], ["start"]),
         helper.make_node("Gather", ["ends", "k"], ["end"]),
         helper.make_node("Unsqueeze", ["start", "axis"], ["from"]),
         helper.make_node("Unsqueeze", ["end", "axis"], ["to"]),
         helper.make_node("Slice", ["x", "from", "to", "columns"], ["part"]),
         helper.make_node("ReduceSum", ["part", "columns"], ["every"], keepdims=0),
         *ALWAYS], "body",
        [info("k", (), TensorProto.INT64), info("go", (), TensorProto.BOOL)],
        [info("more", (), TensorProto.BOOL), info("every", (2,))])
    nodes = [helper.make_node("Loop", ["three", ""], ["all"], body=body),
             helper.make_node("Transpose", ["all"], ["y"], perm=[1, 0])]
    arrays = [tensor(name, np.array(value, np.int64)) for name, value in (
        ("three", 3), ("starts", [0, 2, 3]), ("ends", [2, 3, 7]), ("axis", [0]), ("columns", [1]))]
    same(nodes, floats(2, 7), floats(2, 3), arrays, tmp_path)


def test_loops_without_a_bound_are_refused(tmp_path: Path) -> None:
    for nodes, said in (
            ([helper.make_node("Loop", ["endless", "yes", "x"], ["y"], body=looped(SMALL))],
             "a loop without a bound"),
            ([helper.make_node("Loop", ["many", "yes", "x"], ["y", "all"], body=looped(SMALL, True))],
             "that a condition ends and that collects outputs")):
        path = written(model_of(nodes, [port("x", floats(2, 3))], [port("y", floats(2, 3))], ARRAYS),
                       tmp_path / "f.onnx")
        with pytest.raises(Unsupported, match=said):
            load(path)


@pytest.mark.parametrize("shift", [-9.0, 9.0])
def test_branches_on_data(shift: float, tmp_path: Path) -> None:
    def branch(op: str, name: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [info(name, (2, 3))])

    nodes = [helper.make_node("ReduceSum", ["x"], ["size"], keepdims=0),
             helper.make_node("Less", ["size", "zero"], ["negative"]),
             helper.make_node("If", ["negative"], ["y"], then_branch=branch("Abs", "a"),
                              else_branch=branch("Sin", "b"))]
    same(nodes, floats(2, 3) + np.float32(shift), floats(2, 3), [tensor("zero", np.float32(0))],
         tmp_path)


def test_a_branch_that_is_known_is_the_only_one(tmp_path: Path) -> None:
    def branch(nodes: list[Any], name: str) -> Any:
        return helper.make_graph(nodes, name, [], [info(name, (2, 3))])

    nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=branch(
        [helper.make_node("Abs", ["x"], ["a"])], "a"), else_branch=branch(
        [helper.make_node("Sin", ["x"], ["b"])], "b"))]
    model = same(nodes, floats(2, 3), floats(2, 3), ARRAYS[-1:], tmp_path)
    assert "loop" not in {v.op.name for v in model.trace(batch_size=2).functions["predict"].nodes()}


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_rows_of_several_lengths(op: str, tmp_path: Path) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, lengths = floats(3, 6, 2), np.array([6, 1, 4], np.int32)
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
             helper.make_node(op, ["t", "w", "r", "b", "lengths"], ["s"], hidden_size=3,
                              direction="bidirectional"),
             helper.make_node("Transpose", ["s"], ["y"], perm=[2, 0, 1, 3])]
    same(nodes, x, floats(3, 6, 2, 3), [
        tensor("w", floats(2, gates * 3, 2)), tensor("r", floats(2, gates * 3, 3)),
        tensor("b", floats(2, gates * 6)), tensor("lengths", lengths)], tmp_path)


def test_statistics_cannot_be_set_inside_of_a_loop(tmp_path: Path) -> None:
    """Predictions take those that are stored, twice here; nothing is trained wrongly in silence."""
    x = floats(3, 2)
    body = helper.make_graph(
        [helper.make_node("BatchNormalization", ["s", "one", "zero", "mean", "var"], ["t", "m", "v"],
                          training_mode=1, epsilon=0.0, name="bn"), helper.make_node("Identity", ["c"], ["d"])],
        "body", [info("k", kind=TensorProto.INT64), info("c", kind=TensorProto.BOOL), info("s", (3, 2))],
        [info("d", kind=TensorProto.BOOL), info("t", (3, 2))])
    arrays = [tensor("twice", np.array(2)), *(tensor(name, np.float32([v, v])) for name, v in (
        ("one", 1), ("zero", 0), ("mean", 1), ("var", 0.25)))]
    made = model_of([helper.make_node("Loop", ["twice", "", "x"], ["y"], body=body, name="loop")],
                    [port("x", x)], [port("y", x)], arrays)
    model = load(written(made, tmp_path / "f.onnx"))
    np.testing.assert_allclose(ours(model, x)[0], ((x - 1) * 2 - 1) * 2, rtol=1e-5)
    with pytest.raises(Unsupported, match=r"BatchNormalization 'bn': inside Loop 'loop': training_mode .* "
                                          "cannot set 'mean'"):
        model.trace(3, zt.optimizers.SGD(0.1), "mse", ())


# -- export, and there and back ------------------------------------------------------------------

EXPORTED = {
    "another activation": lambda: [L.Input((6, 4)), L.LSTM(3, activation="silu", go_backwards=True,
                                                           return_sequences=True)],
    "cells": lambda: [L.Input((6, 4)), L.RNN([L.LSTMCell(3), L.GRUCell(2)])],
    "masks": lambda: [L.Input((6,), dtype="int32"), L.Embedding(9, 4, mask_zero=True),
                      L.GRU(3, return_sequences=True), L.Bidirectional(L.LSTM(2))]}


@pytest.mark.parametrize("case", EXPORTED)
def test_loops_of_any_layer_are_scans(case: str, tmp_path: Path) -> None:
    model = zt.Sequential(EXPORTED[case]())
    data = agrees(model)
    assert kinds(data)["Scan"] == (3 if case == "masks" else 1)
    (tmp_path / "f.onnx").write_bytes(data)
    again = load(tmp_path / "f.onnx")
    x = (random.integers(0, 3, (3, 6)).astype(np.int32) if case == "masks" else floats(3, 6, 4))
    np.testing.assert_allclose(ours(again, x)[0], ours(model, x)[0], rtol=1e-6, atol=1e-7)


def test_states_are_outputs_and_inputs() -> None:
    x, z = L.Input((5, 3), name="a"), L.Input((4, 3), name="b")
    y, h, c = L.LSTM(6, return_state=True)(x)
    model = zt.Model([x, z], {"y": y, "h": h, "z": L.GRU(6)(z, initial_state=h), "c": c})
    assert kinds(agrees(model))["Scan"] == 2


def test_a_stateful_layer_is_no_file() -> None:
    with pytest.raises(Unsupported, match="layer 'lstm' is stateful, and an ONNX file keeps no states"):
        encode(zt.Sequential([L.Input((6, 4)), L.LSTM(3, stateful=True)]))


def test_layers_are_their_own_nodes_still() -> None:
    model = zt.Sequential([L.Input((6, 4)), L.Bidirectional(L.GRU(3, return_sequences=True)),
                           L.LSTM(3)])
    names = kinds(agrees(model))
    assert names["GRU"] == 2 and names["LSTM"] == 1 and "Scan" not in names
    assert onnx.load_from_string(encode(model)).graph.node
