"""Users' classes and functions, which configs may name once they are passed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ztorch.config import Named
from ztorch.errors import ConfigError
from ztorch.names.own_functions import functions_known


def classes_by_name(classes: Any) -> dict[str, Any]:
    """Classes and functions as a dict by name: from one, or from a list, each under its own name.

    >>> from ztorch.layers import Dense
    >>> list(classes_by_name([Dense])), list(classes_by_name({"Old": Dense}))
    (['Dense'], ['Old'])
    """
    named = classes
    if isinstance(classes, Iterable) and not isinstance(classes, str | Mapping):
        named = {getattr(c, "__name__", repr(c)): c for c in classes}
    if not isinstance(named, Mapping):
        raise ConfigError(f"custom_objects={classes!r} must be classes, as a list or as a dict by "
                          "their names, or the path of a Python file that defines them")
    for name, c in named.items():
        if not (issubclass(c, Named) if isinstance(c, type) else callable(c)):
            raise ConfigError(f"custom_objects: {name!r} is {c!r}, not a subclass of Layer, Loss, "
                              "Metric or Optimizer, nor a function")
    return dict(named)


@contextmanager
def known_as(classes: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, configs may name these classes and functions by these names."""
    classes = {getattr(c, "config_name", name) if name == getattr(c, "__name__", "") else name: c
               for name, c in classes.items()}
    families = {name: c.known for name, c in classes.items() if isinstance(c, type)
                and issubclass(c, Named)}
    functions = {name: c for name, c in classes.items() if name not in families}
    before = {name: family.get(name) for name, family in families.items()}
    for name, family in families.items():
        family[name] = classes[name]
    try:
        with functions_known(functions):
            yield
    finally:
        for name, family in families.items():
            if before[name] is None:
                del family[name]
            else:
                family[name] = before[name]
