"""What an ONNX file holds, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.dtypes import DType
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

    @property
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
