"""ONNX files that are damaged or lie: each is an error that says so, and none takes long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.interchange.onnx_files import X, broken, dense, model_of, ours, runtime, tensor, written
from ztorch.errors import ArtifactError, ZtorchError
from ztorch.interchange.onnx import load, wire


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot read"):
        load(tmp_path / "absent.onnx")
    for name, data in {"text": b"not a model at all", "empty": b"", "zeros": bytes(100)}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ArtifactError, match="is not an ONNX file"):
            load(tmp_path / name)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    data = dense().SerializeToString()
    path = tmp_path / "cut.onnx"
    for n in range(len(data)):
        path.write_bytes(data[:n])
        with pytest.raises(ZtorchError):
            load(path)


def test_a_name_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(dense().SerializeToString().replace(b"Gemm", b"Ge\xc3m"))
    with pytest.raises(ArtifactError, match=r"m.onnx: node 'gemm' of op .* has a name that is not text"):
        load(tmp_path / "m.onnx")


def test_an_attribute_that_is_not_text(tmp_path: Path) -> None:
    """The package's message about it could not be decoded."""
    path = broken(_odd_attribute, tmp_path)
    path.write_bytes(path.read_bytes().replace(b"perm", b"\xc3\xffrm"))
    with pytest.raises(ArtifactError, match="node 't' of op 'Transpose' has a name that is not text"):
        load(path)


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    """The file may still be one, of another model; anything but an error of ours is a fault."""
    random = np.random.default_rng(0)
    data = np.frombuffer(dense().SerializeToString(), np.uint8)
    path = tmp_path / "flipped.onnx"
    failed = 0
    for _ in range(300):
        changed = data.copy()
        at = random.integers(0, len(data), 2)
        changed[at] = random.integers(0, 256, 2)
        path.write_bytes(changed.tobytes())
        try:
            load(path)
        except ZtorchError:
            failed += 1
    assert failed > 100


def _fewer_bytes(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-4]


def _giant(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 22]


