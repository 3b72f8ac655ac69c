"""Loops over blocks, such as `range(0, n, 64)`, whose iterations are independent.

They run at once, unless products of all blocks, such as scores, would take much memory. Then the
loop runs in order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ztorch.errors import KernelError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, topological
from ztorch.kernels.scope import Scope, Variable
from ztorch.kernels.tiles import LoopTensor

MOST_AT_ONCE = 64 << 20  # bytes of a product, or of the arrays of the kernel, if they are larger


class _State(NamedTuple):
    """What a translation changes."""

    env: dict[str, Variable]
    notes: dict[tuple[str, int], str]
    assigned: list[set[str]]


def run_blocks(t: Scope, s: ast.For, at_once: Callable[[], None],
               in_order: Callable[[], None]) -> None:
    """Translates a loop over blocks in one of two ways. Loops around it must run at once."""
    before = _saved(t)
    most = max(MOST_AT_ONCE, sum(_bytes(v) for v in _values(t)))
    first = OPS.full((), 0).serial
    at_once()
    needs = _largest(_values(t), first)
    if needs <= most:
        return
    after = _saved(t)
    _restore(t, before)
    first = OPS.full((), 0).serial
    try:
        in_order()
    except KernelError:  # shapes of a state would grow
        _restore(t, after)
        return
    if _largest(_values(t), first) > most:
        _restore(t, after)  # perhaps a loop around it is the one to run in order
        return
    t.note_more(s, f"at once, its products would take {needs >> 20} MiB")


def _saved(t: Scope) -> _State:
    return _State(dict(t.env), dict(t.notes), [set(names) for names in t.assigned])


def _restore(t: Scope, state: _State) -> None:
    """Set what a translation changes back; functions that call one another share notes."""
    t.env = dict(state.env)
    t.notes.clear()
    t.notes.update(state.notes)
    t.assigned[:] = [set(names) for names in state.assigned]


def _values(t: Scope) -> list[Value]:
    return [v.value.value for v in t.env.values() if isinstance(v.value, LoopTensor)]


def _largest(roots: Iterable[Value], first: int) -> int:
    """The bytes of the largest product or result of a loop among values made since one with the
    number `first`."""
    largest = 0
    for v in topological(roots):
        if v.serial < first:
            continue
        if v.op.kind in ("contract", "result"):
            largest = max(largest, _bytes(v))
        elif v.op.kind == "loop":
            largest = max(largest, _largest(v.attrs["body"].roots, first))
    return largest


def _bytes(v: Value) -> int:
    return v.size * v.dtype.bytes
