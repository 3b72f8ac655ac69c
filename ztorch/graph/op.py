"""What an op is, and the registry that the decorators fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.errors import ConfigError, ShapeError, ZtorchError, unknown
from ztorch.graph.value import Value, current_layer


@dataclass(frozen=True)
class Sample:
    """One way to try an op: argument shapes (or arrays), attributes, the range of its inputs."""

    shapes: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    dtypes: str = "f"  # kinds it is tried with


@dataclass(frozen=True)
class Op:
    """A tensor operation.

    kind says how lowering treats it:
      leaf      an input, a state or a constant
      map       each output element is computed by `body(e, index, **attrs)` from elements that
                `e.read(argument, index)` gives: elementwise work and all movement
      reduce    elements along `axes` combined by the opcode `combine`
      contract  a batched matrix product
      composite a function of other ops; never a node of the graph
    infer(*args, **attrs) gives (shape, dtype) or raises ShapeError; numpy(*arrays, **attrs) is the
    meaning; grad(o, g, y, *args, **attrs) gives the gradient of each argument.
    """

    name: str
    kind: str
    infer: Callable[..., tuple[tuple[int, ...], DType]]
    numpy: Callable[..., Any]
    grad: Callable[..., tuple] | None = None
    body: Callable[..., Any] | None = None
    cost: int = 0  # issue slots an element, for decisions about recomputing
    movement: bool = False  # only chooses which element to read
    written: bool = False  # a movement that is worth a place in memory, unless reading it is free
    opcode: str = ""  # the scalar opcode or the reduction's combiner
    doc: str = ""
    samples: tuple[Sample, ...] = ()

    def __call__(self, *args: Value, **attrs: Any) -> Value:
        shape, d = self.infer(*args, **attrs)
        return Value(self, args, attrs, shape, d)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


@dataclass(frozen=True)
class Public:
    """An op as users call it: a function on values, with the samples its tests use."""

    name: str
    call: Callable[..., Any]
    samples: tuple[Sample, ...]
    primitive: Op | None
    reference: Callable[..., Any] | None = None  # NumPy meaning, where the op has its own
    results: tuple[str, ...] = ()  # names of what it gives, where that is more than one value


REGISTRY: dict[str, Public] = {}


def op(*samples: Sample, name: str | None = None, primitive: Op | None = None,
       numpy: Callable[..., Any] | None = None,
       results: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Registers a tensor function under its name: the one step that adds an op.

    A composite is just a function of other ops; its gradient, fusion, targets and tests follow
    from what it is made of.
    """

    def register(function: Callable) -> Callable:
        public = name or function.__name__
        assert public not in REGISTRY, f"op {public} is registered twice"
        REGISTRY[public] = Public(public, function, samples, primitive, numpy, results)
        return function

    return register


@dataclass(frozen=True)
class OpCall:
    """An op with what it was called on."""

    name: str
    args: tuple[Any, ...]
    attrs: dict[str, Any]


_calls: ContextVar[dict[Value, list[OpCall]] | None] = ContextVar("calls", default=None)


@contextmanager
def remember_calls() -> Iterator[dict[Value, list[OpCall]]]:
    """Which calls of ops gave each value made inside, the innermost first: a softmax is known as
    one, though the graph holds only what it is made of."""
    calls: dict[Value, list[OpCall]] = {}
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


