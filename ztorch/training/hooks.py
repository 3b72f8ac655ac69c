"""The callbacks of one run of `fit`, `evaluate` or `predict`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ztorch.callbacks.callback import HOOKS, SHORTER, Callback
from ztorch.errors import ConfigError, nearest
from ztorch.terminal.progress import Progress


class Hooks:
    """Calls the callbacks of a run. Hooks that no callback overrides cost nothing.

    Args:
        callbacks: The callbacks, which run in the order of their `order`.
        program: The program that runs.
        params: Information about the run, as in `Callback.params`.
    """

    def __init__(self, callbacks: Iterable[Callback], program: Any, params: dict[str, Any]):
        self.callbacks = sorted(callbacks, key=lambda c: c.order)
        for callback in self.callbacks:
            callback.set_params(params)
            callback.set_program(program)
        self._functions = {name: [c.method(name) for c in self.callbacks if c.listens(name)]
                           for name in HOOKS}

    def has(self, name: str) -> bool:
        """Whether a callback overrides the hook; otherwise the loop need not compute its logs."""
        return bool(self._functions[name])

    def call(self, name: str, *args: Any) -> None:
        """Calls a hook of all callbacks that override it."""
        for function in self._functions[name]:
            function(*args)


def own_progress(progress: Progress, callbacks: Iterable[Callback]) -> Progress:
    """The progress that a loop shows; a silent one if a callback shows the progress."""
    return Progress(0) if any(c.shows_progress for c in callbacks) else progress


def as_callbacks(callbacks: Callback | Iterable[Callback] | None,
                 stacklevel: int) -> list[Callback]:
    """The user's callbacks as a list. Warns of methods whose names resemble hooks; `stacklevel`
    counts the frames from here to the user's call."""
    if callbacks is None:
        return []
    listed: list[Any] = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in listed:
        if not isinstance(callback, Callback):
            hint = ("; pass an instance: add ()" if isinstance(callback, type) else
                    "; pass instances, such as EarlyStopping()")
            raise ConfigError(f"{callback!r} is not a ztorch.callbacks.Callback{hint}")
        kind = type(callback)
        for name in dir(kind):
            is_hook = name in HOOKS or name in SHORTER.values()
            if name.startswith("on_") and not is_hook and callable(getattr(kind, name)):
                warnings.warn(f"nothing calls {kind.__name__}.{name}"
                              f"{nearest(name, HOOKS) or '.'} Known: {', '.join(HOOKS)}",
                              stacklevel=stacklevel)
    return listed
