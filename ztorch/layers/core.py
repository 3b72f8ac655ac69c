"""Input, Dense and Rescaling."""

from __future__ import annotations

from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from ztorch.config import number, positive
from ztorch.dtypes import DType, dtype
from ztorch.errors import ConfigError, UnknownName
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.operators import BINARY, COMPARISONS, UNARY, ComparedByElement
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.activation import ActivationLike, activate, checked_activation
from ztorch.layers.axes import OpenSize, declared_shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import SymbolicTensor, source
from ztorch.tabular.host_layer import HostLayer


class Input(Layer, names=("InputLayer",)):
    """The shape and dtype of one example, without the batch axis.

    It is the first layer of a `Sequential`, or the symbolic tensor on which the layers of a `Model`
    are called.

    Args:
        shape: Shape of one example, a tuple of positive integers. The first may be a name, such as
            `"time"`, or `None`: its sizes are chosen by `compile(sizes={"time": (64, 128)})`.
            Default: `None`.
        dtype: Dtype of the input, such as `"int32"`. `None` means the dtype of the model. With
            `"string"`, rows are texts, and one layer on the host encodes them first:
            TextVectorization, StringLookup or Hashing. Default: `None`.
        batch_size: The batch size, which `compile` uses unless it gets another one. Default:
            `None`.
        batch_shape: Shape including the batch, instead of `shape` and `batch_size`: `(32, 4)`, or
            `(None, 4)` for any batch. Default: `None`.
        encoder: The layer that encodes texts, as if it were called on the Input. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Examples:
        >>> Input((28, 28, 1)).shape
        (None, 28, 28, 1)
        >>> Dense(10)(Input((4,))).shape
        (None, 10)
        >>> from ztorch import Sequential
        >>> Sequential([Input(("time", 4)), Dense(10)]).output_shape
        (None, time, 10)
        >>> Input(batch_shape=(32, 4)).batch_size
        32
        >>> from ztorch.layers import Input, StringLookup
        >>> StringLookup(vocabulary=["cat", "dog"])(Input((1,), dtype="string"))
        <tensor of layer 'input', int32 of shape (None, 1)>
    """

    __array_priority__ = 1000  # lets our operators handle mixed operands, not NumPy's

    def __init__(self, shape: Any = None, dtype: DType | str | None = None, *,
                 batch_size: int | None = None, batch_shape: Any = None,
                 encoder: Any = None, **common: Any):
        shape = common.pop("input_shape", None) if shape is None else shape
        super().__init__(**common)
        if (shape is None) == (batch_shape is None):
            raise ConfigError("Input takes shape=..., the shape of a row, such as (28, 28, 1), or "
                              "batch_shape=..., with the batch first; it got "
                              f"{'neither' if shape is None else 'both'}")
        if batch_shape is not None:
            if not isinstance(batch_shape, (list, tuple)) or not batch_shape:
                raise ConfigError(f"Input(batch_shape={batch_shape!r}) must be a shape with the "
                                  "batch first, such as (32, 4), or (None, 4) for any batch")
            if batch_size is not None:
                raise ConfigError("Input(batch_shape=...) already has the batch size; omit "
                                  "batch_size")
            batch_size, *shape = batch_shape
        self.row_shape = declared_shape("Input(shape=...)", shape)
        self.batch_size = None if batch_size is None else positive(
            "Input(batch_size=...)", batch_size)
        self.holds_text = isinstance(dtype, str) and dtype == "string"
        self.text_shape = self.row_shape  # shape of a row before the encoder
        self.dtype = None if dtype is None or self.holds_text else dtype_name(dtype)
        self.input_shape = self.row_shape
        self.encoder: HostLayer | None = None
        if encoder is not None:
            try:
                self.read_by(HostLayer.get(encoder))
            except (ConfigError, UnknownName) as error:
                raise type(error)(f"Input(encoder=...): {error}") from None

    @property
    def shape(self) -> Any:
        """The shape including the batch, as in Keras."""
        return (self.batch_size, *self.row_shape)

    def read_by(self, layer: HostLayer) -> SymbolicTensor:
        """Runs a host layer on the texts, and returns the tensor of its results, the only one that
        the model sees."""
        kind = type(layer).__name__
        if not self.holds_text or not layer.reads_text:
            raise ConfigError(f"{kind} cannot encode Input {self.name!r} of dtype "
                              f"{'string' if self.holds_text else self.dtype or 'float32'}; text "
                              "is encoded by TextVectorization, StringLookup and Hashing")
        if self.encoder is None:
            shape, self.dtype = layer.row_of(self.text_shape)
            self.row_shape = self.input_shape = declared_shape(f"a row of {kind}", shape)
            self.encoder = layer
        if self.encoder is not layer:
            raise ConfigError(f"{type(self.encoder).__name__} already encodes Input {self.name!r}; "
                              f"create another Input for {kind}")
        return self.symbol

    def takes(self, shape: Shape) -> bool:
        """Whether examples may have this shape."""
        return len(shape) == len(self.row_shape) and all(
            n == m or isinstance(m, OpenSize) for n, m in zip(shape, self.row_shape, strict=True))

    def get_config(self) -> dict[str, Any]:
        shape = [n.name if isinstance(n, OpenSize) else n for n in self.text_shape]
        config = {**super().get_config(), "shape": shape}
        if self.holds_text:
            config["dtype"] = "string"
        return {key: x for key, x in config.items() if key != "batch_shape" and (key, x) not in (
            ("batch_size", None), ("encoder", None))}

    def _input_of_first_call(self) -> SymbolicTensor:
        return self.symbol

    _output_of_first_call = _input_of_first_call

    @cached_property
    def symbol(self) -> SymbolicTensor:
        """The symbolic tensor of the input, while a Model is declared."""
        if self.holds_text and self.encoder is None:
            raise ConfigError(f"Input {self.name!r} holds text; call TextVectorization, "
                              "StringLookup or Hashing on it, and other layers on the result")
        return source(self, self.row_shape, self.dtype or "float32", self.batch_size)

    def call(self, x: Value, context: Context) -> Value:
        return x

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.symbol.__array__()

    def __float__(self) -> float:
        return float(self.symbol)

    __int__ = __float__

    def __getitem__(self, key: Any) -> Any:
        return self.symbol[key]

    @staticmethod
    def apply_op(name: str, x: Input, other: Any) -> Any:
        """A comparison of the symbolic tensor."""
        return x.symbol.apply_op(name, x.symbol, other)

    __eq__, __ne__ = ComparedByElement.__eq__, ComparedByElement.__ne__
    __hash__ = Layer.__hash__


