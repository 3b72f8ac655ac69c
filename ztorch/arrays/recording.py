"""Records calls of ops: they are checked at once and computed later."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any

from ztorch.arrays.calls import Call
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.long_loops import compute_iterations
from ztorch.arrays.node import TensorNode, keeps_operands, pending
from ztorch.arrays.realize import realize
from ztorch.host.settings import current

MAX_DEPTH = 200  # the depth of recorded calls at which they are computed


class _Laziness(threading.local):
    """Whether this thread records calls."""

    def __init__(self) -> None:
        self.on = current().lazy


_laziness = _Laziness()
_by_default = _laziness.on
# Not empty while any thread may compute at once. Otherwise recording skips the check.
eager: list[bool] = [] if _by_default else [True]


def _switch(on: bool) -> None:
    if on is not _laziness.on and _by_default:
        if on:
            eager.pop()
        else:
            eager.append(True)
    _laziness.on = on


class lazy:
    """Switches recording on or off in this thread; in a `with` statement, for its block only.

    Without recording, each op is computed at once. This is slower, but a debugger sees every
    result, and an error is raised at the op that causes it.

    Args:
        on: Whether ops are recorded. Default: `True`.

    Examples:
        >>> import ztorch as zt
        >>> with zt.lazy(False):
        ...     print(zt.tensor([1.0, 2.0]) * 2)
        [2. 4.]
    """

    def __init__(self, on: bool = True):
        self._before = _laziness.on
        _switch(bool(on))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _switch(self._before)


def record(call: Call, operands: tuple[Any, ...]) -> list[TensorNode]:
    """Pending nodes for the results of a call.

    Args:
        call: The call that computes them.
        operands: A node for each tensor, and numbers.
    """
    depth = 0
    for o in operands:
        if type(o) is TensorNode and o.depth > depth:
            depth = o.depth
    if call.quick and call.single:
        return [record_quick(call, operands, depth)]
    if call.integers:
        call, operands = call.fitting(operands)
    if depth >= MAX_DEPTH:
        depth = _computed_depth(operands, depth)
    results = [pending(s, call, operands, k, depth + 1) if alias is None else operands[alias]
               for k, (s, alias) in enumerate(zip(call.results, call.aliases, strict=True))]
    if len(results) > 1:
        siblings = list(map(weakref.ref, results))
        for node in results:
            if node.call is call:  # not an operand
                node.siblings = siblings
    if not _laziness.on and not is_tracing():
        realize(results)
    return results


def record_quick(call: Call, operands: tuple[Any, ...], depth: int) -> TensorNode:
    """A pending node for the only result of a call whose `quick` is true.

    Args:
        call: The call that computes them.
        operands: A node for each tensor, and numbers.
        depth: The greatest depth among the nodes.
    """
    if depth >= MAX_DEPTH:
        depth = _computed_depth(operands, depth)
    node = TensorNode()  # inlines `pending`: calling it would double the time
    node.spec = call.result
    node.block = node.siblings = None
    node.call = call
    node.operands = operands
    node.index = 0
    node.depth = depth + 1
    if eager and not _laziness.on and not is_tracing():
        realize((node,))
    return node


def _computed_depth(operands: tuple[Any, ...], depth: int) -> int:
    """The depth of operands after most tensors that they depend on are computed. A long Python loop
    that reads no values would record a graph without limit."""
    if is_tracing():
        return depth
    if keeps_operands():
        realize([o for o in operands if type(o) is TensorNode])
        return 0
    return compute_iterations(operands)
