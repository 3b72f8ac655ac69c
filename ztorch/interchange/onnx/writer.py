"""A graph on its way into an ONNX file: which tensor of the file is which value, and how it lies.

A value may lie in the file with its axes in another order: convolutions leave channels first, and
what follows element by element keeps them so, until somebody needs the other order. And a tensor
may be smaller than its value, with axes of size 1 or missing where the value repeats itself, for
ONNX broadcasts by itself. What is known now, such as weights, stays numbers until a node wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.interchange.onnx.protobuf import Row

Shape = tuple[int, ...]
Order = tuple[int, ...]  # axis k of the tensor is axis order[k] of the value; () for its own order

SMALL = 1 << 16  # elements; a larger array is not worked out now unless it shrinks


@dataclass(frozen=True)
class Lying:
    """A tensor of the file as a value: its order and shape. Only in the value's own order may
    leading axes be missing."""

    name: str
    shape: Shape
    order: Order = ()


@dataclass
class Writer:
    """Collects nodes and initializers. With `batch`, a size that nothing else has, that size is
    written as the symbolic batch."""

    batch: int = 0
    nodes: list[Row] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    lying: dict[Value, list[Lying]] = field(default_factory=dict)
    numbers: dict[Value, tuple[np.ndarray, str]] = field(default_factory=dict)
    checked: frozenset[Value] = frozenset()  # indices that are never out of range
    source: str = ""  # an input, whose first axis is the batch
    layer: str = ""  # of the value being written
    _stored: dict[tuple, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    # -- what values are ---------------------------------------------------------------------------

    def give(self, v: Value, name: str, order: Order = (), shape: Shape | None = None) -> None:
        """v lies in the tensor of that name; with its whole shape unless another is given."""
        order = () if order == tuple(range(v.rank)) else order
        whole = tuple(v.shape[k] for k in order) if order else v.shape
        self.lying.setdefault(v, []).append(Lying(name, whole if shape is None else shape, order))

    def know(self, v: Value, array: Any, label: str = "") -> None:
        """v is these numbers, broadcast; a file may call them by the label."""
        self.numbers[v] = np.asarray(array, v.dtype.working), label

    def known(self, v: Value) -> np.ndarray | None:
        return self.numbers[v][0] if v in self.numbers else None

    def order_of(self, *values: Value) -> Order:
        """The order in which the first of these lies that is no mere number."""
        return next((self.lying[v][0].order for v in values if v in self.lying), ())

    def lie(self, v: Value, order: Order = (), whole: bool = False) -> Lying:
        """A tensor of the file that is v in this order; unless `whole`, it may leave out what
        broadcasting brings back."""
        order = () if order == tuple(range(v.rank)) else order
        here = next((x for x in self.lying.get(v, ()) if x.order == order), None)
        if here is None:
            here = self._number(v, order) if v in self.numbers else self._turned(v, order)
            self.lying.setdefault(v, []).append(here)
        full = tuple(v.shape[k] for k in order) if order else v.shape
        if not whole or here.shape == full:
            return here
        wide = Lying(self.node("Expand", [here.name, self.shape(full)]), full, order)
        forms = self.lying[v]
        forms[forms.index(here)] = wide
        return wide

    def name(self, v: Value, order: Order = (), whole: bool = True) -> str:
        """The name of `lie`."""
        return self.lie(v, order, whole).name

    def _number(self, v: Value, order: Order) -> Lying:
        array, label = self.numbers[v]
        if order:
            array = array.reshape((1,) * (v.rank - array.ndim) + array.shape).transpose(order)
        return Lying(self.array(array, label), array.shape, order)

    def _turned(self, v: Value, order: Order) -> Lying:
        """From the first order it lies in."""
        first = self.lying[v][0]
        name, shape = first.name, first.shape
        if len(shape) < v.rank:
            missing = v.rank - len(shape)
            name = self.node("Unsqueeze", [name, self.integers(range(missing))])
            shape = (1,) * missing + shape
        before = first.order or tuple(range(v.rank))
        after = order or tuple(range(v.rank))
        perm = tuple(before.index(k) for k in after)
        return Lying(self.node("Transpose", [name], perm=perm),
                     tuple(shape[k] for k in perm), order)

    # -- what a file is made of --------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """The name, with a number where it is taken."""
        k = self._counts.get(name, 0)
        while (made := f"{name}_{k}" if k else name) in self._taken:
            k += 1
        self._counts[name] = k + 1
        self._taken.add(made)
        return made

    def outputs(self, op: str, inputs: Sequence[str], count: int, /, **attrs: Any) -> list[str]:
        """The outputs of a new node."""
        name = self.unique(f"{self.layer}/{op}" if self.layer else op)
        made = [f"{name}:{k}" if k else f"{name}:out" for k in range(count)]
        kept = {k: a for k, a in attrs.items() if a is not None}
        self.nodes.append((op, name, list(inputs), made, kept))
        return made

    def node(self, op: str, inputs: Sequence[str], /, **attrs: Any) -> str:
        """The output of a new node that has one."""
        return self.outputs(op, inputs, 1, **attrs)[0]

    def array(self, array: np.ndarray, label: str = "") -> str:
        """An initializer with these numbers."""
        key = (array.dtype.str, array.shape, label, array.tobytes() if not label else id(array))
        if key not in self._stored:
            self._stored[key] = self.unique(label or "constant")
            self.arrays[self._stored[key]] = array
        return self._stored[key]

    def integers(self, numbers: Any) -> str:
        return self.array(np.array(list(numbers), np.int64))

    def scalar(self, x: Any, like: Value) -> str:
        return self.array(np.array(x, like.dtype.working))

    # -- the batch ---------------------------------------------------------------------------------

    def varies(self, n: int) -> bool:
        """Whether this size is a multiple of the symbolic batch."""
        return bool(self.batch and n and n % self.batch == 0)

    def shape(self, shape: Shape, infer: bool = False) -> str:
        """A shape as a tensor; with `infer`, one axis may be left to be found."""
        moving = [k for k, n in enumerate(shape) if self.varies(n)]
        if not moving:
            return self.integers(shape)
        if infer and len(moving) == 1:
            return self.integers(-1 if k in moving else n for k, n in enumerate(shape))
        now = self.node("Shape", [self.source], start=0, end=1)
        parts: list[str] = []
        for k, n in enumerate(shape):
            times = n // self.batch if k in moving else n
            parts.append(self.integers([n]) if k not in moving else now if times == 1 else
                         self.node("Mul", [now, self.integers([times])]))
        return self.node("Concat", parts, axis=0)

    def dims(self, shape: Shape) -> tuple[int | str | None, ...]:
        """A shape as a declaration."""
        return tuple("batch" if self.batch and n == self.batch else None if self.varies(n) else n
                     for n in shape)

    def unsupported(self, why: str) -> Unsupported:
        return Unsupported(f"{f'layer {self.layer!r}: ' if self.layer else ''}{why}")


def moved(order: Order, axes: Order) -> Order:
    """How a value lies that has the axes of another in a new order, where that lies in `order`."""
    return tuple(axes.index(k) for k in order)
