"""The elements of a matrix that each thread of a subgroup holds, for machines that document it.

Only kernels that work on single elements of a fragment depend on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ztorch.ir.kernel import Fragment


@dataclass(frozen=True)
class ElementLayout:
    """The position of element p of a subgroup, p = thread * elements per thread + element: the bits
    of p that form its row and its column, lowest bit first."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def thread_bits(self, elements: int, along: Sequence[int]) -> list[tuple[int, int]]:
        """The bits of a thread number that are bits of a position along an axis, as pairs."""
        first = elements.bit_length() - 1
        return [(bit - first, k) for k, bit in enumerate(along) if bit >= first]


# By name and matrix. Four threads share a row, eight a column: all of NVIDIA since Ampere, for
# operands of 16 bits.
LAYOUTS: dict[str, dict[str, ElementLayout]] = {
    "quads": {"a": ElementLayout((5, 6, 7, 1), (0, 3, 4, 2)),
              "c": ElementLayout((4, 5, 6, 1), (0, 2, 3))},
}


def layout_of(fragment: Fragment) -> ElementLayout | None:
    """The layout of a fragment; None if it has none, or if the layout is for another size.

    >>> from ztorch.dtypes import f16, f32
    >>> from ztorch.ir.kernel import MmaShape
    >>> layout_of(Fragment("c", MmaShape(16, 8, 16, f16, f32), "quads")).columns
    (0, 2, 3)
    >>> layout_of(Fragment("c", MmaShape(16, 16, 16, f16, f32), "quads"))
    """
    layout = LAYOUTS.get(fragment.layout, {}).get(fragment.role)
    if layout is None or fragment.extent != (1 << len(layout.rows), 1 << len(layout.columns)):
        return None
    return layout


def places(fragment: Fragment) -> tuple[np.ndarray, np.ndarray]:
    """The row and column of each element of a subgroup, in order; row by row without a layout.

    >>> from ztorch.dtypes import f16, f32
    >>> from ztorch.ir.kernel import MmaShape
    >>> rows, columns = places(Fragment("c", MmaShape(16, 8, 16, f16, f32), "quads"))
    >>> rows[:4].tolist(), columns[:4].tolist(), rows[16:18].tolist()
    ([0, 0, 8, 8], [0, 1, 0, 1], [1, 1])
    """
    layout, number = layout_of(fragment), np.arange(fragment.size)
    if layout is None:
        return number // fragment.extent[1], number % fragment.extent[1]
    rows, columns = (sum((number >> bit & 1) << k for k, bit in enumerate(bits))
                     for bits in (layout.rows, layout.columns))
    return np.asarray(rows), np.asarray(columns)
