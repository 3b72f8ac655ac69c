"""Numbers kept within limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op
from ztorch.graph.value import Value


def _clip_numpy(x: Any, min: Any = None, max: Any = None) -> Any:
    return np.clip(x, min, max) if min is not None or max is not None else x


@op(Sample(((3, 5),), {"min": -1.0, "max": 0.5}), Sample(((3, 5),), {"max": 1}, dtypes="s"),
    numpy=_clip_numpy, aliases=("clamp",))
def clip(x: Value, min: Value | float | None = None, max: Value | float | None = None) -> Value:
    """x clipped to the range from min to max.

    Args:
        x: Tensor of numbers.
        min: Smallest result: a number, or a tensor that broadcasts with `x`. `None` for no limit.
            Default: `None`.
        max: Largest result: a number, or a tensor that broadcasts with `x`. `None` for no limit.
            Default: `None`.

    Returns:
        A tensor of the broadcast shape and the dtype of `x`. Its gradient goes to `x` where x is in
        the range, both ends included, and to the limit elsewhere, as in PyTorch and TensorFlow.

    Examples:
        >>> import ztorch as zt
        >>> zt.grad(lambda x: zt.ops.sum(zt.ops.clip(x, 0, 1)))(np.array([-1.0, 0.0, 0.5])).tolist()
        [0.0, 1.0, 1.0]
    """
    x = x if min is None else _limited(x, min, OPS.less, OPS.maximum)
    return x if max is None else _limited(x, max, OPS.greater, OPS.minimum)


def _limited(x: Value, limit: Value | float, beyond: Any, nearer: Any) -> Any:
    """x, or the limit where x is beyond it. Where both are equal, `where` gives x the whole
    gradient, and `nearer` would give it half."""
    if not x.dtype.is_float:
        return nearer(x, limit)
    if isinstance(limit, (int, float)):
        return OPS.where(beyond(x, limit), limit, x)
    y = nearer(OPS.stop_gradient(x), limit)  # NaN where one of them is NaN
    return OPS.where(OPS.equal(x, y), x, y)
