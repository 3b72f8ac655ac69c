"""Nodes of ONNX files, and the registry of the functions that import them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ztorch.dtypes import DType, dtype, from_storage
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import (
    Foreign,
    InnerGraph,
    NodeSpec,
    SizeNumbers,
    StoredCodes,
)
from ztorch.interchange.onnx.formats import CodeFormat
from ztorch.interchange.onnx.known import constant_numbers, is_even, variables
from ztorch.interchange.onnx.protobuf import DTYPES
from ztorch.layers.context import Context


@dataclass(frozen=True)
class FloatInitializer:
    """A float initializer: a weight for nodes that compute with it, numbers for nodes that need
    its values while they are imported."""

    name: str
    array: np.ndarray
    read: Callable[[bool], Value]  # read(trainable): the weight
    write: Callable[[Value], None]  # sets the weight after a step of training


@dataclass(frozen=True)
class Coded:
    """A tensor in a format that ztorch does not compute in."""

    codes: Value  # integers
    format: CodeFormat

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape


@dataclass(frozen=True)
class LeftOut:
    """An optional input of the graph that is left out."""


class NeedsNumbers(Unsupported):
    """A node needs numbers while it is imported, and they depend on inputs of the graph."""

    def __init__(self, message: str, inputs: tuple[str, ...]):
        super().__init__(message)
        self.inputs = inputs  # names of these inputs


class MixesPositions(ZtorchError):
    """A node for which rows may not be padded along an open axis."""


# Attributes that follow from the shapes of inputs, or that only affect how a result is computed.
REDUNDANT = {"kernel_shape", "hidden_size", "num_outputs", "seed", "is_test"}

Tensor = np.ndarray | Value | FloatInitializer | Coded
Result = Tensor | tuple[Tensor | None, ...]  # None for an output that nothing reads
Importer = Callable[["Node"], Result]

NODES: dict[str, Importer] = {}
NOTES: dict[str, str] = {}  # unsupported features of an op, for the documentation
MOVES: set[str] = set()  # ops that only move elements, so they work on codes of any format


def key_of(spec: NodeSpec) -> str:
    """The key of a node's op in the registry."""
    return f"{spec.domain}.{spec.op}" if spec.domain else spec.op


def node(*ops: str, but: str = "", domain: str = "",
         moves: bool = False) -> Callable[[Importer], Importer]:
    """Registers the function that imports these ops.

    Args:
        ops: Their names.
        but: Unsupported features, for the documentation.
        domain: Empty for ONNX itself.
        moves: Whether the ops only move elements.
    """

    def register(function: Importer) -> Importer:
        for name in ops:
            op = f"{domain}.{name}" if domain else name
            assert op not in NODES, f"ONNX op {op} is registered twice"
            NODES[op] = function
            NOTES[op] = but
            if moves:
                MOVES.add(op)
        return function

    return register


