"""What a node is to the function that gives it its meaning, and the registry of those functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ztorch.dtypes import dtype
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.file import Foreign, NodeSpec
from ztorch.layers.context import Context


@dataclass(frozen=True)
class Stored:
    """A float initializer: a weight where it is computed with, plain numbers where a node wants
    to know them."""

    name: str
    array: np.ndarray
    read: Callable[[bool], Value]  # the weight; whether an optimizer may change it


LIMIT = 1 << 20  # elements of an array that is worked out while importing

Tensor = np.ndarray | Value | Stored
Result = Tensor | tuple[Tensor, ...]
Meaning = Callable[["Node"], Result]

NODES: dict[str, Meaning] = {}
NOTES: dict[str, str] = {}  # what of an op is left out, for the table of the documentation


def node(*ops: str, but: str = "") -> Callable[[Meaning], Meaning]:
    """Registers the meaning of ONNX ops of these names; `but` says what is not taken."""

    def register(function: Meaning) -> Meaning:
        for op in ops:
            assert op not in NODES, f"ONNX op {op} is registered twice"
            NODES[op] = function
            NOTES[op] = but
        return function

    return register


@dataclass(frozen=True)
class Node:
    """A node with its inputs at hand."""

    spec: NodeSpec
    inputs: tuple[Tensor | None, ...]
    opset: int
    context: Context

    @property
    def op(self) -> str:
        return self.spec.op

    def unsupported(self, why: str) -> NoReturn:
        raise Unsupported(why)

    # -- inputs ------------------------------------------------------------------------------------

    def has(self, k: int) -> bool:
        """Whether input k is there: many are optional."""
        return k < len(self.inputs) and self.inputs[k] is not None

    def given(self, k: int) -> Tensor:
        """Input k as it came."""
        found = self.inputs[k] if k < len(self.inputs) else None
        if found is None:
            raise ValueError(f"input {k} is missing")
        return found

    def value(self, k: int, trainable: bool = True) -> Value:
        """Input k as a tensor of the graph."""
        return self.as_value(self.given(k), trainable)

    def as_value(self, x: Tensor, trainable: bool = True) -> Value:
        if isinstance(x, Value):
            return x
        if isinstance(x, Stored):
            return x.read(trainable)
        d = self.context.dtype if x.dtype.kind == "f" else dtype(x.dtype)
        return constant(x, d) if x.ndim else OPS.full((), x.item(), d)

    def values(self) -> list[Value]:
        return [self.value(k) for k in range(len(self.inputs))]

    def array(self, k: int) -> np.ndarray:
        """Input k as numbers that are known now."""
        found = self.given(k)
        if isinstance(found, Value):
            self.unsupported(f"input {k} depends on the data; shapes and positions must be known "
                             "when the model is compiled")
        return found.array if isinstance(found, Stored) else found

    def number(self, k: int) -> Any:
        """Input k as one number."""
        return self.array(k).reshape(()).item()

    # -- attributes --------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        found = self.spec.attrs.get(name, default)
        if isinstance(found, Foreign):
            self.unsupported(f"attribute {name!r} is a graph or a type")
        return found

    def ints(self, name: str, k: int | None = None) -> tuple[int, ...] | None:
        """Whole numbers from an attribute or, as later opsets have it, from input k."""
        if k is not None and self.has(k):
            return tuple(int(n) for n in self.array(k).reshape(-1))
        found = self.attr(name)
        return None if found is None else tuple(int(n) for n in found)

    def only(self, **expected: Any) -> None:
        """Unsupported unless these attributes have the one value that is taken."""
        for name, value in expected.items():
            given = self.attr(name, value)
            if given != value:
                self.unsupported(f"{name}={given!r}; only {value!r} is taken")

    def only_first_output(self) -> None:
        if any(self.spec.outputs[1:]):
            self.unsupported("only its first output is computed")

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of input k, known or not."""
        found = self.given(k)
        return found.array.shape if isinstance(found, Stored) else found.shape
