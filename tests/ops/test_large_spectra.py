"""Eigenvalues and singular values of matrices that processors decompose by divide and conquer, compared with
LAPACK in double precision."""

from __future__ import annotations

import numpy as np

import ztorch as zt
from tests.cases.spectra import decomposes, has_singular_values, matrices, of_all_kinds
from ztorch.host import settings

RANDOM = np.random.default_rng(1)
N = 66  # two parts of 33 rows, or of 33 and 34 columns with one that is added


def special(n: int) -> dict[str, np.ndarray]:
    """Matrices whose parts have equal values, or have values apart from nothing else."""
    beside = np.diag(np.ones(n - 1), 1)
    wilkinson = np.diag(abs(np.arange(n) - (n - 1) / 2)) + beside + beside.T
    return {"diagonal": np.diag(np.arange(n) / n), "path": beside + beside.T, "shift": beside,
            "wilkinson": wilkinson, "three": np.diag(np.arange(n) % 3 - 1.0)}


def test_eigenvalues() -> None:
    kinds, x = of_all_kinds(N, "float32")
    more = special(N)
    x = np.concatenate([x, *(np.tril(y)[None] + np.tril(y, -1).T for y in more.values())])
    bad = np.where(np.eye(N) > 0, np.nan, 0.0)[None]
    values, vectors = zt.ops.eigh(np.concatenate([bad, x]).astype(np.float32))
    assert np.isnan(values[0]).all() and np.isnan(vectors[0]).all()
    decomposes(x, values[1:], vectors[1:], [*kinds, *more], 10 * N * float(np.finfo(np.float32).eps))
    assert not values[1 + kinds.index("zeros")].any()


def test_singular_values() -> None:
    of_kind = {**matrices(N, N), **{name: y[None] for name, y in special(N).items()}}
    kinds = [name for name, y in of_kind.items() for _ in y]
    x = np.concatenate([*of_kind.values()]).astype(np.float32)
    bad = np.full((1, N, N), np.nan, np.float32)
    u, s, vh = zt.ops.svd(np.concatenate([x, bad]))
    assert np.isnan(s[-1]).all()
    u, s, vh = u[:-1], s[:-1], vh[:-1]
    has_singular_values(x.astype(float), kinds, (u, s, vh), True, "float32")
    assert (np.diff(s, axis=-1) <= 0).all() and not s[kinds.index("zeros")].any()
    assert (np.max(vh, -1) >= np.max(-vh, -1)).all()


def test_singular_values_of_a_wide_matrix() -> None:
    x = RANDOM.normal(size=(N, N + 9)).astype(np.float32)
    has_singular_values(x[None].astype(float), ["random"],
                        tuple(y[None] for y in zt.ops.svd(x)), True, "float32")


def test_of_four_parts_on_any_number_of_threads() -> None:
    x = RANDOM.normal(size=(2, 150, 150)).astype(np.float32)
    x = x + x.swapaxes(1, 2)
    results = []
    for threads in (1, 2):
        with settings.using(threads=threads):
            results.append([np.asarray(y) for y in (*zt.ops.eigh(x), *zt.ops.svd(x))])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
    values, vectors, *parts = results[0]
    decomposes(x.astype(float), values, vectors, ["random"] * 2, 1500 * float(np.finfo(np.float32).eps))
    has_singular_values(x.astype(float), ["random"] * 2, parts, True, "float32")

