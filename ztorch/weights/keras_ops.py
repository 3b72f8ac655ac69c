"""Keras' classes for ops in functional models, and our equivalent ops."""

from __future__ import annotations

from dataclasses import dataclass, field

from ztorch.layers.naming import snake_case

MODULES = "keras.src.ops."  # where Keras defines its ops


@dataclass(frozen=True)
class KerasOp:
    """A class of Keras, and our equivalent op."""

    name: str  # of the class
    module: str  # below keras.src.ops
    op: str  # ours
    arguments: tuple[str, ...] = ()  # of the class; tensors are arguments of its call
    renamed: dict[str, str] = field(default_factory=dict)  # our names of arguments, by theirs
    takes_list: bool = False  # whether its call takes a list of tensors


# Classes whose name in snake case is our op's, with the same argument names.
_SAME = {
    "numpy": """Absolute Add All:axis,keepdims Any:axis,keepdims Arccos Arccosh Arcsin Arcsinh
        Arctan Arctan2 Arctanh Argmax:axis,keepdims Argmin:axis,keepdims Ceil Cos Cosh Cumprod:axis
        Cumsum:axis Diff:n,axis Divide Equal Exp Exp2 ExpandDims:axis Expm1 Flip:axis Floor
        FloorDivide Greater GreaterEqual Isfinite Isinf Isnan Less LessEqual Log Log10 Log1p Log2
        Logaddexp LogicalAnd LogicalNot LogicalOr LogicalXor Matmul Max:axis,keepdims Maximum
        Mean:axis,keepdims Min:axis,keepdims Minimum Mod Moveaxis:source,destination Multiply
        Negative NotEqual OnesLike Power Prod:axis,keepdims Reciprocal Repeat:repeats,axis
        Roll:shift,axis Round Sign Sin Sinh Sort:axis Split:indices_or_sections,axis Sqrt Square
        Squeeze:axis Std:axis,keepdims Subtract Sum:axis,keepdims Swapaxes:axis1,axis2 Take:axis
        Tan Tanh Transpose:axes Tril:k Triu:k TrueDivide Trunc Var:axis,keepdims Where
        ZerosLike Abs Amax:axis,keepdims Amin:axis,keepdims Argsort:axis Average:axis BitwiseAnd
        BitwiseNot BitwiseOr BitwiseXor Cbrt Deg2rad Diagonal:offset,axis1,axis2 Digitize
        DivideNoNan Fabs Fmax Fmin Fmod FullLike:dtype Gcd Heaviside Hypot I0 Isclose:equal_nan
        Isneginf Isposinf Lcm Ldexp LeftShift Logaddexp2 Median:axis,keepdims
        NanToNum:nan,posinf,neginf Nanmax:axis,keepdims Nanmean:axis,keepdims
        Nanmedian:axis,keepdims Nanmin:axis,keepdims Nanprod:axis,keepdims Nanstd:axis,keepdims
        Nansum:axis,keepdims Nanvar:axis,keepdims Nextafter Percentile:axis,method,keepdims
        Ptp:axis,keepdims Quantile:axis,method,keepdims Rad2deg RightShift Rot90:k,axes Signbit
        Sinc TakeAlongAxis:axis Tensordot:axes Trace:offset,axis1,axis2 Trapezoid:x,dx,axis""",
    "nn": """Celu:alpha Elu:alpha Gelu:approximate Glu:axis HardShrink:threshold HardSigmoid
        HardSilu HardTanh LeakyRelu:negative_slope LogSigmoid LogSoftmax:axis Relu Relu6 Selu
        Sigmoid Silu SoftShrink:threshold Softmax:axis Softplus Softsign SparsePlus SparseSigmoid
        Squareplus:b TanhShrink BinaryCrossentropy:from_logits
        CategoricalCrossentropy:from_logits,axis Moments:axes,keepdims,synchronized
        Normalize:axis,order,epsilon Threshold:threshold,default_value""",
    "core": "Cast:dtype SaturateCast:dtype StopGradient Unstack:axis",
    "linalg": "Det Inv Norm:ord,axis,keepdims Solve",
    "math": "Erf Erfc Erfinv Logsumexp:axis,keepdims Rsqrt TopK:k",
}
_OTHER = (
    KerasOp("Clip", "numpy", "clip", ("x_min", "x_max"), {"x_min": "min", "x_max": "max"}),
    KerasOp("Concatenate", "numpy", "concatenate", ("axis",), takes_list=True),
    KerasOp("Dstack", "numpy", "dstack", takes_list=True),
    KerasOp("Einsum", "numpy", "einsum", ("subscripts",)),
    KerasOp("GetItem", "numpy", "slice_by"),
    KerasOp("Hstack", "numpy", "hstack", takes_list=True),
    KerasOp("OneHot", "nn", "one_hot", ("num_classes", "dtype"), {"num_classes": "classes"}),
    KerasOp("Reshape", "numpy", "reshape", ("newshape",), {"newshape": "shape"}),
    KerasOp("Stack", "numpy", "stack", ("axis",), takes_list=True),
    KerasOp("Tile", "numpy", "tile", ("repeats",), {"repeats": "repetitions"}),
)


def _row(module: str, text: str) -> KerasOp:
    name, _, arguments = text.partition(":")
    return KerasOp(name, module, snake_case(name), tuple(filter(None, arguments.split(","))))


OPS_OF_KERAS = {row.name: row for row in (
    *(_row(module, text) for module, texts in _SAME.items() for text in texts.split()), *_OTHER)}
