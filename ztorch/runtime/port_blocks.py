"""Blocks of memory with the inputs or outputs of one batch or of several."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ztorch.abi import PORT_ALIGN, align_up
from ztorch.host.memory import aligned
from ztorch.runtime.spec import TensorSpec


def offsets_of(tensors: Iterable[TensorSpec]) -> list[int]:
    """Where each tensor begins in the block of all, and the bytes of the block."""
    offsets = [0]
    for t in tensors:
        offsets.append(offsets[-1] + align_up(max(1, t.nbytes), PORT_ALIGN))
    return offsets


class PortBlock:
    """A block of the host with some tensors for each of some batches.

    Args:
        tensors: The tensors.
        count: The number of batches. Default: `1`.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> block = PortBlock([TensorSpec("x", (2, 3), f32)], 4)
        >>> block.batches["x"].shape, block.array.nbytes == 4 * block.stride
        ((4, 2, 3), True)
    """

    def __init__(self, tensors: Iterable[TensorSpec], count: int = 1):
        specs = list(tensors)
        *self._places, self.stride = offsets_of(specs)
        self.array = aligned(self.stride * count)
        self.batches: dict[str, np.ndarray] = {}  # each tensor of all batches
        for t, at in zip(specs, self._places, strict=True):
            d = t.dtype.numpy
            first = self.array[at:at + t.nbytes].view(d).reshape(t.shape)
            self.batches[t.name] = np.ndarray((count, *t.shape), d, self.array.data, at,
                                              (self.stride, *first.strides))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the first batch."""
        return {name: array[0, ...] for name, array in self.batches.items()}

    def offsets(self, batch: int = 0) -> list[int]:
        """Where each tensor of a batch begins."""
        return [batch * self.stride + at for at in self._places]

    def first(self, count: int) -> np.ndarray:
        """The part of the block that holds so many batches."""
        part = self.array[:count * self.stride]
        return self.array if part.size == self.array.size else part
