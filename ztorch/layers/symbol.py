"""Symbolic tensors, with which models are declared. They have a shape and a dtype, but no numbers.

Calling a layer on them records a LayerCall. A Model follows these calls back from its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.op import ALIASES, REGISTRY, leaf
from ztorch.graph.value import StandIn, Value, layer_scope
from ztorch.initializers import Shape
from ztorch.layers.context import Producers
from ztorch.layers.tree import LayerNode


class NoNumbers(ConfigError, AttributeError):
    """A symbolic tensor is used where numbers are needed."""


class SymbolicTensor(StandIn):
    """A tensor of a model that is being declared. As in Keras, its shape includes the batch.

    Operators and ops of `zt.ops` on it are layers too: Add, Subtract, Multiply and Rescaling, and
    `Operation` for all others. Axis 0 is the batch.

    >>> from ztorch.layers import Dense, Input
    >>> x = Input((4,))
    >>> y = Dense(3)(x)
    >>> y.shape, (y + Dense(3)(x)).shape, (x[:, :2] / 2.0).shape
    ((None, 3), (None, 3), (None, 2))
    """

    def __init__(self, value: Value, layer: LayerNode, call: LayerCall | None,
                 producers: Producers, mask: Value | None = None, batch: int | None = None):
        self.value = value  # the graph tensor of one example
        self.layer = layer  # the layer that computes it
        self.call = call  # the call that computes it; None for an Input
        self.producers = producers
        self.mask = mask  # which steps count; None: all
        self.batch = batch  # the batch size, if Inputs declare it

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return (self.batch, *self.row_shape)

    @property
    def row_shape(self) -> Shape:
        """The shape of a row, without the batch."""
        return self.value.shape[1:]

    @property
    def ndim(self) -> int:
        """The number of axes, including the batch, as in Keras."""
        return self.value.rank

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def __repr__(self) -> str:
        return f"<tensor of layer {self.layer.name!r}, {self.dtype} of shape {self.shape}>"

    # -- operators ---------------------------------------------------------------------------------

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        symbol = next(s for s in symbols((args, attrs)))
        return symbol.layer_class("Operation").of(name, args, attrs)

    @staticmethod
    def ops() -> tuple[Any, ...]:
        return REGISTRY, ALIASES

    def layer_class(self, name: str) -> Any:
        """The layer class with this name."""
        return type(self.layer).known[name]

    def _merged(self, layer: str, op: str, other: Any, reflected: bool = False) -> Any:
        """By a merge layer with another tensor, otherwise by an op."""
        if as_symbol(other) is not None:
            return self.layer_class(layer)()([other, self] if reflected else [self, other])
        return self.apply_op(op, *((other, self) if reflected else (self, other)))

    def _scaled(self, scale: float, offset: float) -> Any:
        return self.layer_class("Rescaling")(scale=scale, offset=offset)(self)

    def __add__(self, other: Any) -> Any:
        return self._scaled(1.0, other) if _number(other) else self._merged("Add", "add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._scaled(1.0, -other) if _number(other) else self._merged(
            "Subtract", "sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._scaled(-1.0, other) if _number(other) else self._merged(
            "Subtract", "sub", other, reflected=True)

    def __mul__(self, other: Any) -> Any:
        return self._scaled(other, 0.0) if _number(other) else self._merged(
            "Multiply", "mul", other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._scaled(-1.0, 0.0)

    # -- unsupported operations --------------------------------------------------------------------

    def _refuse(self, *_: Any, fix: str = "zt.ops") -> NoReturn:
        raise NoNumbers(f"{self!r} has no numbers while the model is declared; compute with {fix}")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse(fix="zt.ops rather than NumPy, such as zt.ops.mean(x, axis=1)")

    def __float__(self) -> NoReturn:
        self._refuse(fix="zt.ops rather than float(), int() and math, such as zt.ops.exp(x)")

    __int__ = __float__

    def __bool__(self) -> NoReturn:
        self._refuse(fix="zt.ops.where(x > 0.0, x, 0.0) in place of if")

    def __iter__(self) -> NoReturn:
        self._refuse(fix="slices, such as x[:, 0]: the first axis is the batch")

    @property
    def T(self) -> NoReturn:
        """Not available: the batch stays the first axis."""
        raise ConfigError(f"{self!r} keeps the batch as its first axis; use "
                          "zt.ops.transpose(x, (0, 2, 1))")

    mT = T

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # Python and NumPy probe for optional protocols
                raise
        self._refuse(fix=f"zt.ops: it has no op {name!r}")


def _number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


@dataclass(eq=False)
class LayerCall:
    """One call of a layer on symbolic tensors."""

    layer: LayerNode
    args: tuple[Any, ...]  # symbolic tensors, or lists and dicts of them
    keywords: dict[str, Any]  # keyword arguments, which may hold symbolic tensors
    result: Any = None  # a symbolic tensor, or a list or dict of them

    @property
    def inputs(self) -> list[SymbolicTensor]:
        return symbols((self.args, self.keywords))


# -- nested arguments ------------------------------------------------------------------------------


def as_symbol(x: Any) -> SymbolicTensor | None:
    """A symbol, also of an Input; None for anything else."""
    return x if isinstance(x, SymbolicTensor) else x.symbol if hasattr(type(x), "symbol") else None


def nested(change: Callable[[Any], Any], x: Any) -> Any:
    """Applies a function to every leaf of nested lists, tuples and dicts."""
    if isinstance(x, (list, tuple)):
        return type(x)([nested(change, item) for item in x])
    if isinstance(x, dict):
        return {key: nested(change, item) for key, item in x.items()}
    return change(x)


def leaves(x: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dicts, in order.

    >>> leaves([1, (2, {"a": 3})])
    [1, 2, 3]
    """
    if isinstance(x, (list, tuple, dict)):
        items = x.values() if isinstance(x, dict) else x
        return [leaf for item in items for leaf in leaves(item)]
    return [x]


def symbols(x: Any) -> list[SymbolicTensor]:
    """The symbolic tensors among the leaves, including Inputs."""
    return [s for s in map(as_symbol, leaves(x)) if s is not None]


def upstream(tensors: list[SymbolicTensor]) -> tuple[list[SymbolicTensor], list[LayerCall]]:
    """The Inputs that tensors depend on, and the calls in between, in order."""
    sources: dict[SymbolicTensor, None] = {}
    calls: dict[LayerCall, None] = {}
    todo = [*tensors]
    while todo:
        s = todo[-1]
        missing = [x for x in s.call.inputs if x.call not in calls and x not in sources
                   ] if s.call is not None else []
        todo += missing
        if not missing:
            todo.pop()
            if s.call is None:
                sources[s] = None
            else:
                calls[s.call] = None
    return list(sources), list(calls)


def source(layer: LayerNode, shape: Shape, d: DType | str,
           batch: int | None = None) -> SymbolicTensor:
    """The symbolic tensor of an Input."""
    with layer_scope(layer.name):
        value = leaf("input", layer.name, (1, *shape), d)
    return SymbolicTensor(value, layer, None, {}, batch=batch)
