"""ONNX files that are damaged, hostile or beyond us: errors that name the culprit, all at once."""

from __future__ import annotations

from collections.abc import Callable
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
    broken,
    dense,
    model_of,
    ours,
    port,
    runtime,
    tensor,
    written,
)
from ztorch.errors import ArtifactError, ConfigError, Unsupported
from ztorch.interchange.onnx import load


def external(location: str, **more: Any) -> Callable[[onnx.ModelProto], None]:
    def change(made: onnx.ModelProto) -> None:
        weight = made.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            weight.external_data.add(key=key, value=str(value))

    return change


def test_a_complete_file(tmp_path: Path) -> None:
    path = written(dense(), tmp_path / "two words.onnx")
    model = load(path)
    assert model.name == "two words" and model.count_params() == 15
    assert [w.path for w in model.weights] == ["graph/w", "graph/b"]
    np.testing.assert_array_equal(ours(model, X)[0], runtime(path, X)[0])
    program = zt.onnx.load(path, name="dense").compile("cpu", batch_size=2)
    np.testing.assert_array_equal(program.predict(X), runtime(path, X)[0])


# -- data beside the model -------------------------------------------------------------------------


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"skipped!" + KERNEL.tobytes())
    path = broken(external("sub/w.bin", offset=8, length=48), tmp_path)
    assert np.array_equal(load(path).get_weights()[0], KERNEL)
    assert np.array_equal(ours(load(path), X)[0], runtime(written(dense(), tmp_path / "o"), X)[0])


def test_external_data_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(KERNEL.tobytes())
    (folder / "link.bin").symlink_to(secret)
    for location in ("../secret.bin", str(secret), "link.bin", "", "sub/../../secret.bin", "a\0b"):
        with pytest.raises(ArtifactError, match=r"outside the model's folder|invalid location"):
            load(broken(external(location), folder))


def test_missing_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(KERNEL.tobytes()[:-1])
    for location, more, message in (
            ("w.bin", {}, "are not in 'w.bin'"), ("absent.bin", {}, "are not in 'absent.bin'"),
            ("w.bin", {"length": 1 << 60}, "needs 48 bytes"), (".", {}, "are not in"),
            ("w.bin", {"offset": -8}, "needs 48 bytes"),
            ("w.bin", {"offset": "x"}, "invalid location")):
        with pytest.raises(ArtifactError, match=message):
            load(broken(external(location, **more), tmp_path))


# -- beyond us -------------------------------------------------------------------------------------


def test_all_unsupported_nodes_are_listed_together(tmp_path: Path) -> None:
    """Nodes after an unsupported one are checked too; those of one op and reason share a line."""
    image = np.ones((2, 3, 8, 8), np.float32)
    nodes = [helper.make_node("ImageDecoder", ["x"], ["r"], name="one"),
             helper.make_node("Pad", ["x", "pads"], ["b"], name="two", mode="odd"),
             *(helper.make_node("ImageDecoder", ["x"], [f"r{k}"], name=f"more{k}")
               for k in range(9)),
             helper.make_node("Sum", ["b", *(f"r{k}" for k in range(9))], ["s"], name="sum"),
             helper.make_node("Relu", ["b"], ["c"], name="fine"),
             helper.make_node("NonZero", ["c"], ["d"], name="three"),
             helper.make_node("Cast", ["d"], ["e"], name="unseen", to=1),
             helper.make_node("FusedGelu", ["c"], ["f"], name="four", domain="com.microsoft"),
             helper.make_node("Mul", ["e", "f"], ["z"], name="last"),
             helper.make_node("Sum", ["z", "s", "r"], ["y"]),
             helper.make_node("Det", ["c"], ["not_needed"], name="unused")]
    made = model_of(nodes, [port("x", image)], [port("y", image)],
                    [tensor("pads", np.zeros(8, np.int64))], opset=20)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(Unsupported) as caught:
        load(written(made, tmp_path / "m.onnx"))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("13 of 18 nodes cannot be imported:")
    assert lines[1:3] == ["  ImageDecoder, 10 nodes: ztorch has no such op",
                          "    'one', 'more0' to 'more8' (9)"]
    assert [line.split("'")[1] for line in lines[3:-1]] == ["two", "three", "four"]
    assert "mode='odd'" in lines[3] and "'com.microsoft'" in lines[5]
    assert lines[-1].startswith("none of the file")


@pytest.mark.parametrize(("op", "domain", "why"), [
    ("ImageDecoder", "", "ztorch has no such op"),
    ("Reluu", "", "ztorch has no such op, nor has ONNX; did you mean 'Relu'?"),
    ("Fancy", "my.own", "it is of the domain 'my.own', which ztorch does not know; export it as a "
     "function of the file (custom_translation_table of torch.onnx.export), or as ops of ONNX")])
def test_one_missing_op_in_a_deep_file(op: str, domain: str, why: str, tmp_path: Path) -> None:
    """Each node is behind the one before, so that shapes are known of none: one line names them."""
    nodes = [helper.make_node("Relu" if k % 3 else op, [f"t{k}"], [f"t{k + 1}"],
                              name=f"n{k}", domain="" if k % 3 else domain) for k in range(1, 3001)]
    made = model_of(nodes, [helper.make_tensor_value_info("t1", TensorProto.FLOAT, ["batch", 4])],
                    [helper.make_tensor_value_info("t3001", TensorProto.FLOAT, ["batch", 4])],
                    opset=20)
    made.opset_import.append(helper.make_opsetid("my.own", 1))
    path = written(made, tmp_path / "deep.onnx")
    with pytest.raises(Unsupported) as caught:
        load(path)
    assert str(caught.value).splitlines() == [
        f"{path}: 1000 of 3000 nodes cannot be imported:", f"  {op}, 1000 nodes: {why}",
        "    'n3', 'n6' to 'n3000' (1000)",
        "outputs=['t3'] leaves them out, if that part is enough"]
    assert len(load(path, outputs=["t3"]).layers[-1].nodes) == 2