def _negative(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [-4, -3]


def _few_numbers(made: onnx.ModelProto) -> None:
    made.graph.initializer[1].ClearField("raw_data")
    made.graph.initializer[1].float_data.extend([1.0, 2.0])


def _no_weight(made: onnx.ModelProto) -> None:
    del made.graph.initializer[0]


def _twice(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(made.graph.initializer[0])


def _cycle(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[0] = "y"


def _order(made: onnx.ModelProto) -> None:
    made.graph.node.reverse()


def _no_output(made: onnx.ModelProto) -> None:
    made.graph.output[0].name = "z"


def _empty(made: onnx.ModelProto) -> None:
    del made.graph.output[:]


def _wrong_shape(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [3, 4]


def _no_type(made: onnx.ModelProto) -> None:
    made.graph.output[0].ClearField("type")


def _odd_attribute(made: onnx.ModelProto) -> None:
    made.graph.node[1].CopyFrom(helper.make_node("Transpose", ["h"], ["y"], perm=[0, 5], name="t"))


def _too_few_inputs(made: onnx.ModelProto) -> None:
    del made.graph.node[0].input[1:]


def _huge_expand(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(tensor("big", np.array([1 << 30, 1 << 20, 1, 1], np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Expand", ["h", "big"], ["y"], name="huge"))


def _huge_range(made: onnx.ModelProto) -> None:
    for name, n in (("start", 0), ("stop", 1 << 60), ("step", 1)):
        made.graph.initializer.append(tensor(name, np.array(n, np.int64)))
    made.graph.node.insert(0, helper.make_node("Range", ["start", "stop", "step"], ["r"], name="r"))
    made.graph.node[2].CopyFrom(helper.make_node("Reshape", ["h", "r"], ["y"]))


def _huge_resize(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(tensor("sizes", np.array([1, 1 << 50], np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Resize", ["h", "", "", "sizes"], ["y"], name="rs"))


def _huge_window(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(tensor("one", np.ones(1, np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Unsqueeze", ["h", "one"], ["u"]))
    made.graph.node.append(helper.make_node("AveragePool", ["u"], ["y"], kernel_shape=[1 << 40],
                                            auto_pad="SAME_UPPER", name="pool"))


def _long_axis(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**31 - 1
    made.graph.initializer.append(tensor("pads", np.array([0, 1, 0, 1], np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Pad", ["x", "pads"], ["y"], name="p", mode="edge"))
    del made.graph.node[0]


def _huge_border(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(tensor("pads", np.array([0, 1 << 39, 0, 1 << 39], np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Pad", ["h", "pads"], ["y"], name="p", mode="edge"))


def _negative_repeats(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(tensor("times", np.array([1, -1], np.int64)))
    made.graph.node[1].CopyFrom(helper.make_node("Tile", ["h", "times"], ["y"], name="t"))


DAMAGE: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "fewer bytes": (_fewer_bytes, "initializer 'w' of shape .* holds 44 bytes, not 48"),
    "giant": (_giant, "initializer 'w' of shape"),
    "negative": (_negative, "initializer 'w' has the impossible shape"),
    "few numbers": (_few_numbers, "initializer 'b' of shape .* holds 2 numbers, not 3"),
    "no weight": (_no_weight, "model.onnx: node Gemm 'gemm' reads 'w', which nothing defines"),
    "twice": (_twice, "two initializers named 'w'"),
    "no output": (_no_output, "no node computes the output 'z'|not a valid ONNX file"),
    "no outputs": (_empty, "model.onnx has no outputs"),
    "wrong shape": (_wrong_shape, "node Gemm 'gemm'"),
    "no type": (_no_type, "model.onnx is not a valid ONNX file: output 'y': Field 'type'"),
    "odd attribute": (_odd_attribute, "node Transpose 't'"),
    "too few inputs": (_too_few_inputs, "not a valid ONNX file"),
    "huge tensor": (_huge_expand, "node Expand 'huge' needs"),
    "huge resize": (_huge_resize, "node Resize 'rs' is invalid"),
    "huge window": (_huge_window, "node AveragePool 'pool' is invalid"),
    "long axis": (_long_axis, "node Pad 'p' is invalid: .* an axis of 2,147,483,647"),
    "huge range": (_huge_range, "node Range 'r' is invalid: .*a range from 0"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str, tmp_path: Path) -> None:
    change, message = DAMAGE[name]
    with pytest.raises(ZtorchError, match=message):
        load(broken(change, tmp_path))


def test_borders_and_repeats_have_limits(tmp_path: Path) -> None:
    for change, message in ((_huge_border, "node Pad 'p' is invalid: .*pads of 549755813888 and 549755813888 on an axis"),
                            (_negative_repeats, r"node Tile 't' is invalid: .*repeats \[1, -1\] for 2 axes")):
        with pytest.raises(ZtorchError, match=message):
            load(broken(change, tmp_path))


def test_sizes_below_zero(tmp_path: Path) -> None:
    """The package onnx ends the process when it infers shapes from them."""
    made = model_of([helper.make_node("Slice", ["x", "zero", "two", "one"], ["y"])],
                    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", -5])],
                    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
                    [tensor(name, np.array([k])) for k, name in enumerate(("zero", "one", "two"))])
    with pytest.raises(ArtifactError, match=r"'x' has the impossible shape \('batch', -5\)"):
        load(written(made, tmp_path / "negative.onnx"))


def test_nodes_that_cannot_be_ordered(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"model.onnx: node Gemm 'gemm' depends on its own result: "
                                            r"Gemm 'gemm' -> Relu 'relu' -> Gemm 'gemm'"):
        load(broken(_cycle, tmp_path))


def test_nodes_in_another_order(tmp_path: Path) -> None:
    """ONNX Runtime's conversion to float16 appends casts that earlier nodes read."""
    path = broken(_order, tmp_path)
    np.testing.assert_array_equal(ours(load(path), X)[0], runtime(path, X)[0])


def test_fields_of_every_wire_type() -> None:
    """By protobuf's encoding: a number, eight bytes, text, four bytes; kind 3 is none that ONNX has."""
    data = b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1a\x02ab" + b"\x25" + bytes(4) + b"\x2a\x01c" + b"\x33\x32\x01d"
    fields = [(number, size, content and bytes(content)) for number, size, content in wire._fields(memoryview(data))]
    assert fields == [(1, 0, None), (2, 0, None), (3, 2, b"ab"), (4, 0, None), (5, 1, b"c")]
