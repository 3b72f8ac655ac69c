"""The contents of an ONNX file, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.interchange.onnx.formats import CodeFormat
from ztorch.interchange.onnx.protobuf import Port


@dataclass(frozen=True)
class Foreign:
    """An attribute that is a sparse tensor, a type, or a list of graphs."""

    name: str


@dataclass(frozen=True)
class StoredCodes:
    """An array in a format that NumPy lacks, as the file stores it."""

    codes: np.ndarray  # integers: the bits of floats, the values of 2-bit and 4-bit integers
    format: CodeFormat | DType  # bfloat16 is the only DType here


@dataclass(frozen=True)
class NodeSpec:
    """A node of a file."""

    op: str
    domain: str  # empty for ONNX itself
    name: str
    attrs: dict[str, Any]
    inputs: tuple[str, ...]  # an empty name where one is left out
    outputs: tuple[str, ...]
    opset: int = 0  # version of the ops of its domain
    proto: Any = field(default=None, compare=False, repr=False)  # its message in the file

    def __str__(self) -> str:
        return f"{self.op} {self.shown!r}"

    @property
    def shown(self) -> str:
        """Its name, or that of its first output: many exporters write none."""
        return self.name or next((o for o in self.outputs if o), "")

    @property
    def inner(self) -> list[InnerGraph]:
        """The graphs among its attributes."""
        return [a for a in self.attrs.values() if isinstance(a, InnerGraph)]

    @property
    def size(self) -> int:
        """How many nodes it is, with those of the graphs among its attributes."""
        return 1 + sum(n.size for graph in self.inner for n in graph.nodes)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it reads, its graphs included."""
        return (*self.inputs, *(name for graph in self.inner for name in graph.outside))


@dataclass(frozen=True)
class InnerGraph:
    """A graph that is an attribute of a node: the body of a loop, or a branch."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeSpec, ...]
    arrays: dict[str, np.ndarray | StoredCodes]  # initializers

    @property
    def outside(self) -> tuple[str, ...]:
        """The tensors of the graph around it that it reads."""
        own = {*self.inputs, *self.arrays, *(name for n in self.nodes for name in n.outputs)}
        read = [*(name for n in self.nodes for name in n.reads), *self.outputs]
        return tuple(name for name in dict.fromkeys(read) if name and name not in own)


@dataclass(frozen=True)
class OnnxFile:
    """The graph of a file."""

    path: str
    opsets: dict[str, int]  # versions of the ops of each domain
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[NodeSpec, ...]
    arrays: dict[str, np.ndarray | StoredCodes]  # initializers
    infer: Callable[[], dict[str, Port]]  # shapes between nodes, as the `onnx` package infers them


@dataclass
class SizeNumbers:
    """Integers that follow the sizes of open axes."""

    change: dict[str, np.ndarray] = field(default_factory=dict)  # by name: which of them do
    asked: set[str] = field(default_factory=set)  # those that nodes asked about

    def of(self, name: str, count: int) -> list[bool]:
        """Which of so many integers do, as far as is known."""
        self.asked.add(name)
        return [bool(b) for b in self.change.get(name, np.zeros(count, bool)).reshape(-1)]

    def noted(self, small: Mapping[str, np.ndarray], large: Mapping[str, np.ndarray]) -> bool:
        """Notes those that differ between two sizes. Tells whether nodes asked about one that was
        not known."""
        before = dict(self.change)
        for name, x in small.items():
            if name in large and x.shape == large[name].shape and (x != large[name]).any():
                self.change[name] = self.change.get(name, False) | (x != large[name])
        return any(not np.array_equal(self.change[name], before.get(name, False))
                   for name in self.asked & self.change.keys())


def batch_of(file: OnnxFile, sizes: Mapping[str, int]) -> int | None:
    """The batch size that a file fixes, or None. All first axes must be alike: of one size, or
    open."""
    alike: dict[int | None, Port] = {}  # an input of each size; None: of any
    for port in file.inputs:
        if not port.dims:
            raise Unsupported(f"{file.path}: the input {port.name!r} has no axes, so it has no "
                              "batch; zt.onnx.load_layer(path) takes files without a batch")
        first = port.dims[0]
        alike.setdefault(first if isinstance(first, int) else sizes.get(first or ""), port)
    size = next((n for n in alike if n is not None), None)
    if len(alike) > 1:
        shown = " and ".join(f"{'open' if n is None else n} for {port.name!r}"
                             for n, port in alike.items())
        axis = alike[None].dims[0] if None in alike else None
        hint = f"sizes={{{axis!r}: {size}}} says that all have {size} rows, " if axis else ""
        raise Unsupported(f"{file.path}: axis 0 of its inputs is {shown}, so it is not the batch "
                          "of all, as the first axis of every input must be; "
                          f"{hint}zt.onnx.load_layer(path) takes inputs without a batch")
    return size
