"""Trees of tensors: dicts, lists and tuples, nested as users like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

Shape = Any  # of a tree: LEAF, None, or (type, keys or size, shapes of the parts)

LEAF = "leaf"


class TreeBranch:
    """An object that trees take apart, as they do a tuple: `_fields` are its parts, and its class
    is called with them to make it again."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]


def flatten(tree: Any) -> tuple[list[Any], Shape]:
    """The leaves of a tree, and its shape, which can be hashed. Dicts go by their keys, sorted.

    >>> flatten({"b": [1, 2], "a": 3})[0]
    [3, 1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Shape:
    if isinstance(tree, dict):
        try:
            keys = tuple(sorted(tree))
        except TypeError:  # keys of several types
            keys = tuple(sorted(tree, key=lambda k: (type(k).__name__, k)))
        return dict, keys, tuple(_flatten(tree[k], leaves) for k in keys)
    if isinstance(tree, (list, tuple)):
        return type(tree), len(tree), tuple(_flatten(part, leaves) for part in tree)
    if tree is None:
        return None
    if isinstance(tree, TreeBranch):
        parts = [getattr(tree, name) for name in tree._fields]
        return type(tree), len(parts), tuple(_flatten(part, leaves) for part in parts)
    leaves.append(tree)
    return LEAF


def unflatten(shape: Shape, leaves: Iterator[Any]) -> Any:
    """A tree of a shape with these leaves.

    >>> leaves, shape = flatten({"b": (1, 2), "a": None})
    >>> unflatten(shape, iter([10, 20]))
    {'a': None, 'b': (10, 20)}
    """
    if shape is None:
        return None
    if shape == LEAF:
        return next(leaves)
    kind, keys, parts = shape
    built = [unflatten(part, leaves) for part in parts]
    if kind is dict:
        return dict(zip(keys, built, strict=True))
    return kind(*built) if hasattr(kind, "_fields") else kind(built)  # a named tuple, or another


def spelled(shape: Shape) -> str:
    """A shape in words that users know.

    >>> spelled(flatten([1, {"h": (2, None)}])[1])
    "[tensor, {'h': (tensor, None)}]"
    """
    if shape is None or shape == LEAF:
        return "None" if shape is None else "tensor"
    kind, keys, parts = shape
    texts = [*map(spelled, parts)]
    if kind is dict:
        return f"{{{', '.join(f'{key!r}: {text}' for key, text in zip(keys, texts, strict=True))}}}"
    inside = ", ".join(texts)
    return f"[{inside}]" if kind is list else f"({inside}{',' * (len(texts) == 1)})"


def leaf_names(shape: Shape, prefix: str = "w") -> list[str]:
    """A name for each leaf of a tree of a shape: the keys that lead to it.

    >>> leaf_names(flatten({"dense": [1, 2], "bias": 3})[1])
    ['bias', 'dense/0', 'dense/1']
    """
    if shape is None:
        return []
    if shape == LEAF:
        return [prefix]
    kind, keys, parts = shape
    labels = keys if kind is dict else getattr(kind, "_fields", range(keys))
    start = "" if prefix == "w" else f"{prefix}/"
    return [name for label, part in zip(labels, parts, strict=True)
            for name in leaf_names(part, f"{start}{label}")]


def map_tree(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A tree with a function of its leaves in their place.

    Args:
        function: Takes a leaf, and that of each other tree.
        tree: A tree.
        *others: Trees of the same shape.

    Examples:
        >>> map_tree(lambda a, b: a + b, {"x": 1}, {"x": 2})
        {'x': 3}
    """
    leaves, shape = flatten(tree)
    rest = [flatten(other)[0] for other in others]
    return unflatten(shape, iter([function(*parts) for parts in zip(leaves, *rest, strict=True)]))
