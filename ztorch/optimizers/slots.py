"""The states that an optimizer keeps for a weight."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import leaf
from ztorch.graph.value import Value


class Slots:
    """The states that an optimizer keeps for one weight. By default they have its shape and start
    at zero. `count` is the number of this step, from 1."""

    AVERAGE = "average"  # the state that holds the moving average of the weight

    def __init__(self, weight: Value, updates: dict[Value, Value], count: Value):
        self.weight_name: str = weight.attrs["name"]
        self.count = count
        self._weight = weight
        self._updates = updates
        self._leaves: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        return self._leaves[name] if name in self._leaves else self.state(name, self._weight.shape)

    def state(self, name: str, shape: tuple[int, ...], first: float = 0.0) -> Value:
        """The state with this name, shape and initial value."""
        if name not in self._leaves:
            d = self._weight.dtype
            self._leaves[name] = leaf(  # one number, seen as many
                "state", f"optimizer/{self.weight_name}/{name}", shape, d,
                np.broadcast_to(d.working.type(first), shape), trainable=False, kind="slot")
        return self._leaves[name]

    def set(self, name: str, value: Value) -> Value:
        """Sets the state after this step, and returns the value."""
        self._updates[self[name]] = value
        return value
