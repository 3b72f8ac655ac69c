"""The data sets that have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.errors import unknown

Pair = tuple[np.ndarray, np.ndarray]  # x, y
Split = tuple[Pair, Pair]  # training, test

_SETS: dict[str, Callable[..., Split]] = {}
_CLASSES: dict[str, tuple[str, ...]] = {}  # the meanings of the labels of a set


def data_set(name: str, classes: Iterable[str] = ()
             ) -> Callable[[Callable[..., Split]], Callable[..., Split]]:
    """Registers the function that loads a set, and the names of its classes, if they have any."""

    def register(function: Callable[..., Split]) -> Callable[..., Split]:
        _SETS[name], _CLASSES[name] = function, tuple(classes)
        return function

    return register


def names() -> list[str]:
    """The names of the data sets that `load` knows.

    Returns:
        A sorted list.

    Examples:
        >>> from ztorch import data
        >>> "digits" in data.names()
        True
    """
    return sorted(_SETS)


def class_names(name: str) -> tuple[str, ...]:
    """The names of the classes of a data set; none where nobody named them, or there is no such
    set.

    >>> class_names("poets")
    ('Shakespeare', 'Poe', 'Carroll')
    """
    return _CLASSES.get(name, ())


def load(name: str, **options: Any) -> Split:
    """Loads a data set.

    "digits", "digits_28", "friedman", "gaps", "poets", "verse", "shapes", "shapes_64" and
    "shape_masks" come with the package. "mnist", "fashion_mnist", "cifar10" and "cifar100" are read
    from files that you have.

    Args:
        name: The name of the set; `zt.data.names()` lists all.
        **options: Options of the set: `path`, the folder with its files, or for computed sets
            `rows` and the like.

    Returns:
        ((x_train, y_train), (x_test, y_test)). Images are float32 in 0 to 1.

    Raises:
        UnknownName: There is no such set.
        DataError: The files are missing or damaged; the message says where to get them.

    Examples:
        >>> from ztorch import data
        >>> (x, y), (x_test, y_test) = data.load("digits")
        >>> x.shape, x_test.shape
        ((1433, 8, 8, 1), (364, 8, 8, 1))
    """
    if not isinstance(name, str) or name not in _SETS:
        raise unknown("data set", name, _SETS)
    return checked(_SETS[name])(**options)
