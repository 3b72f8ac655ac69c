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
    """An attribute that is not read: a sparse tensor, a type, or a list of graphs."""

    name: str


@dataclass(frozen=True)
class StoredCodes:
    """An array of a dtype that NumPy lacks, as the file stores it."""

    codes: np.ndarray  # the bits of floats, or the values of 2-bit and 4-bit integers
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
        return f"{self.op} {self.display_name!r}"

    @property
    def display_name(self) -> str:
        """Its name, or that of its first output: many exporters leave names out."""
        return self.name or next((o for o in self.outputs if o), "")

    @property
    def inner(self) -> list[InnerGraph]:
        """The graphs among its attributes."""
        return [a for a in self.attrs.values() if isinstance(a, InnerGraph)]

    @property
    def size(self) -> int:
        """The number of nodes, including those of the graphs among its attributes."""
        return 1 + sum(n.size for graph in self.inner for n in graph.nodes)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it and its inner graphs read."""
        return (*self.inputs, *(name for graph in self.inner for name in graph.outside))


@dataclass(frozen=True)
class InnerGraph:
    """A graph that is an attribute of a node: the body of a loop, or a branch of an If."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeSpec, ...]
    arrays: dict[str, np.ndarray | StoredCodes]  # initializers

    @property
    def outside(self) -> tuple[str, ...]:
        """The tensors of the enclosing graph that it reads."""
        defined = {*self.inputs, *self.arrays, *(name for n in self.nodes for name in n.outputs)}
        names = [*(name for n in self.nodes for name in n.reads), *self.outputs]
        return tuple(name for name in dict.fromkeys(names) if name and name not in defined)


@dataclass(frozen=True)
class OnnxFile:
    """The graph of a file."""

    path: str
    opsets: dict[str, int]  # versions of the ops of each domain
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[NodeSpec, ...]
    arrays: dict[str, np.ndarray | StoredCodes]  # initializers
    infer: Callable[[], dict[str, Port]]  # shapes of inner tensors, inferred by the package onnx
    frozen: frozenset[str] = frozenset()  # initializers that do not train
    without_batch: str = "zt.onnx.load_layer(path)"  # what loads such a file without a batch


@dataclass
class SizeNumbers:
    """Which integer constants, such as shapes, vary with the sizes of open axes."""

    varying: dict[str, np.ndarray] = field(default_factory=dict)  # by tensor: true where it varies
    queried: set[str] = field(default_factory=set)  # tensors that nodes have asked about

    def varies(self, name: str, count: int) -> list[bool]:
        """Which of the `count` integers of a tensor are known to vary."""
        self.queried.add(name)
        return [bool(b) for b in self.varying.get(name, np.zeros(count, bool)).reshape(-1)]

    def record(self, small: Mapping[str, np.ndarray], large: Mapping[str, np.ndarray]) -> bool:
        """Records which integers differ between two sizes. Returns whether a node was told
        otherwise before, so that nodes must be imported again."""
        before = dict(self.varying)
        for name, x in small.items():
            if name in large and x.shape == large[name].shape and (x != large[name]).any():
                self.varying[name] = self.varying.get(name, False) | (x != large[name])
        return any(not np.array_equal(self.varying[name], before.get(name, False))
                   for name in self.queried & self.varying.keys())


def batch_of(file: OnnxFile, sizes: Mapping[str, int]) -> int | None:
    """The batch size that a file fixes, or None. The first axes of all inputs must have one size,
    or all be open."""
    port_by_size: dict[int | None, Port] = {}  # None: an open size
    for port in file.inputs:
        if not port.dims:
            raise Unsupported(f"{file.path}: the input {port.name!r} has no axes, so it has no "
                              f"batch; {file.without_batch} takes inputs without a batch")
        first = port.dims[0]
        port_by_size.setdefault(first if isinstance(first, int) else sizes.get(first or ""), port)
    size = next((n for n in port_by_size if n is not None), None)
    if len(port_by_size) > 1:
        listing = " and ".join(f"{'open' if n is None else n} for {port.name!r}"
                               for n, port in port_by_size.items())
        axis = port_by_size[None].dims[0] if None in port_by_size else None
        hint = f"pass sizes={{{axis!r}: {size}}} if all have {size} rows, or " if axis else ""
        raise Unsupported(f"{file.path}: axis 0 of its inputs is {listing}, but it must be the "
                          "batch, which is the same for all inputs; "
                          f"{hint}use {file.without_batch}, which takes inputs without a batch")
    return size
