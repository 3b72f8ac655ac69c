"""Cases of one ONNX node: an op, its attributes and inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

RANDOM = np.random.default_rng(0)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int64) -> np.ndarray:
    return RANDOM.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 2, shape).astype(bool)


class Case(NamedTuple):
    op: str
    data: list[np.ndarray]
    known: list[Any] = []
    attrs: dict[str, Any] = {}
    opset: int = 18
    count: int = 1
    fixed: bool = False  # the file is for one batch size


X = floats(2, 3, 4)
IMAGE, LINE = floats(2, 4, 7, 6), floats(2, 4, 9)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def f32(x: Any) -> np.ndarray:
    return np.array(x, np.float32)


UNARY = [Case(op, [X]) for op in (
    "Neg", "Abs", "Exp", "Erf", "Tanh", "Sin", "Cos", "Floor", "Ceil", "Sigmoid", "Relu",
    "HardSwish", "Softplus", "Softsign", "Mish", "Sign", "IsNaN", "IsInf", "Identity", "Selu",
    "LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Dropout")]

ELEMENTWISE = [
    *UNARY,
    *(Case(op, [floats(2, 3, low=0.1)]) for op in ("Sqrt", "Log", "Reciprocal")),
    *(Case(op, [X, floats(2, 3, 4)]) for op in ("Add", "Sub", "Mul", "Div", "Less",
                                                "LessOrEqual", "Greater", "GreaterOrEqual")),
    *(Case(op, [X], [floats(4)]) for op in ("Add", "Sub", "Mul", "Div")),
    Case("Round", [f32([[0.5, 1.5, -0.5, 2.4]])]),
    Case("Div", [ints(2, 3, low=1), ints(2, 3, low=1)]),
    Case("Add", [X], [f32(2.5)]),
    Case("Pow", [floats(2, 3, low=0.1)], [floats(3)]),
    Case("Pow", [X], [f32(2.0)]), Case("Pow", [X], [f32(3.0)]), Case("Pow", [X], [i64(2)[0]]),
    Case("Pow", [X], [f32(-1.0)]), Case("Pow", [floats(2, 3, low=0.1)], [f32(0.5)]),
    Case("Pow", [ints(2, 3)], [i64(2)[0]]),
    Case("Mod", [ints(2, 9)], [i64(4)]), Case("Mod", [ints(2, 9)], [i64(-4)]),
    Case("Mod", [ints(2, 9)], [i64(4)], {"fmod": 1}), Case("Mod", [X], [f32(1.5)], {"fmod": 1}),
    Case("Min", [X, floats(2, 3, 4)], [floats(4)]), Case("Max", [X, floats(2, 3, 4)], [floats(4)]),
    Case("Sum", [X, floats(2, 3, 4)], [floats(4)]), Case("Mean", [X, floats(2, 3, 4)]),
    Case("Where", [bools(2, 3, 4), X, floats(2, 3, 4)]),
    Case("Where", [bools(2, 1, 4), X], [f32(-np.inf)]),
    Case("Equal", [ints(2, 9, high=-5), ints(2, 9, high=-5)]),
    *(Case(op, [bools(2, 9), bools(2, 9)]) for op in ("And", "Or", "Xor")),
    Case("Not", [bools(2, 9)]),
    *(Case(op, [ints(2, 9), ints(2, 9)]) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    Case("BitwiseNot", [ints(2, 9)]),
    Case("IsInf", [f32([[np.inf, -np.inf, 1, np.nan]])], [], {"detect_negative": 0}),
    Case("IsNaN", [f32([[np.inf, -np.inf, 1, np.nan]])]),
    Case("Clip", [X], [f32(-1.0), f32(0.5)]), Case("Clip", [X], [None, f32(0.5)]),
    Case("Clip", [X], [f32(0.5)]), Case("Clip", [X]),
    Case("Cast", [X], [], {"to": 7}), Case("Cast", [X], [], {"to": 9}),
    Case("Cast", [ints(2, 3)], [], {"to": 1}), Case("Cast", [bools(2, 3)], [], {"to": 1}),
    Case("CastLike", [ints(2, 3)], [f32(1.0)]),
    Case("PRelu", [X], [floats(4)]), Case("PRelu", [LINE], [floats(4, 1)]),
    Case("LeakyRelu", [X], [], {"alpha": 0.3}), Case("Elu", [X], [], {"alpha": 0.5}),
    Case("Celu", [X], [], {"alpha": 0.5}), Case("Selu", [X], [], {"alpha": 1.5, "gamma": 1.2}),
    Case("ThresholdedRelu", [X], [], {"alpha": 0.4}),
    Case("HardSigmoid", [X], [], {"alpha": 0.3, "beta": 0.4}),
    Case("Gelu", [X], [], {}, 20), Case("Gelu", [X], [], {"approximate": "tanh"}, 20),
    Case("Dropout", [X], [f32(0.5), np.array(False)]),
]

LINEAR = [
    Case("MatMul", [X], [floats(4, 5)]), Case("MatMul", [X, floats(2, 4, 5)]),
    Case("MatMul", [floats(2, 3, 4, 5), floats(2, 3, 5, 2)]), Case("MatMul", [X], [floats(4)]),
    Case("Gemm", [floats(2, 3)], [floats(3, 4), floats(4)]),
    Case("Gemm", [floats(2, 3)], [floats(4, 3), floats(1, 4)],
         {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [floats(2, 3)], [floats(3, 4)]),
    Case("Einsum", [X], [floats(4, 5)], {"equation": "bij,jk->bik"}),
    Case("Einsum", [X, floats(2, 5, 4)], [], {"equation": "bij, bkj -> bik"}),
    Case("Einsum", [floats(2, 3, 5, 4), floats(2, 6, 5, 4)], [], {"equation": "bqhd,bkhd->bhqk"}),
    Case("Einsum", [floats(2, 5, 3, 6), floats(2, 6, 5, 4)], [], {"equation": "bhqk,bkhd->bqhd"}),
    Case("Einsum", [X], [], {"equation": "bij->bji"}), Case("Einsum", [X], [], {"equation": "bij->b"}),
    Case("Einsum", [X], [floats(3)], {"equation": "bij,i->bj"}),
    Case("Attention", [floats(2, 3, 5, 4), floats(2, 3, 6, 4), floats(2, 3, 6, 2)], [], {}, 23),
    Case("Attention", [floats(2, 4, 5, 4), floats(2, 2, 5, 4), floats(2, 2, 5, 2)], [],
         {"is_causal": 1, "scale": 0.3}, 23),
    Case("Attention", [floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 8)], [],
         {"q_num_heads": 2, "kv_num_heads": 2}, 23),
    Case("Attention", [floats(2, 3, 5, 4)] * 3, [np.tri(5, dtype=bool)], {}, 23),
    Case("Attention", [floats(2, 3, 5, 4)] * 3, [floats(5, 5)], {}, 23),
]

CONVOLUTION = [
    Case("Conv", [IMAGE], [floats(6, 4, 3, 2), floats(6)]),
    Case("Conv", [IMAGE], [floats(6, 4, 3, 2)], {"strides": [2, 1], "pads": [1, 0, 2, 1],
                                                 "dilations": [2, 3]}),
    Case("Conv", [IMAGE], [floats(6, 2, 3, 3)], {"group": 2, "pads": [1, 1, 1, 1]}),
    Case("Conv", [IMAGE], [floats(8, 1, 3, 3), floats(8)], {"group": 4}),
    Case("Conv", [IMAGE], [floats(6, 4, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", [IMAGE], [floats(6, 4, 2, 2)], {"auto_pad": "SAME_LOWER"}),
    Case("Conv", [IMAGE], [floats(6, 4, 3, 2)], {"auto_pad": "VALID"}),
    Case("Conv", [LINE], [floats(6, 4, 3), floats(6)], {"pads": [2, 0], "kernel_shape": [3]}),
    Case("ConvTranspose", [IMAGE], [floats(4, 3, 3, 2), floats(3)]),
    Case("ConvTranspose", [IMAGE], [floats(4, 3, 3, 2)],
         {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}),
    Case("ConvTranspose", [IMAGE], [floats(4, 3, 2, 2), floats(6)], {"group": 2, "strides": [2, 2]}),
    Case("ConvTranspose", [IMAGE], [floats(4, 3, 2, 2)], {"strides": [3, 3], "dilations": [2, 1]}),
    Case("ConvTranspose", [LINE], [floats(4, 3, 4)], {"strides": [2], "pads": [1, 1]}),
    *(Case(op, [IMAGE], [], {"kernel_shape": [3, 2], **more})
      for op in ("MaxPool", "AveragePool") for more in (
          {}, {"strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 0, 1, 1]},
          {"auto_pad": "SAME_UPPER", "strides": [2, 2]})),
    Case("MaxPool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    Case("MaxPool", [IMAGE], [], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    Case("MaxPool", [LINE], [], {"kernel_shape": [2], "strides": [2], "pads": [1, 1],
                                 "ceil_mode": 1}, 22),
    Case("MaxPool", [np.zeros((2, 4, 9), np.uint8)], [], {  # padding is as large as all elements
        "kernel_shape": [3], "pads": [1, 1]}, count=2),
    Case("AveragePool", [IMAGE], [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                      "count_include_pad": 1}),
    Case("AveragePool", [IMAGE], [], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
         22),
    Case("AveragePool", [LINE], [], {"kernel_shape": [3], "strides": [2]}),
    Case("GlobalAveragePool", [IMAGE]), Case("GlobalMaxPool", [IMAGE]),
    Case("GlobalLpPool", [IMAGE]), Case("GlobalLpPool", [IMAGE], [], {"p": 1}),
    *(Case("Resize", [IMAGE], [None, f32([1, 1, *scale])], {
        "mode": mode, "coordinate_transformation_mode": how, **more})
      for scale, how in (*((scale, how) for scale in ((2, 3), (0.6, 1.7)) for how in (
          "half_pixel", "asymmetric", "pytorch_half_pixel")),
          # The standard and ONNX Runtime differ where a scale gives no whole number of elements.
          ((2, 3), "align_corners"), ((1.0, 0.5), "align_corners"))
      for mode, more in (("nearest", {"nearest_mode": "floor"}), ("linear", {}))),
    *(Case("Resize", [IMAGE], [None, f32([1, 1, 1.5, 2.5])], {"mode": "nearest", "nearest_mode": how})
      for how in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    Case("Resize", [IMAGE], [None, None, i64(2, 4, 14, 5)], {"mode": "nearest"}, fixed=True),
    Case("Resize", [IMAGE], [None, None, i64(14, 5)], {"mode": "linear", "axes": [2, 3]}),
    Case("Resize", [IMAGE], [f32([]), f32([1, 1, 1.5, 2.5])], {"mode": "linear"}, 11),
    Case("Resize", [IMAGE], [f32([]), f32([]), i64(2, 4, 14, 5)], {"mode": "linear"}, 11, fixed=True),
    Case("Resize", [IMAGE], [f32([]), f32([1, 1, 1.5, 0.6])], {
        "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}, 11),
    Case("Resize", [IMAGE], [f32([1, 1, 0.6, 1.5])], {"mode": "nearest"}, 10),
    Case("DepthToSpace", [IMAGE], [], {"blocksize": 2}),
    Case("DepthToSpace", [IMAGE], [], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [floats(2, 3, 4, 6)], [], {"blocksize": 2}),
]

NORMALIZATION = [
    Case("BatchNormalization", [IMAGE], [floats(4), floats(4), floats(4), floats(4, low=0.5)]),
    Case("BatchNormalization", [floats(2, 4)], [floats(4), floats(4), floats(4),
                                                floats(4, low=0.5)], {"epsilon": 1e-2}),
    Case("LayerNormalization", [X], [floats(4), floats(4)]), Case("LayerNormalization", [X], [floats(4)]),
    Case("LayerNormalization", [X], [floats(3, 4), floats(3, 4)], {"axis": 1, "epsilon": 1e-3}),
    Case("RMSNormalization", [X], [floats(4)], {}, 23),
    Case("GroupNormalization", [IMAGE], [floats(4), floats(4)], {"num_groups": 2}, 21),
    Case("InstanceNormalization", [IMAGE], [floats(4), floats(4)]),
    Case("InstanceNormalization", [LINE], [floats(4), floats(4)], {"epsilon": 1e-2}),
    Case("LpNormalization", [X]), Case("LpNormalization", [X], [], {"p": 1, "axis": 1}),
    Case("LRN", [IMAGE], [], {"size": 3}),
    Case("LRN", [IMAGE], [], {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    *(Case(op, [X], [], {"axis": axis}) for op in ("Softmax", "LogSoftmax") for axis in (1, -1)),
]

MOVEMENT = [
    Case("Reshape", [X], [i64(0, -1)]), Case("Reshape", [X], [i64(0, 2, 6)]),
    Case("Reshape", [X], [i64(-1, 6, 2)]),
    Case("Flatten", [X], [], {"axis": 1}), Case("Flatten", [floats(2, 5)], [], {"axis": -1}),
    Case("Transpose", [X], [], {"perm": [0, 2, 1]}),
    Case("Squeeze", [floats(2, 1, 3, 1)], [i64(1)]), Case("Squeeze", [floats(2, 1, 3, 1)], [i64(-1, 1)]),
    Case("Squeeze", [floats(2, 1, 3, 1)], fixed=True),
    Case("Unsqueeze", [X], [i64(1, -1)]),
    Case("Expand", [floats(2, 1, 4)], [i64(1, 3, 1)]), Case("Expand", [floats(2, 1, 4)], [i64(5, 4)]),
    Case("Tile", [X], [i64(1, 2, 3)]), Case("Tile", [X], [i64(1, 0, 3)]),
    Case("Concat", [X, floats(2, 5, 4)], [floats(2, 1, 4)], {"axis": 1}, fixed=True),
    Case("Split", [X], [i64(1, 3)], {"axis": 2}, 18, 2),
    Case("Split", [floats(2, 7)], [], {"axis": -1, "num_outputs": 3}, 18, 3),
    Case("Split", [floats(2, 6)], [], {"axis": 1}, 13, 3),
    Case("Slice", [X], [i64(1, 0), i64(3, 100), i64(1, 2), i64(1, 2)]),
    Case("Slice", [X], [i64(-1), i64(-1000), i64(2), i64(-1)]),
    Case("Slice", [X], [i64(0, 1, -2), i64(9, 3, -1)]),
    Case("Gather", [X], [i64(2, -1, 0)], {"axis": 1}), Case("Gather", [X], [i64(-1)[0]], {"axis": 2}),
    Case("Gather", [X], [np.array([[0, 1], [2, 3]])], {"axis": -1}),
    Case("GatherElements", [X, ints(2, 2, 4, low=-3, high=3)], [], {"axis": 1}),
    Case("GatherElements", [X, ints(2, 3, 6, low=-4, high=4)], [], {"axis": -1}),
    Case("Pad", [X], [i64(0, 1, 2, 0, 3, 0)]), Case("Pad", [X], [i64(0, 1, 2, 0, 3, 0), f32(1.5)]),
    Case("Pad", [X], [i64(0, -1, 2, 0, 3, -2)]), Case("Pad", [X], [i64(1, 2), None, i64(-1)]),
    Case("Pad", [X], [i64(0, 1, 2, 0, 2, 1)], {"mode": "reflect"}),
    Case("Pad", [X], [i64(0, 1, 2, 0, 2, 1)], {"mode": "edge"}),
    Case("Pad", [X], [i64(0, 1, 2, 0, 2, 1)], {"mode": "wrap"}, 19),
    Case("OneHot", [ints(2, 5, low=-4, high=4)], [i64(4)[0], f32([0, 1])]),
    Case("OneHot", [ints(2, 5, low=0, high=6)], [i64(4)[0], f32([-1, 2])], {"axis": 1}),
    Case("Trilu", [X]), Case("Trilu", [X], [i64(1)[0]], {"upper": 0}),
    Case("Trilu", [X], [i64(-1)[0]]),
]

_AXES = [([i64(1)], {}, 18), ([i64(1, -1)], {"keepdims": 0}, 18)]
REDUCTION = [
    *(Case(op, [floats(2, 3, 4, low=0.1)], known, attrs, opset) for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp",
        "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum") for known, attrs, opset in _AXES),
    Case("ReduceMean", [X], [], {"axes": [2], "keepdims": 0}, 13),
    *(Case(op, [floats(2, 3, 4, low=0.1)], [i64()], {"noop_with_empty_axes": 1}) for op in (
        "ReduceSum", "ReduceSumSquare", "ReduceLogSum")),
    Case("ReduceSum", [ints(2, 3, 4)], [i64(1)]),
    *(Case(op, [X], [], attrs) for op in ("ArgMax", "ArgMin")
      for attrs in ({"axis": 1}, {"axis": -1, "keepdims": 0})),
    *(Case("CumSum", [X], [i64(1)[0]], {"exclusive": e, "reverse": r}) for e in (0, 1) for r in (0, 1)),
    Case("CumSum", [ints(2, 5)], [i64(-1)[0]], {"exclusive": 1}),
    Case("TopK", [X], [i64(2)], {}, 18, 2), Case("TopK", [X], [i64(3)], {"axis": 1}, 18, 2),
]


def recurrent(op: str, gates: int, directions: int = 1, first: bool = False,
              **attrs: Any) -> Case:
    """A sequence of 6 steps in a batch of 4. Time comes first, so it stands where a file has its
    batch."""
    w, r, b = floats(directions, gates * 3, 5), floats(directions, gates * 3, 3), floats(
        directions, 2 * gates * 3)
    known: list[Any] = [w, r, b]
    if first:
        known += [None, *(floats(directions, 4, 3) for _ in range(2 if op == "LSTM" else 1))]
    way = {} if directions == 1 else {"direction": "bidirectional"}
    return Case(op, [floats(6, 4, 5)], known, {"hidden_size": 3, **way, **attrs})


RECURRENT = [
    *(recurrent(op, gates, directions, first) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
      for directions in (1, 2) for first in (False, True)),
    recurrent("GRU", 3, linear_before_reset=1), recurrent("LSTM", 4, direction="reverse"),
    recurrent("RNN", 1, activations=["Relu"]),
    recurrent("LSTM", 4, activations=["HardSigmoid", "Softsign", "Tanh"],
              activation_alpha=[0.25], activation_beta=[0.4]),
    recurrent("LSTM", 4, activations=["HardSigmoid", "ScaledTanh", "LeakyRelu"], input_forget=1,
              activation_alpha=[0.3, 1.2, 0.1], activation_beta=[0.4, 0.6]),
    recurrent("GRU", 3, activations=["Affine", "Elu"], activation_alpha=[0.3, 0.7],
              activation_beta=[0.2]),
    recurrent("RNN", 1, activations=["ThresholdedRelu"], activation_alpha=[0.1], clip=0.5),
    *(recurrent(op, gates, 2, clip=0.3) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))),
]

CASES = [*ELEMENTWISE, *LINEAR, *CONVOLUTION, *NORMALIZATION, *MOVEMENT, *REDUCTION, *RECURRENT]


def label(case: Case) -> str:
    return "-".join([case.op, *(f"{k}={v}" for k, v in case.attrs.items())]).replace(" ", "")
