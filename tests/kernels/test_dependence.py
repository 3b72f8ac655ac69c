"""Which turns of a loop touch the same elements, beside trying all of them."""

from __future__ import annotations

import itertools

from ztorch.kernels.dependence import disjoint

Line = tuple[int, int]  # the step of an index per iteration, and its start


def meet(a: Line, b: Line, count: int) -> bool:
    """Whether two places are the same element in two different turns, or in one turn alone."""
    turns = range(count)
    return any(a[0] * i + a[1] == b[0] * j + b[1] for i, j in itertools.product(turns, turns))


def test_disjoint_index_sets_do_not_overlap() -> None:
    lines = list(itertools.product((-2, -1, 1, 2, 3), range(5)))
    told = 0
    for count, a, b in itertools.product((1, 2, 5), lines, lines):
        if a != b and disjoint(a, b, count):
            told += 1
            assert not meet(a, b, count), (a, b, count)
    assert told > 100


def test_distinct_indices_are_recognized() -> None:
    for n in (1, 4, 7):
        assert disjoint((1, 0), (1, n), n) and disjoint((1, n), (1, 0), n)  # one half and the other
        assert disjoint((2, 0), (2, 1), n) and disjoint((-3, 1), (3, 2), n)  # in turns
        assert disjoint((1, 0), (1, 0), n)
        assert not disjoint((1, 0), (1, n), n + 1)
