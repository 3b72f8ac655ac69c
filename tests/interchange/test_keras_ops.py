"""Ops of Keras on tensors of a functional model, read from its file: each beside Keras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import references
from ztorch.errors import Unsupported
from ztorch.interchange.keras import load_keras
from ztorch.weights.keras_ops import OPS_OF_KERAS

pytest.importorskip("h5py")

A = np.linspace(0.1, 0.9, 24, dtype="f").reshape(2, 3, 4)
B = np.cos(9 * A)

# Classes with arguments beside the tensor a, or with more tensors; others are called on a alone.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: lambda o, a, b, name=name: getattr(o, name.lower())(a + 1.0, b)
       for name in ("Add", "Arctan2", "Divide", "Equal", "Fmax", "Fmin", "Fmod", "Greater", "Heaviside", "Hypot",
                    "Isclose", "Less", "Logaddexp", "Logaddexp2", "Maximum", "Minimum", "Mod", "Multiply",
                    "Nextafter", "Power", "Subtract")},
    **{name: lambda o, a, b, name=name: getattr(o, snake(name))(whole(o, a), whole(o, b))
       for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Gcd", "Lcm", "LeftShift", "RightShift")},
    **{name: lambda o, a, b, name=name: getattr(o, name.lower())(b, axis=2)
       for name in ("Argmax", "Argmin", "Argsort", "Average", "Cumprod", "Cumsum", "Diff", "Flip", "Normalize",
                    "Sort", "Trapezoid")},
    **{name: lambda o, a, b, name=name: getattr(o, name.lower())(b, axis=(1, 2), keepdims=True)
       for name in ("Amax", "Amin", "Max", "Mean", "Median", "Min", "Nanmax", "Nanmean", "Nanmedian", "Nanmin",
                    "Nanprod", "Nanstd", "Nansum", "Nanvar", "Norm", "Prod", "Ptp", "Std", "Sum", "Var",
                    "Logsumexp")},
    **{name: lambda o, a, b, name=name, q=q: getattr(o, snake(name))(b, q, axis=1, keepdims=True)
       for name, q in (("Percentile", 30), ("Quantile", 0.3))},
    "All": lambda o, a, b: o.all(a > 0.5, axis=1), "Any": lambda o, a, b: o.any(a > 0.5, axis=1),
    "Arccosh": lambda o, a, b: o.arccosh(a + 1.0),
    "BinaryCrossentropy": lambda o, a, b: o.binary_crossentropy(o.cast(a > 0.5, "float32"), a),
    "BitwiseNot": lambda o, a, b: o.bitwise_not(whole(o, b)),
    "Cast": lambda o, a, b: o.cast(b > 0.0, "float32"),
    "CategoricalCrossentropy": lambda o, a, b: o.categorical_crossentropy(a, a),
    "Clip": lambda o, a, b: o.clip(b, -0.5, 0.25),
    "Concatenate": lambda o, a, b: o.concatenate([a, b, a], axis=-1),
    "Det": lambda o, a, b: o.det(square(b)),
    "Diagonal": lambda o, a, b: o.diagonal(b, 1, 1, 2),
    "Digitize": lambda o, a, b: o.digitize(b, np.array([0.0, 0.5], "f")),
    "DivideNoNan": lambda o, a, b: o.divide_no_nan(b, o.relu(a - 0.5)),
    "Dstack": lambda o, a, b: o.dstack([a, b]),
    "Einsum": lambda o, a, b: o.einsum("bij,bkj->bik", a, b),
    "ExpandDims": lambda o, a, b: o.expand_dims(b, 2),
    "FloorDivide": lambda o, a, b: o.floor_divide(b, a),
    "FullLike": lambda o, a, b: o.full_like(b, 2.5),
    "GetItem": lambda o, a, b: b[:, 1:, ..., ::2],
    "Glu": lambda o, a, b: o.glu(b, axis=-1),
    "GreaterEqual": lambda o, a, b: a >= b,
    "Hstack": lambda o, a, b: o.hstack([a, b]),
    "Inv": lambda o, a, b: o.inv(square(b)),
    "Ldexp": lambda o, a, b: o.ldexp(b, whole(o, a)),
    "LessEqual": lambda o, a, b: a <= b,
    "LeakyRelu": lambda o, a, b: o.leaky_relu(b, 0.3),
    "LogicalAnd": lambda o, a, b: o.logical_and(a > 0.5, b > 0.0),
    "LogicalNot": lambda o, a, b: o.logical_not(b > 0.0),
    "LogicalOr": lambda o, a, b: o.logical_or(a > 0.5, b > 0.0),
    "LogicalXor": lambda o, a, b: o.logical_xor(a > 0.5, b > 0.0),
    "Matmul": lambda o, a, b: o.matmul(a, o.transpose(b, (0, 2, 1))),
    "Moments": lambda o, a, b: o.moments(b, axes=[1])[1],
    "Moveaxis": lambda o, a, b: o.moveaxis(b, 1, 2),
    "NotEqual": lambda o, a, b: o.not_equal(a, b),
    "OneHot": lambda o, a, b: o.one_hot(whole(o, a) % 3, 3),
    "Repeat": lambda o, a, b: o.repeat(b, 2, axis=1),
    "Reshape": lambda o, a, b: o.reshape(b, (-1, 2, 6)),
    "Roll": lambda o, a, b: o.roll(b, 1, axis=2),
    "Rot90": lambda o, a, b: o.rot90(b, 1, (1, 2)),
    "SaturateCast": lambda o, a, b: o.saturate_cast(300.0 * b, "uint8"),
    "Softmax": lambda o, a, b: o.softmax(b, axis=1),
    "Solve": lambda o, a, b: o.solve(square(b), a),
    "Split": lambda o, a, b: o.split(b, 2, axis=2)[1],
    "Squeeze": lambda o, a, b: o.squeeze(b[:, :1], 1),
    "Stack": lambda o, a, b: o.stack([a, b], axis=1),
    "Swapaxes": lambda o, a, b: o.swapaxes(b, 1, 2),
    "Take": lambda o, a, b: o.take(b, np.array([2, 0]), axis=1),
    "TakeAlongAxis": lambda o, a, b: o.take_along_axis(b, o.cast(a > 0.5, "int32"), axis=1),
    "Tensordot": lambda o, a, b: o.tensordot(b, np.ones((4, 2), "f"), axes=1),
    "Threshold": lambda o, a, b: o.threshold(b, 0.1, -2.0),
    "Tile": lambda o, a, b: o.tile(b, (1, 2, 1)),
    "TopK": lambda o, a, b: o.top_k(b, 2)[1],
    "Trace": lambda o, a, b: o.trace(b, 0, 1, 2),
    "Transpose": lambda o, a, b: o.transpose(b, (0, 2, 1)),
    "TrueDivide": lambda o, a, b: 1.0 / (b + 2.0),
    "Unstack": lambda o, a, b: o.unstack(b, axis=1)[2],
    "Where": lambda o, a, b: o.where(b > 0.0, a, 0.0),
}


def whole(o: Any, x: Any) -> Any:
    return o.cast(x * 9.0, "int32")


def square(x: Any) -> Any:
    """Matrices that have an inverse."""
    return x[:, :, :3] + 3.0 * np.eye(3, dtype="f")


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]


def test_every_op_of_the_table(tmp_path: Path) -> None:
    keras = references.keras()
    a, b = keras.Input((3, 4), name="a"), keras.Input((3, 4), name="b")
    results = {}
    for name in OPS_OF_KERAS:
        alone = name not in CALLS
        y = getattr(keras.ops, snake(name))(a) if alone else CALLS[name](keras.ops, a, b)
        results[name] = keras.ops.cast(y, "float32") if y.dtype != "float32" else y
    theirs = keras.Model([a, b], results)
    theirs.save(tmp_path / "m.keras")
    ours = load_keras(tmp_path / "m.keras")
    got = references.Run(ours.trace(2).functions["predict"])(**{"x/a": A, "x/b": B})
    assert len(got) == len(OPS_OF_KERAS)
    for name, want in theirs([A, B]).items():
        np.testing.assert_allclose(got[f"y/{name}"], want.detach().numpy(), rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("call", "said"), [
    (lambda o, x: o.logdet(o.diag(x)), "keras.src.ops.math.Logdet")])
def test_what_is_lacking_is_named(call: Any, said: str, tmp_path: Path) -> None:
    keras = references.keras()
    x = keras.Input((3,))
    keras.Model(x, call(keras.ops, x)).save(tmp_path / "m.keras")
    with pytest.raises(Unsupported, match=said):
        load_keras(tmp_path / "m.keras")
