"""What a layer may use while it is traced: its weights, the mode, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import DType, dtype, f32
from ztorch.graph.op import OPS, leaf, shape_error
from ztorch.graph.value import Value, current_layer
from ztorch.initializers import Shape

if TYPE_CHECKING:
    from ztorch.layers.decoding import Decoding
    from ztorch.layers.layer import Layer
    from ztorch.layers.weight import Weight


@dataclass
class States:
    """The state leaves of a model, shared by all functions traced from it. Without `data` only
    shapes are traced, and no weight is drawn. Names are those within the model at `root`.

    With `narrow`, matrices of weights are numbers of that dtype: they are kept in it, or with
    `exact`, so that small steps of training are not lost, rounded to it where they are read."""

    dtype: DType = f32
    narrow: DType | None = None
    exact: bool = False
    seed: int = 0
    data: bool = True
    root: str = ""
    leaves: dict[str, Value] = field(default_factory=dict)

    def name(self, weight: Weight) -> str:
        """What the weight is called in the program."""
        return weight.path.removeprefix(f"{self.root}/")

    def narrowed(self, weight: Weight) -> DType | None:
        """What a weight is rounded to; vectors, such as biases, are too small to be worth it."""
        return self.narrow if len(weight.shape) > 1 else None

    def kept_as(self, weight: Weight) -> DType:
        """The dtype of the state that keeps a weight."""
        return self.dtype if self.exact else self.narrowed(weight) or self.dtype

    def leaf(self, name: str, shape: tuple[int, ...], d: DType | str,
             first: Callable[[], Any], **more: Any) -> Value:
        """The state of that name; made with its first values when first asked for."""
        if name not in self.leaves:
            d = dtype(d)
            array = np.asarray(first()).astype(d.working) if self.data else None
            self.leaves[name] = leaf("state", name, shape, d, array, **more)
        return self.leaves[name]

    def cache(self, name: str, shape: tuple[int, ...]) -> Value:
        """What steps leave to later ones, of zeros at first; nobody need store it."""
        return self.leaf(name.removeprefix(f"{self.root}/"), shape, self.dtype,
                         lambda: np.zeros(shape), kind="cache", trainable=False)


# The layer that made a tensor, the innermost one, and what it was called on.
Producers = dict[Value, "tuple[Layer, list[Value]]"]


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
    results: dict[Layer, Any] = field(default_factory=dict)  # what each layer gave
    producers: Producers = field(default_factory=dict)
    ranges: dict[Value, Range] = field(default_factory=dict)  # of inputs, checked on the host
    losses: list[Value] = field(default_factory=list)  # what layers add, a number a row
    decoding: Decoding | None = None  # where one position is traced, not the whole row
    streams: int = 0

    @property
    def dtype(self) -> DType:
        """The float dtype the model computes in."""
        return self.states.dtype

    def read(self, weight: Weight) -> Value:
        """A weight as a tensor of the graph; as it was last written, where a layer is called
        again in the same step."""
        state = self._state(weight)
        now, narrow = self.updates.get(state, state), self.states.narrowed(weight)
        return now if narrow is None else OPS.cast(OPS.rounded_to(now, narrow), self.dtype)

    def stored(self, weight: Weight) -> Value:
        """The state that keeps a weight, which training changes."""
        return self._state(weight)

    def write(self, weight: Weight, value: Value) -> None:
        """The weight's value after this step (moving averages); ignored outside training."""
        if self.training:
            self.updates[self._state(weight)] = value

    def _state(self, weight: Weight) -> Value:
        return self.states.leaf(self.states.name(weight), weight.shape,
                                self.states.kept_as(weight), lambda: weight.value, kind="weight",
                                trainable=weight.trains)

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

    def add_loss(self, rows: Value) -> None:
        """Adds to the loss that training makes small, and that evaluating reports: a number for
        each row of the batch, which counts by the row's weight."""
        if rows.rank != 1 or not rows.dtype.is_float:
            raise shape_error("add_loss takes one number for each row of the batch, not",
                              rows.shape, fix="take the sum or the mean over all other axes")
        self.losses.append(rows)

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

    # -- where shapes come from --------------------------------------------------------------------

    def remember(self, layer: Layer, inputs: list[Value], y: Value) -> None:
        """y is what the layer made of these."""
        if y not in inputs:
            self.producers.setdefault(y, (layer, inputs))

    def origin(self, v: Value, other: Shape) -> str:
        """Names the layer that gave a tensor the size in which it differs from another."""
        wrong = differing(v.shape, other)
        while v in self.producers:
            layer, inputs = self.producers[v]
            if len(inputs) != 1 or differing(inputs[0].shape, v.shape) & {-1, *wrong}:
                shapes = " and ".join(str(x.shape[1:]) for x in inputs)
                return f"layer {layer.name!r}, which makes {v.shape[1:]} of {shapes}"
            v = inputs[0]
        return f"{f'Input {v.layer!r}' if v.layer else 'the input'} of shape {v.shape[1:]}"


def differing(a: Shape, b: Shape) -> set[int]:
    """Axes along which two shapes differ; -1 stands for their number."""
    return {-1} if len(a) != len(b) else {k for k in range(len(a)) if a[k] != b[k]}
