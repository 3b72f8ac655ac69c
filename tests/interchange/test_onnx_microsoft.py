"""Ops of the domain com.microsoft, which ONNX Runtime's tools write, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.cases.grouping import together
from tests.interchange.onnx_files import ours, port, runtime, tensor, written
from ztorch.interchange.onnx import load

RANDOM = np.random.default_rng(0)
FLOAT, INT32, UINT8, INT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8


def floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.normal(size=shape) * scale).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return RANDOM.integers(low, high, shape).astype(dtype)


def i32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


class Case(NamedTuple):
    op: str
    data: list[Any]  # inputs of the model; None is absent
    known: list[Any] = []  # initializers
    attrs: dict[str, Any] = {}
    outputs: tuple[int, ...] = (FLOAT,)
    domain: str = "com.microsoft"
    close: float = 2e-5


X, ROWS = floats(2, 3, 8), floats(2, 8)
IMAGE = floats(2, 4, 7, 6)
QKV = (floats(8, 24, scale=0.3), floats(24, scale=0.3))
HEADS = {"num_heads": 2}
CAUSAL = {**HEADS, "unidirectional": 1}
ANGLES = np.outer(np.arange(16), 10.0 ** -np.arange(2)).astype(np.float32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
LAST = i32(4, 4), np.array(5, np.int32)
WIDE_COS, WIDE_SIN = (f(np.outer(np.arange(16), 10.0 ** -np.arange(8))).astype(np.float32)
                      for f in (np.cos, np.sin))
LINES = floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32)


def few_bits(columns: int, depth: int, block: int, zero: bool = False,
             bits: int = 4) -> list[np.ndarray]:
    blocks = -(-depth // block)
    known = [ints(0, 256, columns, blocks, block * bits // 8, dtype=np.uint8),
             RANDOM.uniform(0.1, 0.2, columns * blocks).astype(np.float32)]
    return [*known, ints(0, 256, columns * -(-blocks * bits // 8), dtype=np.uint8)] if zero else known


JOINED = [
    Case("FusedMatMul", [X], [floats(8, 4)], {"alpha": 0.5}),
    Case("FusedMatMul", [X, floats(2, 4, 8)], [], {"transB": 1}),
    Case("TransposeMatMul", [X, floats(2, 4, 8)], [], {"transB": 1, "alpha": 0.5}),
    Case("FusedMatMul", [floats(2, 8, 3), floats(2, 8, 4)], [], {"transA": 1}),
    Case("FusedGemm", [ROWS], [floats(4, 8), floats(4)], {"transB": 1, "activation": "Relu"}),
    Case("FusedGemm", [ROWS], [floats(8, 4)], {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    Case("FusedConv", [IMAGE], [floats(5, 4, 3, 3), floats(5)],
         {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    Case("FusedConv", [IMAGE], [floats(5, 4, 3, 3), floats(5)],
         {"activation": "Clip", "activation_params": [-0.5, 0.5], "strides": [2, 2]}),
    Case("FusedConv", [IMAGE], [floats(5, 4, 3, 3), floats(5)],
         {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]}),
    Case("MatMulNBits", [floats(2, 3, 32)], few_bits(6, 32, 16), {"K": 32, "N": 6, "bits": 4,
                                                                  "block_size": 16}, close=1e-3),
    Case("MatMulNBits", [floats(2, 3, 40)], few_bits(6, 40, 16, True),
         {"K": 40, "N": 6, "bits": 4, "block_size": 16}, close=1e-3),
    *(Case(op, [X]) for op in ("Gelu", "FastGelu", "QuickGelu")),
    Case("QuickGelu", [X], [], {"alpha": 1.3}),
    Case("BiasGelu", [X], [floats(8)]), Case("FastGelu", [X], [floats(8)]),
    Case("Inverse", [floats(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)]),
    Case("CDist", [ROWS], [floats(3, 8)], {"metric": "euclidean"}),
    Case("CDist", [ROWS], [floats(3, 8)], {"metric": "sqeuclidean"}),
    Case("ExpandDims", [X], [np.array(1, np.int32)]),
]

NORMALIZED = [
    Case("SkipLayerNormalization", [X, floats(2, 3, 8)], [floats(8), floats(8), floats(8)]),
    Case("SkipLayerNormalization", [X, floats(2, 3, 8)], [floats(8), floats(8)],
         {"epsilon": 1e-3}),
    Case("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8)], [floats(8)]),
    Case("SimplifiedLayerNormalization", [X], [floats(8)], {"epsilon": 1e-6}, domain=""),
    Case("EmbedLayerNormalization", [ints(0, 9, 2, 5), ints(0, 2, 2, 5)],
         [floats(9, 8), floats(6, 8), floats(2, 8), floats(8), floats(8)], {}, (FLOAT, INT32)),
    Case("EmbedLayerNormalization", [ints(0, 9, 2, 5), None],
         [floats(9, 8), floats(6, 8), None, floats(8), floats(8)], {}, (FLOAT, INT32)),
]

ATTENTION = [
    Case("Attention", [X], [*QKV], HEADS), Case("Attention", [X], [*QKV], {**CAUSAL, "scale": 0.3}),
    Case("Attention", [X], [*QKV, i32(2, 3)], HEADS),
    Case("Attention", [X], [*QKV, i32(*[1, 1, 0], *[1, 1, 1]).reshape(2, 3)], HEADS),
    Case("Attention", [X], [*QKV, None, None, floats(1, 2, 3, 3)], HEADS),
    Case("Attention", [X], [*QKV, None, floats(2, 2, 2, 4, 4)], CAUSAL, (FLOAT, FLOAT)),
    Case("Attention", [X], [floats(8, 20, scale=0.3), floats(20)],
         {**HEADS, "qkv_hidden_sizes": [8, 8, 4]}),
    Case("MultiHeadAttention", [X, floats(2, 5, 8), floats(2, 5, 8)], [], HEADS),
    Case("MultiHeadAttention", [X, floats(2, 5, 8), floats(2, 5, 8)], [floats(24)], HEADS),
    Case("MultiHeadAttention", [X, floats(2, 5, 8), floats(2, 5, 8)],
         [None, ints(0, 2, 2, 5) | i32(1, 0, 0, 0, 0)], HEADS),
    Case("MultiHeadAttention", [X, floats(2, 3, 8), floats(2, 3, 8)],
         [None, None, floats(1, 2, 3, 3)], CAUSAL),
    Case("MultiHeadAttention", [X, floats(2, 3, 8), floats(2, 3, 8)],
         [None, None, None, floats(2, 2, 4, 4), floats(2, 2, 4, 4)], HEADS, (FLOAT,) * 3),
    Case("RotaryEmbedding", [floats(2, 5, 8)], [ints(0, 9, 2, 5, dtype=np.int64), COS, SIN]),
    Case("RotaryEmbedding", [floats(2, 2, 5, 4)], [np.array([3]), COS, SIN], {"interleaved": 1}),
    Case("RotaryEmbedding", [X[:, None]], [np.array([3]), COS, SIN], {"rotary_embedding_dim": 4, "num_heads": 1}),
    Case("GroupQueryAttention", [*LINES], [None, None, *LAST], GROUPS, (FLOAT,) * 3),
    Case("GroupQueryAttention", [*LINES], [None, None, *LAST, WIDE_COS, WIDE_SIN],
         {**GROUPS, "do_rotary": 1}, (FLOAT,) * 3),
    Case("GroupQueryAttention", [*LINES], [None, None, *LAST], {**GROUPS, "local_window_size": 2,
                                                                "softcap": 2.0}, (FLOAT,) * 3),
    Case("GroupQueryAttention", [floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32)],
         [floats(2, 2, 4, 16), floats(2, 2, 4, 16), *LAST, WIDE_COS, WIDE_SIN], {**GROUPS, "do_rotary": 1},
         (FLOAT,) * 3),
    Case("GroupQueryAttention", [floats(2, 5, 128), None, None], [None, None, *LAST], GROUPS,
         (FLOAT,) * 3),
]



def code(*shape: int, dtype: Any = np.uint8) -> list[np.ndarray]:
    """Integers with a scale and a zero point."""
    return [ints(*((0, 256) if dtype is np.uint8 else (-128, 128)), *shape, dtype=dtype),
            np.float32(0.05), np.array(RANDOM.integers(90, 140) if dtype is np.uint8 else 3, dtype)]


RESULT = [np.float32(0.1), np.array(120, np.uint8)]
SIGMOID = [np.float32(1 / 256), np.array(0, np.uint8)]
CODES, *CODE_TYPE = code(2, 4, 6, 5)
# Of 7 bits: with 8, ONNX Runtime's sums of two products saturate at 16 bits on CPUs without VNNI.
WEIGHTS = [ints(-60, 60, 8, 6, dtype=np.int8), *code(1, dtype=np.int8)[1:]]
QUANTIZED = [
    *(Case(op, [code(2, 3)[0]], [np.float32(0.05), np.array(99, np.uint8), *code(1, 3), *RESULT],
           {}, (UINT8,), close=1) for op in ("QLinearAdd", "QLinearMul")),
    Case("QLinearSigmoid", [CODES], [*CODE_TYPE, *SIGMOID], {}, (UINT8,), close=1),
    Case("QLinearLeakyRelu", [CODES], [*CODE_TYPE, *RESULT], {"alpha": 0.2}, (UINT8,), close=1),
    Case("QLinearGlobalAveragePool", [CODES], [*CODE_TYPE, *RESULT], {}, (UINT8,), close=1),
    Case("QLinearAveragePool", [CODES], [*CODE_TYPE, *RESULT], {"kernel_shape": [2, 2]}, (UINT8,),
         close=1),
    Case("QLinearSoftmax", [code(2, 9)[0]], [*CODE_TYPE, *SIGMOID], {"axis": -1, "opset": 13},
         (UINT8,), close=1),
    Case("QGemm", [code(2, 8)[0]], [*CODE_TYPE, *WEIGHTS, ints(-99, 99, 6), *RESULT], {}, (UINT8,),
         close=1),
    Case("QGemm", [code(2, 8)[0]], [*CODE_TYPE, *WEIGHTS], {"alpha": 0.5}),
    Case("MatMulIntegerToFloat", [code(2, 8)[0]],
         [WEIGHTS[0], np.float32(0.1), np.float32(0.2), np.array(99, np.uint8), np.array(3, np.int8),
          floats(6)], close=1e-4),
    Case("DynamicQuantizeMatMul", [ROWS], [WEIGHTS[0], np.float32(0.2), np.array(3, np.int8), floats(6)],
         close=1e-4),
    *(Case("QAttention", [code(2, 3, 8)[0]],
           [ints(-60, 60, 8, 24, dtype=np.int8), QKV[1], np.float32(0.05), scale, mask,
            np.array(120, np.uint8), np.array(zero, np.int8)], attrs)
      for scale, mask, zero, attrs in (
          (np.float32(0.02), None, 0, CAUSAL), (np.float32(0.02), i32(2, 3), 3, HEADS),
          (RANDOM.uniform(0.01, 0.03, 24).astype(np.float32), None, 0, HEADS))),
    Case("QuantizeLinear", [ROWS], RESULT, {}, (UINT8,)),
    Case("DequantizeLinear", [CODES], CODE_TYPE),
]

CASES = [*JOINED, *NORMALIZED, *ATTENTION, *QUANTIZED]


def label(case: Case) -> str:
    return "-".join([case.op, *(f"{k}={v}" for k, v in case.attrs.items())]).replace(" ", "")


def file_of(case: Case, ranks: list[int] | None = None) -> Any:
    """A file of one node; without the ranks of its outputs only ONNX Runtime reads it."""
    data = {f"x{k}": a for k, a in enumerate(case.data) if a is not None}
    known = {f"k{k}": a for k, a in enumerate(case.known) if a is not None}
    used = [f"x{k}" if a is not None else "" for k, a in enumerate(case.data)]
    used += [f"k{k}" if a is not None else "" for k, a in enumerate(case.known)]
    outputs = [f"y{k}" for k in range(len(case.outputs))]
    node = helper.make_node(case.op, used, outputs, name=case.op, domain=case.domain, **case.attrs)
    graph = helper.make_graph(
        [node], "g", [port(n, a, len(a)) for n, a in data.items()],
        [helper.make_tensor_value_info(n, t, ranks and [None] * ranks[k])
         for k, (n, t) in enumerate(zip(outputs, case.outputs, strict=True))],
        [tensor(n, a) for n, a in known.items()])
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])


@together(of=100)
@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_node(case: Case, tmp_path: Path) -> None:
    data = [a for a in case.data if a is not None]
    expected = runtime(file_of(case).SerializeToString(), *data)
    path = written(file_of(case, [y.ndim for y in expected]), tmp_path / "node.onnx")
    results = ours(load(path), *data)
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        relative = 0 if want.dtype.kind == "u" else case.close  # integers may differ by one
        np.testing.assert_allclose(got.astype(float), want.astype(float), relative, case.close)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bits", [4, 8, "uint4"])
def test_rows_of_tables_of_few_bits(bits: Any, zero: bool, tmp_path: Path) -> None:
    """An embedding as ONNX Runtime's builder of language models writes it."""
    of_bytes = isinstance(bits, int)
    each = 8 // bits if of_bytes else 1
    kind = np.uint8 if of_bytes else helper.tensor_dtype_to_np_dtype(TensorProto.UINT4)
    known = [tensor(name, ints(0, 256 if of_bytes else 16, 9, n, dtype=np.uint8).astype(kind))
             for name, n in (("table", 40 // each), ("zeros", -(-3 // each)))][:1 + zero]
    known.insert(1, tensor("scales", RANDOM.uniform(0.1, 0.2, (9, 3)).astype(np.float32)))
    node = helper.make_node("GatherBlockQuantized", ["table", "x", "scales", *["zeros"] * zero], ["y"],
                            domain="com.microsoft", block_size=16, bits=bits if of_bytes else 4)
    x = ints(0, 9, 2, 3)
    graph = helper.make_graph([node], "g", [port("x", x)], [helper.make_tensor_value_info(
        "y", FLOAT, ["batch", 3, 40])], known)
    made = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    path = written(made, tmp_path / "node.onnx")
    np.testing.assert_allclose(ours(load(path), x)[0], runtime(path, x)[0], rtol=1e-6, atol=1e-6)
