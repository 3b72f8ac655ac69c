"""What a layer may use while it is traced: its weights, the mode, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import DType, dtype, f32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, current_layer

if TYPE_CHECKING:
    from ztorch.layers.layer import Layer, Weight


@dataclass
class States:
    """The state leaves of a model, shared by all functions traced from it. Without `data` only
    shapes are traced, and no weight is drawn. Names are those within the model at `root`."""

    dtype: DType = f32
    seed: int = 0
    data: bool = True
    root: str = ""
    leaves: dict[str, Value] = field(default_factory=dict)

    def name(self, weight: Weight) -> str:
        """What the weight is called in the program."""
        return weight.path.removeprefix(f"{self.root}/")

    def leaf(self, name: str, shape: tuple[int, ...], d: DType | str,
             first: Callable[[], Any], **more: Any) -> Value:
        """The state of that name; made with its first values when first asked for."""
        if name not in self.leaves:
            d = dtype(d)
            array = np.asarray(first()).astype(d.working) if self.data else None
            self.leaves[name] = leaf("state", name, shape, d, array, **more)
        return self.leaves[name]


@dataclass(frozen=True)
class Range:
    """The whole numbers that a layer takes, both ends included."""

    low: int
    high: int
    layer: str


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
    results: dict[Layer, Value] = field(default_factory=dict)  # what each layer gave
    ranges: dict[Value, Range] = field(default_factory=dict)  # of inputs, checked on the host
    streams: int = 0

    @property
    def dtype(self) -> DType:
        """The float dtype the model computes in."""
        return self.states.dtype

    def read(self, weight: Weight) -> Value:
        """A weight as a tensor of the graph."""
        return self.states.leaf(self.states.name(weight), weight.shape, self.dtype,
                                lambda: weight.value, kind="weight", trainable=weight.trains)

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

    def need_range(self, x: Value, low: int, high: int) -> None:
        """x must hold whole numbers from low to high: where it is an input, the host checks its
        numbers before a step. Where it is computed, nobody does."""
        while x.op.movement and x.size >= x.args[0].size:  # holds all numbers of its argument
            x = x.args[0]
        known = self.ranges.get(x)
        if known is None or high - low < known.high - known.low:
            self.ranges[x] = Range(low, high, current_layer())
