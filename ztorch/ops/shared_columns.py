"""Kernels of processors for the blocks of columns of a matrix.

Each block has shorter columns than the one before. They are extended to those of the first block,
and their number of elements is data: so all blocks have the same code, which is compiled once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.value import Value, current_layer

APART = 128  # elements whose multiples are a bad distance of rows, which share few sets of a cache
LINE = 16  # elements that such rows are longer, so that they use all sets


def longest(n: int) -> int:
    """The elements of the longest columns of a matrix of n rows.

    >>> longest(100), longest(512)
    (100, 528)
    """
    return n if n % APART else n + LINE


def by_shared_code(kernel: Callable[[Value, Value], Value], x: Value, most: int) -> Value:
    """The result of a kernel.

    Args:
        kernel: Takes columns `(count, width, most)`, as rows, and the number of their elements. Its
            result may depend on the shape and dtype alone.
        x: The columns.
        most: The number of elements of the longest columns.
    """
    columns, sizes, y = _translated(kernel, x.shape[:-1], most, x.dtype, current_layer())
    [y] = substituted([y], {columns: longer(x, most),
                            sizes: OPS.full((1,), x.shape[-1], "int32")})
    return y


@functools.lru_cache(maxsize=8)
def _translated(kernel: Callable[[Value, Value], Value], shape: tuple[int, ...], most: int,
                dtype: DType, layer: str) -> tuple[Value, Value, Value]:
    """The arguments and the result of a kernel."""
    x, sizes = leaf("input", "x", (*shape, most), dtype), leaf("input", "sizes", (1,), "int32")
    return x, sizes, kernel(x, sizes)


def longer(x: Value, n: int) -> Value:
    """Rows of n elements, with zeros at their ends."""
    more = n - x.shape[-1]
    return OPS.pad(x, (0,) * x.rank, (*(0,) * (x.rank - 1), more)) if more else x
