"""ONNX files with open axes, of other opsets, and models that no file can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.interchange.exported import randomized
from tests.interchange.onnx_files import kinds, ours, rows, runtime
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.interchange.onnx import load
from ztorch.interchange.onnx.save import encode
from ztorch.layers.context import Context

# -- the rest --------------------------------------------------------------------------------------


def test_what_onnx_lacks_is_listed() -> None:
    def noisy(x: Any) -> Any:
        bits = ops.bitcast(ops.cast(x, "float32"), "int32")
        return ops.cast(ops.shift_right(bits, 2), "float32")

    model = zt.Sequential([L.Input((3,)), L.Lambda(noisy, name="bits")])
    with pytest.raises(Unsupported, match=r"(?s)bitcast in layer 'bits'.*|shift_right in layer 'bits'"):
        encode(model)


def test_windows_of_any_tensor() -> None:
    """Those that share elements, along several axes; and of windows."""
    x = L.Input((7, 6))
    twice = ops.windows(ops.windows(x, (1, 2), (3, 2), (2, 1), (1, 2)), (1, 3), 2)
    model = zt.Model(x, twice)
    rows = np.random.default_rng(0).normal(size=(3, 7, 6)).astype(np.float32)
    [actual] = runtime(encode(model), rows)
    np.testing.assert_array_equal(actual, ours(model, rows)[0])


def test_another_opset(tmp_path: Path) -> None:
    model = randomized(zt.Sequential([
        L.Input((6, 6, 2)), L.Conv2D(3, 3, activation="relu"), L.MaxPooling2D(2), L.Flatten(),
        L.Dense(3, activation="softmax")]))
    [x] = rows(model, 2)
    for opset in (11, 12, 17, 22):
        zt.onnx.save(model, tmp_path / "m.onnx", opset=opset)
        assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == opset
        np.testing.assert_allclose(runtime(tmp_path / "m.onnx", x)[0], ours(model, x)[0],
                                   rtol=1e-5)
    with pytest.raises(Unsupported, match="opset 7: its op MaxPool changed since; choose a later opset"):
        zt.onnx.save(model, tmp_path / "m.onnx", opset=7)
    with pytest.raises(ConfigError, match="opset"):
        zt.onnx.save(model, tmp_path / "m.onnx", opset=0)


def test_means_and_states_in_an_old_opset(tmp_path: Path) -> None:
    model = randomized(zt.Sequential([
        L.Input((3, 6, 2)), L.GlobalAveragePooling2D(keepdims=True), L.Reshape((2, 1)), L.LSTM(3),
        L.Dense(3, activation="gelu")]))
    [x] = rows(model, 2)
    zt.onnx.save(model, path := tmp_path / "m.onnx", opset=12)
    np.testing.assert_allclose(runtime(path, x)[0], ours(model, x)[0], rtol=1e-5, atol=1e-6)


def test_ops_that_an_older_opset_lacks(tmp_path: Path) -> None:
    """They are replaced by their definitions in the standard, some of them in two steps."""
    model = randomized(zt.Sequential([
        L.Input((4, 6)), L.Dense(6, activation="gelu"), L.GroupNormalization(2), L.RMSNormalization(),
        L.Dense(3, activation="mish")]))
    [x] = rows(model, 2)
    zt.onnx.save(model, path := tmp_path / "m.onnx", opset=17)
    assert not {"Gelu", "GroupNormalization", "RMSNormalization", "Mish"} & {*kinds(path.read_bytes())}
    np.testing.assert_allclose(runtime(path, x)[0], ours(model, x)[0], rtol=1e-5, atol=1e-6)


def test_open_axes() -> None:
    ids = L.Input(("time",), dtype="int32")
    x = L.PositionEmbedding(9)(L.Embedding(7, 4)(ids))
    model = zt.Model(ids, L.MultiHeadAttention(2, num_key_value_heads=1, rotary=True,
                                               rotary_wavelength=30.0)(x))
    rows = np.random.default_rng(0).integers(0, 7, (2, 5)).astype(np.int32)
    [actual] = runtime(encode(model, sizes={"time": 5}), rows)
    expected = model.compile("cpu", batch_size=2, sizes=(8,), threads=1).predict(rows)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    model = zt.Model(ids, L.MultiHeadAttention(2)(x))
    any_size = encode(model)  # whose table has a limit of 9
    for count, length in ((1, 1), (3, 9), (2, 4)):
        rows = np.random.default_rng(length).integers(0, 7, (count, length)).astype(np.int32)
        [actual] = runtime(any_size, rows)
        np.testing.assert_allclose(actual, evaluated(model, rows), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"sizes\['time'\]=\(8, 16\): an ONNX file takes one size"):
        encode(model, sizes=(8, 16))


def evaluated(model: zt.Model, *x: np.ndarray) -> np.ndarray:
    """The predictions of a model with open axes for rows of exactly these sizes."""
    sizes = {name: v.shape[axis + 1] for v, axes in zip(x, model.open_axes.values(), strict=True)
             for axis, name in axes.items()}
    leaves = model.leaves(len(x[0]), sizes=sizes)
    outputs = model.called(leaves, Context())
    return evaluate(list(outputs.values()), dict(zip(leaves.values(), x, strict=True)))[0]


@together(of=20)
@pytest.mark.parametrize(("layers", "shape"), [
    ([L.LSTM(4)], ("time", 3)), ([L.GRU(4, return_sequences=True)], ("time", 3)),
    ([L.Bidirectional(L.LSTM(4, return_sequences=True))], ("time", 3)),
    ([L.TransformerEncoder(8, 2), L.GlobalAveragePooling1D()], ("time", 8)),
    ([L.MultiHeadAttention(2, use_causal_mask=True)], ("time", 8)),
    ([L.Conv1D(4, 3, padding="causal"), L.GlobalMaxPooling1D()], ("time", 3)),
    ([L.Conv2D(4, 3, strides=2, padding="same"), L.BatchNormalization(), L.MaxPooling2D(2)],
     ("height", "width", 3)),
    ([L.Conv2D(4, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(2)],
     ("height", "width", 3)),
    ([L.TimeDistributed(L.Dense(3)), L.Lambda(lambda x: x[:, -1])], ("time", 2)),
    ([L.Lambda(lambda x: ops.flip(x, axis=1)[:, 1:-1])], ("time", 2)),
    ([L.Permute((2, 1)), L.Softmax()], ("time", 2))])
def test_files_for_any_size(layers: list[Any], shape: tuple[Any, ...]) -> None:
    model = zt.Sequential([L.Input(shape), *layers], seed=1)
    data = encode(model)
    for sizes in ((9, 12), (14, 8)):
        x = np.random.default_rng(0).normal(
            size=(2, *sizes[:len(shape) - 1], shape[-1])).astype(np.float32)
        [actual] = runtime(data, x)
        np.testing.assert_allclose(actual, evaluated(model, x), rtol=1e-4, atol=1e-5)
    named = [d.dim_param for d in onnx.load_from_string(data).graph.input[0].type.tensor_type
             .shape.dim]
    assert named[:len(shape)] == ["batch", *shape[:-1]]


def test_no_file_for_any_size() -> None:
    for computes in (lambda x: x / x.shape[1], ops.rotary):
        model = zt.Sequential([L.Input(("time", 2)), L.Lambda(computes)])
        with pytest.raises(Unsupported, match=r"computes with their sizes.*sizes=\{'time': 64\}"):
            encode(model)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)])
    program = model.compile("cpu:scalar", batch_size=1)
    with pytest.raises(ConfigError, match=r"not Program; pass the model.*weights=program\.weights"):
        zt.onnx.save(program, tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match="takes a model, not int"):
        zt.onnx.save(3, tmp_path / "m.onnx")  # type: ignore[arg-type]
    zt.onnx.save(model, tmp_path / "m.onnx", weights=program.weights)
    with pytest.raises(ConfigError, match="sizes=3 must give sizes by the names of axes"):
        load(tmp_path / "m.onnx", sizes=3)  # type: ignore[arg-type]


def test_computing_with_the_batch_size_needs_one() -> None:
    def centered(x: Any) -> Any:
        return x - ops.mean(x, axis=0) * (1.0 * x.shape[0])

    model = zt.Sequential([L.Input((3,)), L.Lambda(centered)])
    with pytest.raises(Unsupported, match="batch_size="):
        encode(model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(runtime(encode(model, batch_size=2), x)[0], x - x.sum(0))


def test_a_table_of_all_rows_needs_a_batch_size() -> None:
    """Its positions in batches that stand for any are more than an int32 holds."""
    def last(x: Any) -> Any:
        rows = ops.reshape(x, (-1,))
        return ops.take(rows, ops.cast(x[:, :1] * 0.0 + 1e9, "int32"), 0)

    model = zt.Sequential([L.Input((3000,)), L.Lambda(last)])
    with pytest.raises(Unsupported, match="computes with the number of rows in a batch; pass batch_size="):
        encode(model)
    x = np.arange(6000, dtype=np.float32).reshape(2, 3000)
    assert runtime(encode(model, batch_size=2), x)[0].tolist() == [[5999], [5999]]


def test_parts_that_begin_after_so_many_rows() -> None:
    def second(x: Any) -> Any:
        return ops.concat(x, x * 2.0, x * 3.0, axis=0)[x.shape[0]:2 * x.shape[0]] + 1.0

    data = encode(zt.Sequential([L.Input((3,)), L.Lambda(second)]))
    for count in (1, 4):
        x = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
        np.testing.assert_array_equal(runtime(data, x)[0], 2 * x + 1)
