"""A penalty that drives rows or columns of a matrix to be orthogonal."""

from __future__ import annotations

import numpy as np

from ztorch import ops
from ztorch.config import number
from ztorch.errors import ConfigError
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.regularizers.regularizer import Regularizer

_EPSILON = 1e-7  # the smallest norm of a row, as in Keras


class OrthogonalRegularizer(Regularizer, names=("orthogonal_regularizer",)):
    """The mean absolute cosine between any two rows, or columns, of a matrix.

    Args:
        factor: The factor of the mean. Default: `0.01`.
        mode: `"rows"` or `"columns"`: the vectors to make orthogonal. Default: `"rows"`.

    Examples:
        >>> import ztorch as zt
        >>> OrthogonalRegularizer(0.5)(zt.tensor([[1.0, 0.0], [2.0, 0.0]])).item()
        0.5
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows"):
        self.factor = number("OrthogonalRegularizer(factor=...)", factor, least=0)
        if mode not in ("rows", "columns"):
            raise ConfigError(f"OrthogonalRegularizer(mode={mode!r}) must be 'rows' or 'columns'")
        self.mode = mode

    def __call__(self, x: Value) -> Value:
        if len(x.shape) != 2 or min(x.shape) < 2:
            raise shape_error("OrthogonalRegularizer takes a matrix of at least two rows and "
                              "columns, not", tuple(x.shape))
        vectors = x if self.mode == "rows" else ops.transpose(x)
        squares = ops.sum(ops.square(vectors), axis=1, keepdims=True)
        units = vectors * ops.rsqrt(ops.maximum(squares, _EPSILON ** 2))  # zeros have a gradient
        cosines = ops.abs(ops.matmul(units, ops.transpose(units)))
        count = x.shape[0] if self.mode == "rows" else x.shape[1]
        off_diagonal = np.asarray(1.0 - np.eye(count), cosines.dtype.working)
        pairs = count * (count - 1) / 2
        return ops.sum(cosines * off_diagonal) * (0.5 * self.factor / pairs)
