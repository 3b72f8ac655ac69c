"""Work on weights that never change moves out of the step: done once, by a function of its own.

In a program that only predicts, a copy of weights (packed for a product, transposed, padded) is the
same at every call. It becomes a state that is derived from the others; the function `prepare` fills
all such states, and runs when the program is loaded and whenever weights are set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ztorch.graph.op import leaf
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, attribute_key
from ztorch.lower.region import COPY


@dataclass
class Derived:
    """The states that `prepare` computes, by what they are made of."""

    updates: dict[str, Value] = field(default_factory=dict)
    _known: dict[tuple, Value] = field(default_factory=dict)

    def take(self, graph: Graph) -> Graph:
        """The graph with every copy of states alone replaced by a derived state."""
        constant: dict[Value, bool] = {}
        new: dict[Value, Value] = {}
        roots = set(graph.roots)  # each call has to deliver these itself
        for v in graph.nodes():
            if v.op.kind == "leaf":
                constant[v] = v.attrs["role"] == "state"
            else:
                constant[v] = bool(v.args) and all(constant[a] for a in v.args)
            made = rebuilt(v, tuple(new[a] for a in v.args))
            moves = v.op is COPY and constant[v] and v not in roots
            new[v] = self._state(v) if moves else made
        return graph.with_roots(new[r] for r in graph.roots)

    def _state(self, v: Value) -> Value:
        key = _structure(v)
        if key not in self._known:
            name = f"derived/{len(self._known)}"
            self._known[key] = leaf("state", name, v.shape, v.dtype, kind="derived")
            self.updates[name] = v
        return self._known[key]


def _structure(v: Value) -> tuple:
    if v.op.kind == "leaf":
        return ("leaf", v.attrs["name"])
    return (v.op.name, attribute_key(v.attrs), *map(_structure, v.args))
