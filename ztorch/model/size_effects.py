"""Finds effects of the size of a batch, such as in `x * ops.shape(x)[0]` or `sum(ones_like(x))`.

Rows of padding would change such numbers. A graph alone does not tell them from others, so the
function is traced a second time with one more row, and the two graphs are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.graph.body import Body
from ztorch.graph.value import Graph, Value
from ztorch.layers.axis_numbers import begins_with
from ztorch.layers.network import Network
from ztorch.model.own_code import has_own_code

# Roles of leaves that are known to have rows: inputs, and in loops what arguments have.
_WITH_ROWS = ("input", "carry", "slice", "shared")


@dataclass
class SizeEffects:
    """Compares graphs of a function for `rows` rows and for one more.

    Args:
        rows: The size of the batch of the first graph.

    Attributes:
        places: Values that have a part for each row, though none of their arguments has one, such
            as `ops.arange(rows)`, and the place of the batch in each.
        even: Those of them that are the same in each row, such as a bias, whose rows may as well be
            at another place of the axis.

    Examples:
        >>> from ztorch.graph.op import OPS, leaf
        >>> from ztorch.graph.value import topological
        >>> def nodes(rows):
        ...     x = leaf("input", "x", (rows, 3), "float32")
        ...     return topological([x * rows])
        >>> SizeEffects(4).first(nodes(4), nodes(5))
        <full f32[4x3]>
    """

    rows: int
    places: dict[Value, int] = field(default_factory=dict)
    even: set[Value] = field(default_factory=set)

    def first(self, nodes: Sequence[Value], larger: Sequence[Value]) -> Value | None:
        """The first value whose numbers follow from the size of the batch; None if there is none.
        The arguments are all values of the two graphs, each after its arguments."""
        number = {v: k for k, v in enumerate(nodes)}
        number_in_larger = {v: k for k, v in enumerate(larger)}
        for v, w in zip(nodes, larger, strict=False):
            same_args = [number[a] for a in v.args] == [number_in_larger[a] for a in w.args]
            if not (same_args and v.op.name == w.op.name and v.rank == w.rank
                    and self._alike(v, w) and self._follows_rows(v, w)):
                return v
        return None if len(nodes) == len(larger) else nodes[-1]

    def _alike(self, v: Value, w: Value) -> bool:
        """Whether two values have the same attributes, but for sizes."""
        if v.op.name == "full":
            return repr(v.attrs["value"]) == repr(w.attrs["value"])
        if v.attrs.get("role") == "state":  # values that are not drawn for the comparison
            return v.attrs["name"] == w.attrs["name"]
        if v.attrs.keys() != w.attrs.keys():
            return False
        return all(self._same(a, w.attrs[name]) for name, a in v.attrs.items() if name != "name")

    def _same(self, a: Any, b: Any) -> bool:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return begins_with(b, a)
        if isinstance(a, Body) and isinstance(b, Body):
            return ((a.trip_count == b.trip_count or not a.carries)
                    and self.first(a.nodes, b.nodes) is None)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(map(self._same, a, b))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return a.keys() == b.keys() and all(self._same(x, b[name]) for name, x in a.items())
        if isinstance(a, int) and isinstance(b, int):
            return a == b or a * (self.rows + 1) == b * self.rows
        return not isinstance(a, (float, str)) or repr(a) == repr(b)

    def _follows_rows(self, v: Value, w: Value) -> bool:
        """Records the place of rows in a value whose arguments have none. False where there is no
        single place."""
        axes = [k for k, (n, m) in enumerate(zip(v.shape, w.shape, strict=True)) if n != m]
        if not axes or v.op.kind == "result" or v.attrs.get("role") in _WITH_ROWS or any(
                a.shape != b.shape for a, b in zip(v.args, w.args, strict=True)):
            return True
        if len(axes) > 1 or v.shape[axes[0]] % self.rows:
            return False
        self.places[v] = math.prod(v.shape[:axes[0]])
        if v.op.name in ("full", "broadcast_to"):
            self.even.add(v)
        return True


def larger_graph(model: Network, rows: int, trace: Callable[[int], Graph],
                 parts: Iterable[Any] = ()) -> Graph | None:
    """The graph of a function for one more row than a batch has. None where batches are never
    padded, a file fixes their size, or neither the model nor the other parts, such as losses, have
    code of a user. Empty where that size is an error in such code, which then depends on it."""
    if rows == 1 or model.declared_batch_size or not has_own_code((model, *parts)):
        return None
    try:
        return trace(rows + 1)
    except Exception:
        return Graph({})
