"""Moves work on constant weights out of the step, into a function that runs once.

In a program that only predicts, a value that depends on weights and constants alone (packed for a
product, transposed, scaled) is the same in every call. It becomes a derived state. If it only
rearranges one weight that nothing else reads, only the packed form is stored, and loading or
setting the weight packs it. All other derived states are computed by the function `prepare`, which
runs when the program is loaded and whenever weights are set. What is small and depends on constants
alone is computed while the program is compiled, as in `graph/fold.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ztorch.graph.body import first_values
from ztorch.graph.evaluate import evaluate
from ztorch.graph.fold import LIMIT
from ztorch.graph.op import constant, leaf
from ztorch.graph.rewrite import filled, rebuilt
from ztorch.graph.value import Graph, Value, attribute_key, not_evaluated, topological
from ztorch.lower.region import COPY, is_view
from ztorch.lower.rewrites.winograd import AT_POINTS


class Order(NamedTuple):
    """How the array of a state is rearranged into the stored array: `reshape` to a shape,
    `transpose` by axes, `pad` with zeros before and after each axis."""

    shape: tuple[int, ...]  # of the stored array
    steps: tuple[tuple[str, tuple[int, ...]], ...]  # the name and the numbers of each step


@dataclass
class Derived:
    """The states that are derived from other states."""

    changing: Collection[str] = ()  # names of states that functions change
    updates: dict[str, Value] = field(default_factory=dict)  # values of derived states, by name
    panels: dict[int, int] = field(default_factory=dict)  # their columns, by value number
    _known: dict[int, Value] = field(default_factory=dict)  # derived states, by value number
    _lasting: dict[Value, bool] = field(default_factory=dict)  # whether a value never changes
    _numbers: dict[Value, int] = field(default_factory=dict)  # value numbers
    _keys: dict[tuple, int] = field(default_factory=dict)  # value number of each computation

    def lasts(self, v: Value) -> bool:
        """Whether a value depends only on states that never change."""
        for w in topological([v], self._lasting):
            if w not in self._lasting:
                self._lasting[w] = (self._is_constant(w) if w.op.kind == "leaf" else
                                    _all_but_fills(self._lasting, w))
        return self._lasting[v]

    def bind(self, leaves: Iterable[Value], values: Iterable[Value]) -> None:
        """Gives leaves in the body of a loop the properties of the loop's arguments."""
        for leaf_value, v in zip(leaves, values, strict=True):
            self._lasting[leaf_value] = self.lasts(v)
            if self._lasting[leaf_value]:
                self._numbers[leaf_value] = self._number(v)

    def columns(self, v: Value, count: int) -> int:
        """The columns of the panels in which a value is packed: those of the first function that
        packs it, so that it is stored once."""
        return self.panels.setdefault(self._number(v), count)

    def _is_constant(self, v: Value) -> bool:
        return v.attrs["role"] == "constant" or (
            v.attrs["role"] == "state" and v.attrs["name"] not in self.changing)

    def take(self, graph: Graph) -> Graph:
        """The graph with derived states in place of the values that depend on states alone, if the
        step reads such a value and it takes no more memory than its operands."""
        known: dict[Value, bool] = {}
        nodes = graph.nodes()
        for v in nodes:
            known[v] = self._is_constant(v) if v.op.kind == "leaf" else _all_but_fills(known, v)
        needed = {a for v in nodes if not known[v] for a in _computed(v)}
        new: dict[Value, Value] = {}
        roots = {*graph.roots, *first_values(nodes)}  # each call has to write these
        for v in nodes:
            rebuilt_value = rebuilt(v, tuple(new[a] for a in v.args))
            moves = v.args and known[v] and v not in roots and (
                v.op in (COPY, AT_POINTS)
                or (v in needed and v.size <= sum(a.size for a in v.args if not filled(a))))
            new[v] = self._state(v) if moves and self._can_move(v) else rebuilt_value
        return graph.with_roots(new[r] for r in graph.roots)

    def packed(self, read: Collection[str]) -> dict[str, tuple[str, Order]]:
        """The weights of which only the packed form needs to be stored: for each, its derived state
        and the order of its numbers. `read` has the names of the states that kernels read."""
        states = {name: v for name, v in self.updates.items() if name in read}
        sources = {name: [w.attrs["name"] for w in topological([v]) if w.op.kind == "leaf"]
                   for name, v in states.items()}
        readers = Counter(state for names in sources.values() for state in names)
        packed_weights = {}
        for name, v in states.items():
            order = _order(v)
            state = sources[name][0]
            if order is not None and state not in read and readers[state] == 1:
                packed_weights[state] = name, order
        return packed_weights

    def _can_move(self, v: Value) -> bool:
        return True

    def _state(self, v: Value) -> Value:
        if v.nbytes <= LIMIT and _is_computable(v):
            return constant(evaluate([v], {})[0], v.dtype)
        number = self._number(v)
        if number not in self._known:
            name = f"derived/{len(self._known)}"
            self._known[number] = leaf("state", name, v.shape, v.dtype, kind="derived")
            self.updates[name] = v
        return self._known[number]

    def _number(self, v: Value) -> int:
        """The value number of v: equal computations have the same number."""
        for w in topological([v], self._numbers):
            if w not in self._numbers:
                key = (_leaf_key(w) if w.op.kind == "leaf" else
                       (w.op, attribute_key(w.attrs), *(self._numbers[a] for a in w.args)))
                self._numbers[w] = self._keys.setdefault(key, len(self._keys))
        return self._numbers[v]


class Stored(Derived):
    """Values of constants alone, in programs without a function that runs once: they are computed
    while the program is compiled, and stored."""

    def _is_constant(self, v: Value) -> bool:
        return bool(v.attrs["role"] == "constant")

    def _can_move(self, v: Value) -> bool:
        return _is_computable(v)

    def _state(self, v: Value) -> Value:
        return constant(evaluate([v], {})[0], v.dtype)


def _is_computable(v: Value) -> bool:
    """Whether a value depends on constants alone, by ops that NumPy computes."""
    return all((w.op.kind in ("map", "reduce") and w.op.numpy is not not_evaluated)
               or w.attrs.get("role") == "constant" for w in topological([v]))


def _leaf_key(v: Value) -> tuple:
    """The key of a state, or of a constant, whose name is that of others of its size."""
    is_constant = v.attrs["role"] == "constant"
    return ("leaf", v.attrs["name"], id(v.attrs["data"]) if is_constant else 0)


def _all_but_fills(constant: Mapping[Value, bool], v: Value) -> bool:
    """Whether a value has constant arguments, and beside them only fills, such as the epsilon that
    a normalization adds to a variance."""
    return any(constant[a] for a in v.args) and all(constant[a] or filled(a) for a in v.args)


def _order(v: Value) -> Order | None:
    """The order in which a value holds the numbers of its one state; None if it computes, or if it
    repeats or drops numbers."""
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
    return Order(shape, tuple(reversed(steps))) if v.attrs["role"] == "state" else None


def _computed(v: Value) -> Iterator[Value]:
    """The computed operands of v, looking through views."""
    for a in v.args:
        if is_view(a):
            yield from _computed(a)
        else:
            yield a
