"""What a layer may use while it is traced: its weights, the mode, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import DType, dtype, f32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value

if TYPE_CHECKING:
    from ztorch.layers.layer import Weight


@dataclass
class States:
    """The state leaves of a model, shared by all functions traced from it. Without `data` only
    shapes are traced, and no weight is drawn."""

    dtype: DType = f32
    seed: int = 0
    data: bool = True
    leaves: dict[str, Value] = field(default_factory=dict)

    def leaf(self, name: str, shape: tuple[int, ...], d: DType | str,
             first: Callable[[], Any], **more: Any) -> Value:
        """The state of that name; made with its first values when first asked for."""
        if name not in self.leaves:
            d = dtype(d)
            array = np.asarray(first()).astype(d.working) if self.data else None
            self.leaves[name] = leaf("state", name, shape, d, array, **more)
        return self.leaves[name]


@dataclass
class Context:
    """One function being traced. `training` is true inside the training step only.

    >>> from ztorch.graph.op import leaf
    >>> from ztorch.layers import Dense
    >>> x = leaf("input", "x", (32, 8), "float32")
    >>> Dense(4)(x, Context(training=False)).shape
    (32, 4)
    """

    training: bool = False
    states: States = field(default_factory=States)
    updates: dict[Value, Value] = field(default_factory=dict)
    probabilities: dict[Value, tuple[str, Value]] = field(default_factory=dict)
    streams: int = 0

    @property
    def dtype(self) -> DType:
        """The float dtype the model computes in."""
        return self.states.dtype

    def read(self, weight: Weight) -> Value:
        """A weight as a tensor of the graph."""
        return self.states.leaf(weight.path, weight.shape, self.dtype, lambda: weight.value,
                                kind="weight", trainable=weight.trains)

    def write(self, weight: Weight, value: Value) -> None:
        """The weight's value after this step (moving averages); ignored outside training."""
        if self.training:
            self.updates[self.read(weight)] = value

    def random(self, own_seed: int | None = None) -> tuple[Value, Value, int]:
        """(seed, step, stream) for one random op: fresh numbers each step, the same each run.
        A seed of the layer's own stands for its place in the model."""
        low, high = self.states.seed & 0xFFFFFFFF, self.states.seed >> 32
        seed = self.states.leaf("random/seed", (2,), "uint32", lambda: [low, high],
                                kind="counter", trainable=False)
        step = self.states.leaf("random/step", (), "uint32", lambda: 0, kind="counter",
                                trainable=False)
        self.updates[step] = OPS.add(step, 1)
        if own_seed is not None:
            return seed, step, 1 << 31 | own_seed & 0x7FFFFFFF  # apart from all places
        self.streams += 1
        return seed, step, self.streams - 1

    def remember_logits(self, y: Value, activation: str, logits: Value) -> None:
        """y is softmax or sigmoid of these: a loss on y then works from the logits, safely."""
        self.probabilities[y] = (activation, logits)
