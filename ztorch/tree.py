"""The functions of `keras.tree`, for nested lists, tuples and dicts. Users access them as
`zt.tree`.

Dicts are ordered by sorted keys, and None is a leaf, as in Keras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ztorch.errors import ConfigError

__all__ = ["assert_same_structure", "flatten", "flatten_with_path", "is_nested",
           "lists_to_tuples", "map_structure", "map_structure_up_to", "pack_sequence_as"]


def is_nested(structure: Any) -> bool:
    """Whether the argument is a list, a tuple or a dict.

    Args:
        structure: Anything.

    Examples:
        >>> is_nested([1]), is_nested(1)
        (True, False)
    """
    return isinstance(structure, (list, tuple, Mapping))


def flatten(structure: Any) -> list[Any]:
    """The leaves.

    Args:
        structure: Anything.

    Examples:
        >>> flatten({"b": [1, (2, None)], "a": 3})
        [3, 1, 2, None]
    """
    return [leaf for _, leaf in flatten_with_path(structure)]


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves, each with its path of keys and positions.

    Args:
        structure: Anything.

    Examples:
        >>> flatten_with_path({"a": [1, 2]})
        [(('a', 0), 1), (('a', 1), 2)]
    """
    if not is_nested(structure):
        return [((), structure)]
    return [((key, *path), leaf) for key, part in _parts(structure)
            for path, leaf in flatten_with_path(part)]


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    """A structure of the same form with other leaves.

    Args:
        structure: The structure.
        flat_sequence: The new leaves, in the order of `flatten`.

    Raises:
        ConfigError: The number of leaves differs.

    Examples:
        >>> pack_sequence_as({"b": [0, 0], "a": 0}, [3, 1, 2])
        {'b': [1, 2], 'a': 3}
    """
    leaves = list(flat_sequence)
    if len(leaves) != (count := len(flatten(structure))):
        raise ConfigError(f"the structure has {count} leaves, and {len(leaves)} are given")
    return _filled(structure, iter(leaves))


def map_structure(func: Callable[..., Any], *structures: Any) -> Any:
    """Applies a function to the leaves of one or more structures of the same form.

    Args:
        func: Takes one leaf of each structure.
        *structures: The structures.

    Raises:
        ConfigError: The structures differ.

    Examples:
        >>> map_structure(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]})
        {'x': [11, 22]}
    """
    for other in structures[1:]:
        assert_same_structure(structures[0], other)
    return pack_sequence_as(structures[0], [
        func(*leaves) for leaves in zip(*map(flatten, structures), strict=True)])


def map_structure_up_to(shallow_structure: Any, func: Callable[..., Any], *structures: Any) -> Any:
    """Like `map_structure`, but everything deeper than the first structure is a leaf.

    Args:
        shallow_structure: The structure of the result.
        func: Takes one part of each of the other structures.
        *structures: The structures.

    Examples:
        >>> map_structure_up_to([0, 0], len, [(1, 2, 3), "ab"])
        [3, 2]
    """
    if not is_nested(shallow_structure):
        return func(*structures)
    made = {key: map_structure_up_to(part, func, *(s[key] for s in structures))
            for key, part in _parts(shallow_structure)}
    return _remade(shallow_structure, made)


def assert_same_structure(a: Any, b: Any) -> None:
    """Raises an error if two structures differ in more than their leaves.

    Args:
        a: One structure.
        b: The other.

    Raises:
        ConfigError: They differ; the message says where.

    Examples:
        >>> assert_same_structure([1, {"x": 2}], [3, {"x": 4}])
    """
    if is_nested(a) != is_nested(b) or (is_nested(a) and (
            type(a) is not type(b) or [k for k, _ in _parts(a)] != [k for k, _ in _parts(b)])):
        raise ConfigError(f"structures differ: {a!r} and {b!r}")
    if is_nested(a):
        for (_, one), (_, other) in zip(_parts(a), _parts(b), strict=True):
            assert_same_structure(one, other)


def lists_to_tuples(structure: Any) -> Any:
    """The structure with each list replaced by a tuple.

    Args:
        structure: The structure.

    Examples:
        >>> lists_to_tuples([1, {"a": [2]}])
        (1, {'a': (2,)})
    """
    if not is_nested(structure):
        return structure
    made = _remade(structure, {k: lists_to_tuples(part) for k, part in _parts(structure)})
    return tuple(made) if isinstance(made, list) else made


def _parts(structure: Any) -> list[tuple[Any, Any]]:
    if isinstance(structure, Mapping):
        return [(key, structure[key]) for key in sorted(structure)]
    return list(enumerate(structure))


def _filled(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    return _remade(structure, {k: _filled(part, leaves) for k, part in _parts(structure)})


def _remade(structure: Any, parts: dict[Any, Any]) -> Any:
    """A structure of the same kind with these parts."""
    if isinstance(structure, Mapping):
        return type(structure)((key, parts[key]) for key in structure)  # type: ignore[call-arg]
    return (type(structure)(*parts.values()) if hasattr(structure, "_fields") else
            type(structure)(parts.values()))
