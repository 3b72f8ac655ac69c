"""The matrices of Winograd's transforms, and their products with the elements of a tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.loops import multiply_add
from ztorch.lower.rewrites.winograd import RESULTS
from ztorch.lower.tuning import TRANSFORM_FAR, TRANSFORM_NEAR

Matrix = tuple[tuple[float, ...], ...]

_P, _Q = Fraction(TRANSFORM_NEAR), Fraction(TRANSFORM_FAR)  # the points: 0, +-P, +-Q, infinity


def _matrix(rows: Sequence[Sequence[Fraction | int]]) -> Matrix:
    return tuple(tuple(float(x) for x in row) for row in rows)


def _kernel_rows() -> Iterator[tuple[Fraction | int, ...]]:
    """The rows that evaluate a kernel at each point, divided by the product of the distances to the
    other points."""
    finite = (0, _P, -_P, _Q, -_Q)
    for p in finite:
        scale = 1 / math.prod((Fraction(p) - q for q in finite if q != p), start=Fraction(1))
        yield scale, scale * p, scale * p * p
    yield 0, 0, 1


# The transforms along one axis: of a kernel, of a tile, and the inverse transform of products.
KERNEL_MATRIX = _matrix([*_kernel_rows()])
TILE_MATRIX = _matrix([
    (_P ** 2 * _Q ** 2, 0, -_P ** 2 - _Q ** 2, 0, 1, 0),
    *((0, -s * a * b ** 2, -b ** 2, s * a, 1, 0)
      for a, b in ((_P, _Q), (_Q, _P)) for s in (1, -1)),
    (0, _P ** 2 * _Q ** 2, 0, -_P ** 2 - _Q ** 2, 0, 1)])
RESULT_MATRIX = _matrix([
    (int(k == 0), *(p ** k for p in (_P, -_P, _Q, -_Q)), int(k == RESULTS - 1))
    for k in range(RESULTS)])


def transposed(matrix: Matrix) -> Matrix:
    """The matrix of the opposite direction, for gradients.

    >>> transposed(((1.0, 2.0), (3.0, 4.0)))
    ((1.0, 3.0), (2.0, 4.0))
    """
    return tuple(zip(*matrix, strict=True))


def both_axes(b: Builder, limits: Limits, matrix: Matrix, lines: Sequence[Sequence[Operand]],
              rows: slice = slice(None)) -> list[list[Operand]]:
    """The rows of matrix @ lines @ transposed(matrix)."""
    columns = [_combined(b, limits, matrix[rows], [line[j] for line in lines])
               for j in range(len(lines[0]))]
    return [_combined(b, limits, matrix, row) for row in zip(*columns, strict=True)]


def _combined(b: Builder, limits: Limits, matrix: Matrix, xs: Sequence[Operand]) -> list[Operand]:
    """matrix @ xs. The rows of points p and -p differ only in the signs of odd terms, so both are
    computed from the same two sums, which the builder emits once."""
    return [_row(b, limits, row, xs) for row in matrix]


def _row(b: Builder, limits: Limits, row: Sequence[float], xs: Sequence[Operand]) -> Operand:
    even, odd = (_sum(b, limits, row[k::2], xs[k::2]) for k in range(2))
    if even is None or odd is None:
        x, sign = even or odd or (b.splat(b.const(0.0, xs[0].dtype), xs[0].lanes), 1)
        return x if sign > 0 else b.neg(x)
    if even[1] < 0:
        return b.sub(odd[0], even[0]) if odd[1] > 0 else b.neg(b.add(even[0], odd[0]))
    return b.add(even[0], odd[0]) if odd[1] > 0 else b.sub(even[0], odd[0])


def _sum(b: Builder, limits: Limits, factors: Sequence[float],
         xs: Sequence[Operand]) -> tuple[Operand, int] | None:
    """The sum of products up to its sign, and the sign, chosen so that the last factor is positive;
    None for no terms."""
    terms = [(f, x) for f, x in zip(factors, xs, strict=True) if f]
    if not terms:
        return None
    sign = 1 if terms[-1][0] > 0 else -1
    total: Operand | None = None
    for f, x in sorted(terms, key=lambda term: abs(term[0]) != 1):
        f *= sign
        if total is None:
            total = x if f == 1 else b.mul(x, f)
        else:
            total = multiply_add(b, limits, x, b.const(f, x.dtype), total) if limits.fma else (
                b.add(total, b.mul(x, f)))
    assert total is not None
    return total, sign
