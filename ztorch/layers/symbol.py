"""Symbolic tensors, with which models are declared: they have a shape and a dtype, but no numbers.

Calling a layer on symbolic tensors returns new ones and records a LayerCall. A Model follows these
calls back from its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.value import Value, layer_scope
from ztorch.initializers import Shape
from ztorch.layers.context import Context, Producers, States
from ztorch.layers.tree import LayerNode


class NoNumbers(ConfigError, AttributeError):
    """A symbolic tensor is used where numbers are needed."""


class SymbolicTensor:
    """A tensor of a model that is being declared. Its shape leaves out the batch.

    `+`, `-` and `*` with another one, or with a number, are layers too: Add, Subtract, Multiply
    and Rescaling.

    >>> from ztorch.layers import Dense, Input
    >>> x = Input((4,))
    >>> y = Dense(3)(x)
    >>> y.shape, (y + Dense(3)(x)).shape
    ((3,), (3,))
    """

    def __init__(self, value: Value, layer: LayerNode, call: LayerCall | None,
                 producers: Producers, mask: Value | None = None):
        self.value = value  # the tensor of a graph for one example
        self.layer = layer  # the layer that makes it
        self.call = call  # the call that makes it; None for an Input
        self.producers = producers
        self.mask = mask  # which of its steps count; None: all

    @property
    def shape(self) -> Shape:
        return self.value.shape[1:]

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def __repr__(self) -> str:
        return f"<tensor of layer {self.layer.name!r}, {self.dtype} of shape {self.shape}>"

    # -- operators ---------------------------------------------------------------------------------

    def _with(self, layer: str, other: Any) -> Any:
        return self._layer(layer)([self, other]) if as_symbol(other) is not None else NotImplemented

    def _scaled(self, scale: float, offset: float) -> Any:
        return self._layer("Rescaling", scale=scale, offset=offset)(self)

    def _layer(self, name: str, **keywords: Any) -> Any:
        return type(self.layer).known[name](**keywords)

    def __add__(self, other: Any) -> Any:
        return self._scaled(1.0, other) if _number(other) else self._with("Add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._scaled(1.0, -other) if _number(other) else self._with("Subtract", other)

    def __rsub__(self, other: Any) -> Any:
        return self._scaled(-1.0, other) if _number(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self._scaled(other, 0.0) if _number(other) else self._with("Multiply", other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._scaled(-1.0, 0.0)

    # -- what it cannot do -------------------------------------------------------------------------

    def _refuse(self, *_: Any, example: str = "ops.mean(x, axis=1)") -> NoReturn:
        raise NoNumbers(f"{self!r} has no numbers while the model is declared; compute with it in "
                        f"a layer, such as Lambda(lambda x: {example})(tensor)")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse()

    def __bool__(self) -> NoReturn:
        self._refuse(example="ops.where(x > 0.0, x, 0.0)")

    def __iter__(self) -> NoReturn:
        self._refuse(example="x[:, 0]")

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse(example="x[:, 0]")

    def _divide(self, other: Any) -> NoReturn:
        self._refuse(example="x / 2.0")

    __truediv__ = __rtruediv__ = _divide
    __pow__ = __matmul__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and NumPy probe for optional protocols
            raise AttributeError(name)
        self._refuse()


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
    """A symbol, or that of an Input; None for anything else."""
    return x if isinstance(x, SymbolicTensor) else x.symbol if hasattr(type(x), "symbol") else None


def nested(change: Callable[[Any], Any], x: Any) -> Any:
    """x with a function applied to every leaf of its lists, tuples and dicts."""
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
    """The symbolic tensors among the leaves, those of Inputs included."""
    return [s for s in map(as_symbol, leaves(x)) if s is not None]


# -- declaring -------------------------------------------------------------------------------------


def declare(layer: LayerNode, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Calls a layer on symbolic tensors.

    The call is traced at once, for one example, so that a mistake shows in the line that makes it.
    """
    call = LayerCall(layer, *(
        nested(lambda x: x if as_symbol(x) is None else as_symbol(x), arguments)
        for arguments in (args, keywords)))
    producers = _together(call.inputs)
    context = Context(states=States(data=False), producers=producers,
                      masks={s.value: s.mask for s in call.inputs if s.mask is not None})
    values = [nested(lambda x: x.value if isinstance(x, SymbolicTensor) else x, arguments)
              for arguments in (call.args, call.keywords)]
    y = layer(*values[0], context=context, **values[1])
    call.result = nested(lambda value: SymbolicTensor(
        value, layer, call, producers, context.mask_of(value)), y)
    return call.result


def _together(inputs: Iterable[SymbolicTensor]) -> Producers:
    """The producers of all these tensors, in one dict."""
    producers, *others = {id(s.producers): s.producers for s in inputs}.values()
    for other in others:
        producers.update(other)
    return producers


def source(layer: LayerNode, shape: Shape, d: DType | str) -> SymbolicTensor:
    """The symbolic tensor of an Input."""
    from ztorch.graph.op import leaf

    with layer_scope(layer.name):
        return SymbolicTensor(leaf("input", layer.name, (1, *shape), d), layer, None, {})
