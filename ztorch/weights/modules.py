"""How weights are laid out in files of other frameworks: parts, each with named tensors.

A tensor of theirs holds the numbers of our weights in another order, so one function describes both
directions. To read a file, it is applied to the positions of numbers, which tells where each number
goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ztorch.initializers import Shape
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight

Arrange = Callable[..., np.ndarray]
Values = dict[Weight, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """One tensor of theirs."""

    weights: tuple[Weight, ...]  # our weights whose elements it holds
    arrange: Arrange = np.asarray  # their values to the tensor
    added: bool = False  # a second summand, such as PyTorch's second bias; written as zeros

    @property
    def shape(self) -> Shape:
        """The shape of the tensor."""
        return self.arrange(*(np.broadcast_to(np.int8(0), w.shape) for w in self.weights)).shape

    def write(self, values: Mapping[Weight, np.ndarray]) -> np.ndarray:
        """The tensor for values of our weights."""
        tensor = self.arrange(*(values[w] for w in self.weights))
        # ascontiguousarray adds an axis to a scalar.
        return np.zeros_like(tensor) if self.added else np.ascontiguousarray(tensor).reshape(
            tensor.shape)

    def read(self, tensor: np.ndarray, into: Values) -> None:
        """Writes the elements of their tensor into our weights."""
        indices, start = [], 0
        for w in self.weights:
            indices.append(np.arange(start, start + w.size).reshape(w.shape))
            start += w.size
        order = self.arrange(*indices).ravel()
        numbers = np.ascontiguousarray(tensor).ravel()
        flat = np.concatenate([into[w].ravel() for w in self.weights])
        flat[order] = flat[order] + numbers if self.added else numbers
        start = 0
        for w in self.weights:
            into[w] = flat[start:start + w.size].reshape(w.shape)
            start += w.size


@dataclass(frozen=True)
class ModelPart:
    """A module of theirs, as it should be in a file."""

    layer: Layer  # our layer
    names: tuple[str, ...]  # that it may have in the file, the most reliable first
    entries: Mapping[str, Entry]  # its tensors, by the ends of their names
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)  # tensors that ours lack

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of its tensors, by the ends of their names."""
        return {suffix: entry.shape for suffix, entry in self.entries.items()}

    def fits(self, module: FileModule) -> bool:
        """Whether a module of a file has tensors of these shapes, apart from constants."""
        return self.shapes == {suffix: shape for suffix, shape in module.shapes.items()
                               if suffix not in self.constants}

    def write(self, values: Mapping[Weight, np.ndarray]) -> dict[str, np.ndarray]:
        """Its tensors for values of our weights, by the ends of their names."""
        return {suffix: e.write(values) for suffix, e in self.entries.items()} | dict(
            self.constants)

    def read(self, tensors: Mapping[str, np.ndarray]) -> Values:
        """Our weights from tensors of theirs."""
        wide = any(t.dtype == np.float64 for t in tensors.values())
        into: Values = {w: np.zeros(w.shape, np.float64 if wide else np.float32)
                        for e in self.entries.values() for w in e.weights}
        for suffix, entry in sorted(self.entries.items(), key=lambda item: item[1].added):
            entry.read(tensors[suffix], into)
        return into


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, which is read only if it fits."""

    shape: Shape
    load: Callable[[], np.ndarray]


@dataclass(frozen=True)
class FileModule:
    """A module of theirs, as it is in a file."""

    names: tuple[str, ...]  # as in a ModelPart
    tensors: Mapping[str, StoredTensor]

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of its tensors, by the ends of their names."""
        return {suffix: stored.shape for suffix, stored in self.tensors.items()}


def read_pairs(pairs: Sequence[tuple[ModelPart, FileModule]]) -> Values:
    """The weights of all parts, each from its module."""
    values: Values = {}
    for part, module in pairs:
        values |= part.read({suffix: module.tensors[suffix].load() for suffix in part.entries})
    return values
