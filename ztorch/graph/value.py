"""A symbolic tensor: one node of the graph, with Python's operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.dtypes import DType

if TYPE_CHECKING:
    from ztorch.graph.op import Op

_serial = itertools.count()
_layer: ContextVar[str] = ContextVar("layer", default="")


@contextmanager
def layer_scope(name: str) -> Iterator[None]:
    """Nodes made inside remember that they came from this layer; errors name it."""
    token = _layer.set(name)
    try:
        yield
    finally:
        _layer.reset(token)


def current_layer() -> str:
    """The layer whose nodes are being made; empty outside of layers."""
    return _layer.get()


class Value:
    """One node: an op applied to values. Compared and hashed by identity."""

    __slots__ = ("args", "attrs", "dtype", "layer", "op", "serial", "shape")
    __array_priority__ = 1000  # numpy arrays leave the operators to us

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

    if TYPE_CHECKING:  # installed by graph.op, from the registry

        def __neg__(self) -> Value: ...
        def __abs__(self) -> Value: ...
        def __getitem__(self, key: Any) -> Value: ...
        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Value: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __mod__ = __rmod__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("a symbolic tensor has no numbers yet; use zt.ops instead of NumPy")

    def __bool__(self) -> bool:
        raise TypeError("a symbolic tensor has no truth value; use ops.where to choose by element")

    def __iter__(self) -> Iterator[Value]:
        raise TypeError("a symbolic tensor cannot be iterated; slice it, or use ops.split")


def attribute_key(attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes as a key in which 0.0 and -0.0, or 1 and 1.0 and True, differ. Arrays count with
    all of their bytes: as text they are abbreviated, and others would pass for them.

    >>> attribute_key({"step": 1, "axes": (0, 2)})
    (('axes', '(0, 2)'), ('step', '1'))
    """
    return tuple((name, (a.dtype.str, a.shape, a.tobytes()) if isinstance(a, np.ndarray) else
                  repr(a)) for name, a in sorted(attrs.items(), key=lambda item: item[0]))


@dataclass(frozen=True)
class Graph:
    """What a program computes: named outputs, and the new value of each state it changes."""

    outputs: dict[str, Value]
    updates: dict[str, Value] = field(default_factory=dict)

    @property
    def roots(self) -> list[Value]:
        return [*self.outputs.values(), *self.updates.values()]

    def with_roots(self, roots: Iterable[Value]) -> Graph:
        """The same graph with its roots replaced, in order."""
        new = list(roots)
        k = len(self.outputs)
        return Graph(dict(zip(self.outputs, new[:k], strict=True)),
                     dict(zip(self.updates, new[k:], strict=True)))

    def nodes(self) -> list[Value]:
        return topological(self.roots)

    def leaves(self, role: str) -> list[Value]:
        """Inputs, states or constants, in order of creation."""
        matches = [v for v in self.nodes() if v.op.kind == "leaf" and v.attrs["role"] == role]
        return sorted(matches, key=lambda v: v.serial)


def topological(roots: Iterable[Value]) -> list[Value]:
    """Every value the roots need, each after its arguments; ties in order of creation."""
    seen: set[Value] = set()
    order: list[Value] = []
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif value not in seen:
            seen.add(value)
            stack.append((value, True))
            stack.extend((a, False) for a in reversed(value.args))
    return order


def show(graph: Graph) -> str:
    """The graph as text, one node a line.

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
                              if k not in ("shape", "dtype"))  # these close the line
            text = " ".join([v.op.name + (f"({extra})" if extra else ""),
                             *(number[a] for a in v.args)])
        origin = f"  # {v.layer}" if v.layer else ""
        lines.append(f"{number[v]:3} {text:17} {v.dtype}[{', '.join(map(str, v.shape))}]{origin}")
    lines += [f"{name} = {number[v]}" for name, v in graph.outputs.items()]
    lines += [f"{name} <- {number[v]}" for name, v in graph.updates.items()]
    return "\n".join(lines)
