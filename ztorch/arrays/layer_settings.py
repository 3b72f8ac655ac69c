"""What a trace of a layer depends on besides weights and inputs: its attributes, and what its
functions read from outside.

Users may change all of these between calls, and they are compiled into the calls. Code of installed
packages, and of this one, stays as it is.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np

from ztorch.arrays.node import Handle
from ztorch.config import Named
from ztorch.layers.layer import Layer
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight

_PLAIN = frozenset({bool, int, complex, str, bytes, range, type(None)})
# Attributes of each layer that follow from its class, its calls and the other attributes.
DERIVED = frozenset({"adopted", "adopter", "calls", "own_weights", "first_weights", "serial",
                     "wiring", "_declared", "_traced", "_traced_of", "_output", "traced_sizes",
                     "_repeats"})
_INSTALLED = tuple({str(Path(path).resolve()) for path in (
    str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))})
_CACHED = 4096  # functions whose names are remembered, and classes


def settings_of(layer: Layer) -> tuple[Any, ...]:
    """The settings of a layer and those inside it, as a key: equal keys have equal traces.

    Examples:
        >>> from ztorch import layers as L
        >>> rates = L.Lambda(lambda x: x * table)
        >>> table = [1.0, 2.0]
        >>> before = settings_of(rates)
        >>> table[0] = 3.0
        >>> settings_of(rates) == before
        False
    """
    return tuple(_walk(layer, set()))


def contents(values: Iterable[Any]) -> list[Any]:
    """The contents of values, as a key: equal keys have equal contents.

    >>> table = {"a": [1]}
    >>> before = contents([table])
    >>> table["a"].append(2)
    >>> contents([table]) == before
    False
    """
    seen: set[int] = set()
    return [_key(x, seen) for x in values]


def has_own_code(layer: Layer) -> bool:
    """Whether the class of a layer, or of one inside it, is a user's."""
    kinds: set[Any] = {type(inner) for _, inner in layer.walk()}
    return any(map(_own_classes, kinds))


def _walk(layer: Layer, seen: set[int]) -> Iterator[Any]:
    for _, inner in layer.walk():
        for name, x in vars(inner).items():
            if name not in DERIVED:
                yield x if type(x) in _PLAIN else _key(x, seen)
        kind: Any = type(inner)
        for owner in _own_classes(kind):
            yield from [_key(x, seen) for x in vars(owner).values()]


def _key(x: Any, seen: set[int]) -> Any:
    """A value as a key. None stands for what traces do not depend on, such as another layer, whose
    own settings count, and for what was `seen` before."""
    kind: Any = type(x)
    if kind in _PLAIN:
        return x
    if kind is float or isinstance(x, np.generic):
        return kind, x
    if isinstance(x, Handle):
        return x.node
    if isinstance(x, np.ndarray):
        return x.dtype, x.shape, (tuple([_key(item, seen) for item in x.flat]) if x.dtype.hasobject
                                  else hashlib.sha1(x.tobytes()).digest())
    if isinstance(x, (type, LayerNode, Weight)) or id(x) in seen:
        return None
    seen.add(id(x))
    if isinstance(x, dict):
        return kind, *[(name, _key(item, seen)) for name, item in list(x.items())]
    if isinstance(x, (list, tuple, deque)):
        return kind, *[_key(item, seen) for item in list(x)]
    while (inner := _inside(x)) is not None:
        x = inner
    if isinstance(x, FunctionType):
        return _of_function(x, seen)
    parts = next((names for kinds, *names in _PARTS if isinstance(x, kinds)), None)
    if parts:
        return kind, *[_key(getattr(x, name), seen) for name in parts]
    if _has_settings(x):
        own = [_key(item, seen) for owner in _own_classes(kind) for item in vars(owner).values()]
        return kind, _key(vars(x), seen), *own
    return None if kind.__module__.startswith("ztorch.") or kind.__hash__ is None else x


# Objects that consist of others, and the names of these.
_PARTS = ((functools.partial, "func", "args", "keywords"), (MethodType, "__func__", "__self__"),
          (slice, "start", "stop", "step"))


def _inside(x: Any) -> Any:
    """The function that a decorator, a property or a static method has inside."""
    if isinstance(x, (staticmethod, classmethod, property)):
        return x.fget if isinstance(x, property) else x.__func__
    return getattr(x, "__wrapped__", None) if callable(x) else None


def _has_settings(x: Any) -> bool:
    """Whether the attributes of an object count: of a user's class, a namespace or a
    regularizer."""
    kind: Any = type(x)
    if isinstance(x, Named):
        return x.family == "regularizer"
    return isinstance(x, (SimpleNamespace, Namespace)) or (
        hasattr(x, "__dict__") and bool(_own_classes(kind)))


@functools.lru_cache(_CACHED)
def _own_classes(kind: type) -> tuple[type, ...]:
    """Those of a class and its bases that the user wrote."""
    files = {owner: getattr(sys.modules.get(owner.__module__), "__file__", None)
             for owner in kind.__mro__}
    return tuple(owner for owner, file in files.items() if owner.__module__ == "__main__" or (
        file is not None and not file.startswith(_INSTALLED)))


def _of_function(function: FunctionType, seen: set[int]) -> Any:
    """A function as a key: its code, and what it reads from outside."""
    code, names, outside = function.__code__, _names(function.__code__), function.__globals__
    if names is None:
        return code
    return (code, _key(function.__defaults__, seen), _key(function.__kwdefaults__, seen),
            *[_key(_content(cell), seen) for cell in function.__closure__ or ()],
            *[_key(outside[name], seen) for name in names if name in outside])


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


@functools.lru_cache(_CACHED)
def _names(code: CodeType) -> tuple[str, ...] | None:
    """The names that code may read from outside; None for code of an installed package."""
    if code.co_filename.startswith(_INSTALLED):
        return None
    inner = [_names(x) or () for x in code.co_consts if isinstance(x, CodeType)]
    return tuple(sorted({*code.co_names, *(name for names in inner for name in names)}))
