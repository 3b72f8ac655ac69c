"""The context of a trace: weights as tensors, the mode, and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import DType, dtype, f32
from ztorch.graph.narrow import Rounding
from ztorch.graph.op import OPS, leaf, shape_error
from ztorch.graph.value import Value, current_layer
from ztorch.initializers import Shape
from ztorch.layers.axes import differing
from ztorch.layers.real_positions import Padding, spread
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import FirstValue, Weight, tracing

if TYPE_CHECKING:
    from ztorch.layers.decoding import Decoding, Prefill


@dataclass
class States:
    """The states of a model as leaves, shared by all functions that are traced from it."""

    dtype: DType = f32  # of computations
    rounding: Rounding = field(default_factory=Rounding)  # of weight matrices, in mixed precision
    exact: bool = False  # keep them in `dtype` and round on read, as training needs
    seed: int = 0  # of random numbers
    data: bool = True  # False: trace shapes only, and draw no initial values
    root: str = ""  # path of the model, which names leave out
    leaves: dict[str, Value] = field(default_factory=dict)  # by name

    def name(self, weight: Weight) -> str:
        """The name of a weight in the program."""
        return weight.path.removeprefix(f"{self.root}/")

    def narrowed(self, weight: Weight) -> DType | None:
        """The dtype to which a weight is rounded. Vectors, such as biases, are not rounded."""
        return self.rounding.of(weight.layer.path) if len(weight.shape) > 1 else None

    def kept_as(self, weight: Weight) -> DType:
        """The dtype of the state that holds a weight."""
        return self.dtype if self.exact else self.narrowed(weight) or self.dtype

    def leaf(self, name: str, shape: tuple[int, ...], d: DType | str,
             first: Callable[[], Any],
             deferred: Callable[[], Callable[[], Any] | None] | None = None, **more: Any) -> Value:
        """The state with this name. The first call creates it; `first` is called when values are
        needed, or what `deferred` returns then."""
        if name not in self.leaves:
            data = FirstValue(first, dtype(d).working, deferred) if self.data else None
            self.leaves[name] = leaf("state", name, shape, d, data, **more)
        return self.leaves[name]

    def cache(self, name: str, shape: tuple[int, ...]) -> Value:
        """A state that steps write for later steps. It starts at zero and is not saved."""
        return self.leaf(name.removeprefix(f"{self.root}/"), shape, self.dtype,
                         lambda: np.zeros(shape), kind="cache", trainable=False)


Producers = dict[Value, tuple[LayerNode, list[Value]]]  # of tensors: innermost layers, arguments


class Range(NamedTuple):
    """The integers that a layer accepts, both ends included."""

    low: int
    high: int
    layer: str  # its path, for the error


@dataclass
class Context:
    """A function while it is traced.

    >>> from ztorch.graph.op import leaf
    >>> from ztorch.layers import Dense
    >>> x = leaf("input", "x", (32, 8), "float32")
    >>> Dense(4)(x, Context(training=False)).shape
    (32, 4)
    """

    training: bool | None = False  # the mode; None: each layer's own, outside of a program
    states: States = field(default_factory=States)
    updates: dict[Value, Value] = field(default_factory=dict)  # new value of each changed state
    probabilities: dict[Value, tuple[str, Value]] = field(default_factory=dict)  # and their logits
    results: dict[LayerNode, Any] = field(default_factory=dict)  # the result of each layer
    producers: Producers = field(default_factory=dict)
    ranges: dict[Value, Range] = field(default_factory=dict)  # of inputs; the host checks them
    losses: list[Value] = field(default_factory=list)  # added by layers, one number per row
    penalties: list[Value] = field(default_factory=list)  # added by layers, scalars
    keepers: dict[Value, LayerNode] = field(default_factory=dict)  # of persistent states
    masks: dict[Value, Value] = field(default_factory=dict)  # of tensors whose steps may be masked
    joined_masks: dict[tuple[Value, Value], Value] = field(default_factory=dict)  # with padding
    padding: Padding = field(default_factory=Padding)  # axes that are padded to a larger size
    decoding: Decoding | None = None  # set while a single position of each row is traced
    prefill: Prefill | None = None  # set while whole rows are traced to fill caches
    caches: dict[str, int] = field(default_factory=dict)  # calls that use each, by name
    recomputed: list[str] = field(default_factory=list)  # paths of layers, see Graph.recomputed
    streams: int = 0  # number of random streams in use
    stepped: LayerNode | None = None  # the model whose custom step is traced
    assigned: list[Weight] = field(default_factory=list)  # by `Weight.assign`

    @property
    def dtype(self) -> DType:
        """The float dtype the model computes in."""
        return self.states.dtype

    def read(self, weight: Weight) -> Value:
        """A weight as a tensor. A layer that is called twice in a step sees its own writes."""
        now, narrow = self.current(weight), self.states.narrowed(weight)
        return now if narrow is None else OPS.cast(OPS.rounded_to(now, narrow), self.dtype)

    def current(self, weight: Weight) -> Value:
        """The state of a weight, or its value so far in this step."""
        return self.updates.get(state := self.stored(weight), state)

    def assign(self, weight: Weight, value: Value) -> None:
        """Sets a weight for the rest of the traced step. Gradients do not flow through it."""
        self.updates[self.stored(weight)] = OPS.stop_gradient(OPS.cast(value, self.dtype))
        self.assigned.append(weight)

    def write(self, weight: Weight, value: Value) -> None:
        """Sets a weight after this step, such as a moving average. Ignored outside of training."""
        if self.training:
            constant = value if self.stepped is None else OPS.stop_gradient(value)
            self.updates[self.stored(weight)] = constant

    def stored(self, weight: Weight) -> Value:
        """The state of a weight, which training updates."""
        return self.states.leaf(self.states.name(weight), weight.shape,
                                self.states.kept_as(weight), weight.first_value,
                                weight.drawn_later, kind="weight", trainable=weight.trains)

    def keep(self, name: str, new: Value, axis: int) -> Value:
        """Writes keys or values of some rows to a cache, if there is one; `axis` has the positions.

        Returns those to attend to: the cache while a single position is traced, otherwise `new`.
        Entries of later positions hold arbitrary numbers; `Decoding.seen` masks them.
        """
        step = self.decoding or self.prefill
        if step is None:
            return new
        shape = (*new.shape[:axis], step.length, *new.shape[axis + 1:])
        cache = self.cache(name, shape)
        self.updates[cache] = step.placed(new, self.updates.get(cache, cache), axis)
        return new if self.decoding is None else self.updates[cache]

    def cache(self, name: str, shape: Shape) -> Value:
        """A cache of a layer. Each call of the layer has one of its own."""
        self.caches[name] = calls = self.caches.get(name, 0) + 1
        return self.states.cache(name if calls == 1 else f"{name}_{calls}", shape)

    def remembered_state(self, layer: LayerNode, name: str, shape: Shape) -> Value:
        """The value that the last call stored in a state of a layer with persistent states."""
        state = self._memory(layer, name, shape)
        return self.updates.get(state, state)

    def remember_state(self, layer: LayerNode, name: str, new: Value) -> None:
        """Stores a value for the next call, in training and elsewhere."""
        self.updates[self._memory(layer, name, new.shape)] = new

    def _memory(self, layer: LayerNode, name: str, shape: Shape) -> Value:
        path = f"{layer.path}/{name}".removeprefix(f"{self.states.root}/")
        state = self.states.leaf(path, shape, self.dtype, lambda: np.zeros(shape), kind="memory",
                                 trainable=False)
        self.keepers[state] = layer
        return state

    @property
    def memories(self) -> dict[str, Value]:
        """The new values of these states, by name."""
        return {state.attrs["name"]: new for state, new in self.updates.items()
                if state.attrs.get("kind") == "memory"}

    def random(self, own_seed: int | None = None) -> tuple[Value, Value, int]:
        """(seed, step, stream) of one random op: new numbers each step, the same in each run. The
        stream is the position of the call in the model, or the layer's own seed."""
        low, high = self.states.seed & 0xFFFFFFFF, self.states.seed >> 32
        seed = self.states.leaf("random/seed", (2,), "uint32", lambda: [low, high],
                                kind="counter", trainable=False)
        step = self.states.leaf("random/step", (), "uint32", lambda: 0, kind="counter",
                                trainable=False)
        self.updates[step] = OPS.add(step, 1)
        if own_seed is not None:
            return seed, step, 1 << 31 | own_seed & 0x7FFFFFFF  # no position has bit 31
        self.streams += 1
        return seed, step, self.streams - 1

    def add_loss(self, rows: Value) -> None:
        """Adds a term to the loss, in training and evaluation.

        Args:
            rows: One number per row of the batch, of which the mean is added; or a scalar.

        Raises:
            ShapeError: The term has other axes, or is an integer.
        """
        if rows.rank > 1 or not rows.dtype.is_float:
            raise shape_error("add_loss takes a float for each row of the batch, or a scalar, not",
                              rows.shape, fix="take the sum or the mean over other axes")
        (self.losses if rows.rank else self.penalties).append(rows)

    def remember_logits(self, y: Value, activation: str, logits: Value) -> None:
        """Records that y is the softmax or sigmoid of these logits, so that a loss can use them."""
        self.probabilities[y] = (activation, logits)

    def need_range(self, x: Value, low: int, high: int) -> None:
        """Requires integers from low to high in x. The host checks them, and only in inputs."""
        while x.op.movement and x.size >= x.args[0].size:  # it has all elements of its argument
            x = x.args[0]
        allowed = self.ranges.get(x)
        if allowed is None or high - low < allowed.high - allowed.low:
            self.ranges[x] = Range(low, high, current_layer())

    @contextmanager
    def calling(self, training: bool | None, default: bool | None = None) -> Iterator[None]:
        """In this block a layer is called: in `training` mode if given, otherwise in that of its
        caller, or its `default`; and with the weights that layers without a context use."""
        before, token = self.training, tracing.set(self)
        self.training = next((m for m in (training, before, default) if m is not None), None)
        try:
            yield
        finally:
            self.training = before
            tracing.reset(token)

    def mask_of(self, x: Any) -> Value | None:
        """The mask of a tensor: bool `(batch, steps)`, true at steps that count. `None` if all do.

        Steps that pad the tensor to a larger size do not count.
        """
        if not isinstance(x, Value):
            return None
        mask, real = self.masks.get(x), self.padding.along(x, 1)
        if mask is None or real is None or mask is real:
            return real if mask is None else mask
        if (mask, real) not in self.joined_masks:
            joined = OPS.bitwise_and(mask, spread(real, mask.rank, 1))
            # A layer may pass on the joined mask; joining it again changes nothing.
            self.joined_masks |= {(mask, real): joined, (joined, real): joined}
        return self.joined_masks[mask, real]

    def set_mask(self, x: Value, mask: Value) -> None:
        """Records which steps of a tensor count, for later layers.

        Args:
            x: A tensor `(batch, steps, ...)`.
            mask: A bool tensor of its first axes, `(batch, steps)`: false where x is padding.

        Raises:
            ShapeError: The mask has another batch or another number of steps.
        """
        if mask.shape[:1] != x.shape[:1]:
            raise shape_error(f"inputs have {x.shape[0]} rows, and their mask has "
                              f"{mask.shape[0] if mask.shape else 'none'}",
                              fix="a mask has a bool for each step of each row")
        if mask.rank < 2 or mask.shape != x.shape[:mask.rank]:
            raise shape_error("inputs and their mask do not fit:", x.shape[1:], mask.shape[1:],
                              fix=f"the mask must be {x.shape[1:2]}, a bool for each step")
        if self.padding.owns(mask):  # which is followed through the graph
            return
        self.masks[x] = mask if mask.dtype.kind == "b" else OPS.not_equal(mask, 0)

    @contextmanager
    def masked(self, tensors: list[Any], masks: list[Any]) -> Iterator[None]:
        """In this block, tensors have these masks. `None` leaves the mask of a tensor unchanged."""
        before = dict(self.masks)
        for x, mask in zip(tensors, masks, strict=True):
            if mask is not None:
                self.set_mask(x, mask)
        try:
            yield
        finally:
            for x in tensors:
                self.masks.pop(x, None)
            self.masks.update((x, before[x]) for x in tensors if x in before)

    def remember(self, layer: LayerNode, inputs: list[Value], y: Value) -> None:
        """Records that the layer computed y from these inputs."""
        if y not in inputs:
            self.producers.setdefault(y, (layer, inputs))

    def origin(self, v: Value, other: Shape) -> str:
        """Names the layer that created the size in which a tensor differs from another."""
        axes = differing(v.shape, other)
        while v in self.producers:
            layer, inputs = self.producers[v]
            if len(inputs) != 1 or differing(inputs[0].shape, v.shape) & {-1, *axes}:
                shapes = " and ".join(str(x.shape[1:]) for x in inputs)
                return f"layer {layer.name!r}, which turns {shapes} into {v.shape[1:]}"
            v = inputs[0]
        return f"{f'Input {v.layer!r}' if v.layer else 'the input'} of shape {v.shape[1:]}"
