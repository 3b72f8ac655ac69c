"""Arguments that are True or False."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ztorch.arguments import misfit, plain_function
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
    inner = plain_function(init) or init
    flags = [name for name, kind in getattr(inner, "__annotations__", {}).items()
             if kind in ("bool", bool)]
    if not flags and not _has_required(inner):
        return init
    declared = functools.cache(functools.partial(inspect.signature, init))

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **keywords: Any) -> None:
        signature = declared()
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


def _has_required(init: Callable[..., None]) -> bool:
    """Whether there are parameters without a default, beside the first one."""
    if isinstance(init, FunctionType):  # a signature would take much longer, for each class
        code, defaults = init.__code__, init.__defaults__ or ()
        return (code.co_argcount > len(defaults) + 1
                or code.co_kwonlyargcount > len(init.__kwdefaults__ or ()))
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
               for p in [*inspect.signature(init).parameters.values()][1:])


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
