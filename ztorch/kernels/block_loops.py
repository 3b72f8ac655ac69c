"""Loops over blocks, such as `range(0, n, 64)`, whose iterations are independent.

They run at once, unless products of all blocks, such as scores, would take much memory. Then the
loop runs in order. If only a gradient would take much memory, for the states of loops inside of all
blocks, the loop runs at once and its gradient goes back through the blocks in order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from ztorch.errors import KernelError
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, topological
from ztorch.kernels.scope import KernelVariable, Scope
from ztorch.kernels.tiles import LoopTensor

MOST_AT_ONCE = 64 << 20  # bytes of a product, or of the arrays of the kernel, if they are larger
# Bytes of the states of all iterations of a loop, or of the arrays. Once the states of all blocks
# leave the cache, blocks in order are faster, too (0.6 to 0.96 of the time on a Zen 4).
MOST_STATES = 16 << 20


class _State(NamedTuple):
    """What a translation changes."""

    env: dict[str, KernelVariable]
    notes: dict[tuple[str, int], str]
    assigned: list[set[str]]


def run_blocks(t: Scope, s: ast.For, at_once: Callable[[], None],
               in_order: Callable[[], None]) -> None:
    """Translates a loop over blocks in one of two ways. Loops around it must run at once."""
    before = _saved(t)
    arrays = sum(_bytes(v) for v in _values(t))
    first = OPS.full((), 0).serial
    at_once()
    needs, states = _largest(_values(t), first), _states(_values(t), first)
    too_large = needs > max(MOST_AT_ONCE, arrays)
    if not too_large and states <= max(MOST_STATES, arrays):
        return
    after = _saved(t)
    _restore(t, before)
    first = OPS.full((), 0).serial
    try:
        in_order()
    except KernelError:  # shapes of a state would grow
        _restore(t, after)
        return
    if not too_large:
        t.env = {n: _with_gradient_of(v, t.env[n]) for n, v in after.env.items()}
        t.note_again(s, after.notes, f"a gradient goes back in order: at once, it would keep "
                     f"{states >> 20} MiB")
    elif _largest(_values(t), first) > max(MOST_AT_ONCE, arrays):
        _restore(t, after)  # perhaps a loop around it is the one to run in order
    else:
        t.note_more(s, f"at once, its products would take {needs >> 20} MiB")


def _with_gradient_of(x: KernelVariable, other: KernelVariable) -> KernelVariable:
    """A variable with the gradient of another way to compute it."""
    a, b = x.value, other.value
    if not (isinstance(a, LoopTensor) and isinstance(b, LoopTensor)) or a.value is b.value or (
            not a.dtype.is_float):
        return x
    [y] = with_gradient([OPS.stop_gradient(a.value)], [b.value], [], lambda slopes, *_: slopes)
    return replace(x, value=LoopTensor(y, a.axes, a.weak))


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


def _states(roots: Iterable[Value], first: int) -> int:
    """The bytes of the states of all iterations of a loop, with those of loops in it, that a
    gradient may keep. Of the loops among values made since `first`, the one with most counts."""
    most = 0
    for v in topological(roots):
        if v.serial >= first and v.op.kind == "loop":
            body = v.attrs["body"]
            state = sum(_bytes(c) for c, new in zip(body.carries, body.news, strict=True)
                        if c is not new)
            most = max(most, body.trip_count * max(state, _states(body.roots, first)))
    return most


def _bytes(v: Value) -> int:
    return v.size * v.dtype.bytes
