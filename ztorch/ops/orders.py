"""The positions that bring rows into order: an op of its own, and the algorithms that compute it.

Comparisons put NaN last and break ties by position, so every order is stable. On short axes, the
position of an element is the number of elements before it. Processors sort long rows by their
digits. Many short rows, and long rows on other machines, use a bitonic network, which compares
elements of several rows at once; there, rows that are few, and the longest, are cut into runs that
are merged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType, i32
from ztorch.dtypes import dtype as dtype_named
from ztorch.graph.batching import Examples
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value
from ztorch.ir.opcodes import identity
from ztorch.ops.movement import RESHAPE
from ztorch.ops.random import RANDOM_BITS

SHORT = 1 << 8  # elements up to which counting is the best everywhere
COUNTED_FIRST = 48  # the same on processors where only the first elements are wanted
DIGITS_FROM = 1 << 9  # elements from which on digits beat a network on many rows
FEW_GROUPS = 8  # groups for each wanted element from which on groups save work
COUNTED = 2048  # elements up to which counting (two kernels) beats a network of many kernels
COMPARED = 1 << 21  # pairs of all rows up to which it does
RUN = 1 << 8  # elements of the runs of a row that merges begin with
FEW_ROWS = 8  # from so many rows on, the network works on whole vectors
# The fewest rows of a group that a network sorts side by side: a worker keeps its groups in its
# caches. On Zen 4, 4096 x 32 takes 636 us instead of 873, on two threads 335 instead of 523.
ABREAST = 32
LONGEST = 1 << 16  # elements of many rows up to which a network sorts them: it has 136 kernels


def order_of(rows: Value) -> Value:
    """The positions in order, along the middle one of three axes."""
    n = rows.shape[1]
    return _counted(rows) if n <= SHORT and rows.size * n <= COMPARED else ORDER(rows)


def first_of(rows: Value, k: int) -> Value:
    """The positions of the first k elements in order, along the middle one of three axes."""
    n = rows.shape[1]
    if n <= SHORT and rows.size * n <= COMPARED:
        return FIRST(rows, k=k) if k and n >= FEW_GROUPS * k else _counted(rows, k)
    return _first_by_groups(rows, k)


def _first_by_groups(rows: Value, k: int) -> Value:
    """The same. Of long rows, groups of neighbors are compared by their first element: the first k
    elements are in the first k groups."""
    outer, n, inner = rows.shape
    if n <= COUNTED_FIRST and rows.size * n <= COMPARED:
        return _counted(rows, k)
    if not k or n < FEW_GROUPS * k:
        return order_of(rows)[:, :k]
    size = math.isqrt(n // k)
    groups = -(-n // size)
    rows = OPS.pad(rows, (0, 0, 0), (0, groups * size - n, 0), _last(rows.dtype))
    firsts = _firsts(OPS.reshape(rows, (outer, groups, size, inner)))
    chosen = OPS.reshape(OPS.sort(first_of(firsts, k), 1), (outer, k, 1, inner))
    places = OPS.reshape(chosen * size + OPS.iota((1, 1, size, 1), 2), (outer, k * size, inner))
    candidates = OPS.take_along_axis(rows, places, 1)
    return OPS.take_along_axis(places, first_of(candidates, k), 1)


def _firsts(groups: Value) -> Value:
    """The first element of each group along the third of four axes; NaN where all of them are."""
    if not groups.dtype.is_float:
        return OPS.min(groups, axis=2)
    nan = OPS.isnan(groups)
    return OPS.where(OPS.all(nan, axis=2), math.nan,
                     OPS.min(OPS.where(nan, math.inf, groups), axis=2))


def _last(d: DType) -> float:
    """An element that no other comes after."""
    return math.nan if d.is_float else identity("min", d)


def effort(n: int) -> int:
    """The cost of sorting a row on machines other than processors, in comparisons of a vectorized
    loop."""
    bits = (n - 1).bit_length()
    return 3 * n * n if n <= COUNTED else 15 * n * bits * (bits + 1)


# -- the op ----------------------------------------------------------------------------------------


def _infer(rows: Value) -> tuple[tuple[int, ...], DType]:
    return rows.shape, i32


def _numpy(rows: Any) -> Any:
    return np.argsort(rows, 1, kind="stable").astype(np.int32)


def _batch(one: Value, many: Examples) -> Value:
    rows, (outer, n, inner) = many.args[0], one.shape
    order = ORDER(OPS.reshape(rows, (many.count * outer, n, inner)))
    return OPS.reshape(order, (many.count, outer, n, inner))


def by_comparisons(rows: Value) -> Value:
    """The positions in order, by algorithms for machines with many threads."""
    n = rows.shape[1]
    merged = n > (2 * RUN if rows.size < FEW_ROWS * n else LONGEST)
    return _merged(rows) if merged else _order(rows)


def by_digits(rows: Value) -> Value:
    """The positions in order, by digits of the numbers, for processors. Many short rows are
    compared instead, for each row has a table of counts."""
    # Late: other ops need no kernels.
    from ztorch.ops.kernel_sorting import order_by_digits
    from ztorch.ops.kernel_spread_sorting import MOST, order_of_spread

    outer, n, inner = rows.shape
    if rows.size == n <= MOST and _is_hash(rows):
        return OPS.reshape(order_of_spread(OPS.reshape(rows, (n,))), rows.shape)
    if n < DIGITS_FROM and outer * inner >= FEW_ROWS:
        return _order(rows)
    keys = OPS.reshape(OPS.transpose(_digits(rows), (0, 2, 1)), (outer * inner, n))
    bits = keys.dtype.bits if rows.dtype.is_float else rows.dtype.bits
    order = OPS.reshape(order_by_digits(keys, bits), (outer, inner, n))
    return OPS.transpose(order, (0, 2, 1))


def _is_hash(x: Value) -> bool:
    """Whether x consists of random words, which are spread evenly."""
    while x.op is RESHAPE:
        x = x.args[0]
    return x.op is RANDOM_BITS


def _digits(x: Value) -> Value:
    """Unsigned integers of at least 32 bits that compare as x does; NaN is the largest."""
    if x.dtype.is_float and x.dtype.bits < 32:
        x = OPS.cast(x, "float32")
    bits = x.dtype.bits
    unsigned, sign = dtype_named(f"uint{bits}"), 1 << bits - 1
    if x.dtype.is_float:
        own = OPS.bitcast(OPS.where(OPS.equal(x, 0.0), 0.0, x), unsigned)  # both zeros are one
        keys = OPS.where(OPS.greater_equal(own, sign), OPS.bitwise_not(own),
                         OPS.bitwise_or(own, sign))
        keys = OPS.where(OPS.isnan(x), (1 << bits) - 1, keys)
    elif x.dtype.kind == "s":
        keys = OPS.bitwise_xor(OPS.bitcast(x, unsigned), sign)
    else:
        keys = x
    return OPS.cast(keys, "uint32") if bits < 32 else keys


# Of rows along the middle one of three axes.
ORDER = Op("order", "order", _infer, _numpy, cost=64, batch=_batch, others=by_comparisons,
           serial=by_digits)


# -- by comparisons --------------------------------------------------------------------------------


def _order(rows: Value) -> Value:
    """The positions in order, of rows that are not too long for one network."""
    n = rows.shape[1]
    few = n <= COUNTED and rows.size * n <= COMPARED
    return _counted(rows) if few else _places(_network(*_keys(rows)), n)


def _keys(x: Value) -> tuple[Value, Value]:
    """Sort keys that compare as x does, and tie breakers: the position, with NaN behind all
    infinities."""
    position = OPS.iota(x.shape, 1)
    if not x.dtype.is_float:
        return x, position
    nan = OPS.isnan(x)
    return OPS.where(nan, math.inf, x), OPS.where(nan, position + x.shape[1], position)


def _before(key: Value, tie: Value, other_key: Value, other_tie: Value) -> Value:
    """Whether the first comes before the other."""
    equal = OPS.bitwise_and(OPS.equal(key, other_key), OPS.less(tie, other_tie))
    return OPS.bitwise_or(OPS.less(key, other_key), equal)


def _places(ties: Value, n: int) -> Value:
    """Positions of tie breakers."""
    return OPS.where(ties >= n, ties - n, ties)


def _counted(rows: Value, k: int | None = None) -> Value:
    """The positions in order, or the first k: each element's place is how many come before it."""
    key, tie = _keys(rows)
    outer, n, inner = key.shape
    mine = [OPS.reshape(x, (outer, 1, n, inner)) for x in (key, tie)]
    theirs = [OPS.reshape(x, (outer, n, 1, inner)) for x in (key, tie)]
    place = OPS.sum(OPS.cast(_before(*theirs, *mine), "int32"), axis=1)
    ranks = OPS.iota((1, 1, n if k is None else k, 1), 2)
    matches = OPS.equal(OPS.reshape(place, (outer, n, 1, inner)), ranks)
    return _places(OPS.sum(OPS.where(matches, theirs[1], 0), axis=1), n)