@dataclass(frozen=True)
class Node:
    """A node that is being imported, with the values of its inputs."""

    spec: NodeSpec
    inputs: tuple[Tensor | None, ...]  # None where one is left out
    context: Context
    keeps_floats: bool = False  # whether floats have the dtypes of the file
    accessed: set[str | int] = field(default_factory=set)  # attributes and inputs that were read
    run: Callable[[InnerGraph, Sequence[Tensor]], list[Tensor]] | None = None  # runs an inner graph
    define: Callable[[tuple[Tensor | None, ...]], tuple[Tensor | None, ...] | None] | None = None
    trains: bool = True  # whether training nodes train in this trace
    inside_of_node: bool = False  # whether it is in the body of a loop, or in a branch
    pads_results: bool = False  # whether results of a size that depends on the data are padded
    numbers: SizeNumbers = field(default_factory=SizeNumbers)

    @property
    def op(self) -> str:
        return self.spec.op

    @property
    def ignored(self) -> list[str]:
        """Attributes that the importer did not read."""
        return [name for name in self.spec.attrs if name not in self.accessed
                and name not in REDUNDANT]

    @property
    def unread(self) -> list[int]:
        """Inputs that the importer did not read."""
        return [k for k, x in enumerate(self.inputs) if x is not None and k not in self.accessed]

    @property
    def opset(self) -> int:
        return self.spec.opset

    def unsupported(self, why: str) -> NoReturn:
        """Raises an error for a feature that ztorch lacks."""
        raise Unsupported(why)

    def mixes(self, why: str) -> NoReturn:
        """Raises an error where rows may not be padded along an open axis."""
        raise MixesPositions(why)

    # -- inputs ------------------------------------------------------------------------------------

    def has(self, k: int) -> bool:
        """Whether input k is present; many are optional."""
        self.accessed.add(k)
        return k < len(self.inputs) and self.inputs[k] is not None

    def input(self, k: int) -> Tensor:
        """Input k: a value of the graph, or numbers."""
        self.accessed.add(k)
        tensor = self.inputs[k] if k < len(self.inputs) else None
        if tensor is None:
            raise ValueError(f"input {k} is missing")
        return tensor

    def value(self, k: int, trainable: bool = True) -> Value:
        """Input k as a tensor of the graph."""
        return self.as_value(self.input(k), trainable)

    def write(self, k: int, value: Value) -> None:
        """Sets input k after a step of training, if it is a weight."""
        if not isinstance(weight := self.input(k), FloatInitializer):
            return
        if self.inside_of_node:
            self.unsupported("training_mode inside of a loop or branch, which cannot set "
                             f"{weight.name!r}; export it with the statistics that are stored")
        weight.write(value)

    def as_value(self, x: Tensor, trainable: bool = True) -> Value:
        """An input as a tensor of the graph. `trainable`: an optimizer may change it."""
        if isinstance(x, Value):
            return x
        if isinstance(x, FloatInitializer):
            return x.read(trainable)
        if isinstance(x, Coded):
            self.unsupported(f"a tensor of {x.format.name}, which ztorch converts and moves, but "
                             "does not compute with")
        widens = x.dtype.kind == "f" and not self.keeps_floats
        d = self.context.dtype if widens else dtype(x.dtype)
        return OPS.full(x.shape, x.flat[0].item(), d) if is_even(x) else constant(x, d)

    def stored(self, x: np.ndarray | StoredCodes) -> Tensor:
        """A constant in an attribute of the node."""
        if isinstance(x, np.ndarray):
            return x
        if isinstance(x.format, CodeFormat):
            return Coded(constant(x.codes), x.format)
        array = from_storage(x.format, x.codes)
        return constant(array, x.format) if self.keeps_floats else array

    def values(self) -> list[Value]:
        """All inputs as tensors of the graph."""
        return [self.value(k) for k in range(len(self.inputs))]

    def array(self, k: int) -> np.ndarray:
        """Input k as numbers; raises where it depends on the data."""
        tensor = self.input(k)
        if isinstance(tensor, Coded):
            tensor = tensor.codes
        if isinstance(tensor, Value):
            value = constant_numbers(tensor)
            if value is None:
                names = tuple(v.attrs["name"] for v in variables(tensor))
                raise NeedsNumbers(
                    f"input {k} depends on the data, on {', '.join(map(repr, names[:4]))}, but "
                    "shapes and positions must be known while importing; pass these inputs "
                    "to zt.onnx.load_layer(path, constants=...)", names)
            return value
        return tensor.array if isinstance(tensor, FloatInitializer) else tensor

    # -- dtypes ------------------------------------------------------------------------------------

    def dtype_of(self, number: int) -> DType:
        """The dtype with a number of the format. Floats have the model's dtype, unless those of the
        file are kept."""
        if number not in DTYPES:
            self.unsupported(f"dtype number {number}, which ztorch does not compute with")
        target = DTYPES[number]
        return self.context.dtype if target.is_float and not self.keeps_floats else target

    def type_number(self, k: int) -> int:
        """The format's number of the dtype of input k."""
        tensor = self.input(k)
        if isinstance(tensor, Coded):
            return tensor.format.number
        return self.value(k, trainable=True).dtype.onnx

    def number(self, k: int) -> Any:
        """Input k as one number."""
        return self.array(k).reshape(()).item()

    # -- attributes --------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        self.accessed.add(name)
        value = self.spec.attrs.get(name, default)
        if isinstance(value, Foreign):
            self.unsupported(f"attribute {name!r} is a sparse tensor or a type")
        return value

    def inside(self, name: str, *inputs: Tensor) -> list[Tensor]:
        """The outputs of the graph that is an attribute, for these inputs."""
        graph = self.attr(name)
        if not isinstance(graph, InnerGraph) or self.run is None:
            raise ValueError(f"it has no graph {name!r}")
        if len(graph.inputs) != len(inputs):
            raise ValueError(f"its graph {name!r} takes {len(graph.inputs)} inputs, not "
                             f"{len(inputs)}")
        return self.run(graph, inputs)

    def defined(self, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        """The results of the standard's definition of the op for these inputs."""
        results = self.define(inputs) if self.define is not None else None
        if results is None:
            raise ValueError("the standard does not define it by other ops")
        self.accessed.update(self.spec.attrs, range(len(self.inputs)))
        return results

    def ints(self, name: str, k: int | None = None) -> tuple[int, ...] | None:
        """Integers from an attribute, or from input k, where later opsets have them."""
        if k is not None and self.has(k):
            return tuple(int(n) for n in self.array(k).reshape(-1))
        numbers = self.attr(name)
        return None if numbers is None else tuple(int(n) for n in numbers)

    def varies_with_sizes(self, k: int, count: int) -> list[bool]:
        """Which of the integers of input k vary with the sizes of open axes."""
        name = self.spec.inputs[k] if k < len(self.spec.inputs) else ""
        return self.numbers.varies(name, count)

    def only(self, **expected: Any) -> None:
        """Raises Unsupported if an attribute has another value than this one."""
        for name, value in expected.items():
            actual = self.attr(name, value)
            if actual != value:
                self.unsupported(f"{name}={actual!r}; only {value!r} is supported")

    def numbers_like(self, k: int, array: Any) -> Tensor:
        """Numbers as a tensor of the dtype of input k."""
        tensor = self.input(k)
        if isinstance(tensor, np.ndarray):
            return np.asarray(array).astype(tensor.dtype)
        return constant(np.asarray(array), self.value(k).dtype)

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of input k."""
        tensor = self.input(k)
        return tensor.array.shape if isinstance(tensor, FloatInitializer) else tensor.shape
