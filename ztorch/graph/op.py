"""The registry of ops, which decorators fill, and their common parts: leaves, arguments, errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.errors import ShapeError, unknown
from ztorch.graph.op_calls import recorded
from ztorch.graph.value import Op, Value, current_layer, stand_in
from ztorch.names.members import Members
from ztorch.names.places import OTHER_NAMES


@dataclass(frozen=True)
class Sample:
    """Arguments that tests and documentation call an op with."""

    shapes: tuple[Any, ...]  # shape of each tensor argument, or an array to use as it is
    attrs: dict[str, Any] = field(default_factory=dict)  # the other arguments
    low: float = -2.0  # smallest random input
    high: float = 2.0  # largest random input
    dtypes: str = "f"  # kinds of the inputs: f(loat), s(igned), u(nsigned), b(ool)


class Public(NamedTuple):
    """An op as users call it."""

    name: str
    call: Callable[..., Any]  # the function of values
    samples: tuple[Sample, ...]
    primitive: Op | None  # None for a function of other ops
    reference: Callable[..., Any] | None = None  # the same function on NumPy arrays
    results: tuple[str, ...] = ()  # names of the results, if there are several
    aliases: tuple[str, ...] = ()  # other names of the op
    composed: bool = False  # a function of other ops whose code devices know from these

    def grouped(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors of a sample as positional arguments: two of them for each pair."""
        rest, arguments = list(tensors), []
        for p in inspect.signature(self.call).parameters.values():
            if is_pair(p) and rest:
                arguments.append((rest.pop(0), rest.pop(0)))
            elif rest and p.kind is not inspect.Parameter.VAR_POSITIONAL:
                arguments.append(rest.pop(0))
        return [*arguments, *rest]


def is_pair(parameter: inspect.Parameter) -> bool:
    """Whether an op takes two tensors there as one tuple, such as the parts of complex numbers."""
    return str(parameter.annotation).strip("'\"") == "tuple[Value, Value]"


REGISTRY = Members("ztorch.ops")  # of `Public`
# The name of the op that has this other name.
ALIASES: dict[str, str] = dict(pair.split(":") for pair in OTHER_NAMES.split())


def op(*samples: Sample, name: str | None = None, primitive: Op | None = None,
       numpy: Callable[..., Any] | None = None, results: tuple[str, ...] = (),
       aliases: tuple[str, ...] = (), composed: bool = False) -> Callable[[Callable], Callable]:
    """Registers a function of values as an op. This is all it takes to add one.

    A function of other ops gets its gradient, fusion and code from them.

    Args:
        *samples: Arguments that tests call the op with.
        name: Name of the op. `None` means that of the function. Default: `None`.
        primitive: The op that the function makes nodes of. `None`: of others. Default: `None`.
        numpy: The same function on NumPy arrays, which tests compare with. Default: `None`.
        results: Names of the results, if there are several. If their number varies, those that the
            samples give. Default: `()`.
        aliases: Other names of the op, such as those of NumPy, Keras and PyTorch. Default: `()`.
        composed: As `composition` says. Default: `False`.

    Returns:
        The decorator.
    """

    def register(function: Callable) -> Callable:
        public = name or function.__name__
        for label in (public, *aliases):
            assert label not in REGISTRY.loaded, f"op {label} is registered twice"
        REGISTRY[public] = Public(
            public, function, samples, primitive, numpy, results, aliases, composed)
        ALIASES.update(dict.fromkeys(aliases, public))
        return function

    return register


