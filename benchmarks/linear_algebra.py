"""Fourier transforms and systems of equations on tensors, beside PyTorch, NumPy and JAX."""

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

Arrays = list[np.ndarray]


class Case(NamedTuple):
    """A computation of arrays by us, and by a module of another library with its own names."""

    name: str
    arrays: Arrays
    ours: Callable[..., Any]
    theirs: Callable[..., Any]  # (module, *arrays)


def _cases() -> list[Case]:
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    cases = [Case(f"rfft of {rows} x {n}", [numbers(rows, n)], zt.ops.rfft,
                  lambda lib, x: lib.fft.rfft(x))
             for rows, n in ((1, 1024), (64, 400), (64, 1000), (64, 1024), (64, 1009), (4, 65536))]
    cases.append(Case("fft2 of 4 x 128 x 128", [numbers(4, 128, 128)],
                      lambda x: zt.ops.fft2((x, zt.zeros_like(x))),
                      lambda lib, x: lib.fft.fft2(x)))
    for batch, n in ((256, 8), (64, 32), (1, 64), (1, 128), (1, 256), (1, 512)):
        a = numbers(batch, n, n)
        positive = a @ a.swapaxes(1, 2) / n + np.eye(n, dtype=np.float32)
        size = f"of {batch} x {n} x {n}"
        cases += [
            Case(f"solve {size}", [positive, numbers(batch, n, 8)], zt.ops.solve,
                 lambda lib, a, b: lib.linalg.solve(a, b)),
            Case(f"inv {size}", [positive], zt.ops.inv, lambda lib, a: lib.linalg.inv(a)),
            Case(f"cholesky {size}", [positive], zt.ops.cholesky,
                 lambda lib, a: lib.linalg.cholesky(a))]
    return cases


def run(threads: list[int], effort: Effort) -> Section:
    """Each case by each library, in single precision."""
    s = Section("linear algebra", "Fourier transforms and systems of equations",
                "the caches for transforms, each pass of which reads and writes all numbers; "
                "products of matrices for large systems, loops over columns for small ones")
    for n in threads:
        peers.set_threads(n)
        with settings.using(threads=n):
            for case in _cases():
                programs.forget()
                _compared(s, n, effort, case)
    programs.forget()
    return s


def _compared(s: Section, threads: int, effort: Effort, case: Case) -> None:
    tensors = [zt.tensor(a) for a in case.arrays]
    compiled = zt.compiled(lambda *xs: case.ours(*xs))
    true = np.asarray(case.theirs(np, *(a.astype(np.float64) for a in case.arrays)))
    result = compiled(*tensors)
    y = result[0].numpy() + 1j * result[1].numpy() if isinstance(result, tuple) else result.numpy()
    errors = {"ztorch": error_of(y, true)}
    contestants = [Contestant("zt.compiled", lambda: compiled(*tensors)),
                   Contestant("NumPy", lambda: case.theirs(np, *case.arrays))]
    if torch := peers.module("torch"):
        theirs = [torch.from_numpy(a) for a in case.arrays]
        contestants.append(Contestant("PyTorch eager", lambda: case.theirs(torch, *theirs)))
        errors["PyTorch"] = error_of(case.theirs(torch, *theirs).numpy(), true)
    jax = peers.module("jax")
    if jax and threads == 1:  # its number of threads cannot be changed in a process
        jitted = jax.jit(lambda *xs: case.theirs(jax.numpy, *xs))
        arrays = [jax.numpy.asarray(a) for a in case.arrays]
        contestants.append(Contestant("jax.jit", lambda: jitted(*arrays).block_until_ready()))
    error = peers.checked(case.name, 1e-3, **errors)
    s.compared(case.name, threads, compare(contestants, threads == 1, effort), error)
