"""Which turns of a loop touch the same elements, beside trying all of them."""

from __future__ import annotations

import ast
import itertools
import textwrap

import numpy as np
import pytest

import ztorch as zt
from ztorch.kernels.dependence import Counters, conflict
from ztorch.kernels.overlap import disjoint

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


# Bodies of a loop over k, and whether its iterations may run at once although all change t (or best).
BODIES = [
    ("t += x[k]", True), ("t = t * 2 + x[k]", False), ("t += x[k]\nt *= 2", False), ("y = t", True),
    ("t += x[k]\nz[k] = t", False),
    ("if x[k] > best:\n    best, t = x[k], k", True), ("if x[k] > best:\n    best = x[k]\nz[k] = best", False),
    ("if x[k] > 0:\n    t += 1", True), ("if x[k] > t:\n    t += 1", False),
    ("if x[k] > 0:\n    t += 1\nelse:\n    t += 2", True), ("if x[k] > 0:\n    t += 1\nelse:\n    t *= 2", False),
    ("if x[k] > 0:\n    z[k] = 1\nelse:\n    t = t * 2 + 1", False),
    ("if x[k] > 0:\n    t = t * 2 + 1\nelse:\n    z[k] = 1", False),
    ("if x[k] > 0:\n    t = True", True), ("if x[k] > 0:\n    t = True\n    z[k] = 1", True),
    ("if x[k] > 0:\n    t = True\n    z[k] = t", False), ("if x[k] > 0:\n    t = True\nif x[k] < -1:\n    t = False", False),
    ("for j in range(3):\n    t += x[j]", True), ("for j in range(t):\n    t += x[j]", False),
    ("for j in range(3):\n    t = t * 2 + x[j]", False),
]


def test_reductions_are_recognized() -> None:
    for body, independent in BODIES:
        [loop] = ast.parse("for k in range(9):\n" + textwrap.indent(body, "    ")).body
        assert isinstance(loop, ast.For)
        problem = conflict(loop, {"x", "t", "best"}, Counters({}, {}, ordered=True))
        assert (problem is None) == independent, (body, problem)


@zt.kernel
def heads(x, apart):
    """Runs of four elements in periods of eight, two of a period in each iteration."""
    out = np.zeros(x.shape, x.dtype)
    for i in range(x.shape[0]):
        for h in range(x.shape[1] // 8):
            for d in range(4):
                out[i, 8 * h + d] = x[i, 8 * h + d] + 1.0
                out[i, 8 * h + apart + d] = 2.0 * x[i, 8 * h + 4 + d]
    return out


@zt.kernel
def renamed(x):
    """The name of a counter that also means something else."""
    out = np.zeros(x.shape, x.dtype)
    for h in range(x.shape[0] // 4):
        d = 4
        out[h + d] = x[h]
        for d in range(2):
            out[h + 2 * d] = x[h + d] * 2.0
    return out


@pytest.mark.parametrize(("apart", "at_once"), [(4, 3), (3, 1)])
def test_places_of_several_counters(apart: int, at_once: int) -> None:
    """Elements that no two iterations share may be of sums with the counters of inner loops."""
    x = np.arange(48.0).reshape(2, 24)
    np.testing.assert_array_equal(heads(x, apart), heads.debug(x, apart))
    assert heads.explain(x, apart).count("iterations at once") == at_once
    np.testing.assert_array_equal(renamed(x[0]), renamed.debug(x[0]))
