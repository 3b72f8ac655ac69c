"""Paths of layers and weights in a model, which are unique and fit into artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ztorch.errors import ConfigError
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight

LONGEST_PATH = 900  # characters of a path; artifacts derive longer names from it


def need_distinct_names(model: Layer, called: Sequence[Layer]) -> None:
    """Raises a ConfigError if two layers of a model have the same path.

    Shared layers keep their path in the first model, so paths may collide in another model.
    """
    by_path: dict[str, Layer] = {}
    times = Counter(called)
    for layer in called:
        other = by_path.setdefault(layer.path, layer)
        if other is not layer:
            raise ConfigError(f"model {model.name!r} has two layers named {other.path!r}; set "
                              "name= of one")
        if times[layer] > 1:
            holders = [f"layer {holder.path!r}" if holder.path else f"model {holder.name!r} itself"
                       for _, holder in model.walk() if layer in holder.adopted]
            raise ConfigError(f"layer {other.name!r} is in {' and in '.join(holders)}; to share "
                              "it, call it twice in one Model, where its weights have one name; "
                              "otherwise create a second layer")


def need_short_names(called: Sequence[Layer], weights: Sequence[Weight]) -> None:
    """Raises a ConfigError if the path of a layer or weight is too long for artifacts."""
    paths = {layer.path: layer for layer in called} | {w.path: w.layer for w in weights}
    for path, layer in paths.items():
        if len(path) > LONGEST_PATH:
            owner = ("its own" if path == layer.path else
                     f"that of its weight {path.rpartition('/')[2]!r}")
            raise ConfigError(f"layer {layer.name!r} is nested in {layer.path.count('/')} others; "
                              f"with their names, {owner} has {len(path):,} characters, more than "
                              f"{LONGEST_PATH}; use shorter names")
