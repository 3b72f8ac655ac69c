"""Moves work on weights that never change out of the step, to a function that runs once.

In a program that only predicts, a value made of weights alone (packed for a product, transposed,
scaled) is the same at every call. It becomes a state that is derived from the others. Where it only
moves the numbers of one weight that nothing else reads, the weight is in memory as it is packed,
once, and loading or setting it packs it. The function `prepare` fills all other such states, and
runs when the program is loaded and whenever weights are set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ztorch.graph.body import first_values
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, attribute_key, topological
from ztorch.lower.region import COPY, is_view
from ztorch.lower.winograd import AT_POINTS


class Order(NamedTuple):
    """How the array of a state becomes the one in its place: `reshape` to a shape, `transpose` by
    axes, `pad` with so many zeros before and after each axis."""

    shape: tuple[int, ...]  # of the array in its place
    steps: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass
class Derived:
    """The states that are derived from others, by their origin."""

    changing: Collection[str] = ()  # names of states that functions change
    updates: dict[str, Value] = field(default_factory=dict)
    _known: dict[int, Value] = field(default_factory=dict)  # by the numbers of their values
    _numbers: dict[Value, int] = field(default_factory=dict)
    _keys: dict[tuple, int] = field(default_factory=dict)  # number of each computation

    def take(self, graph: Graph) -> Graph:
        """The graph with every value of states alone replaced by a derived state, if each call
        needs it, and it takes no more memory than its origin."""
        constant: dict[Value, bool] = {}
        nodes = graph.nodes()
        for v in nodes:
            if v.op.kind == "leaf":
                constant[v] = v.attrs["role"] == "state" and v.attrs["name"] not in self.changing
            else:
                constant[v] = bool(v.args) and all(constant[a] for a in v.args)
        needed = {a for v in nodes if not constant[v] for a in _computed(v)}
        new: dict[Value, Value] = {}
        roots = {*graph.roots, *first_values(nodes)}  # each call has to write these itself
        for v in nodes:
            rebuilt_value = rebuilt(v, tuple(new[a] for a in v.args))
            moves = v.args and constant[v] and v not in roots and (
                v.op in (COPY, AT_POINTS)
                or (v in needed and v.size <= sum(a.size for a in v.args)))
            new[v] = self._state(v) if moves else rebuilt_value
        return graph.with_roots(new[r] for r in graph.roots)

    def packed(self, read: Collection[str]) -> dict[str, tuple[str, Order]]:
        """The weights that need to be in memory only as they are packed: each with the derived
        state that holds its numbers, and in which order. `read` are the names of the states that
        kernels read as they are."""
        kept = {name: v for name, v in self.updates.items() if name in read}
        sources = {name: [w.attrs["name"] for w in topological([v]) if w.op.kind == "leaf"]
                   for name, v in kept.items()}
        readers = Counter(state for names in sources.values() for state in names)
        packed_weights = {}
        for name, v in kept.items():
            order = _order(v)
            state = sources[name][0]
            if order is not None and state not in read and readers[state] == 1:
                packed_weights[state] = name, order
        return packed_weights

    def _state(self, v: Value) -> Value:
        number = self._number(v)
        if number not in self._known:
            name = f"derived/{len(self._known)}"
            self._known[number] = leaf("state", name, v.shape, v.dtype, kind="derived")
            self.updates[name] = v
        return self._known[number]

    def _number(self, v: Value) -> int:
        """The number of a value's computation: equal values share it."""
        for w in topological([v], self._numbers):
            if w not in self._numbers:
                key = (("leaf", w.attrs["name"]) if w.op.kind == "leaf" else
                       (w.op.name, attribute_key(w.attrs), *(self._numbers[a] for a in w.args)))
                self._numbers[w] = self._keys.setdefault(key, len(self._keys))
        return self._numbers[v]


def _order(v: Value) -> Order | None:
    """The order in which a value holds the numbers of the state that it is made of; None if it does
    more than move them, or holds some of them twice or not at all."""
    shape, steps = v.shape, []
    while v.args:
        if v.op is COPY:
            pass
        elif v.op.name == "reshape":
            steps.append(("reshape", v.shape))
        elif v.op.name == "transpose":
            steps.append(("transpose", tuple(v.attrs["axes"])))
        elif v.op.name == "pad" and v.attrs["value"] == 0:
            around = zip(v.attrs["low"], v.attrs["high"], strict=True)
            steps.append(("pad", tuple(n for pair in around for n in pair)))
        else:
            return None
        v = v.args[0]
    return Order(shape, tuple(reversed(steps)))


def _computed(v: Value) -> Iterator[Value]:
    """The computed operands of v, through views."""
    for a in v.args:
        if is_view(a):
            yield from _computed(a)
        else:
            yield a
