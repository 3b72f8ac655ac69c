"""The ops of Keras in models, and those of ours that mean the same, in both directions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ztorch import ops
from ztorch.errors import Unsupported
from ztorch.layers.naming import snake_case
from ztorch.layers.operation import Operation

MODULES = "keras.src.ops."  # where Keras defines its ops


@dataclass(frozen=True)
class KerasOp:
    """A class of Keras, and the op of ours that means the same."""

    name: str  # of the class
    module: str  # below keras.src.ops
    op: str  # ours
    arguments: dict[str, str] = field(default_factory=dict)  # theirs to ours, where names differ
    takes_list: bool = False  # whether its only tensor argument is a list


# Classes whose name in snake case is that of our op, with the same names of arguments.
_SAME = {
    "numpy": """Absolute Add All Any Arccos Arccosh Arcsin Arcsinh Arctan Arctan2 Arctanh Argmax
        Argmin Ceil Cos Cosh Cumprod Cumsum Diff Divide Equal Exp Exp2 ExpandDims Expm1 Flip Floor
        FloorDivide Greater GreaterEqual Isfinite Isinf Isnan Less LessEqual Log Log10 Log1p Log2
        Logaddexp LogicalAnd LogicalNot LogicalOr LogicalXor Matmul Max Maximum Mean Min Minimum Mod
        Moveaxis Multiply Negative NotEqual OnesLike Power Prod Reciprocal Repeat Roll Round Sign
        Sin Sinh Sort Split Sqrt Square Squeeze Std Subtract Sum Swapaxes Take Tan Tanh Transpose
        Tril Triu TrueDivide Trunc Var Where ZerosLike""",
    "nn": """Celu Elu Gelu Glu HardShrink HardSigmoid HardSilu HardTanh LeakyRelu LogSigmoid
        LogSoftmax Relu Relu6 Selu Sigmoid Silu SoftShrink Softmax Softplus Softsign SparsePlus
        SparseSigmoid Squareplus TanhShrink""",
    "core": "Cast StopGradient Unstack",
    "math": "Erf Logsumexp Rsqrt",
}
_OTHER = (
    KerasOp("Clip", "numpy", "clip", {"x_min": "min", "x_max": "max"}),
    KerasOp("Concatenate", "numpy", "concatenate", takes_list=True),
    KerasOp("Einsum", "numpy", "einsum"),
    KerasOp("GetItem", "numpy", "slice_by"),
    KerasOp("Reshape", "numpy", "reshape", {"newshape": "shape"}),
    KerasOp("Stack", "numpy", "stack", takes_list=True),
    KerasOp("Tile", "numpy", "tile", {"repeats": "repetitions"}),
)
OPS_OF_KERAS = {row.name: row for row in (
    *(KerasOp(name, module, snake_case(name)) for module, names in _SAME.items()
      for name in names.split()), *_OTHER)}
_NEUTRAL = {"decimals": 0}  # arguments of Keras that change nothing where they have this value
# A layer of InceptionResNetV2: inputs[0] + inputs[1] * scale.
SCALED_SUM = ("keras.src.applications.inception_resnet_v2", "CustomScaleLayer")


def op_of(spec: dict[str, Any]) -> Callable[..., Any]:
    """The function of symbolic tensors that an op or a scaled sum in a file of Keras means.

    Raises:
        Unsupported: There is no such op here, or it has an argument that ours lacks.
    """
    name, config = spec["class_name"], dict(spec["config"])
    label = config.pop("name", None)
    if (spec.get("module"), name) == SCALED_SUM:
        scale = config["scale"]
        return lambda tensors: Operation.of("fma", (tensors[1], scale, tensors[0]), {}, label)
    known = OPS_OF_KERAS.get(name)
    if known is None or spec.get("module") != f"{MODULES}{known.module}":
        raise Unsupported(f"{spec.get('module')}.{name}")
    accepted = inspect.signature(getattr(ops, known.op)).parameters
    keywords: dict[str, Any] = {}
    for key, value in config.items():
        ours = known.arguments.get(key, key)
        if ours in accepted:
            keywords[ours] = tuple(value) if isinstance(value, list) else value
        elif value is not None and _NEUTRAL.get(key) != value:
            raise Unsupported(f"{name} {label!r} with {key}={value!r}")

    def called(*args: Any, **more: Any) -> Any:
        if known.takes_list:
            args = tuple(args[0])
        if "subscripts" in keywords:  # the only argument that stands before the tensors
            args = (keywords["subscripts"], *args)
        attrs = {k: v for k, v in keywords.items() if k != "subscripts"}
        return Operation.of(known.op, args, attrs | more, label)

    return called
