"""Collects the nodes of an ONNX file, and tracks which tensor of the file holds which value.

A tensor may hold a value with its axes in another order: results of convolutions have channels
first, and elementwise nodes after them keep that order until a node needs another one. A tensor may
also be smaller than its value, which ONNX broadcasts. Constants, such as weights, are numbers until
a node reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.interchange.onnx.protobuf import Row

Shape = tuple[int, ...]
Order = tuple[int, ...]  # axis k of the tensor is axis order[k] of the value; () for its own order

END = (1 << 63) - 1  # past the end of any axis
BATCH = "batch"  # the name of the first axis of inputs
SMALL = 1 << 16  # elements: a constant result that is larger, and larger than its inputs, is a node


@dataclass(frozen=True)
class SymbolicAxis:
    """An axis of any size: the batch, or an open axis of an Input."""

    name: str  # in the file
    source: str  # the name of an input that has the axis
    number: int  # of the axis in that input


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the file that holds a value."""

    name: str
    shape: Shape  # may lack leading axes if `order` is empty
    order: Order = ()


@dataclass
class Writer:
    """Collects the nodes and initializers of a file."""

    open_sizes: Mapping[int, SymbolicAxis] = field(default_factory=dict)  # by size in this trace
    nodes: list[Row] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # initializers
    tensors: dict[Value, list[FileTensor]] = field(default_factory=dict)  # that hold each value
    numbers: dict[Value, tuple[np.ndarray, str]] = field(default_factory=dict)  # constants
    checked: frozenset[Value] = frozenset()  # indices that are never out of range
    layer: str = ""  # of the value being written
    outputs_named: set[str] = field(default_factory=set)  # tensors that have the name of an output
    loops: dict[Value, list[str]] = field(default_factory=dict)  # outputs of the node of each loop
    _stored: dict[tuple, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _tensor_names: set[str] = field(default_factory=set)

    # -- values ------------------------------------------------------------------------------------

    def record(self, v: Value, name: str, order: Order = (), shape: Shape | None = None) -> None:
        """Records that a tensor holds v, in an order, and in the shape of v unless another is
        passed."""
        order = () if order == tuple(range(v.rank)) else order
        ordered = tuple(v.shape[k] for k in order) if order else v.shape
        tensor = FileTensor(name, ordered if shape is None else shape, order)
        self.tensors.setdefault(v, []).append(tensor)

    def set_numbers(self, v: Value, array: Any, label: str = "") -> None:
        """Records that v is a constant, which broadcasts to it. A label names it in the file."""
        self.numbers[v] = np.asarray(array, v.dtype.working), label

    def numbers_of(self, v: Value) -> np.ndarray | None:
        """The numbers of v; None if it is not a constant."""
        return self.numbers[v][0] if v in self.numbers else None

    def order_of(self, *values: Value) -> Order:
        """The order of axes of the first of these values that a tensor holds."""
        return next((self.tensors[v][0].order for v in values if v in self.tensors), ())

    def tensor(self, v: Value, order: Order = (), full: bool = False) -> FileTensor:
        """A tensor that holds v in this order. `full`: it must not be smaller than v."""
        order = () if order == tuple(range(v.rank)) else order
        tensor = next((x for x in self.tensors.get(v, ()) if x.order == order), None)
        if tensor is None:
            tensor = self._number(v, order) if v in self.numbers else self._transposed(v, order)
            self.tensors.setdefault(v, []).append(tensor)
        ordered = tuple(v.shape[k] for k in order) if order else v.shape
        if not full or tensor.shape == ordered:
            return tensor
        wide = FileTensor(self.node("Expand", [tensor.name, self.shape(ordered)]), ordered, order)
        forms = self.tensors[v]
        forms[forms.index(tensor)] = wide
        return wide

    def name(self, v: Value, order: Order = (), full: bool = True) -> str:
        """The name of the tensor that holds v in this order."""
        return self.tensor(v, order, full).name

    def _number(self, v: Value, order: Order) -> FileTensor:
        array, label = self.numbers[v]
        if order:
            array = array.reshape((1,) * (v.rank - array.ndim) + array.shape).transpose(order)
        return FileTensor(self.array(array, label), array.shape, order)

    def _transposed(self, v: Value, order: Order) -> FileTensor:
        """v in another order, by a Transpose of the first tensor that holds it."""
        first = self.tensors[v][0]
        name, shape = first.name, first.shape
        if len(shape) < v.rank:
            missing = v.rank - len(shape)
            name = self.node("Unsqueeze", [name, self.integers(range(missing))])
            shape = (1,) * missing + shape
        before = first.order or tuple(range(v.rank))
        after = order or tuple(range(v.rank))
        perm = tuple(before.index(k) for k in after)
        return FileTensor(self.node("Transpose", [name], perm=perm),
                          tuple(shape[k] for k in perm), order)

    # -- nodes and initializers --------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        k = self._counts.get(name, 0)
        while (candidate := f"{name}_{k}" if k else name) in self._tensor_names:
            k += 1
        self._counts[name] = k + 1
        self._tensor_names.add(candidate)
        return candidate

    def outputs(self, op: str, inputs: Sequence[str], count: int, /, **attrs: Any) -> list[str]:
        """The names of the outputs of a new node."""
        name = self.unique(f"{self.layer}/{op}" if self.layer else op)
        names = [f"{name}:{k}" if k else f"{name}:out" for k in range(count)]
        present = {k: a for k, a in attrs.items() if a is not None}
        self.nodes.append((op, name, list(inputs), names, present))
        return names

    def node(self, op: str, inputs: Sequence[str], /, **attrs: Any) -> str:
        """The only output of a new node."""
        return self.outputs(op, inputs, 1, **attrs)[0]

    def array(self, array: np.ndarray, label: str = "") -> str:
        """The name of an initializer with these numbers."""
        key = (array.dtype.str, array.shape, label, array.tobytes() if not label else id(array))
        if key not in self._stored:
            self._stored[key] = self.unique(label or "constant")
            self.arrays[self._stored[key]] = array
        return self._stored[key]

    def integers(self, numbers: Any) -> str:
        """The name of an initializer with integers."""
        return self.array(np.array(list(numbers), np.int64))

    def scalar(self, x: Any, like: Value) -> str:
        """The name of an initializer with one number, in the dtype of a value."""
        return self.array(np.array(x, like.dtype.working))

    def inside(self) -> Writer:
        """A writer for a graph inside a node, which reads tensors of this one by their names."""
        return replace(self, nodes=[], tensors={}, numbers={}, loops={})

    # -- open sizes --------------------------------------------------------------------------------

    def varies(self, n: int) -> bool:
        """Whether a size is a multiple of an open one."""
        return 0 < n < END and any(n % size == 0 for size in self.open_sizes)

    def counts_rows(self, n: int) -> bool:
        """Whether a size is a multiple of an open batch."""
        return n > 0 and any(n % size == 0 for size, axis in self.open_sizes.items()
                             if axis.name == BATCH)

    def shape(self, shape: Shape, infer: bool = False) -> str:
        """A shape as a tensor; with `infer`, one axis may be -1."""
        moving = [k for k, n in enumerate(shape) if self.varies(n)]
        if not moving:
            return self.integers(shape)
        if infer and len(moving) == 1:
            return self.integers(-1 if k in moving else n for k, n in enumerate(shape))
        parts = [self._open_size(n) if k in moving else self.integers([n])
                 for k, n in enumerate(shape)]
        return self.node("Concat", parts, axis=0) if len(parts) > 1 else parts[0]

    def _open_size(self, n: int) -> str:
        """A multiple of open sizes, which nodes compute from the shapes of inputs."""
        product, factor = "", n
        for size, axis in self.open_sizes.items():
            while factor % size == 0:
                factor //= size
                size_tensor = self.node("Gather", [self.node("Shape", [axis.source]),
                                                   self.integers([axis.number])])
                product = self.node("Mul", [product, size_tensor]) if product else size_tensor
        return product if factor == 1 else self.node("Mul", [product, self.integers([factor])])

    def dims(self, shape: Shape) -> tuple[int | str | None, ...]:
        """A shape as the file declares it."""
        return tuple(self.open_sizes[n].name if n in self.open_sizes else
                     None if self.varies(n) else n for n in shape)

    def unsupported(self, why: str) -> Unsupported:
        """The error for a value that ONNX cannot express; names its layer."""
        return Unsupported(f"{f'layer {self.layer!r}: ' if self.layer else ''}{why}")


def transposed_order(order: Order, axes: Order) -> Order:
    """The order of a tensor for a transpose of its value, by axes."""
    return tuple(axes.index(k) for k in order)
