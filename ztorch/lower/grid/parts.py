"""Products of float32 whose right operand is stored in parts, as machines multiply it that keep
fewer mantissa bits: its leading bits and the rest. The left operand is split as it is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.value import Op
from ztorch.ir.kernel import SWIZZLE_LINE, SWIZZLE_REPEAT

# Positions along k of which those of even numbers may come first: two of each line of a swizzle.
EVEN_FIRST = 2 * SWIZZLE_REPEAT // SWIZZLE_LINE


def _numpy(a: np.ndarray, first: np.ndarray, rest: np.ndarray, dtype: DType | None = None,
           even_first: bool = False) -> Any:
    """a @ (first + rest). With `even_first`, of each 16 rows of the right operand those for even
    numbers come first: so they are stored."""
    b = first + rest
    if even_first:
        places = np.arange(b.shape[-2]).reshape(-1, 2, EVEN_FIRST // 2).swapaxes(1, 2)
        b = b[..., places.reshape(-1), :]
    return np.matmul(a, b)


IN_PARTS = Op("matmul_in_parts", "contract",
              lambda a, *b, dtype=None, even_first=False: (
                  (*a.shape[:-1], b[0].shape[-1]), dtype or a.dtype),
              numpy=_numpy)
