"""Users' functions that configs may name: an activation, a loss, a metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

registered: dict[str, Any] = {}  # registered by `zt.saving.register_keras_serializable`, by name

_NONE: Mapping[str, Callable[..., Any]] = MappingProxyType({})
_by_name: ContextVar[bool] = ContextVar("by_name", default=False)
_in_memory: ContextVar[bool] = ContextVar("in_memory", default=False)
_known: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("known", default=_NONE)


@contextmanager
def functions_known(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Within the block, configs may name these functions."""
    token = _known.set({**_known.get(), **functions})
    try:
        yield
    finally:
        _known.reset(token)


def own_function(name: str) -> Callable[..., Any] | None:
    """The function that a config names; None if none was passed or registered under this name.

    >>> with functions_known({"double": lambda x: 2 * x}):
    ...     own_function("double")(4)
    8
    """
    function = _known.get().get(name, registered.get(name))
    return function if callable(function) and not isinstance(function, type) else None


def registered_name(function: Any) -> str | None:
    """The name under which a function is registered; within `functions_by_name` that of any other
    that has one.

    >>> with functions_by_name():
    ...     registered_name(registered_name), registered_name(lambda x: x)
    ('registered_name', None)
    """
    name = next((name for name, x in registered.items() if x is function), None)
    if name is None and _by_name.get() and inspect.isfunction(function):
        name = None if function.__name__ == "<lambda>" else function.__name__
    return name


@contextmanager
def functions_by_name() -> Iterator[None]:
    """Within the block, configs name all functions, for files that are read with them."""
    token = _by_name.set(True)
    try:
        yield
    finally:
        _by_name.reset(token)


@contextmanager
def configs_in_memory() -> Iterator[None]:
    """Within the block, configs are for copies: they may hold functions and arrays as they are."""
    token = _in_memory.set(True)
    try:
        yield
    finally:
        _in_memory.reset(token)


def in_memory() -> bool:
    """Whether configs may hold functions and arrays."""
    return _in_memory.get()
