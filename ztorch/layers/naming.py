"""Names of layers, which must be valid in weight files, messages and artifacts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from typing import Any

from ztorch.config import RESERVED
from ztorch.errors import ConfigError
from ztorch.layers.tree import LayerNode

LONGEST_NAME = 200  # characters of a layer's name
MOST_NESTED = 64  # depth of nested layers, which are walked recursively


def snake_case(name: str) -> str:
    """The name that Keras gives to a layer of this class.

    >>> snake_case("LayerNormalization"), snake_case("ReLU"), snake_case("Conv2D")
    ('layer_normalization', 're_lu', 'conv2d')
    """
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", split).lower()


def checked_name(name: Any, of: str) -> str:
    """The name of a layer, or a ConfigError if it is invalid."""
    fault = ("is not a string" if not isinstance(name, str) else
             "is empty" if not name else
             "contains a '/'" if "/" in name else
             "contains a control character" if not name.isprintable() else
             f"has {len(name)} characters, above {LONGEST_NAME}" if len(name) > LONGEST_NAME else
             "is reserved" if name in RESERVED else "")
    if fault:
        shown = repr(name) if len(repr(name)) <= 100 else f"{name[:60]!r}..."
        raise ConfigError(f"the name {shown} of a {of} {fault}; use printable characters "
                          f"without '/', such as {snake_case(of)!r}")
    return name


def unused(name: str, names: Collection[str]) -> str:
    """The name, with a number if it is taken.

    >>> unused("dense", {"dense", "dense_1"})
    'dense_2'
    """
    numbered = (f"{name}_{k}" if k else name for k in itertools.count())
    return next(n for n in numbered if n not in names)


def need_shallow(outer: LayerNode, layer: LayerNode, levels: int) -> None:
    """Raises a ConfigError if layers would be nested too deeply for Python's recursion.

    `levels` counts from `layer` to the innermost layer, both included.
    """
    deep = levels
    above: LayerNode | None = outer
    while above is not None:
        deep, above = deep + 1, above.adopter
    if deep > MOST_NESTED:
        raise ConfigError(f"with layer {layer.name!r}, {outer.name!r} would nest layers "
                          f"{deep} levels deep; at most {MOST_NESTED} are allowed: put consecutive "
                          "layers into one Sequential")


def port(role: str, name: str) -> str:
    """The name of an input or output in the functions of a program.

    >>> port("x", ""), port("x", "image")
    ('x', 'x/image')
    """
    return f"{role}/{name}" if name else role
