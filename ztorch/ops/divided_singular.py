"""Singular vectors of large matrices in single precision, by divide and conquer.

A bidiagonal matrix without a row in its middle is two halves. Its singular values are the roots of
an equation of those of the halves (Gu and Eisenstat, "A divide-and-conquer algorithm for the
bidiagonal SVD", 1995). All parts have a column more than rows, and as many rows.
"""

from __future__ import annotations

from typing import NamedTuple

from ztorch.dtypes import f32, f64
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.divided_spectra import (
    APART,
    LEAF,
    LEAST,
    NOTHING,
    reflected_rows,
    size_of,
    unit_rows,
    vectors_of,
)
from ztorch.ops.kernel_bidiagonal import bidiagonal
from ztorch.ops.kernel_secular import in_order, rising, roots
from ztorch.ops.rotations import decomposed_by_rotations


class SingularRows(NamedTuple):
    """The decompositions of matrices with a column more than rows."""

    values: Value  # in double precision
    left: Value  # singular vectors as rows
    right: Value  # the same, and below them the unit vector that is orthogonal to them


def by_halves(x: Value) -> Value:
    """Singular vectors of square matrices `(count, n, n)` as rows, the left ones, then the right
    ones beside them, then the values, in ascending order.

    Args:
        x: Matrices in float32 whose largest elements are about 1.
    """
    n = x.shape[-1]
    diagonal, above, of_u, of_v, u, v = bidiagonal(x, size_of(n))
    values, left, right = of_bidiagonal(diagonal, above)
    left, right = reflected_rows(left, u, of_u), reflected_rows(right, v, of_v)
    return OPS.concat(left, right, OPS.expand_dims(values, -1), axis=-1)


def of_bidiagonal(diagonal: Value, above: Value) -> tuple[Value, Value, Value]:
    """The singular values of bidiagonal matrices, and the left and right vectors as rows.

    Args:
        diagonal: The diagonals `(count, n)`.
        above: The elements above them, and a zero.
    """
    count, n = diagonal.shape
    parts = 2
    while -(-(n + 1) // parts) - 1 > LEAF:
        parts *= 2
    h = -(-(n + 1) // parts) - 1
    more = parts * (h + 1) - n
    bound = OPS.max(OPS.abs(diagonal), axis=-1, keepdims=True)
    bound = bound + OPS.max(OPS.abs(above), axis=-1, keepdims=True)
    bound = 2.0 * bound + 1.0  # so these are last
    diagonal = OPS.concat(diagonal, OPS.broadcast_to(bound, (count, more)), axis=-1)
    above = OPS.pad(above, (0, 0), (0, more))
    diagonal, above = (OPS.reshape(y, (count * parts, h + 1, 1)) for y in (diagonal, above))
    row, column = OPS.iota((h, 1), 0), OPS.iota((1, h + 1), 1)
    leaves = OPS.where(OPS.equal(row, column), diagonal[:, :h],
                       OPS.where(OPS.equal(row + 1, column), above[:, :h], 0.0))
    u, s, right = decomposed_by_rotations(leaves, True)
    part = SingularRows(OPS.cast(s, f64), OPS.matrix_transpose(u), right)
    rows = OPS.reshape(OPS.concat(diagonal, above, axis=-1)[:, h], (count, parts, 2))
    while parts > 1:
        part = _joined(part, OPS.reshape(rows[:, 0::2], (-1, 2)))
        parts, rows = parts // 2, rows[:, 1::2]
    last = part.right[:, :, -1:]  # the column that was added is a row now
    end = OPS.where(OPS.less(last[:, -1:], 0.0), -1.0, OPS.ones_like(last[:, -1:]))
    bottom = OPS.equal(OPS.iota((last.shape[1], 1), 0), last.shape[1] - 1)
    mirror = last + OPS.where(bottom, end, 0.0)
    share = OPS.matmul(OPS.matrix_transpose(mirror), part.right) / (1.0 + OPS.abs(last[:, -1:]))
    right = part.right - mirror * share
    values = OPS.where(OPS.less(part.values, NOTHING), 0.0, part.values)
    return OPS.cast(rising(values[:, :n]), f32), part.left[:, :n, :n], right[:, :n, :n]


def _joined(part: SingularRows, rows: Value) -> SingularRows:
    """The decompositions of pairs of matrices with a row between them.

    Args:
        part: Those of the matrices, one after the other.
        rows: The two elements of each row: in the last column of one and in the first of the next.
    """
    count, h = part.values.shape[0] // 2, part.values.shape[1]
    n = 2 * h + 1
    lefts, rights = (OPS.reshape(y, (count, 2, *y.shape[1:])) for y in (part.left, part.right))
    ends = [OPS.cast(rights[:, 0, :, -1], f64) * OPS.cast(rows[:, :1], f64),
            OPS.cast(rights[:, 1, :, 0], f64) * OPS.cast(rows[:, 1:], f64)]
    beyond = [y[:, h:] for y in ends]
    length = OPS.sqrt(beyond[0] * beyond[0] + beyond[1] * beyond[1])
    none = OPS.less(length, LEAST)
    safe = OPS.where(none, 1.0, length)
    cosine, sine = OPS.where(none, 1.0, beyond[0] / safe), OPS.where(none, 0.0, beyond[1] / safe)
    z = OPS.concat(length, ends[0][:, :h], ends[1][:, :h], axis=-1)
    values = OPS.reshape(part.values, (count, 2 * h))
    values = OPS.concat(OPS.zeros((count, 1), f64), values, axis=-1)
    places, values, poles, z = in_order(values, z, size_of(n), APART, LEAST)
    distances, nearest, offsets = roots(poles, poles, z, size_of(n))
    values, near = (OPS.take_along_axis(y, nearest, -1) for y in (values, poles))
    values = values + offsets / (near + OPS.sqrt(OPS.maximum(near * near + offsets, 0.0)))
    values = OPS.maximum(values, 0.0)  # the new pole, 0, has to stay the first one
    turn = vectors_of(poles, poles, z, distances)
    first = OPS.equal(OPS.iota((1, n), 1), 0)
    other = OPS.where(first, -1.0, OPS.expand_dims(poles, -2) * turn)
    places = OPS.expand_dims(places, -2)
    turn, other = (OPS.take_along_axis(unit_rows(y), places, -1) for y in (turn, other))
    left = OPS.concat(OPS.matmul(other[:, :, 1:h + 1], lefts[:, 0]), other[:, :, :1],
                      OPS.matmul(other[:, :, h + 1:], lefts[:, 1]), axis=-1)
    cosine, sine = (OPS.expand_dims(OPS.cast(y, f32), -1) for y in (cosine, sine))
    right = OPS.concat(*(OPS.concat(
        OPS.matmul(OPS.concat(turn[:, :, start:start + h], turn[:, :, :1] * share, axis=-1), own),
        beside * own[:, h:], axis=-2) for start, share, beside, own in (
            (1, cosine, -sine, rights[:, 0]), (h + 1, sine, cosine, rights[:, 1]))), axis=-1)
    return SingularRows(values, left, right)
