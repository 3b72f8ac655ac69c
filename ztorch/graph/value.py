"""The tensor graph: primitive ops, and values, which are its nodes.

Ops build values and values hold their op, so both are defined here.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.operators import ComparedByElement

_serial = itertools.count()
_layer: ContextVar[str] = ContextVar("layer", default="")


class layer_scope:
    """Nodes made inside belong to this layer, and errors name it.

    Args:
        name: Path of the layer, such as `"encoder/dense"`.
    """

    __slots__ = ("_name", "_token")

    def __init__(self, name: str):
        self._name = name

    def __enter__(self) -> None:
        self._token = _layer.set(self._name)

    def __exit__(self, *error: object) -> None:
        _layer.reset(self._token)


def current_layer() -> str:
    """The path of the layer that is being traced; empty outside of layers."""
    return _layer.get()


def not_evaluated(*arrays: Any, **attrs: Any) -> Any:
    """The `numpy` of ops that lowering makes, after graphs are evaluated."""
    raise AssertionError("lowering makes this op after graphs are evaluated")


@dataclass(frozen=True)
class Op:
    """A primitive tensor operation: the computation of a node of the graph.

    Attributes:
        name: Name in listings of the graph.
        kind: How lowering treats it: `"leaf"` for inputs, states and constants, `"map"` for
            elementwise work and movement, `"reduce"` for reductions along `axes`, `"contract"` for
            a batched matrix product, `"scatter"` for sums and others at places that are data.
        infer: `infer(*args, **attrs)` returns (shape, dtype), or raises a ShapeError.
        numpy: `numpy(*arrays, **attrs)` computes the result: the meaning of the op.
        grad: `grad(o, g, y, *args, **attrs)` returns the gradient of each argument, None for
            none. `o` is the namespace of ops, `g` the gradient of the result `y`.
        body: `body(e, index, **attrs)` builds one element of a map, from elements that
            `e.read(argument, index)` loads.
        cost: Issue slots for one element, for decisions about recomputing.
        movement: Whether it only chooses which element to read.
        alias: Whether the result is its first argument: the node exists for its gradient.
        written: Whether a movement deserves its own buffer, unless reading it is free.
        partial: Whether it changes few elements of its first argument, which is worth a kernel of
            its own.
        opcode: The scalar opcode of a map, or the one that a reduction or a scatter combines with.
        batch: `batch(one, many, **attrs)` computes the result for many examples: `one` is the node
            of one example, `many` the `Examples` of its arguments. None for the rule of the kind,
            or else for the op on each example by itself; see `graph/batching.py`.
        reorder: `reorder(order, **attrs)` returns the attributes with which arguments whose axis k
            is axis `order[k]` of the present ones give the result in that order too. None where
            there are no such attributes; ops that work by element need none.
        others: `others(*args, **attrs)` computes the same by other ops, for machines and formats
            that have no kernel of this kind. None where all have one.
        serial: The same for processors, whose threads are few and each fast.
    """

    name: str
    kind: str
    infer: Callable[..., tuple[tuple[int, ...], DType]]
    numpy: Callable[..., Any]
    grad: Callable[..., tuple] | None = None
    body: Callable[..., Any] | None = None
    cost: int = 0
    movement: bool = False
    alias: bool = False
    written: bool = False
    partial: bool = False
    opcode: str = ""
    batch: Callable[..., Value] | None = None
    reorder: Callable[..., dict[str, Any]] | None = None
    others: Callable[..., Value] | None = None
    serial: Callable[..., Value] | None = None

    def __call__(self, *args: Value, **attrs: Any) -> Value:
        shape, dtype = self.infer(*args, **attrs)
        return Value(self, args, attrs, shape, dtype)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Value(ComparedByElement):
    """A node of the graph: an op applied to values. Hashed by identity."""

    __slots__ = ("args", "attrs", "dtype", "layer", "op", "serial", "shape")

    def __init__(self, op: Op, args: tuple[Value, ...], attrs: dict[str, Any],
                 shape: tuple[int, ...], dtype: DType, layer: str | None = None):
        self.op = op
        self.args = args
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.layer = current_layer() if layer is None else layer
        self.serial = next(_serial)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    def __repr__(self) -> str:
        label = self.attrs.get("name", "")
        dims = "x".join(map(str, self.shape)) or "scalar"
        return f"<{self.op.name}{f' {label}' if label else ''} {self.dtype!r}[{dims}]>"

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("a symbolic tensor has no numbers yet; use zt.ops instead of NumPy")

    def __float__(self) -> float:
        raise TypeError("a symbolic tensor has no numbers yet, so float(), int() and math.exp() "
                        "cannot take it; use zt.ops")

    __int__ = __float__

    def __bool__(self) -> bool:
        raise TypeError("a symbolic tensor has no truth value, since Python runs once, before "
                        "there are numbers; use ops.where to choose by element, or ops.cond")

    def __iter__(self) -> Iterator[Value]:
        raise TypeError("a symbolic tensor cannot be iterated; slice it, or use ops.split")


class StandIn(ComparedByElement):
    """An object that users write in place of a value, such as a weight in the call of a layer."""

    __slots__ = ()

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        """Calls the op of that name, as `zt.ops` does, with the values of the stand-ins."""
        raise NotImplementedError

    def numbers(self) -> Any:
        """What has its numbers: a tensor if it is a weight outside of a graph, else itself."""
        return self


def stand_in(arguments: Iterable[Any]) -> StandIn | None:
    """The first stand-in among arguments, or in a list of them."""
    for x in arguments:
        inner = (stand_in(x) if isinstance(x, (list, tuple)) else
                 x.symbol if hasattr(type(x), "symbol") else x)  # an Input has one
        if isinstance(inner, StandIn):
            return inner
    return None


def attribute_key(attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes as a hashable key.

    0.0 and -0.0 differ, and so do 1, 1.0 and True. Arrays are compared by all their bytes, since
    `repr` abbreviates them.

    >>> attribute_key({"step": 1, "axes": (0, 2)})
    (('axes', '(0, 2)'), ('step', '1'))
    """
    return tuple((name, (a.dtype.str, a.shape, a.tobytes()) if isinstance(a, np.ndarray) else
                  repr(a)) for name, a in sorted(attrs.items(), key=lambda item: item[0]))


