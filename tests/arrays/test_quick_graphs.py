"""Pending tensors of a structure that ran before: run without a look at programs."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import ztorch as zt
from tests.cases.processes import in_threads
from ztorch.arrays import programs
from ztorch.arrays import realize as realizing
from ztorch.arrays.node import TensorNode
from ztorch.arrays.quick_calls import MOST_BYTES
from ztorch.arrays.realize import realize

pytestmark = pytest.mark.skipif(sys.implementation.name != "cpython", reason="CPython's functions")
RANDOM = np.random.default_rng(0)
LARGE = MOST_BYTES // 4 + 3


def _pair(n: int = 5) -> tuple[np.ndarray, zt.Tensor]:
    x = RANDOM.uniform(1, 2, n).astype(np.float32)
    return x, zt.tensor(x, device="cpu")


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes went the long way, for each time that some did."""
    seen: list[int] = []

    def compute(roots: Sequence[TensorNode]) -> None:
        seen.append(len(roots))
        computed_so(roots)

    computed_so = realizing._compute
    monkeypatch.setattr(realizing, "_compute", compute)
    return seen


@pytest.mark.parametrize("n", [7, LARGE])
@pytest.mark.parametrize("f", [
    lambda x, y: (x * y + x) - y, lambda x, y: (x - y) * (x - y), lambda x, y: ((x + y) * 2.5).sum(),
    lambda x, y: 1.0 / (x + x * x)], ids=["chain", "shared", "sum", "number"])
def test_the_third_run_is_quick_and_right(long_ways: list[int], n: int,
                                          f: Callable[..., zt.Tensor]) -> None:
    arrays, tensors = zip(*(_pair(n) for _ in range(2)), strict=True)
    for _ in range(4):
        np.testing.assert_allclose(f(*tensors).numpy(), f(*arrays), rtol=1e-5)
    assert long_ways == [1, 1]
    others = [_pair(n) for _ in range(2)]  # of the same structure
    np.testing.assert_allclose(f(*[t for _, t in others]).numpy(), f(*[a for a, _ in others]),
                               rtol=1e-5)
    assert long_ways == [1, 1]


def test_results_of_one_call_are_computed_together(long_ways: list[int]) -> None:
    """Whichever is asked for first. One that nobody holds is not among them."""
    @zt.kernel
    def both(x, y):
        return x + y, x - y

    (a, x), (b, y) = _pair(), _pair()
    for first in (0, 1, 0, 1):
        results = both(x, y)
        results[first].realize()
        assert all(r.node.block is not None for r in results)
        for r, expected in zip(results, (a + b, a - b), strict=True):
            np.testing.assert_array_equal(r.numpy(), expected)
    assert long_ways == [2, 2]
    for _ in range(4):
        np.testing.assert_array_equal(both(x, y)[1].numpy(), a - b)
    assert long_ways == [2, 2, 1, 1]


def test_operands_that_are_one_tensor_are_another_structure() -> None:
    (x, t), (y, u) = _pair(), _pair()
    for _ in range(4):
        np.testing.assert_array_equal((t - u + t).numpy(), x - y + x)
        np.testing.assert_array_equal((t - u + u).numpy(), x - y + y)
        np.testing.assert_array_equal((t - t + u).numpy(), x - x + y)


def test_numbers_are_part_of_the_structure() -> None:
    x, t = _pair()
    for number in (2.5, 2.5, 2.5, 3.5, 2.5, 0.0, -0.0, 0.0, float("inf"), 1.0, True, 1, 2.5):
        y = (-t * number).numpy()
        want = -x * np.float32(number)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(want))


