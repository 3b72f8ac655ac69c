"""Who listens where `fit` calls out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ztorch.callbacks.callback import HOOKS, Callback
from ztorch.errors import ConfigError, nearest


class Hooks:
    """The callbacks of one run; each hook holds only those that override it."""

    def __init__(self, callbacks: Iterable[Callback], program: Any, params: dict[str, Any]):
        self.callbacks = sorted(callbacks, key=lambda c: c.order)
        for callback in self.callbacks:
            callback.set_params(params)
            callback.set_program(program)
        self._called = {name: [getattr(c, name) for c in self.callbacks if c.listens(name)]
                        for name in HOOKS}

    def has(self, name: str) -> bool:
        """Whether anybody listens to a hook; the loop need not prepare logs for nobody."""
        return bool(self._called[name])

    def call(self, name: str, *args: Any) -> None:
        for function in self._called[name]:
            function(*args)


def checked(callbacks: Callback | Iterable[Callback] | None) -> list[Callback]:
    """A list of callbacks from what the user gave."""
    given: list[Any] = ([] if callbacks is None else
                        list(callbacks) if isinstance(callbacks, Iterable) else [callbacks])
    for one in given:
        if not isinstance(one, Callback):
            hint = ("; pass an instance: add ()" if isinstance(one, type) else
                    "; pass instances, such as EarlyStopping()")
            raise ConfigError(f"{one!r} is not a ztorch.callbacks.Callback{hint}")
        kind = type(one)
        for name in dir(kind):
            if name.startswith("on_") and name not in HOOKS and callable(getattr(kind, name)):
                warnings.warn(f"fit never calls {kind.__name__}.{name}"
                              f"{nearest(name, HOOKS) or '.'} Known: {', '.join(HOOKS)}",
                              stacklevel=4)
    return given
