"""The data sets that have a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.errors import unknown

Pair = tuple[np.ndarray, np.ndarray]  # x, y
Split = tuple[Pair, Pair]  # training, test

_SETS: dict[str, Callable[..., Split]] = {}


def data_set(name: str) -> Callable[[Callable[..., Split]], Callable[..., Split]]:
    """Registers the function that loads a set."""

    def register(function: Callable[..., Split]) -> Callable[..., Split]:
        _SETS[name] = function
        return function

    return register


def names() -> list[str]:
    """The names that `load` knows.

    >>> "digits" in names()
    True
    """
    return sorted(_SETS)


def load(name: str, **options: Any) -> Split:
    """A data set as ((x_train, y_train), (x_test, y_test)); images are float32 in 0..1.

        train, test = zt.data.load("digits")
        program.fit(*train, validation_data=test)
    """
    if not isinstance(name, str) or name not in _SETS:
        raise unknown("data set", name, _SETS)
    return checked(_SETS[name])(**options)