@dataclass(frozen=True)
class Graph:
    """A function: its outputs, and the new values of the states that it changes."""

    outputs: dict[str, Value]  # by the names of ports
    updates: dict[str, Value] = field(default_factory=dict)  # by the names of states
    recomputed: tuple[str, ...] = ()  # paths of layers: the backward pass computes them again
    declared: tuple[Value, ...] = ()  # inputs that the function takes even if it does not read them

    @property
    def roots(self) -> list[Value]:
        """Outputs, then updates."""
        return [*self.outputs.values(), *self.updates.values()]

    def with_roots(self, roots: Iterable[Value]) -> Graph:
        """The same graph with its roots replaced, in order."""
        new = list(roots)
        k = len(self.outputs)
        return replace(self, outputs=dict(zip(self.outputs, new[:k], strict=True)),
                       updates=dict(zip(self.updates, new[k:], strict=True)))

    def nodes(self) -> list[Value]:
        """All nodes, each after its arguments."""
        return list(self._nodes)

    @functools.cached_property
    def _nodes(self) -> list[Value]:
        return topological([*self.roots, *self.declared])

    def leaves(self, role: str) -> list[Value]:
        """The leaves of a role ("input", "state" or "constant"), in order of creation."""
        matches = [v for v in self.nodes() if v.op.kind == "leaf" and v.attrs["role"] == role]
        return sorted(matches, key=lambda v: v.serial)


def topological(roots: Iterable[Value], until: Collection[Value] = ()) -> list[Value]:
    """All values that the roots depend on, each after its arguments; ties in order of creation. The
    walk stops at the values of `until`."""
    visited: set[Value] = set()
    order: list[Value] = []
    path: list[Value] = []  # values whose arguments are being visited
    rest = [iter(list(roots))]  # values left to visit: of the roots, then of each value of path
    while rest:
        for value in rest[-1]:
            if value in visited:
                continue
            visited.add(value)
            if value.args and value not in until:
                path.append(value)
                rest.append(iter(value.args))
                break
            order.append(value)
        else:
            rest.pop()
            if path:
                order.append(path.pop())
    return order


def show(graph: Graph) -> str:
    """The graph as text, one node per line.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (2, 3), "float32")
    >>> print(show(Graph({"y": ops.add(x, 1.0)})))
    v0  input x           float32[2, 3]
    v1  full(1.0)         float32[2, 3]
    v2  add v0 v1         float32[2, 3]
    y = v2
    """
    nodes = graph.nodes()
    number = {v: f"v{i}" for i, v in enumerate(nodes)}
    lines = []
    for v in nodes:
        if v.op.kind == "leaf":
            text = f"{v.attrs['role']} {v.attrs['name']}"
        else:
            extra = ", ".join(str(a) if k == "value" else f"{k}={a}" for k, a in v.attrs.items()
                              if k not in ("shape", "dtype"))  # these end the line
            text = " ".join([v.op.name + (f"({extra})" if extra else ""),
                             *(number[a] for a in v.args)])
        origin = f"  # {v.layer}" if v.layer else ""
        lines.append(f"{number[v]:3} {text:17} {v.dtype}[{', '.join(map(str, v.shape))}]{origin}")
    lines += [f"{name} = {number[v]}" for name, v in graph.outputs.items()]
    lines += [f"{name} <- {number[v]}" for name, v in graph.updates.items()]
    return "\n".join(lines)
