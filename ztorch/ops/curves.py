"""Functions sampled at points, and signals, under NumPy's names."""

from __future__ import annotations

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, as_value, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats


@composition(Sample(((3, 5),)), Sample(((3, 5),), {"rowvar": False, "correction": 0}))
def cov(x: Value, rowvar: bool = True, correction: float = 1) -> Value:
    """The covariance of each pair of rows.

    Args:
        x: One row of numbers per variable, or a vector.
        rowvar: Whether rows are variables; otherwise columns are. Default: `True`.
        correction: Subtracted from the count by which the sum of products is divided. Default: `1`.

    Returns:
        A square float matrix; a number for a vector.
    """
    [x] = as_floats(x)
    if x.rank not in (1, 2):
        raise shape_error("ops.cov takes a matrix or a vector, not", x.shape)
    rows = x if x.rank == 2 and rowvar else OPS.transpose(x, (1, 0)) if x.rank == 2 else (
        OPS.expand_dims(x, 0))
    deviations = rows - OPS.mean(rows, -1, True)
    products = OPS.matmul(deviations, OPS.transpose(deviations, (1, 0)))
    covariance = products / (rows.shape[-1] - correction)
    return covariance if x.rank == 2 else OPS.reshape(covariance, ())


@composition(Sample(((7,), (3,))), Sample(((7,), (3,)), {"mode": "valid"}))
def convolve(x1: Value, x2: Value, mode: str = "full") -> Value:
    """The convolution of two vectors.

    Args:
        x1: Vector of numbers.
        x2: Vector of the same dtype.
            Zeros stand beyond the ends of the longer vector, and zero times infinity is NaN: an
            infinity in the shorter one gives NaN there, where NumPy's result may be infinite.
        mode: `"full"` for all positions where they overlap, `"same"` for the length of the longer
            one, `"valid"` for positions where they overlap completely. Default: `"full"`.

    Returns:
        A vector.
    """
    longer, shorter = (x1, x2) if x1.size >= x2.size else (x2, x1)
    return OPS.correlate(longer, OPS.flip(shorter, 0), mode)


@composition(Sample(((3, 4), (5,), (5,))))
def interp(x: Value | float, xp: Value, fp: Value) -> Value:
    """Linear interpolation between points, constant before the first and after the last.

    Args:
        x: Positions to evaluate.
        xp: Positions of the points: an ascending vector of at least two numbers.
        fp: Values at the points.

    Returns:
        A tensor of the shape of `x`, of the dtype of `fp`.
    """
    [fp] = as_floats(fp)
    x, xp = (OPS.cast(as_value(v, fp), fp.dtype) for v in (x, xp))
    if xp.rank != 1 or xp.shape != fp.shape or xp.size < 2:
        raise shape_error("ops.interp takes two vectors of equal length, at least two, not",
                          xp.shape, fp.shape)
    after = OPS.clip(OPS.searchsorted(xp, x, "right"), 1, xp.size - 1)
    before = after - 1
    first, start = OPS.take(xp, before, 0), OPS.take(fp, before, 0)
    gap = OPS.take(xp, after, 0) - first  # 0 where the last points share a position
    part = OPS.clip((x - first) / OPS.where(gap > 0.0, gap, 1.0), 0.0, 1.0)
    part = OPS.where(OPS.logical_and(gap <= 0.0, x >= first), 1.0, part)
    return start + (OPS.take(fp, after, 0) - start) * part


@composition(Sample(((5,),)), Sample(((3, 5),), {"dx": 0.5, "axis": 1}))
def gradient(y: Value, dx: float = 1.0, axis: int | None = None) -> Value:
    """The slopes of a function at equally spaced points: central differences, one-sided at the
    ends.

    Args:
        y: Values of the function.
        dx: Distance between points. Default: `1.0`.
        axis: Axis of the points. `None` means the only one. Default: `None`.

    Returns:
        A float tensor of the shape of `y`.
    """
    [y] = as_floats(y)
    if axis is None and y.rank != 1:
        raise shape_error("ops.gradient needs an axis= for a tensor of shape", y.shape)
    [a] = normal_axes(0 if axis is None else axis, y.rank)
    if y.shape[a] < 2:
        raise shape_error("ops.gradient needs two numbers along its axis, not", y.shape)

    def slope(late: slice, early: slice, distance: float) -> Value:
        before = (slice(None),) * a
        last, first = (*before, late), (*before, early)
        return (y[last] - y[first]) / distance

    inside = slope(slice(2, None), slice(None, -2), 2.0 * dx)
    return OPS.concat([slope(slice(1, 2), slice(0, 1), dx), inside,
                       slope(slice(-1, None), slice(-2, -1), dx)], axis=a)


@composition(Sample(((3,), (3, 4))))
def polyval(p: Value, x: Value | float) -> Value:
    """Evaluates a polynomial.

    Args:
        p: Coefficients, from the highest power down.
        x: Positions to evaluate.

    Returns:
        A tensor of the shape of `x`, of the dtype of `p`.
    """
    [p] = as_floats(p)
    points = OPS.cast(as_value(x, p), p.dtype)
    if p.rank != 1 or not p.size:
        raise shape_error("ops.polyval takes a vector of coefficients, not", p.shape)
    y = OPS.broadcast_to(p[0], points.shape)
    for k in range(1, p.size):
        y = y * points + p[k]
    return y
