"""A record of the calls of public ops, for those who need the ops and not only their primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from ztorch.graph.value import Value


class OpCall(NamedTuple):
    """One call of a public op."""

    name: str  # of the op
    args: tuple[Any, ...]  # positional arguments
    attrs: dict[str, Any]  # keyword arguments


_calls: ContextVar[dict[Value, list[OpCall]] | None] = ContextVar("calls", default=None)


@contextmanager
def record_calls() -> Iterator[dict[Value, list[OpCall]]]:
    """Records which calls of public ops made each value, the innermost call first.

    The graph holds only primitives; the record tells that some of them were a softmax.
    """
    calls: dict[Value, list[OpCall]] = {}
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an op; inside `record_calls` one that also records its calls.

    Args:
        name: The op.
        function: Its function of values.
    """
    calls = _calls.get()
    if calls is None:
        return function

    def called(*args: Any, **attrs: Any) -> Any:
        y = function(*args, **attrs)
        if isinstance(y, Value) and not any(y is a for a in args):
            calls.setdefault(y, []).append(OpCall(name, args, attrs))
        return y

    return called
