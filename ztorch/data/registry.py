"""The registry of data sets that `load` finds by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.errors import unknown

Pair = tuple[np.ndarray, np.ndarray]  # x, y
Split = tuple[Pair, Pair]  # training, test

_SETS: dict[str, Callable[..., Split]] = {}
_CLASSES: dict[str, tuple[str, ...]] = {}  # names of classes, by data set


def data_set(name: str, classes: Iterable[str] = ()
             ) -> Callable[[Callable[..., Split]], Callable[..., Split]]:
    """Registers a function that loads a data set, with the names of its classes."""

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
    """The names of the classes of a data set; empty if they have none, or there is no such set.

    >>> class_names("poets")
    ('Shakespeare', 'Poe', 'Carroll')
    """
    return _CLASSES.get(name, ())


def load(name: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Split:
    """Loads a data set.

    "digits", "digits_28", "friedman", "gaps", "poets", "verse", "shapes", "shapes_64" and
    "shape_masks" ship with the package. "mnist", "fashion_mnist", "cifar10" and "cifar100" are read
    from files that you download.

    Args:
        name: The name of the set; `zt.data.names()` lists all.
        path: The folder with the files of a set that you downloaded. Default: `None`.
        **options: Options of computed sets, such as `rows`.

    Returns:
        ((x_train, y_train), (x_test, y_test)). Images are float32 in 0 to 1.

    Raises:
        UnknownName: There is no such set.
        DataError: The files are missing or damaged; the message says where to download them.

    Examples:
        >>> from ztorch import data
        >>> (x, y), (x_test, y_test) = data.load("digits")
        >>> x.shape, x_test.shape
        ((1433, 8, 8, 1), (364, 8, 8, 1))
    """
    if not isinstance(name, str) or name not in _SETS:
        raise unknown("data set", name, _SETS)
    if path is not None:
        options["path"] = path
    return checked(_SETS[name])(**options)
