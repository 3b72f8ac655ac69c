"""Tensors beside NumPy, PyTorch, JAX and numexpr: small programs, and a network trained by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from benchmarks import peers
from benchmarks.arrays import CHAIN, TITLE, Library, case_of, chain, compared, error_of
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.arrays import programs
from ztorch.arrays.realize import realize
from ztorch.host import settings


def chain_and_sum(lib: Library, x: Any) -> Any:
    return chain(lib, x).sum()


def black_scholes(lib: Library, price: Any) -> Any:
    """The price of a call option, for many prices of the share."""
    strike, years, rate, volatility = 100.0, 0.5, 0.02, 0.3
    spread = volatility * years**0.5
    d1 = (lib.log(price / strike) + (rate + volatility * volatility / 2) * years) / spread
    d2 = d1 - spread
    share, cash = (0.5 + 0.5 * lib.erf(d / 2.0**0.5) for d in (d1, d2))
    return price * share - strike * float(np.exp(-rate * years)) * cash


def k_means_step(lib: Library, points: Any, centres: Any) -> Any:
    """New centres: the means of the points that are nearest to the old ones."""
    distances = (centres * centres).sum(1) - 2.0 * (points @ centres.T)
    near = lib.one_hot(distances.argmin(1), centres.shape[0])
    return (near.T @ points) / near.sum(0)[:, None]


def run(threads: list[int], effort: Effort) -> Section:
    """Small programs, and a network trained by hand."""
    s = Section("arrays programs", f"{TITLE}, programs",
                "arithmetic; for the network, Python.")
    for n in threads:
        peers.set_threads(n)
        with settings.using(threads=n):
            programs.forget()
            case_of(s, n, effort, "chain of ten, sum", chain_and_sum, 1_000_000,
                    text=f"sum({CHAIN})")
            case_of(s, n, effort, "Black-Scholes", black_scholes, 1_000_000, numpy_too=False)
            _k_means(s, n, effort)
            _network(s, n, effort)
            _loop(s, n, effort)
    programs.forget()
    return s


def _k_means(s: Section, threads: int, effort: Effort) -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(20_000, 8)).astype(np.float32)
    compared(s, threads, effort, "k-means step, 20,000 x 8, 16 centres", k_means_step,
             [points, points[:16].copy()], numpy_too=True)


def _network(s: Section, threads: int, effort: Effort) -> None:
    """A step of training by hand: two layers, their gradients, a step against them."""
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(64, n)).astype(np.float32) for n in (32, 1))
    shapes = ((32, 64), (64,), (64, 1), (1,))
    first = [random.normal(size=shape).astype(np.float32) * 0.1 for shape in shapes]

    def loss(lib: Any, weights: Any, x: Any, y: Any) -> Any:
        w, b, v, c = weights
        return ((lib.tanh(x @ w + b) @ v + c - y) ** 2).mean()

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, slopes = zt.value_and_grad(lambda ws, *d: loss(zt.ops, ws, *d))(weights, x, y)
        return value, [w - 1e-3 * g for w, g in zip(weights, slopes, strict=True)]

    ours, compiled = [zt.tensor(a) for a in first], zt.compiled(step)
    data = zt.tensor(x), zt.tensor(y)

    def eager() -> None:
        value, weights = step(ours, *data)
        realize([t.node for t in (value, *weights)])

    contestants = [Contestant("ztorch", eager),
                   Contestant("zt.compiled", lambda: compiled(ours, *data))]
    true = loss(np, [a.astype(np.float64) for a in first], x, y)
    errors = {"ztorch": abs(step(ours, *data)[0].item() / true - 1),
              "zt.compiled": abs(compiled(ours, *data)[0].item() / true - 1)}
    torch = peers.module("torch")
    if torch:
        theirs = [torch.from_numpy(a).requires_grad_() for a in first]
        inputs = torch.from_numpy(x), torch.from_numpy(y)

        def by_torch() -> Any:
            value = loss(torch, theirs, *inputs)
            slopes = torch.autograd.grad(value, theirs)
            with torch.no_grad():
                return value, [w - 1e-3 * g for w, g in zip(theirs, slopes, strict=True)]

        contestants.append(Contestant("PyTorch eager", by_torch))
        errors["PyTorch"] = abs(by_torch()[0].item() / true - 1)
    jax = peers.module("jax") if threads == 1 else None
    if jax:
        jitted = jax.jit(lambda ws, *d: jax.tree.map(lambda w, g: w - 1e-3 * g, ws, jax.grad(
            lambda ws: loss(jax.numpy, ws, *d))(ws)))
        weights, *held = jax.tree.map(jax.numpy.asarray, (first, x, y))
        contestants.append(Contestant(
            "jax.jit", lambda: jax.block_until_ready(jitted(weights, *held))))
    error = peers.checked("a network", 1e-4, **errors)
    s.compared("a step of training, 32-64-1, batch 64", threads,
               compare(contestants, threads == 1, effort), error)


def _loop(s: Section, threads: int, effort: Effort) -> None:
    """Fifty steps of Adam by hand, beside an epoch of `fit`."""
    random = np.random.default_rng(0)
    steps, batch = 50, 64
    xs, ys = (random.normal(size=(steps * batch, n)).astype(np.float32) for n in (32, 1))
    model = zt.Sequential([zt.layers.Input((32,)), zt.layers.Dense(64, activation="tanh"),
                           zt.layers.Dense(1)], seed=1)
    by_fit = model.compile("cpu", batch_size=batch, optimizer=zt.optimizers.Adam(1e-3), loss="mse")
    first = [zt.tensor(w, device="cpu") for w in by_fit.get_weights()]
    data = [[zt.tensor(a[k:k + batch], device="cpu") for k in range(0, len(a), batch)]
            for a in (xs, ys)]
    optimizer = zt.optimizers.Adam(1e-3)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        w, b, v, c = weights
        return ((zt.ops.tanh(x @ w + b) @ v + c - y) ** 2).mean()

    @zt.compiled
    def step(weights: Any, x: Any, y: Any) -> Any:
        value, slopes = zt.value_and_grad(loss)(weights, x, y)
        return optimizer.update(weights, slopes), value

    def by_hand(weights: Any = first) -> Any:
        for x, y in zip(*data, strict=True):
            weights, _ = step(weights, x, y)
        return weights

    weights = by_hand()
    by_fit.fit(xs, ys, epochs=1, verbose=0, shuffle=False)
    pairs = zip(weights, by_fit.get_weights(), strict=True)
    error = peers.checked("Adam", 1e-4, ztorch=max(error_of(w.numpy(), true) for w, true in pairs))
    s.compared("50 steps of Adam by hand, 32-64-1, batch 64", threads, compare(
        [Contestant("zt.compiled", by_hand),
         Contestant("fit", lambda: by_fit.fit(xs, ys, epochs=1, verbose=0, shuffle=False))],
        threads == 1, effort), error)