def _of_symbol(operator: str) -> Any:
    """An operator of an Input, applied to its symbolic tensor."""
    return lambda self, *others: getattr(self.symbol, operator)(*others)


for _operator in (*UNARY, *COMPARISONS, *BINARY, *(f"r{name}" for name in BINARY)):
    setattr(Input, f"__{_operator}__", _of_symbol(f"__{_operator}__"))


def dtype_name(d: DType | str) -> str:
    """The name of a dtype as users write it."""
    return dtype(d).long


class Dense(Layer):
    """A fully connected layer: `activation(x @ kernel + bias)` over the last axis.

    Args:
        units: Size of the last axis of the output. A positive integer.
        activation: Activation of the output: a name such as `"relu"`, a function of a tensor, or
            `None` for no activation. Default: `None`.
        use_bias: Whether to add a bias. Default: `True`.
        kernel_initializer: Initializer of the kernel: a name or an `Initializer`. Default:
            `"glorot_uniform"`.
        bias_initializer: Initializer of the bias: a name or an `Initializer`. Default: `"zeros"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, ..., features)`, of any rank from 2.

    Output shape:
        `(batch, ..., units)`.

    Examples:
        >>> from ztorch import Sequential
        >>> model = Sequential([Input((3,)), Dense(2)])
        >>> [w.shape for w in model.weights]
        [(3, 2), (2,)]
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, units: int, activation: ActivationLike = None, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
                 **common: Any):
        super().__init__(**common)
        self.units = positive("Dense(units=...)", units)
        self.activation = checked_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, input_shape: Shape) -> None:
        if not input_shape:
            raise shape_error("Dense needs at least one axis besides the batch, not", input_shape,
                              fix="give examples a shape, such as Input((1,))")
        self.kernel = self.add_weight("kernel", (input_shape[-1], self.units),
                                      self.kernel_initializer)
        if self.use_bias:
            self.bias = self.add_weight("bias", (self.units,), self.bias_initializer)

    def call(self, x: Value, context: Context) -> Value:
        if x.shape[-1:] != self.kernel.shape[:1]:
            raise shape_error("inputs do not fit the kernel:", x.shape[1:], self.kernel.shape,
                              fix=f"the layer was built for a last axis of {self.kernel.shape[0]}; "
                                  "create a new Dense for another size")
        y = OPS.matmul(x, context.read(self.kernel))
        if self.use_bias:
            y = y + context.read(self.bias)
        return activate(self.activation, y, context)


class Rescaling(Layer):
    """Computes `x * scale + offset` in the dtype of the model.

    It also accepts integers, such as the bytes of images.

    Args:
        scale: Factor of every element: a number, or a list or array that broadcasts with inputs,
            such as a factor for each channel.
        offset: Added after scaling, in the same form. Default: `0.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> Sequential([Input((8, 8, 3), dtype="uint8"), Rescaling(1 / 255)]).output_shape
        (None, 8, 8, 3)
    """

    supports_masking = True

    def __init__(self, scale: Any, offset: Any = 0.0, **common: Any):
        super().__init__(**common)
        self.scale = finite_numbers("Rescaling(scale=...)", scale)
        self.offset = finite_numbers("Rescaling(offset=...)", offset)

    def call(self, x: Value, context: Context) -> Value:
        for name, numbers in (("scale", self.scale), ("offset", self.offset)):
            if not _broadcasts(np.shape(numbers), (1, *x.shape[1:])):
                raise shape_error(f"its {name} does not broadcast with inputs:", np.shape(numbers),
                                  x.shape[1:], fix="pass a number for each channel, or one for all")
        y = OPS.cast(x, context.dtype) * self.scale
        return y + self.offset if self.offset else y


def finite_numbers(label: str, numbers: Any) -> Any:
    """A number, or an array as nested lists, in a form for configs; or a ConfigError that begins
    with the label.

    >>> finite_numbers("Rescaling(scale=...)", np.array([1.0, 2.0]))
    [1.0, 2.0]
    """
    if isinstance(numbers, Real):
        return number(label, numbers)
    try:
        array = np.asarray(numbers)
    except ValueError:  # of lists of different lengths
        array = np.array(None)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ConfigError(f"{label} must be a finite number, or a list or array of them, not "
                          f"{numbers!r}")
    return array.astype(np.float64).tolist()


def _broadcasts(shape: Shape, target: Shape) -> bool:
    """Whether an array of a shape broadcasts to a target shape."""
    return len(shape) <= len(target) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False))
