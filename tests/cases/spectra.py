"""Matrices with eigenvalues and singular values of all kinds, and checks of decompositions in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

RANDOM = np.random.default_rng(0)


def of_values(values: Any, m: int, n: int) -> np.ndarray:
    """Matrices with these singular values."""
    k = min(m, n)
    u, v = (np.linalg.qr(RANDOM.normal(size=(4, rows, k)))[0] for rows in (m, n))
    return (u * np.resize(values, k)) @ v.swapaxes(-1, -2)


def matrices(m: int, n: int) -> dict[str, np.ndarray]:
    k = np.arange(min(m, n))
    return {"random": RANDOM.normal(size=(4, m, n)), "graded": of_values(10.0**-k, m, n),
            "halves": of_values(2.0**-k, m, n), "near": of_values(1 + 1e-7 * k, m, n),
            "rank": of_values(np.where(k < len(k) / 2, 1, 0), m, n), "ones": np.ones((1, m, n)),
            "zeros": np.zeros((1, m, n)), "unit": np.eye(m, n)[None],
            "huge": 1e30 * RANDOM.normal(size=(1, m, n)),
            "tiny": 1e-30 * RANDOM.normal(size=(1, m, n)),
            "hilbert": 1 / (np.arange(m)[:, None] + np.arange(n) + 1.0)[None]}


def orthonormal(columns: np.ndarray, error: float) -> None:
    products = columns.swapaxes(-1, -2).astype(float) @ columns.astype(float)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(columns.shape[-1]), products.shape),
                               atol=error)


def has_singular_values(x: np.ndarray, kinds: list[str], parts: Any, full: bool,
                        dtype: str) -> None:
    """These parts are the singular value decompositions of matrices, in double precision."""
    (m, n), (u, s, vh) = x.shape[-2:], parts
    scale = abs(x).max(axis=(-2, -1), keepdims=True)
    scale = np.where(scale, scale, 1.0)
    assert u.dtype == s.dtype == vh.dtype == dtype
    k = min(m, n)
    assert u.shape[-2:] == (m, m if full else k) and vh.shape[-2:] == (n if full else k, n)
    bound = 10 * max(m, n) * k * float(np.finfo(dtype).eps)
    errors = abs(s - np.linalg.svd(x, compute_uv=False)) / scale[..., 0]
    product = (u[..., :k] * s[..., None, :].astype(float)) @ vh[..., :k, :].astype(float)
    errors = np.concatenate([errors, abs(product - x).max(axis=-1) / scale[..., 0]], axis=-1)
    assert {kind: e.max() for kind, e in zip(kinds, errors, strict=True) if not e.max() <= bound} == {}
    assert (np.diff(s, axis=-1) <= bound * scale[..., 0]).all() and (s >= 0).all()
    orthonormal(u, bound)
    orthonormal(vh.swapaxes(-1, -2), bound)


def of_all_kinds(n: int, dtype: str) -> tuple[list[str], np.ndarray]:
    """Symmetric matrices, and the kind of each."""
    kinds = matrices(n, n)
    x = np.tril(np.concatenate([*kinds.values()])).astype(dtype).astype(float)
    return [name for name, y in kinds.items() for _ in y], x + np.tril(x, -1).swapaxes(-1, -2)


def decomposes(x: np.ndarray, values: np.ndarray, vectors: np.ndarray, kinds: list[str],
               bound: float) -> None:
    """These are the eigenvalues and eigenvectors of some matrices."""
    scale = abs(x).max(axis=(-2, -1), keepdims=True)
    scale = np.where(scale, scale, 1.0)
    errors = {"values": abs(values - np.linalg.eigvalsh(x)) / scale[..., 0],
              "product": abs((vectors * values[..., None, :].astype(float)) @ vectors.swapaxes(
                  -1, -2) - x).max(axis=-1) / scale[..., 0],
              "length": abs(vectors.swapaxes(-1, -2).astype(float) @ vectors
                            - np.eye(x.shape[-1])).max(axis=-1)}
    worst = {(what, kind): e.max() for what, error in errors.items()
             for kind, e in zip(kinds, error, strict=True)}
    assert {k: e for k, e in worst.items() if not e <= bound} == {}
    assert (np.diff(values, axis=-1) >= 0).all()
    assert (np.max(vectors, -2) >= np.max(-vectors, -2)).all()