class _Namespace:
    """Every registered op as an attribute, for gradients, layers and operators."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):  # Python and tools ask any object for these; no op to suggest
            raise AttributeError(name)
        name = ALIASES.get(name, name)
        public = REGISTRY.get(name)
        if public is None:
            raise unknown("op", name, REGISTRY, also=ALIASES)
        return recorded(name, public.call)


OPS = _Namespace()


def _leaf_infer(**attrs: Any) -> tuple[tuple[int, ...], DType]:
    return attrs["shape"], attrs["dtype"]


LEAF = Op("leaf", "leaf", _leaf_infer, numpy=lambda data, **attrs: np.asarray(
    data() if callable(data) else data))


def first_value(v: Value) -> np.ndarray:
    """The first values of a state, drawn on first use, or those of a constant.

    >>> float(first_value(leaf("state", "w", (), "float32", lambda: 2.0)))
    2.0
    """
    return np.asarray(LEAF.numpy(**v.attrs))


def leaf(role: str, name: str, shape: tuple[int, ...], d: DType | str,
         data: np.ndarray | Callable[[], np.ndarray] | None = None, **more: Any) -> Value:
    """A leaf of the graph.

    Args:
        role: `"input"`, `"state"` (weights, optimizer slots, counters) or `"constant"`.
        name: Name of the port or state.
        shape: Shape of the leaf.
        d: Dtype of the leaf.
        data: Values of a constant; first values of a state, or their rule. Default: `None`.
        **more: Other attributes, such as `trainable` and `kind` of a state.

    Returns:
        A value without arguments.
    """
    attrs = {"role": role, "name": name, **more}
    if data is not None:
        attrs["data"] = data
    return Value(LEAF, (), attrs, tuple(shape), dtype(d))


def constant(data: Any, d: DType | str | None = None) -> Value:
    """An array as a constant of the graph, in its own dtype or in `d`."""
    array = np.asarray(data)
    d = dtype(d) if d is not None else dtype(array.dtype)
    return leaf("constant", f"c{array.size}", array.shape, d, array.astype(d.working))


# -- arguments -------------------------------------------------------------------------------------

def shape_error(problem: str, *shapes: Any, fix: str = "") -> ShapeError:
    """A ShapeError: the current layer, the problem, the shapes and the fix.

    >>> str(shape_error("cannot join", (2, 3), (4,), fix="both need two axes"))
    'cannot join (2, 3) and (4,); both need two axes'
    """
    message = f"layer {current_layer()!r}: {problem}" if current_layer() else problem
    if shapes:
        message += " " + " and ".join(str(tuple(shape)) for shape in shapes)
    return ShapeError(f"{message}; {fix}" if fix else message)


def as_value(x: Any, like: Value | None = None) -> Value:
    """x as a value: a number becomes a filled tensor, an array a constant.

    Args:
        x: A value, a number, or an array or list of numbers.
        like: Value whose dtype a number takes, and an array of floats if that dtype is a float.
            `None` makes numbers float32 and leaves arrays as they are. Default: `None`.

    Returns:
        The value.

    Raises:
        ShapeError: x is neither a tensor nor numbers, or a fraction for an integer dtype.
    """
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float, np.number, np.bool_)):
        d = like.dtype if like is not None else dtype("float32")
        if d.is_int and isinstance(x, (float, np.floating)) and not float(x).is_integer():
            raise shape_error(f"{x} is not a valid {d}",
                              fix="use ops.cast to make the tensor a float")
        return OPS.full((), x.item() if isinstance(x, np.generic) else x, d)
    array = np.asarray(x)
    if array.dtype.kind not in "biufV":  # V: 16-bit floats that NumPy lacks, such as bfloat16
        raise shape_error(f"{x!r} is neither a tensor nor numbers", fix="give tensors, numbers or "
                          "arrays of numbers")
    adopts = like is not None and like.dtype.is_float and array.dtype.kind == "f"
    return constant(array, like.dtype if adopts and like is not None else None)


def plain_number(x: Any) -> Any:
    """x; an array without axes, which an op computed from sizes, as a number.

    >>> plain_number(np.array(3)) * 2, plain_number(4)
    (6, 4)
    """
    return x.item() if isinstance(x, np.ndarray) and not x.ndim else x


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    if len({*shapes}) == 1:  # most calls: NumPy takes twenty times as long to find that out
        return shapes[0]
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        raise shape_error("cannot broadcast shapes", *shapes, fix="dimensions must be equal or 1, "
                          "counted from the last axis") from None


def broadcast_together(*args: Any, dtypes_from: int = 0) -> tuple[Value, ...]:
    """Arguments of one shape and one dtype; numbers take the dtype of the first tensor, or of the
    first array where all tensors are arrays. The first `dtypes_from` arguments keep their own
    dtype, such as the condition of `where`."""
    like = next((a for a in args[dtypes_from:] if isinstance(a, Value)), None)
    if like is None:
        like = next((as_value(a) for a in args[dtypes_from:] if np.ndim(a)), None)
    values = [as_value(a if like is None else plain_number(a), like if k >= dtypes_from else None)
              for k, a in enumerate(args)]
    typed = values[dtypes_from:]
    for v in typed:
        if v.dtype != typed[0].dtype:
            raise shape_error(f"dtypes {typed[0].dtype} and {v.dtype} do not mix",
                              fix="use ops.cast to choose one")
    shape = broadcast_shapes(*(v.shape for v in values))
    return tuple(_spread(v, shape) for v in values)


def _spread(v: Value, shape: tuple[int, ...]) -> Value:
    if v.op.name == "full" and v.shape != shape:  # filling the whole shape needs no broadcast
        return OPS.full(shape, v.attrs["value"], v.dtype)
    return OPS.broadcast_to(v, shape) if v.shape != shape else v


def normal_axes(axis: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes as sorted non-negative integers; None means all axes."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    for a in axes:
        if isinstance(a, bool) or not hasattr(a, "__index__"):
            raise shape_error(f"axis {a!r} is not an integer", fix="use whole numbers, such as -1")
        if not -rank <= a < rank:
            raise shape_error(f"axis {a} is out of range for rank {rank}",
                              fix=f"use {-rank} to {rank - 1}" if rank else
                                  "a tensor of one number has no axes")
    numbers = tuple(sorted({int(a) % rank for a in axes}))
    if len(numbers) < len(axes):
        raise shape_error(f"axis {axis} names an axis twice", fix="name each axis once")
    return numbers


def public_ops() -> Iterator[Public]:
    """Every registered op that is not a mere composition."""
    yield from (public for public in REGISTRY.values() if not public.composed)


def _apply_op(name: str, *args: Any, **attrs: Any) -> Any:
    other = stand_in(args)
    if other is not None:
        return other.apply_op(name, *args, **attrs)
    return getattr(OPS, name)(*args, **attrs)


Value.apply_op = staticmethod(_apply_op)  # type: ignore[method-assign]
Value.ops = staticmethod(lambda: (REGISTRY, ALIASES))  # type: ignore[method-assign]
