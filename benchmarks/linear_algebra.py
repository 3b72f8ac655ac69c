"""Fourier transforms, systems of equations and decompositions on tensors, beside PyTorch, NumPy
and JAX."""

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
    value: Callable[[Any], Any] = np.asarray  # the array of a result whose error is the row's


def _complex(result: Any) -> np.ndarray:
    """The numbers of a result, which may be a pair of real and imaginary parts."""
    if isinstance(result, tuple):
        return np.asarray(result[0]) + 1j * np.asarray(result[1])
    return np.asarray(result)


def _cases() -> list[Case]:
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    cases = [Case(f"rfft of {rows} x {n}", [numbers(rows, n)], zt.ops.rfft,
                  lambda lib, x: lib.fft.rfft(x), _complex)
             for rows, n in ((1, 1024), (64, 400), (64, 1000), (64, 1024), (64, 1009), (4, 65536))]
    cases.append(Case("fft2 of 4 x 128 x 128", [numbers(4, 128, 128)],
                      lambda x: zt.ops.fft2((x, zt.zeros_like(x))),
                      lambda lib, x: lib.fft.fft2(x), _complex))
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
    for batch, n in ((64, 32), (1, 128), (1, 256), (1, 512)):
        a = numbers(batch, n, n)
        size = f"of {batch} x {n} x {n}"
        cases += [
            Case(f"slogdet {size}", [a], zt.ops.slogdet, lambda lib, a: lib.linalg.slogdet(a),
                 lambda result: np.asarray(result[1])),
            Case(f"qr {size}", [a], zt.ops.qr, lambda lib, a: lib.linalg.qr(a),
                 lambda result: np.abs(np.asarray(result[1]))),
            Case(f"eigh {size}", [a + a.swapaxes(1, 2)], zt.ops.eigh,
                 lambda lib, a: lib.linalg.eigh(a), lambda result: np.asarray(result[0])),
            Case(f"svd {size}", [a], lambda a: zt.ops.svd(a, full_matrices=False),
                 lambda lib, a: lib.linalg.svd(a, full_matrices=False),
                 lambda result: np.asarray(result[1]))]
        if batch == 1:
            cases.append(Case(f"lstsq of {n} x {n}", [a[0] + n * np.eye(n, dtype=np.float32),
                                                      numbers(n, 8)],
                              zt.ops.lstsq, lambda lib, a, b: lib.linalg.lstsq(a, b)[0]))
    return cases


def run(threads: list[int], effort: Effort) -> Section:
    """Each case by each library, in single precision."""
    s = Section("linear algebra", "Fourier transforms, systems of equations and decompositions",
                "the caches for transforms, each pass of which reads and writes all numbers; "
                "products of matrices for large systems, loops over columns for small ones; half "
                "of `eigh` and `svd` multiplies a matrix by one vector at a time, which its cache "
                "bounds")
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
    true = case.value(case.theirs(np, *(a.astype(np.float64) for a in case.arrays)))
    errors = {"ztorch": error_of(case.value(compiled(*tensors)), true)}
    contestants = [Contestant("zt.compiled", lambda: compiled(*tensors)),
                   Contestant("NumPy", lambda: case.theirs(np, *case.arrays))]
    if torch := peers.module("torch"):
        theirs = [torch.from_numpy(a) for a in case.arrays]
        contestants.append(Contestant("PyTorch eager", lambda: case.theirs(torch, *theirs)))
        errors["PyTorch"] = error_of(case.value(case.theirs(torch, *theirs)), true)
    jax = peers.module("jax")
    if jax and threads == 1:  # its number of threads cannot be changed in a process
        jitted = jax.jit(lambda *xs: case.theirs(jax.numpy, *xs))
        arrays = [jax.numpy.asarray(a) for a in case.arrays]
        contestants.append(Contestant("jax.jit", lambda: jax.block_until_ready(jitted(*arrays))))
    error = peers.checked(case.name, 1e-3, **errors)
    s.compared(case.name, threads, compare(contestants, threads == 1, effort), error)
