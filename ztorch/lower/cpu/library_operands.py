"""Operands of products as functions of other libraries read them: in place, if neighboring elements
of rows or of columns are contiguous."""

from __future__ import annotations

import math
from typing import NamedTuple

from ztorch.abi import FOREIGN_FUNCTIONS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import access_pattern
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import certain, is_view, view_of, without_copies
from ztorch.lower.tuning import LIBRARY_WORK

BATCH = "b"  # the name of the variable that numbers the matrices of a stack


class LibraryMatrix(NamedTuple):
    """A matrix that lies in memory as a library reads it."""

    base: Value  # the value in memory
    first: Index  # position of its first element
    row: Index  # what rows add to it
    column: Index  # what columns add to it
    pitch: int  # elements between contiguous lines
    transposed: bool  # whether columns are contiguous


def library_matrix(v: Value) -> LibraryMatrix | None:
    """An operand of a product as a library reads it; None if neither its rows nor its columns are
    contiguous."""
    *batch, m, n = v.shape
    row, column = Var("row", m), Var("column", n)
    where = unflatten(Index.of(Var(BATCH, math.prod(batch))), batch)
    at = (*where, Index.of(row), Index.of(column))
    base = view_of(v, at)
    if base is None or (is_view(v) and not certain(v, at)):
        return None
    value, flat = base
    if any(part.inner.mentions(x) for part in flat.parts for x in (row, column)):
        return None
    down, across = flat.factor(row), flat.factor(column)
    first = flat - Index.of(row) * down - Index.of(column) * across
    if (across == 1 or n == 1) and (m == 1 or down >= n):
        return LibraryMatrix(value, first, Index.of(row) * down, Index.of(column) * across,
                             max(down, n), False)
    if (down == 1 or m == 1) and (n == 1 or across >= m):
        return LibraryMatrix(value, first, Index.of(row) * down, Index.of(column) * across,
                             max(across, m), True)
    return None


def can_multiply(library: str, product: Value, limits: Limits) -> bool:
    """Whether a library of the machine computes a product, with its operands where they are."""
    if all(name != library for name, _ in limits.libraries) or (
            f"{library}_{product.dtype.name}" not in FOREIGN_FUNCTIONS):
        return False
    if product.attrs.get("dot") or any(a.dtype is not product.dtype for a in product.args):
        return False
    return all(library_matrix(a) is not None for a in product.args)


def as_library_reads(library: str, product: Value, limits: Limits) -> Value | None:
    """A product whose operands stay where they are, for a library; None if it cannot read them, or
    the product is too small for calls."""
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    if m * n * k < LIBRARY_WORK or min(m, n) == 1:
        return None
    a, b = map(without_copies, product.args)
    bare = Value(product.op, (a, b), product.attrs, product.shape, product.dtype)
    return bare if access_pattern(a) is not None and can_multiply(library, bare, limits) else None
