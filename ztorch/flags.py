"""Arguments that are True or False."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ztorch.errors import ConfigError


def with_flags_checked(init: Callable[..., None]) -> Callable[..., None]:
    """`init` with a check: parameters of type bool accept no other value, such as "False"."""
    signature = inspect.signature(init)
    flags = [p.name for p in signature.parameters.values() if p.annotation in ("bool", bool)]
    if not flags:
        return init

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **keywords: Any) -> None:
        try:
            bound = signature.bind(self, *args, **keywords)
        except TypeError:
            return init(self, *args, **keywords)  # raises the error that names the argument
        for name in flags:
            if name in bound.arguments:
                bound.arguments[name] = flag(f"{type(self).__name__}({name}=...)",
                                             bound.arguments[name])
        return init(*bound.args, **bound.kwargs)

    return checked


def flag(label: str, x: Any) -> bool:
    """x as a bool, or a ConfigError that starts with the label.

    >>> flag("Dense(use_bias=...)", True)
    True
    """
    if isinstance(x, bool):
        return x
    if type(x).__name__ in ("bool", "bool_") and hasattr(x, "dtype"):  # a NumPy bool
        return bool(x)
    raise ConfigError(f"{label} must be True or False, not {x!r}")
