"""Arguments of ops in Keras' form, where ours have other names or another order."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.op import shape_error

Call = tuple[tuple[Any, ...], dict[str, Any]]

_RENAMED: dict[str, dict[str, str]] = {  # by op: our names, by Keras' names
    "average_pool": {"inputs": "x", "pool_size": "size", "strides": "stride"},
    "max_pool": {"inputs": "x", "pool_size": "size", "strides": "stride"},
    "conv": {"inputs": "x", "strides": "stride", "dilation_rate": "dilation"},
    "conv_transpose": {"inputs": "x", "strides": "stride", "dilation_rate": "dilation"},
    "clip": {"x_min": "min", "x_max": "max"}, "diff": {"a": "x"},
    "eye": {"N": "rows", "M": "columns", "n": "rows"}, "full": {"fill_value": "value"},
    "full_like": {"fill_value": "value"}, "isin": {"x1": "x", "x2": "elements"},
    "one_hot": {"num_classes": "classes"}, "pad": {"constant_values": "value"},
    "reshape": {"newshape": "shape"}, "rot90": {"array": "x"},
    "searchsorted": {"sorted_sequence": "sorted"}, "slice": {"inputs": "x"},
    "stop_gradient": {"variable": "x"}, "tile": {"repeats": "repetitions"},
    "where": {"condition": "c", "x1": "a", "x2": "b"}, "atan2": {"x1": "y", "x2": "x"}}
_TWO = {"x1": "a", "x2": "b", "x": "a", "y": "b"}  # operands of binary operators
_NEUTRAL: dict[str, dict[str, tuple[Any, ...]]] = {  # values without effect here
    **{name: {"data_format": (None, "channels_last")}
       for name in ("average_pool", "max_pool", "conv", "conv_transpose")},
    "one_hot": {"sparse": (False,)}, "top_k": {"sorted": (True, False)},
    "isin": {"assume_unique": (True, False)}}


def of_keras(name: str, signature: inspect.Signature
             ) -> Callable[[tuple[Any, ...], dict[str, Any]], Call] | None:
    """Translates the arguments of Keras' function into those of an op; None if they are the same.

    >>> from ztorch.ops import signature
    >>> of_keras("one_hot", signature("one_hot")[0])((0,), {"num_classes": 3, "sparse": False})
    ((0,), {'classes': 3})
    """
    ours = list(signature.parameters.values())
    names = [p.name for p in ours]
    renamed = _RENAMED.get(name, {} if names[:1] != ["a"] else
                           _TWO if names[1:2] == ["b"] else {"x": "a"})
    by_place = [p.name for p in ours if p.kind is p.POSITIONAL_ONLY]
    neutral = _NEUTRAL.get(name, {})
    if name in LOOKUPS:
        return functools.partial(_from_end, name, names)
    if not renamed and not neutral:
        return _listed if names[:1] == ["xs"] else None

    def translated(args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
        named = {renamed.get(key, key) if key not in names else key: x for key, x in attrs.items()}
        for key, values in neutral.items():
            if key in named and key not in names:
                value = named.pop(key)
                if value not in values:
                    raise Unsupported(f"ops.{name}({key}={value!r}): only "
                                      f"{' or '.join(map(repr, values))} is supported")
        while len(args) < len(by_place) and by_place[len(args)] in named:
            args = (*args, named.pop(by_place[len(args)]))
        return ORDERED[name](args, named) if name in ORDERED else (args, named)

    return translated


def _listed(args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
    """stack(x=[a, b])."""
    if args:
        return args, attrs
    for key in ("x", "xs", "arrays"):
        if isinstance(attrs.get(key), (list, tuple)):
            return (attrs[key],), {k: x for k, x in attrs.items() if k != key}
    return args, attrs


def _padded(args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
    """pad(x, ((1, 1), (0, 0)), mode, constant_values); a number or a pair pads all axes."""
    rest = [*args[2:]]
    has_high = "high" in attrs or bool(rest and isinstance(rest[0], (list, tuple)))
    width = attrs.pop("pad_width", args[1] if len(args) > 1 else None)
    of_pairs = width is not None and "low" not in attrs and not has_high
    if not of_pairs:
        return args, attrs
    mode = attrs.pop("mode", rest.pop(0) if rest and isinstance(rest[0], str) else "constant")
    value = attrs.pop("value", rest[0] if rest else 0)
    rank = getattr(args[0], "ndim", getattr(args[0], "rank", None))
    if isinstance(width, (np.ndarray, np.integer)):
        width = width.tolist()
    if isinstance(width, int):
        width = (width,)
    if not any(isinstance(pair, (list, tuple)) for pair in width):  # before and after each axis
        width = (width,)
    pairs = [tuple(p) for p in width]
    if len(pairs) == 1 and rank is not None:
        pairs *= rank
    return args[:1], {**attrs, "low": tuple(int(p[0]) for p in pairs),
                      "high": tuple(int(p[-1]) for p in pairs), "mode": mode,
                      "value": 0 if value is None else value}


def _sliced(args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
    """slice(x, start_indices, shape)."""
    if "start_indices" in attrs:
        args = (*args, attrs.pop("start_indices"))
    if "shape" in attrs:
        args = (*args, attrs.pop("shape"))
    if len(args) != 3 or attrs:
        return args, attrs
    x, start, size = args
    return (x, tuple(map(int, start)), (1,) * len(tuple(start)), tuple(map(int, size))), {}


def _from_end(name: str, names: list[str], args: tuple[Any, ...], attrs: dict[str, Any]) -> Call:
    """take(x, indices, axis), in which negative positions count from the end, as in NumPy and
    Keras. An error if known positions are out of range."""
    named = {**dict(zip(names, args, strict=False)), **attrs}
    if len(named) < len(args) + len(attrs) or not {"x", "indices"} <= named.keys():
        return args, attrs  # the op raises the error
    x, indices, axis = named["x"], named["indices"], named.get("axis", LOOKUPS[name])
    shape: Any = getattr(x, "shape", None)
    shape = np.shape(x) if shape is None else shape
    if axis is None:
        shape, axis = (None if None in shape else math.prod(shape),), 0
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape) or shape[axis] is None:
        return args, attrs
    n = shape[axis]
    if hasattr(indices, "dtype") and not isinstance(indices, (np.ndarray, np.generic)):
        if str(indices.dtype).startswith("int"):
            if str(indices.dtype) in ("int8", "int16"):  # these may not hold n
                indices = indices.astype("int32")
            named["indices"] = indices.apply_op("where", indices < 0, indices + n, indices)
    else:
        numbers = np.asarray(indices)
        if numbers.dtype.kind == "i" and numbers.size:
            wrong = numbers[(numbers < -n) | (numbers >= n)]
            if wrong.size:
                raise shape_error(f"ops.{name}: position {wrong.flat[0]} is out of range for axis "
                                  f"{axis} of size {n}", fix=f"use {-n} to {n - 1}")
            numbers = numbers.astype(np.promote_types(numbers.dtype, np.int32))  # to hold n
            named["indices"] = np.where(numbers < 0, numbers + n, numbers)
    return (named.pop("x"), named.pop("indices")), named


# Ops that look up positions along an axis, and their default axis. Inside the package positions are
# never negative, so these ops themselves clamp them.
LOOKUPS = {"take": None, "take_along_axis": -1}
ORDERED: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Call]] = {
    "pad": _padded, "slice": _sliced}
ALWAYS = {*ORDERED, *LOOKUPS}  # ops whose arguments are translated even without names
