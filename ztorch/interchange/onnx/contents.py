"""What an ONNX file holds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.interchange.onnx.protobuf import Port


@dataclass(frozen=True)
class Foreign:
    """An attribute that is a sparse tensor, a type, or a list of graphs."""

    name: str


@dataclass(frozen=True)
class NodeSpec:
    """A node of a file."""

    op: str
    domain: str  # empty for ONNX itself
    name: str
    attrs: dict[str, Any]
    inputs: tuple[str, ...]  # an empty name where one is left out
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.name or next((o for o in self.outputs if o), "")
        return f"{self.op} {shown!r}"


    @property
    def inner(self) -> list[InnerGraph]:
        """The graphs among its attributes."""
        return [a for a in self.attrs.values() if isinstance(a, InnerGraph)]

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
    arrays: dict[str, np.ndarray]  # initializers

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
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[NodeSpec, ...]
    arrays: dict[str, np.ndarray]  # initializers
    inferred: dict[str, Port]  # shapes between nodes, as the `onnx` package infers them
