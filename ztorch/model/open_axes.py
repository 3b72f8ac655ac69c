"""The open axes of a model: the sizes for which it is compiled, and the sizes it can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.config import ascending
from ztorch.errors import ConfigError, unknown
from ztorch.layers.network import Network
from ztorch.layers.open_models import traced_padding


def sizes_of(model: Network, sizes: Any) -> dict[str, tuple[int, ...]]:
    """The sizes of each open axis, from a user's dict, or from the sizes of a single axis."""
    axes = model.axis_names
    if not axes:
        if sizes is not None:
            raise ConfigError(f"sizes={sizes!r}: no Input of model {model.name!r} has an open "
                              "axis; declare one, such as Input(('time', 64))")
        return {}
    example = f"sizes={{{', '.join(f'{name!r}: (64, 128)' for name in axes)}}}"
    if sizes is None:
        raise ConfigError(f"model {model.name!r} has an open axis {axes[0]!r}; choose its "
                          f"largest size, or several: compile(..., {example})")
    if not isinstance(sizes, Mapping):
        if len(axes) > 1:
            raise ConfigError(f"sizes={sizes!r}: name the axis of each: {example}")
        sizes = {axes[0]: sizes}
    for name in sizes:
        if name not in axes:
            raise unknown("axis", name, axes)
    if missing := [name for name in axes if name not in sizes]:
        raise ConfigError(f"sizes={sizes!r} lacks axis {missing[0]!r}; pass {example}")
    return {name: ascending(f"sizes[{name!r}]", sizes[name]) for name in axes}


def multiples_of(model: Network) -> dict[str, int]:
    """For each open axis, a number that its sizes must be multiples of. Computed before shapes that
    depend on the size, for which errors would be less clear.

    Raises:
        Unsupported: A layer would mix padding of an open axis into results.
    """
    if not model.axis_names:  # nothing to trace for
        return {}
    return {name: of for name, of in traced_padding(model).multiples.items() if of > 1}


def need_multiples(model: Network, multiples: Mapping[str, int],
                   sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises an error if an axis has a size that is not a multiple of its number."""
    for name, of in multiples.items():
        if wrong := [n for n in sizes[name] if n % of]:
            rounded = tuple(sorted({-(-n // of) * of for n in sizes[name]}))
            raise ConfigError(f"size {wrong[0]} of axis {name!r}: model {model.name!r} joins "
                              f"tensors whose sizes are equal only for multiples of {of}; compile "
                              f"with sizes={{{name!r}: {rounded}}}")
