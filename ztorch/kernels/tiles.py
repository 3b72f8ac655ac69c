"""The values of a kernel: compile-time constants, sums of loop variables, and tiles.

All iterations of a parallel loop are computed at once, so each such loop is an axis. The values of
an expression in all iterations are a `LoopTensor`: a tensor whose first axes are the loops that it
depends on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value

LETTERS = "abcdefghijklmnopqrstuvwABCDEFGHIJKLMNOPQRSTUVW"  # names of loops in einsum
_serial = itertools.count()


@dataclass(frozen=True, eq=False)
class LoopVar:
    """The counter of a loop, from 0 to its number of iterations; also an axis of a slice."""

    name: str
    extent: int  # number of iterations
    iteration: Value | None = None  # in the body of a sequential loop: the current iteration
    serial: int = field(default_factory=lambda: next(_serial))  # outer loops come first

    def __repr__(self) -> str:
        return self.name


Axes = tuple[LoopVar, ...]


class Affine:
    """A constant plus loop variables times integers: an index that is known while compiling."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[LoopVar, int] | None = None, const: int = 0):
        self.terms = {v: c for v, c in (terms or {}).items() if c}
        self.const = const

    @staticmethod
    def of(x: Affine | int) -> Affine:
        return x if isinstance(x, Affine) else Affine({}, int(x))

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        low = high = self.const
        for v, c in self.terms.items():
            reach = c * (v.extent - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def plus(self, other: Affine | int, sign: int = 1) -> Affine:
        other = Affine.of(other)
        terms = dict(self.terms)
        for v, c in other.terms.items():
            terms[v] = terms.get(v, 0) + sign * c
        return Affine(terms, self.const + sign * other.const)

    def times(self, k: int) -> Affine:
        return Affine({v: c * k for v, c in self.terms.items()}, self.const * k)

    def simple(self) -> Affine | int:
        """The sum, or a plain integer if it has no loop variables."""
        return self if self.terms else self.const

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and (self.terms, self.const) == (other.terms, other.const)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{c} * {v}" if c != 1 else f"{v}" for v, c in self.terms.items()]
        return " + ".join([*parts, *([str(self.const)] if self.const or not parts else [])])


@dataclass(frozen=True, eq=False)
class LoopTensor:
    """A tensor for each iteration of the loops that it depends on."""

    value: Value  # its first axes are loops, the others its own
    axes: Axes = ()  # the loops, outer ones first
    weak: bool = False  # whether it is a Python number, which takes the other operand's dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its own shape; empty for a number."""
        return self.value.shape[len(self.axes):]

    @property
    def dtype(self) -> DType:
        return self.value.dtype


def union(groups: Iterable[Axes]) -> Axes:
    """All loops of some tiles, outer ones first."""
    return tuple(sorted({v for axes in groups for v in axes}, key=lambda v: v.serial))


def spread(tile: LoopTensor, axes: Axes, rank: int = 0) -> Value:
    """The tensor of a tile with an axis for each of some loops, of size 1 where it does not depend
    on the loop, followed by at least `rank` other axes."""
    lengths = [v.extent if v in tile.axes else 1 for v in axes]
    own = (1,) * (rank - len(tile.shape)) + tile.shape
    shape = (*lengths, *own)
    return tile.value if shape == tile.value.shape else OPS.reshape(tile.value, shape)


def full(tile: LoopTensor, axes: Axes, shape: tuple[int, ...] | None = None) -> Value:
    """The tensor of a tile, broadcast along all loops of `axes`, and to its own shape."""
    own = tile.shape if shape is None else shape
    target = (*[v.extent for v in axes], *own)
    value = spread(tile, axes, len(own))
    return value if value.shape == target else OPS.broadcast_to(value, target)


def reordered(value: Value, labels: Sequence[LoopVar | None], axes: Axes) -> Value:
    """A tensor with its labeled axes in another order. Axes without a label have size 1 and are
    removed."""
    labeled_axes = [k for k, v in enumerate(labels) if v is not None]
    if len(labeled_axes) < len(labels):
        value = OPS.reshape(value, tuple(value.shape[k] for k in labeled_axes))
    order = tuple([labels[k] for k in labeled_axes].index(v) for v in axes)
    return value if order == tuple(range(len(order))) else OPS.transpose(value, order)