@pytest.mark.parametrize(("first", "then"), [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_either_sign_are_two_structures(first: float, then: float) -> None:
    programs.forget()  # else numbers of other tests are inputs
    x, t = _pair()
    for number in (first, first, first, then, first):  # the first has native code by the third run
        y = (-t * number).numpy()
        np.testing.assert_array_equal(np.signbit(y), np.signbit(-x * np.float32(number)))


def test_referenced_intermediate_tensors_are_computed_too(long_ways: list[int]) -> None:
    x, t = _pair()
    for _ in range(4):
        (t * t + t).realize()
    between = t * t
    y = between + t
    np.testing.assert_array_equal(y.numpy(), x * x + x)
    assert between.node.block is not None and long_ways == [1, 1, 1]
    np.testing.assert_array_equal(between.numpy(), x * x)


def test_several_results_together(long_ways: list[int]) -> None:
    x, t = _pair()
    for _ in range(4):
        a, b = t * 2.0 + t, (t - 1.0).sum()
        realize([a.node, b.node])
        np.testing.assert_allclose(a.numpy(), x * 2 + x, rtol=1e-6)
        np.testing.assert_allclose(b.numpy(), (x - 1).sum(), rtol=1e-5)
    assert long_ways == [2, 2]


def test_device_blocks_and_gradients_use_the_general_path(long_ways: list[int]) -> None:
    x, t = _pair()
    for _ in range(4):
        (t * t * t).realize()
    assert long_ways == [1, 1]
    with zt.device("cpu:scalar"):
        np.testing.assert_array_equal((t * t * t).numpy(), x * x * x)
    assert long_ways == [1, 1, 1]

    def f(a: zt.Tensor) -> zt.Tensor:
        return (a * a * a).realize().sum()

    np.testing.assert_allclose(zt.grad(f)(t).numpy(), 3 * x * x, rtol=1e-6)
    programs.find_calls_again()  # as a new default device does
    count = len(long_ways)
    (t * t * t).realize()
    assert len(long_ways) == count + 1


def test_intermediates_are_freed() -> None:
    _, t = _pair()
    for _ in range(4):
        (t * t - t).realize()
    gc.collect()
    before = sum(isinstance(o, TensorNode) for o in gc.get_objects())
    for _ in range(50):
        (t * t - t).realize()
    assert sum(isinstance(o, TensorNode) for o in gc.get_objects()) == before


@pytest.mark.parametrize("n", [33, LARGE])
def test_threads_share_a_structure(n: int) -> None:
    x, t = _pair(n)
    for _ in range(3):
        (t + t - 1.0).realize()
    wrong: list[int] = []

    def work(k: int) -> None:
        own = zt.tensor(x * k, device="cpu")
        for _ in range(100):
            if not np.array_equal((own + own - 1.0).numpy(), x * k * 2 - 1):
                wrong.append(k)

    in_threads(work, [1, 2, 4, 8])
    assert not wrong


def test_threads_compute_one_tensor() -> None:
    x, t = _pair(LARGE)
    for _ in range(3):
        (t + t - 1.0).realize()
    for _ in range(20):
        shared = t + t
        wrong: list[int] = []

        def work(k: int, shared: zt.Tensor = shared, wrong: list[int] = wrong) -> None:
            if not np.array_equal((shared - 1.0).numpy(), x * 2 - 1):
                wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_step_of_training_by_hand(long_ways: list[int]) -> None:
    x, t = _pair(6)
    w, b = zt.tensor(np.float32(1.5)), zt.tensor(np.float32(0.5))

    def loss(params: list[zt.Tensor]) -> zt.Tensor:
        return ((params[0] * t + params[1]) ** 2).mean()

    def step() -> tuple[list[zt.Tensor], list[zt.Tensor]]:
        value, slopes = zt.value_and_grad(loss)([w, b])
        return [value, *(p - 0.25 * s for p, s in zip((w, b), slopes, strict=True))], slopes

    error = 1.5 * x.astype(np.float64) + 0.5
    slopes = [(2 * error * x).mean(), 2 * error.mean()]
    want = [(error**2).mean(), 1.5 - slopes[0] / 4, 0.5 - slopes[1] / 4, *slopes]
    for _ in range(4):
        new, _ = step()
        del _
        realize([y.node for y in new])
        np.testing.assert_allclose([y.item() for y in new], want[:3], rtol=1e-5)
    assert long_ways == [3, 3]
    for count in (3, 4):  # gradients that somebody has are computed with the rest
        new, kept = step()
        realize([y.node for y in new])
        got = [*new, *kept]
        assert len(long_ways) == count and all(y.node.block is not None for y in got)
        np.testing.assert_allclose([y.item() for y in got], want, rtol=1e-5)
