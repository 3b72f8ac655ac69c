"""How weights of a model lie in a file of another framework: as parts, each with named tensors.

Every layout here is a rearrangement: tensors of theirs hold the numbers of our weights in another
order. So one function says both ways; backwards it is followed with places instead of numbers.
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
    """One tensor of theirs: weights of ours, or some of their elements, arranged.

    With `added` it is a second summand of what another entry gives, such as the second bias of
    PyTorch's LSTM: read, it is added; written, it is zero.
    """

    weights: tuple[Weight, ...]
    arrange: Arrange = np.asarray
    added: bool = False

    @property
    def shape(self) -> Shape:
        return self.arrange(*(np.broadcast_to(np.int8(0), w.shape) for w in self.weights)).shape

    def write(self, values: Mapping[Weight, np.ndarray]) -> np.ndarray:
        """Their tensor."""
        tensor = self.arrange(*(values[w] for w in self.weights))
        return np.zeros_like(tensor) if self.added else np.ascontiguousarray(tensor)

    def read(self, tensor: np.ndarray, into: Values) -> None:
        """Puts the elements of their tensor where they belong."""
        places, start = [], 0
        for w in self.weights:
            places.append(np.arange(start, start + w.size).reshape(w.shape))
            start += w.size
        at = self.arrange(*places).ravel()
        numbers = np.ascontiguousarray(tensor).ravel()
        flat = np.concatenate([into[w].ravel() for w in self.weights])
        flat[at] = flat[at] + numbers if self.added else numbers
        start = 0
        for w in self.weights:
            into[w] = flat[start:start + w.size].reshape(w.shape)
            start += w.size


@dataclass(frozen=True)
class Part:
    """What one module of theirs holds: tensors by the ends of their names. `names` are those it
    may have in the file, the surest first. `constants` are tensors that nothing of ours becomes."""

    layer: Layer
    names: tuple[str, ...]
    entries: Mapping[str, Entry]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, Shape]:
        return {suffix: entry.shape for suffix, entry in self.entries.items()}

    def write(self, values: Mapping[Weight, np.ndarray]) -> dict[str, np.ndarray]:
        """Their tensors by the ends of their names."""
        return {suffix: e.write(values) for suffix, e in self.entries.items()} | dict(
            self.constants)

    def read(self, tensors: Mapping[str, np.ndarray]) -> Values:
        """The weights that these tensors of theirs give."""
        wide = any(t.dtype == np.float64 for t in tensors.values())
        into: Values = {w: np.zeros(w.shape, np.float64 if wide else np.float32)
                        for e in self.entries.values() for w in e.weights}
        for suffix, entry in sorted(self.entries.items(), key=lambda item: item[1].added):
            entry.read(tensors[suffix], into)
        return into


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, read only once it is known to fit."""

    shape: Shape
    load: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Module:
    """A module of theirs, as it was found in a file: its names, like those of a Part."""

    names: tuple[str, ...]
    tensors: Mapping[str, Stored]

    @property
    def shapes(self) -> dict[str, Shape]:
        return {suffix: stored.shape for suffix, stored in self.tensors.items()}


def read_pairs(pairs: Sequence[tuple[Part, Module]]) -> Values:
    """The weights of all parts, each from its module."""
    values: Values = {}
    for part, module in pairs:
        values |= part.read({suffix: module.tensors[suffix].load() for suffix in part.entries})
    return values
