"""Checks of the arguments of loops and branches, and of users' functions in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import OPS, as_value, shape_error
from ztorch.graph.trees import Shape, flatten, spelled
from ztorch.graph.value import Value, current_layer


def in_layer() -> str:
    """The prefix of an error: the layer that is being traced, if any."""
    return f"layer {current_layer()!r}: " if current_layer() else ""


def trip_count_of(rows: Sequence[Any], length: Any, name: str = "length") -> int:
    """The number of iterations: the length of all sequences.

    >>> trip_count_of([], 3)
    3
    """
    where = f"{in_layer()}zt.ops.{'while_loop' if name == 'max_steps' else 'scan'}"
    if length is not None and (isinstance(length, bool) or not hasattr(length, "__index__")):
        raise ConfigError(f"{where}({name}=...) must be an integer, not {length!r}")
    if length is not None and int(length) < 0:
        raise ConfigError(f"{where}({name}={length}) is negative; use 0 or more")
    sizes = []
    for x in rows:
        shape = getattr(x, "shape", None)
        if not shape:
            raise ShapeError(f"{where}: a sequence needs an axis to iterate over, and one of xs "
                             f"has shape {shape}")
        sizes.append(int(shape[0]))
    if length is None and not sizes:
        raise ConfigError(f"{where} needs length=, the number of iterations, if xs is None")
    trip_count = sizes[0] if length is None else int(length)
    if any(n != trip_count for n in sizes):
        other = next(n for n in sizes if n != trip_count)
        raise ShapeError(f"{where}: a sequence has {other} elements, but there are {trip_count} "
                         f"iterations; {'all sequences need one length' if length is None else ''}"
                         f"{'' if length is None else 'omit length=, or set it to that of xs'}")
    return trip_count


def of_state(function: Callable[..., Any], state: Any) -> Callable[[Any], Any]:
    """A function of a state. A tuple or list is passed as separate arguments if the function takes
    as many, as in Keras, and as one argument to a function of one argument. A list stands for a
    tuple in its result, and the other way round.

    >>> of_state(lambda a, b: a + b, (1, 2))((3, 4)), of_state(lambda s: s[0], (1, 2))((3, 4))
    (7, 3)
    >>> of_state(lambda a, b: (b, a), [1, 2])([3, 4])
    [4, 3]
    """
    if not isinstance(state, (tuple, list)):
        return function
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # implemented in C
        return function
    kinds = [p.kind for p in parameters if p.default is p.empty or p.kind is p.VAR_POSITIONAL]
    if inspect.Parameter.VAR_POSITIONAL in kinds or len(kinds) == len(state) > 1:
        return lambda parts: _alike(state, function(*parts))
    return function


def _alike(state: Any, result: Any) -> Any:
    """A result as the list or tuple that the state is."""
    return type(state)(result) if {type(state), type(result)} == {list, tuple} else result


def pair_of(name: str, result: Any) -> tuple[Any, Any]:
    """The next state and the outputs, as the function returned them."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ShapeError(f"{in_layer()}{name}: the function must return (state, kept), such as "
                         f"(h, h) or (h, None), not {spelled(flatten(result)[1])}")
    return result


def checked_state(name: str, new: Any, tree: Shape, carries: Sequence[Value]) -> tuple[Value, ...]:
    """The leaves of the next state, which must match those of the last one."""
    leaves, new_tree = flatten(new)
    if new_tree != tree:
        raise ShapeError(f"{in_layer()}{name}: the function takes {spelled(tree)} as its state, "
                         f"but returns {spelled(new_tree)}")
    values = tuple(as_value(v, c) for v, c in zip(leaves, carries, strict=True))
    for k, (v, c) in enumerate(zip(values, carries, strict=True)):
        if (v.shape, v.dtype) != (c.shape, c.dtype):
            raise shape_error(
                f"{name}: part {k} of the state is {c.dtype}{list(c.shape)} before an iteration, "
                f"but {v.dtype}{list(v.shape)} after it",
                fix="keep shape and dtype, by broadcasting or casting the first state")
    return values


def condition_of(name: str, pred: Any) -> Value:
    """A condition as a bool without axes."""
    value = as_value(pred)
    if value.size != 1 or value.dtype.kind != "b":
        raise shape_error(f"{name}: the condition is {value.dtype}{list(value.shape)}",
                          fix="it must be one bool, such as ops.any(x > 0)")
    return OPS.reshape(value, ())