class _Namespace:
    """Every registered op as an attribute, for gradients and operators."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in REGISTRY:
            raise unknown("op", name, REGISTRY)
        calls, function = _calls.get(), REGISTRY[name].call
        if calls is None:
            return function

        def remembered(*args: Any, **attrs: Any) -> Any:
            y = function(*args, **attrs)
            if isinstance(y, Value) and not any(y is a for a in args):
                calls.setdefault(y, []).append(OpCall(name, args, attrs))
            return y

        return remembered


OPS = _Namespace()


# -- leaves ----------------------------------------------------------------------------------------

def _leaf_infer(**attrs: Any) -> tuple[tuple[int, ...], DType]:
    return attrs["shape"], attrs["dtype"]


LEAF = Op("leaf", "leaf", _leaf_infer, numpy=lambda **attrs: attrs["data"])


def leaf(role: str, name: str, shape: tuple[int, ...], d: DType | str,
         data: np.ndarray | None = None, **more: Any) -> Value:
    """An input, a state (weights, optimiser slots, counters) or a constant with its data."""
    attrs = {"role": role, "name": name, **more}
    if data is not None:
        attrs["data"] = data
    return Value(LEAF, (), attrs, tuple(shape), dtype(d))


def constant(data: Any, d: DType | str | None = None) -> Value:
    """An array that is part of the graph."""
    array = np.asarray(data)
    d = dtype(d) if d is not None else dtype(array.dtype)
    return leaf("constant", f"c{array.size}", array.shape, d, array.astype(d.working))


# -- functions of users ----------------------------------------------------------------------------


class NotTraced(ConfigError, TypeError):
    """A function of tensors that wants numbers, of which there are none while a graph is made."""


def traced(function: Callable[..., Any], culprit: str, *tensors: Any) -> Any:
    """What a user's function makes of tensors. One that fails because it computes with NumPy or
    PyTorch, or asks what a tensor holds, is named with the way out."""
    try:
        return function(*tensors)
    except ZtorchError:
        raise
    except (TypeError, AttributeError) as error:
        fix = ("; compute with zt.ops, such as ops.relu(x), not with NumPy or PyTorch"
               if "Value" in str(error) else "")
        raise NotTraced(f"{culprit}: its function failed with {type(error).__name__}: {error}{fix}"
                        ) from error


def _missing(v: Value, name: str) -> Any:
    """What NumPy's and PyTorch's tensors have as a method is a function here."""
    if name.startswith("__"):  # Python, NumPy and PyTorch ask for much that is not there
        raise AttributeError(name)
    there = f"use ops.{name}(x)" if name in REGISTRY else "compute with zt.ops"
    raise AttributeError(f"a tensor has no {name!r}; {there}")


# -- arguments -------------------------------------------------------------------------------------

def shape_error(problem: str, *shapes: Any, fix: str = "") -> ShapeError:
    """A ShapeError: the current layer, the problem, the shapes and the fix.

    >>> str(shape_error("cannot reshape", (2, 3), (4,), fix="the 6 elements must stay 6"))
    'cannot reshape (2, 3) and (4,); the 6 elements must stay 6'
    """
    message = f"layer {current_layer()!r}: {problem}" if current_layer() else problem
    if shapes:
        message += " " + " and ".join(str(tuple(shape)) for shape in shapes)
    return ShapeError(f"{message}; {fix}" if fix else message)


def as_value(x: Any, like: Value | None = None) -> Value:
    """A value for x: numbers become a filled tensor, arrays a constant; both adopt like's dtype."""
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float, np.number, np.bool_)):
        d = like.dtype if like is not None else dtype("float32")
        if d.is_int and isinstance(x, (float, np.floating)) and not float(x).is_integer():
            raise shape_error(f"{x} is no {d}", fix="use ops.cast to make the tensor a float")
        return OPS.full((), x.item() if isinstance(x, np.generic) else x, d)
    array = np.asarray(x)
    if array.dtype.kind not in "biufV":  # V: the half types that NumPy lacks
        raise shape_error(f"{x!r} is neither a tensor nor numbers", fix="give tensors, numbers or "
                          "arrays of numbers")
    adopts = like is not None and like.dtype.is_float and array.dtype.kind == "f"
    return constant(array, like.dtype if adopts and like is not None else None)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of them can be repeated to."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        raise shape_error(
            "cannot broadcast shapes", *shapes,
            fix="dimensions must be equal or 1, counted from the last axis") from None


def broadcast_together(*args: Any, dtypes_from: int = 0) -> tuple[Value, ...]:
    """Arguments brought to one shape and one dtype; numbers take the dtype of their neighbours."""
    likes = [a for a in args[dtypes_from:] if isinstance(a, Value)]
    like = likes[0] if likes else None
    values = [as_value(a, like if k >= dtypes_from else None) for k, a in enumerate(args)]
    typed = values[dtypes_from:]
    for v in typed:
        if v.dtype != typed[0].dtype:
            raise shape_error(
                f"dtypes {typed[0].dtype} and {v.dtype} do not mix",
                fix="use ops.cast to choose one")
    shape = broadcast_shapes(*(v.shape for v in values))
    return tuple(_spread(v, shape) for v in values)


def _spread(v: Value, shape: tuple[int, ...]) -> Value:
    if v.shape == shape:
        return v
    if v.op.name == "full":  # a number is simply made in the right shape
        return OPS.full(shape, v.attrs["value"], v.dtype)
    return OPS.broadcast_to(v, shape)


def normal_axes(axis: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; None means all."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    for a in axes:
        if not hasattr(a, "__index__"):
            raise shape_error(f"axis {a!r} is no whole number",
                              fix="count axes from 0, or with negative numbers from the last")
        if not -rank <= a < rank:
            raise shape_error(f"axis {a} is out of range for rank {rank}",
                              fix=f"use {-rank} to {rank - 1}")
    return tuple(sorted({int(a) % rank for a in axes}))


def public_ops() -> Iterator[Public]:
    """Every registered op."""
    yield from REGISTRY.values()


def _install_operators() -> None:
    """Python's operators on values, looked up in the registry when used."""
    binary = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "power",
              "matmul": "matmul", "mod": "rem"}
    for python, ours in binary.items():
        setattr(Value, f"__{python}__", lambda a, b, ours=ours: getattr(OPS, ours)(a, b))
        setattr(Value, f"__r{python}__", lambda a, b, ours=ours: getattr(OPS, ours)(b, a))
    for python, ours in {"lt": "less", "le": "less_equal", "gt": "greater",
                         "ge": "greater_equal"}.items():
        setattr(Value, f"__{python}__", lambda a, b, ours=ours: getattr(OPS, ours)(a, b))
    Value.__neg__ = lambda a: OPS.neg(a)  # type: ignore[method-assign]
    Value.__abs__ = lambda a: OPS.abs(a)  # type: ignore[method-assign]
    Value.__getattr__ = _missing  # type: ignore[method-assign]
    Value.__getitem__ = lambda a, key: OPS.slice_by(a, key)  # type: ignore[method-assign]


_install_operators()
