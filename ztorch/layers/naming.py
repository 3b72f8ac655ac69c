"""Names of layers, which must work in weight files, messages and artifacts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ztorch.config import RESERVED
from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.layers.layer import Layer
    from ztorch.layers.weight import Weight

LONGEST_NAME = 200  # characters of the name of a layer
MOST_NESTED = 64  # depth of layers in layers, which are walked by recursion
LONGEST_PATH = 900  # characters of a path; artifacts derive longer names from it


def snake_case(name: str) -> str:
    """The name that Keras gives to a layer of this class.

    >>> snake_case("LayerNormalization"), snake_case("ReLU"), snake_case("Conv2D")
    ('layer_normalization', 're_lu', 'conv2d')
    """
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", split).lower()


def checked_name(name: Any, of: str) -> str:
    """The name of a layer, or a ConfigError that says what is wrong with it."""
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


def need_shallow(outer: Layer, layer: Layer) -> None:
    """Raises a ConfigError if layers would be nested too deeply for Python's recursion."""
    deep = 1 + max(depth for depth, _ in layer.walk())
    above: Layer | None = outer
    while above is not None:
        deep, above = deep + 1, above.outer
    if deep > MOST_NESTED:
        raise ConfigError(f"with layer {layer.name!r} in it, {outer.name!r} would be layers in "
                          f"layers, {deep} deep; at most {MOST_NESTED} are: put layers that follow "
                          "on one another into one Sequential")


def need_distinct_names(model: Layer, called: Sequence[Layer]) -> None:
    """Raises a ConfigError if two layers of a model have one path.

    Layers that models share keep their path in the first model, so paths may collide in another.
    """
    taken: dict[str, Layer] = {}
    times = Counter(called)
    for layer in called:
        other = taken.setdefault(layer.path, layer)
        if other is not layer:
            raise ConfigError(f"model {model.name!r} has two layers named {other.path!r}; give "
                              "one another name=")
        if times[layer] > 1:
            holders = [f"layer {holder.path!r}" if holder.path else f"model {holder.name!r} itself"
                       for _, holder in model.walk() if layer in holder.inner]
            raise ConfigError(f"layer {other.name!r} is in {' and in '.join(holders)}; to share "
                              "it, call it twice in one Model, where its weights have one name; "
                              "else make a second layer")


def need_short_names(called: Sequence[Layer], weights: Sequence[Weight]) -> None:
    """Raises a ConfigError if the path of a layer or weight is too long for artifacts."""
    paths = {layer.path: layer for layer in called} | {w.path: w.layer for w in weights}
    for path, layer in paths.items():
        if len(path) > LONGEST_PATH:
            owner = ("its own" if path == layer.path else
                    f"that of its weight {path.rpartition('/')[2]!r}")
            raise ConfigError(f"layer {layer.name!r} lies in {layer.path.count('/')} others, and "
                              f"with their names {owner} has {len(path):,} characters, above "
                              f"{LONGEST_PATH}; give them shorter names")


def port(role: str, name: str) -> str:
    """The name of an input or output in the functions of a program.

    >>> port("x", ""), port("x", "image")
    ('x', 'x/image')
    """
    return f"{role}/{name}" if name else role
