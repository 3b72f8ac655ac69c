"""Which columns of a large matrix a mask, such as a causal one, excludes from all results.

Constants are propagated through a block of the matrix: a comparison of positions that is false in
the whole block, the infinity it selects, the zero of its exponential. A column need not be computed
if every reduction gets its neutral element there and every product gets zero. Unknown values are
assumed to be finite, except the largest score of a row: if all columns of a row are masked, by
positions or by data, it is infinite, and its weights are NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ztorch.graph.value import Value
from ztorch.ir.opcodes import identity
from ztorch.lower.rewrites.large_intermediates import Group

Span = tuple[float, float]  # the minimum and maximum of some numbers
Part = tuple[int, int]  # a range of rows or columns

_COMPARISONS: dict[str, Callable[[Span, Span], bool | None]] = {
    "lt": lambda a, b: True if a[1] < b[0] else False if a[0] >= b[1] else None,
    "le": lambda a, b: True if a[1] <= b[0] else False if a[0] > b[1] else None,
    "gt": lambda a, b: True if a[0] > b[1] else False if a[1] <= b[0] else None,
    "ge": lambda a, b: True if a[0] >= b[1] else False if a[1] < b[0] else None,
}
_INTERVAL_SUMS = {"add": operator.add, "sub": operator.sub}


def visible_columns(group: Group, parts: Sequence[Part]) -> dict[Part, int]:
    """For each range of rows, the number of leading columns that it needs. Adjacent ranges that
    need equally many are merged."""
    columns = group.shape.columns
    needed: list[tuple[Part, int]] = []
    for part in parts:
        low, high = 0, columns  # low < needed columns <= high
        while high - low > 1:
            middle = (low + high) // 2
            masked = is_masked(group, part, (middle, columns))
            low, high = (low, middle) if masked else (middle, high)
        if needed and needed[-1][1] == high:
            part = (needed.pop()[0][0], part[1])
        needed.append((part, high))
    return dict(needed)


def is_masked(group: Group, rows: Part, columns: Part) -> bool:
    """Whether a part of the matrix affects no result."""
    spans = _Known(group, rows, columns)
    for v in (*group.inner, *group.results):
        for a in v.args if v.op.kind in ("reduce", "contract") else ():
            source = a if a in group.inner or not a.args else a.args[0]  # or its transpose
            if source in group.inner and source.shape == group.shape.sizes:
                neutral = identity(v.op.opcode, v.dtype) if v.op.kind == "reduce" else 0
                if spans.span(source) != (neutral, neutral):
                    return False
    return True


def is_unmasked(group: Group, mask: Value, rows: Part, columns: Part) -> bool:
    """Whether a mask is true in a whole part of the matrix."""
    return _Known(group, rows, columns).span(mask) == (1, 1)


@dataclass
class _Known:
    """Known value ranges in a part of the matrix."""

    group: Group
    rows: Part
    columns: Part
    spans: dict[Value, Span | None] = field(default_factory=dict)

    def is_finite(self, v: Value) -> bool:
        """Whether an unknown number is finite. The largest of a row is if the row has a column that
        no mask hides."""
        while v in self.group.inner and (v.op.movement or v.op.alias):
            v = v.args[0]
        if v not in self.group.inner or v.op.opcode not in ("max", "min"):
            return True
        return v.op.kind != "reduce" or self._is_seen(v.args[0], *self.rows)

    def _is_seen(self, v: Value, start: int, end: int) -> bool:
        """Whether each of some rows has a column in which v is a number."""
        rows, columns = self.group.shape.rows, self.group.shape.columns
        diagonals = start, start + columns - rows
        for k in {min(max(k, 0), columns - 1) for k in (0, columns - 1, *diagonals)}:
            if _Known(self.group, (start, end), (k, k + 1))._is_number(v):
                return True
        middle = (start + end) // 2
        return middle > start and self._is_seen(v, start, middle) and self._is_seen(v, middle, end)

    def _is_number(self, v: Value) -> bool:
        """Whether no mask makes v infinite in this part."""
        span = self.span(v)
        if span is not None or v not in self.group.inner or v.op.kind != "map":
            return span is None or all(map(math.isfinite, span))
        if v.op.opcode == "select" and (mask := self.span(v.args[0])) in ((0, 0), (1, 1)):
            return self._is_number(v.args[1 if mask == (1, 1) else 2])
        return all(self._is_number(a) for a in v.args)

    def span(self, v: Value) -> Span | None:
        """The range of a value in this part; None if unknown."""
        if v.attrs.get("role") == "constant":
            return self._of_constant(v)
        if v not in self.group.inner:
            return None
        if v not in self.spans:
            self.spans[v] = self._computed_span(v)
        return self.spans[v]

    def _computed_span(self, v: Value) -> Span | None:
        if v.op.kind != "map":
            return None
        if not v.args:
            return self._of_fill(v)
        spans = [self.span(a) for a in v.args]
        if v.op.movement or v.op.alias:
            return spans[0]
        if v.op.opcode in _COMPARISONS:
            a, b = spans
            answer = _COMPARISONS[v.op.opcode](a, b) if a and b else None
            return None if answer is None else (answer, answer)
        numbers = [s[0] if s and s[0] == s[1] else None for s in spans]
        if v.op.opcode in _INTERVAL_SUMS and not all(
                self.is_finite(a) for a, n in zip(v.args, numbers, strict=True) if n is None):
            return None
        return _computed(v, spans, numbers)

    def _of_constant(self, v: Value) -> Span | None:
        """The range of a constant with the rows and columns of the matrix, such as a mask."""
        shape, data = self.group.shape, v.attrs["data"]
        if v.rank < 2 or v.shape[-2] not in (1, shape.rows) or v.shape[-1] not in (
                1, shape.columns):
            return None
        rows = slice(*self.rows) if v.shape[-2] > 1 else slice(None)
        part = data[..., rows, slice(*self.columns) if v.shape[-1] > 1 else slice(None)]
        return part.min().item(), part.max().item()

    def _of_fill(self, v: Value) -> Span | None:
        if "value" in v.attrs:
            return v.attrs["value"], v.attrs["value"]
        axis = v.attrs.get("axis")
        if axis is None or v.shape != self.group.shape.sizes:
            return None
        start, end = (self.rows if axis == v.rank - 2 else self.columns if axis == v.rank - 1 else
                      (0, v.shape[axis]))
        return start, end - 1


def _computed(v: Value, spans: list[Span | None], numbers: list[float | None]) -> Span | None:
    """The range of an elementwise value, from the ranges of its arguments."""
    code = v.op.opcode
    if code == "select" and numbers[0] is not None:
        return spans[1] if numbers[0] else spans[2]
    if code == "select" and spans[1] and spans[2]:  # either: both are zero with dropout
        return min(spans[1][0], spans[2][0]), max(spans[1][1], spans[2][1])
    if code == "and" and v.dtype.name == "bool" and 0 in numbers:
        return 0, 0
    if code == "mul" and 0 in numbers:
        return 0, 0
    if code in _INTERVAL_SUMS:
        for k, n in enumerate(numbers):
            if n is not None and math.isinf(n) and numbers[1 - k] is None:
                result = -n if code == "sub" and k == 1 else n
                return result, result
        [a, b] = spans
        if v.dtype.is_int and a and b:
            low, high = (b[0], b[1]) if code == "add" else (b[1], b[0])
            return _INTERVAL_SUMS[code](a[0], low), _INTERVAL_SUMS[code](a[1], high)
    if any(n is None for n in numbers):
        return None
    arrays = [np.array(n, a.dtype.working) for n, a in zip(numbers, v.args, strict=True)]
    with np.errstate(all="ignore"):
        result = v.op.numpy(*arrays, **v.attrs).item()
    return result, result
