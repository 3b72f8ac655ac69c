"""Accepts calls in Keras' form: its order of positional arguments, its names, and arguments that
have no effect here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ztorch.arguments import parameter_names

_F = TypeVar("_F", bound=Callable[..., Any])
_NONE: Mapping[str, str] = MappingProxyType({})


def as_in_keras(order: str = "", renamed: Mapping[str, str] = _NONE,
                ignored: str = "") -> Callable[[_F], _F]:
    """Decorates a function to accept Keras' calls as well.

    Args:
        order: The arguments in Keras' order, if ours are keyword-only.
        renamed: Our names, by Keras' names.
        ignored: Arguments of Keras that have no effect here.

    >>> @as_in_keras("path overwrite", {"filepath": "path"}, ignored="overwrite")
    ... def save(path: str) -> str:
    ...     return path
    >>> save(filepath="a"), save("b", True), save("c", overwrite=True)
    ('a', 'b', 'c')
    """
    names, dropped = order.split(), {*ignored.split()}

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def run(*args: Any, **keywords: Any) -> Any:
            known, count = _placed(function)
            if len(args) > count and names:
                placed = dict(zip(known[:1] + names if known[:1] == ["self"] else names, args,
                                  strict=False))
                if len(placed) == len(args):
                    more = {name: x for name, x in placed.items() if name not in known}
                    keywords, args = {**more, **keywords}, args[:count]
            if keywords:
                keywords = {renamed.get(name, name): x for name, x in keywords.items()
                            if name not in dropped}
            return function(*args, **keywords)

        return cast(_F, run)

    return decorate


@functools.cache
def _placed(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The names of the arguments that may be positional, and their number."""
    names = [p.name for p in inspect.signature(function).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names, len(names)


def without(init: _F, **neutral: Any) -> _F:
    """Lets the `init` of a class accept Keras arguments that have no effect here. An argument that
    is None in `neutral` may have any value; another one only its neutral value.

    >>> def scaled(factor): return factor
    >>> without(scaled, dtype=None)(2, dtype="float32")
    2
    """
    own = parameter_names(init)
    neutral = {name: x for name, x in neutral.items() if name not in own}

    @functools.wraps(init)
    def run(*args: Any, **keywords: Any) -> Any:
        if keywords:
            keywords = {name: x for name, x in keywords.items() if name not in neutral
                        or (neutral[name] is not None and x != neutral[name])}
        return init(*args, **keywords)

    return cast(_F, run)
