"""Arguments that are True or False."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ztorch.arguments import misfit
from ztorch.errors import ConfigError


def with_flags_checked(init: Callable[..., None],
                       refuse_unknown: Callable[[Any, dict[str, Any]], None]
                       ) -> Callable[..., None]:
    """`init` with a check: parameters of type bool accept no other value, such as "False".

    Args:
        init: The `__init__` of a class.
        refuse_unknown: Takes the class and the named arguments of a call that `init` cannot take,
            and raises an error for those that nobody knows.
    """
    signature = inspect.signature(init)
    parameters = list(signature.parameters.values())[1:]
    flags = [p.name for p in parameters if p.annotation in ("bool", bool)]
    if not flags and all(p.default is not p.empty for p in parameters
                         if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)):
        return init

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **keywords: Any) -> None:
        try:
            bound = signature.bind(self, *args, **keywords)
        except TypeError as error:
            if not init.__module__.startswith("ztorch."):  # may take what it does not name
                return init(self, *args, **keywords)
            refuse_unknown(type(self), keywords)
            ours = next(c for c in type(self).__mro__ if c.__module__.startswith("ztorch."))
            raise misfit(ours.__name__, signature.parameters, (self, *args), keywords,
                         str(error)) from None
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