def _network(key: Value, tie: Value) -> Value:
    """The ties in order: runs of 2, 4, 8, ... are merged, the second one read backwards."""
    outer, n, inner = key.shape
    if outer > 1 and inner == 1:  # rows side by side: whole vectors are compared
        size = next((k for k in range(ABREAST, outer) if outer % k == 0), outer)
        groups = (outer // size, size, n)
        order = _network(*(OPS.transpose(OPS.reshape(x, groups), (0, 2, 1)) for x in (key, tie)))
        return OPS.reshape(OPS.transpose(order, (0, 2, 1)), (outer, n, 1))
    bits = (n - 1).bit_length()
    more = ((0, 0, 0), (0, (1 << bits) - n, 0))
    key = OPS.pad(key, *more, identity("min", key.dtype))
    tie = OPS.pad(tie, *more, 2 * n)
    for run in range(bits):
        for near in reversed(range(run + 1)):
            pairs = (outer, 1 << (bits - near - 1), 2, 1 << near, inner)
            mirrored = (2, 3) if near == run else (2,)
            mine = [OPS.reshape(x, pairs) for x in (key, tie)]
            theirs = [OPS.flip(x, mirrored) for x in mine]
            low = OPS.equal(OPS.iota(pairs, 2), 0)  # at full size: stored apart, it took a barrier
            swap = OPS.equal(_before(*theirs, *mine), low)
            key, tie = (OPS.reshape(OPS.where(swap, a, b), (outer, 1 << bits, inner))
                        for a, b in zip(theirs, mine, strict=True))
    return tie[:, :n]


def _merged(x: Value) -> Value:
    """The positions in order, by merges of runs that are sorted as rows."""
    outer, n, inner = x.shape
    merges = (-(-n // RUN) - 1).bit_length()
    x = OPS.pad(x, (0, 0, 0), (0, (RUN << merges) - n, 0), _last(x.dtype))
    runs = OPS.reshape(x, (outer << merges, RUN, inner))
    order = _order(runs)
    x = OPS.take_along_axis(runs, order, 1)
    first = OPS.iota((outer, 1 << merges, 1, 1), 1) * RUN
    order = OPS.reshape(OPS.reshape(order, (outer, 1 << merges, RUN, inner)) + first, runs.shape)
    for _ in range(merges):
        x, order = _merge(x, order)
    return order[:, :n]


def _merge(x: Value, order: Value) -> tuple[Value, Value]:
    """Rows two by two as one, in order, with their positions. Each element of the result finds how
    many of those before it are from the first row, by halving."""
    rows, n, inner = x.shape
    (a, b), (a_order, b_order) = (
        [OPS.reshape(y, (rows // 2, 2, n, inner))[:, k] for k in (0, 1)] for y in (x, order))
    place = OPS.iota((rows // 2, 2 * n, inner), 1)
    count = OPS.full(place.shape, 0, "int32")
    for bit in reversed(range(n.bit_length())):
        more = count + (1 << bit)
        rest = place - more  # from the second row, if so many are from the first
        mine = OPS.take_along_axis(a, OPS.minimum(more - 1, n - 1), 1)
        theirs = OPS.take_along_axis(b, OPS.clip(rest, 0, n - 1), 1)
        passed = OPS.bitwise_or(rest >= n, OPS.bitwise_not(sorted_before(theirs, mine)))
        fits = OPS.bitwise_and(more <= n, rest >= 0)
        count = OPS.where(OPS.bitwise_and(fits, passed), more, count)
    rest = place - count
    at = OPS.minimum(count, n - 1), OPS.minimum(rest, n - 1)
    mine, theirs = (OPS.take_along_axis(y, k, 1) for y, k in zip((a, b), at, strict=True))
    from_a = OPS.bitwise_and(count < n, OPS.bitwise_or(
        rest >= n, OPS.bitwise_not(sorted_before(theirs, mine))))
    return OPS.where(from_a, mine, theirs), OPS.where(from_a, *(
        OPS.take_along_axis(y, k, 1) for y, k in zip((a_order, b_order), at, strict=True)))


def sorted_before(a: Value, b: Value) -> Value:
    """Whether a comes before b where NaN is last."""
    if not a.dtype.is_float:
        return OPS.less(a, b)
    nan, other_nan = OPS.isnan(a), OPS.isnan(b)  # compilers of WGSL take no number to be NaN
    number = OPS.bitwise_not(nan)
    return OPS.bitwise_and(number, OPS.bitwise_or(other_nan, OPS.less(a, b)))


# -- the first elements ----------------------------------------------------------------------------


def _infer_first(rows: Value, k: int) -> tuple[tuple[int, ...], DType]:
    outer, _, inner = rows.shape
    return (outer, k, inner), i32


def _batch_first(one: Value, many: Examples, k: int) -> Value:
    rows, (outer, _, inner) = many.args[0], one.shape
    n = one.args[0].shape[1]
    first = first_of(OPS.reshape(rows, (many.count * outer, n, inner)), k)
    return OPS.reshape(first, (many.count, *one.shape))


# Of short rows: machines with many threads take few kernels, processors few comparisons.
FIRST = Op("first", "order", _infer_first, lambda rows, k: _numpy(rows)[:, :k], cost=64,
           batch=_batch_first, others=_counted, serial=_first_by_groups)