def test_each_of_many_nodes_is_named_once(tmp_path: Path) -> None:
    """Names that do not count up are all there, in lines that can be read."""
    names = [f"/layer.{k * k}/{'qkv'[k % 3]}/Fancy" for k in range(300)]
    nodes = [helper.make_node("Fancy", [f"t{k}"], [f"t{k + 1}"], name=name, domain="my.own")
             for k, name in enumerate(names)]
    made = model_of(nodes, [helper.make_tensor_value_info("t0", TensorProto.FLOAT, ["batch", 4])],
                    [helper.make_tensor_value_info("t300", TensorProto.FLOAT, ["batch", 4])])
    made.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(Unsupported) as caught:
        load(written(made, tmp_path / "m.onnx"))
    lines = str(caught.value).splitlines()[2:-1]
    assert " ".join(line.strip() for line in lines) == ", ".join(map(repr, names))
    assert max(map(len, lines)) <= 100


def test_nodes_inside_of_loops_are_listed(tmp_path: Path) -> None:
    """Also where the loop is behind another such node."""
    def loop(name: str, given: str) -> onnx.NodeProto:
        body = helper.make_graph(
            [helper.make_node("Fancy", ["s"], ["a"], name=f"{name}/one", domain="my.own"),
             helper.make_node("Fancy", ["a"], ["b"], name=f"{name}/two", domain="my.own"),
             helper.make_node("Identity", ["c"], ["d"])], "body",
            [helper.make_tensor_value_info("k", TensorProto.INT64, []),
             helper.make_tensor_value_info("c", TensorProto.BOOL, []), port("s", X)],
            [helper.make_tensor_value_info("d", TensorProto.BOOL, []), port("b", X)])
        return helper.make_node("Loop", ["three", "", given], [name], name=name, body=body)

    made = model_of([loop("first", "x"), loop("y", "first")], [port("x", X)], [port("y", X)],
                    [tensor("three", np.array(3))])
    made.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(Unsupported, match="4 of 8 nodes cannot be imported") as caught:
        load(written(made, tmp_path / "m.onnx"))
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("  Fancy 'first/one', 'first/two': inside Loop 'first': it is of the domain")
    assert lines[2].startswith("  Fancy 'y/one', 'y/two': inside Loop 'y': it is of the domain")


def test_shapes_from_data_are_unsupported(tmp_path: Path) -> None:
    made = dense()
    made.graph.node[1].CopyFrom(helper.make_node("Cast", ["h"], ["s"], to=TensorProto.INT64))
    made.graph.node.append(helper.make_node("ReduceMax", ["s"], ["m"], keepdims=0))
    made.graph.node.append(helper.make_node("Unsqueeze", ["m", "zero"], ["n"]))
    made.graph.node.append(helper.make_node("Expand", ["h", "n"], ["y"], name="grow"))
    made.graph.initializer.append(tensor("zero", np.zeros(1, np.int64)))
    with pytest.raises(Unsupported, match="Expand 'grow': input 1 depends on the data"):
        load(written(made, tmp_path / "m.onnx"))


@pytest.mark.parametrize("opset", [5, 29])
def test_other_opsets(opset: int, tmp_path: Path) -> None:
    made = dense()
    made.opset_import[0].version = opset
    with pytest.raises(Unsupported, match=r"ztorch reads 6 to 28.*version_converter"):
        load(written(made, tmp_path / "m.onnx"))


def test_a_file_without_a_version(tmp_path: Path) -> None:
    made = dense()
    made.opset_import[0].domain = "else.where"
    with pytest.raises(ArtifactError, match="No opset import for domain ''"):
        load(written(made, tmp_path / "m.onnx"))


def test_dtypes_that_ztorch_lacks(tmp_path: Path) -> None:
    made = dense()
    made.graph.initializer.append(helper.make_tensor("s", TensorProto.STRING, [1], [b"text"]))
    with pytest.raises(Unsupported, match="initializer 's' has dtype STRING"):
        load(written(made, tmp_path / "m.onnx"))
    made = dense()
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(Unsupported, match="'x' has dtype COMPLEX64"):
        load(written(made, tmp_path / "m.onnx"))


def test_the_package_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install ztorch\[onnx\]"):
        load(tmp_path / "m.onnx")


def test_the_command(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from ztorch.cli import main

    path = tmp_path / "digits.onnx"
    done = CliRunner().invoke(main, ["export", "digits_mlp", "-o", str(path), "--random"])
    assert done.exit_code == 0 and "any batch size" in done.output
    assert runtime(path, np.ones((3, 8, 8, 1), np.float32))[0].shape == (3, 10)
    done = CliRunner().invoke(main, ["export", "digits_mlp", "-o", str(path), "--train"])
    assert done.exit_code and "only predicts" in str(done.output) + str(done.exception)
