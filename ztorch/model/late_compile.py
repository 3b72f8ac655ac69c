"""Compiling a model when its data have told what `compile` was not: shapes, and sizes of axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch.feed.row_sizes import Range, size_ranges

if TYPE_CHECKING:
    from ztorch.layers.network import Network

STEP = 8  # sizes that are chosen are multiples of it: vectors and tiles are whole
MOST = {1: 4, 2: 2}  # sizes of an axis at most, by the number of open axes; of three axes one


class LateCompile:
    """A compile that waits for data.

    Args:
        arguments: Those of `compile`, by name.

    Attributes:
        sizes: The sizes of open axes that hold all data so far.
    """

    def __init__(self, arguments: Mapping[str, Any]):
        self.arguments = dict(arguments)
        self.sizes: dict[str, tuple[int, ...]] = {}
        self._ranges: dict[str, Range] = {}
        self._compiled: dict[str, tuple[int, ...]] | None = None

    @property
    def follows_data(self) -> bool:
        """Whether the sizes of open axes are chosen by the data."""
        return self.arguments["sizes"] is None

    def hold(self, model: Network, x: Any) -> None:
        """Chooses sizes that hold x, too."""
        fix = ("say them: compile(..., sizes={" +
               ", ".join(f"{name!r}: (64, 128)" for name in model.axis_names) + "})")
        for name, (low, high) in size_ranges(x, model.open_axes, list(model.inputs), fix).items():
            known = self.sizes.get(name, (0,))
            before = self._ranges.get(name, (low, high))
            self._ranges[name] = min(low, before[0]), max(high, before[1])
            if high > known[-1]:
                most = MOST.get(len(model.axis_names), 1)
                self.sizes[name] = chosen(*self._ranges[name], most)

    def due(self) -> dict[str, Any] | None:
        """The arguments to compile with now; None where what is compiled holds all data."""
        if self._compiled == self.sizes:
            return None
        self._compiled = dict(self.sizes)
        return {**self.arguments, "sizes": self.sizes or self.arguments["sizes"]}


def chosen(low: int, high: int, most: int) -> tuple[int, ...]:
    """Sizes for rows of `low` to `high` steps: the longest, then halves, at most so many.

    One of 1 is none: such an axis could not be told from those that are not there.

    >>> chosen(50, 50, 4), chosen(3, 60, 4), chosen(3, 60, 1), chosen(1, 1, 4)
    ((50,), (8, 16, 32, 64), (64,), (2,))
    """
    if low == high:
        return (max(high, 2),)
    sizes = [-(-high // STEP) * STEP]
    while len(sizes) < most and sizes[-1] > STEP and sizes[-1] / 2 >= low:
        sizes.append(-(-sizes[-1] // 2 // STEP) * STEP)
    return tuple(sorted(set(sizes)))
