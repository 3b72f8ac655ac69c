"""Random draws, chosen elements and running products on tensors, beside NumPy, PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ztorch as zt
from benchmarks import peers
from benchmarks.arrays import error_of
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.arrays import programs
from ztorch.host import settings

Call = Callable[[], Any]
LIMIT = (
    "arithmetic for draws: numbers are a hash of their position, Threefry of 20 rounds, so that "
    "any part of them may be computed anywhere, and normal ones an inverse distribution in "
    "integers; the generators of NumPy and PyTorch take less and have an order. A gamma draw "
    "also takes two logarithms, where NumPy's mostly compares with a table, and a binomial one "
    "a word for each trial. A permutation of 10,000 sorts random words, so that any device finds "
    "the same one: of 45 us in kernels, 8 are words, 25 bring each to the bucket of its leading "
    "bits, by stores that miss the L1 cache, and 12 compare and place neighbors. PyTorch swaps "
    "elements one after the other, while they fit a cache, at 4 ns each. Chosen elements: a "
    "gather takes 1.5 cycles a lane, and indices have 64 bits, which JAX holds in 32: it reads 8 "
    "bytes of 12. To go by blocks of columns, so that the table stays in the L2 cache, took twice "
    "the time: indices and results then come in short runs. Running products: the cache; their "
    "gradients at an element are products of all others, without a division by it.")


class Case(NamedTuple):
    """A computation by each library; for draws the mean is checked, else all elements."""

    name: str
    ours: Call
    numpy: Call
    torch: Callable[[Any], Call] | None = None
    jax: Callable[[Any], Call] | None = None
    mean: float | None = None


def _draws(n: int) -> list[Case]:
    random = np.random.default_rng(0)
    x = random.normal(size=n).astype(np.float32)
    ours = zt.tensor(x)
    return [
        Case(f"uniform {n:,}", lambda: zt.rand(n), lambda: random.random(n, np.float32),
             lambda torch: lambda: torch.rand(n), mean=0.5),
        Case(f"normal {n:,}", lambda: zt.randn(n), lambda: random.standard_normal(n, np.float32),
             lambda torch: lambda: torch.randn(n), mean=0.0),
        Case(f"gamma {n:,}", lambda: zt.random.gamma((n,), 2.0),
             lambda: random.standard_gamma(2.0, n, np.float32),
             lambda torch: lambda: torch._standard_gamma(torch.full((n,), 2.0)), mean=2.0),
        Case(f"beta {n:,}", lambda: zt.random.beta((n,), 2.0, 3.0),
             lambda: random.beta(2.0, 3.0, n), mean=0.4),
        Case(f"binomial of 10 trials, {n:,}", lambda: zt.random.binomial((n,), 10, 0.3),
             lambda: random.binomial(10, 0.3, n),
             lambda torch: lambda: torch.binomial(torch.full((n,), 10.0), torch.full((n,), 0.3)),
             mean=3.0),
        Case(f"permutation {n:,}", lambda: zt.permutation(n), lambda: random.permutation(n),
             lambda torch: lambda: torch.randperm(n), mean=(n - 1) / 2),
        Case(f"shuffle {n:,}", lambda: zt.random.shuffle(ours), lambda: random.permutation(x),
             lambda torch: lambda: torch.from_numpy(x)[torch.randperm(n)], mean=float(x.mean()))]


def _chosen(n: int) -> list[Case]:
    random = np.random.default_rng(1)
    x = random.normal(size=n).astype(np.float32)
    labels, mask = random.integers(0, 100, n), x > 0
    ours, ours_labels, ours_mask = zt.tensor(x), zt.tensor(labels), zt.tensor(mask)
    return [
        Case(f"x[mask] {n:,}", lambda: ours[ours_mask], lambda: x[mask],
             lambda torch: lambda: torch.from_numpy(x)[torch.from_numpy(mask)]),
        Case(f"unique of integers below 100, {n:,}", lambda: zt.ops.unique(ours_labels),
             lambda: np.unique(labels),
             lambda torch: lambda: torch.unique(torch.from_numpy(labels))),
        Case(f"unique of floats, {n:,}", lambda: zt.ops.unique(ours), lambda: np.unique(x),
             lambda torch: lambda: torch.unique(torch.from_numpy(x)))]


def _along(axis: int) -> list[Case]:
    random = np.random.default_rng(2)
    x = random.normal(size=(1000, 1000)).astype(np.float32) * 0.001 + 1.0
    at = random.integers(0, 1000, x.shape)
    ours, ours_at = zt.tensor(x), zt.tensor(at)
    return [
        Case(f"take_along_axis of 1000 x 1000, axis {axis}",
             lambda: zt.ops.take_along_axis(ours, ours_at, axis),
             lambda: np.take_along_axis(x, at, axis),
             lambda torch: lambda: torch.take_along_dim(
                 torch.from_numpy(x), torch.from_numpy(at), axis),
             lambda jax: _jitted(jax, lambda a, b: jax.numpy.take_along_axis(a, b, axis), x, at)),
        Case(f"cumprod of 1000 x 1000, axis {axis}", lambda: zt.ops.cumprod(ours, axis),
             lambda: np.cumprod(x, axis),
             lambda torch: lambda: torch.cumprod(torch.from_numpy(x), axis)),
        Case(f"cumsum of 1000 x 1000, axis {axis}", lambda: zt.ops.cumsum(ours, axis),
             lambda: np.cumsum(x, axis),
             lambda torch: lambda: torch.cumsum(torch.from_numpy(x), axis))]


def _jitted(jax: Any, function: Callable[..., Any], *arrays: np.ndarray) -> Call:
    compiled, held = jax.jit(function), [jax.numpy.asarray(a) for a in arrays]
    return lambda: compiled(*held).block_until_ready()


def run(threads: list[int], effort: Effort) -> Section:
    """Each case by each library."""
    s = Section("draws", "Random draws, chosen elements and running products", LIMIT)
    cases = [*_draws(10_000), *_draws(1_000_000), *_chosen(10_000), *_chosen(1_000_000),
             *_along(1), *_along(0)]
    for n in threads:
        peers.set_threads(n)
        with settings.using(threads=n):
            for case in cases:
                programs.forget()
                _compared(s, n, effort, case)
    programs.forget()
    return s


def _compared(s: Section, threads: int, effort: Effort, case: Case) -> None:
    contestants = [Contestant("ztorch", lambda: case.ours().realize()),
                   Contestant("NumPy", case.numpy)]
    torch, jax = peers.module("torch"), peers.module("jax")
    if torch and case.torch:
        contestants.append(Contestant("PyTorch eager", case.torch(torch)))
    if jax and case.jax and threads == 1:  # its number of threads cannot be changed in a process
        contestants.append(Contestant("jax.jit", case.jax(jax)))
    y = np.asarray(case.ours().numpy(), np.float64)
    error = error_of(y, np.asarray(case.numpy())) if case.mean is None else (
        abs(y.mean() - case.mean) / max(y.std(), 1e-9))
    peers.checked(case.name, 1e-3 if case.mean is None else 0.05, ztorch=error)
    s.compared(case.name, threads, compare(contestants, threads == 1, effort), error)
