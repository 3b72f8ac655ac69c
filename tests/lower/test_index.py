"""Index arithmetic against brute force: whatever is simplified must stay the same number."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch.lower.index import Index, LoadedIndex, Quotient, Remainder, Var
from ztorch.lower.positions import flatten, proper, strides, unflatten


def value(index: Index, at: dict[Var, int]) -> int:
    """The number an index stands for, with Python's own // and %."""
    total = index.const
    for atom, factor in index.terms:
        if isinstance(atom, Quotient):
            x = value(atom.inner, at) // atom.by
        elif isinstance(atom, Remainder):
            x = value(atom.inner, at) % atom.by
        else:
            x = at[atom]  # type: ignore[index]
        total += factor * x
    return total


def everywhere(loops: list[Var]) -> list[dict[Var, int]]:
    return [dict(zip(loops, point, strict=True))
            for point in itertools.product(*(range(v.extent) for v in loops))]


@together()
@pytest.mark.parametrize("seed", range(150))
def test_random_arithmetic(seed: int) -> None:
    """A chain of random operations, done on symbols and on numbers."""
    rng = random.Random(seed)
    loops = [Var(name, rng.randint(1, 7), kept=rng.random() < 0.2) for name in "ijk"]
    points = everywhere(loops)
    pool = [(Index.of(v), np.array([p[v] for p in points])) for v in loops]
    for _ in range(12):
        (a, x), (b, y) = rng.choice(pool), rng.choice(pool)
        n = rng.choice((1, 2, 3, 4, 6, 12))
        made = rng.choice((
            lambda a=a, b=b, x=x, y=y: (a + b, x + y),
            lambda a=a, b=b, x=x, y=y: (a - b, x - y),
            lambda a=a, x=x, n=n: (a * n, x * n),
            lambda a=a, x=x, n=n: (a // n, x // n),
            lambda a=a, x=x, n=n: (a % n, x % n),
            lambda a=a, b=b, x=x, y=y, n=n: (a * n + b, x * n + y),
            lambda a=a, x=x, n=n: (a + n, x + n),
            lambda a=a, x=x, n=n: (n - a, n - x)))()
        pool.append(made)
        index, numbers = made
        np.testing.assert_array_equal([value(index, p) for p in points], numbers)
        low, high = index.range
        assert low <= numbers.min() and numbers.max() <= high


@together()
@pytest.mark.parametrize("seed", range(40))
def test_replacing_is_substituting(seed: int) -> None:
    rng = random.Random(seed)
    i, j, k = Var("i", 6), Var("j", 4), Var("k", 24)
    index = Index.of(k)
    for _ in range(4):
        n = rng.choice((2, 3, 4, 5))
        index = rng.choice((index // n, index % n, index * n + index, index + n))
    flat = Index.of(i) * 4 + Index.of(j)
    for p in everywhere([i, j]):
        want = value(index, {k: p[i] * 4 + p[j]})
        assert value(index.replace({k: flat}), p) == want


SHAPES = [(6,), (2, 3), (3, 3, 4), (2, 3, 2, 2), (1, 5), (5, 1), (2, 1, 3), (1,), (), (4, 1, 1, 6)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_element_put_together_again_is_the_loop_variable(shape: tuple[int, ...]) -> None:
    """Fusion rests on this: reading at one's own position is recognized."""
    flat = Index.of(Var("o", math.prod(shape)))
    assert flatten(unflatten(flat, shape), shape) == flat


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reshapes_cancel(shape: tuple[int, ...]) -> None:
    """Through any other shape of the same size and back."""
    size = math.prod(shape)
    flat = Index.of(Var("o", size))
    others = [s for s in itertools.product(range(1, size + 1), repeat=2) if math.prod(s) == size]
    for other in others:
        through = flatten(unflatten(flat, shape), shape)
        again = flatten(unflatten(through, other), other)
        assert again == flat, (shape, other)


@pytest.mark.parametrize("constant", range(8))
def test_quotient_and_remainder_are_combined_again(constant: int) -> None:
    """As in a tile of a product, whose rows are a variable and a constant apart."""
    x = Index.of(Var("m", 17)) + constant
    assert (x // 6) * 6 + x % 6 == x
    assert (x // 12) * 12 + (x // 2 % 6) * 2 + x % 2 == x
    assert (x // 2 + 1) // 6 == (x + 2) // 12


def test_loops_that_run_once_have_no_variable() -> None:
    assert Index.of(Var("i", 1)) == Index() == Index.of(LoadedIndex("x", 1))
    lane = Var("n", 1, kept=True)
    assert Index.of(lane).mentions(lane)


def test_mentions_looks_inside() -> None:
    i, j = Var("i", 5), Var("j", 7)
    deep = (Index.of(i) * 3 + Index.of(j)) // 4 % 2
    assert deep.mentions(i) and deep.mentions(j) and not deep.mentions(Var("k", 2))
    assert not deep.is_affine and Index.of(i).is_affine


def test_axes_of_size_one_are_read_at_zero() -> None:
    i = Index.of(Var("i", 3))
    assert proper((i, i), (1, 3)) == (Index(), i)


def test_strides() -> None:
    assert strides((2, 3, 4)) == [12, 4, 1] and strides(()) == []
