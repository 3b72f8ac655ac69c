"""Decompositions of complex matrices beside NumPy's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.grouping import together
from ztorch.errors import Unsupported


@pytest.fixture
def evaluated() -> Iterator[None]:
    with by_numpy():
        yield


def _numbers(*shape: int) -> np.ndarray:
    random = np.random.default_rng(7)
    return random.normal(size=shape) + 1j * random.normal(size=shape)


@together()
@pytest.mark.parametrize("shape", [(2, 3, 3), (4, 2), (1, 3)])
@pytest.mark.usefixtures("evaluated")
def test_decompositions(shape: tuple[int, ...]) -> None:
    """Of numbers, and of matrices with equal or no singular values: the product, and orthonormal columns."""
    linalg, number = zt.array_api.linalg, _numbers(*shape)
    for a in (number, np.ones_like(number), np.zeros_like(number)):
        x, k = zt.tensor(a), min(shape[-2:])
        for mode, full in (("reduced", False), ("complete", True)):
            q, r = (y.numpy() for y in linalg.qr(x, mode=mode))
            u, s, vh = (y.numpy() for y in linalg.svd(x, full_matrices=full))
            if a is number:
                for got, want in zip((q, r), np.linalg.qr(a, mode), strict=True):
                    np.testing.assert_allclose(got[..., :k], want[..., :k], atol=1e-13)
            np.testing.assert_allclose(q @ r, a, atol=1e-13)
            np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, atol=1e-13)
            np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-13)
            for columns in (q, u, vh.conj().swapaxes(-1, -2)):
                unit = columns.conj().swapaxes(-1, -2) @ columns
                np.testing.assert_allclose(unit, np.broadcast_to(np.eye(unit.shape[-1]), unit.shape), atol=1e-13)
        hermitian = a @ a.conj().swapaxes(-1, -2)
        values, vectors = (y.numpy() for y in linalg.eigh(zt.tensor(hermitian)))
        np.testing.assert_allclose(values, np.linalg.eigvalsh(hermitian), atol=1e-12)
        np.testing.assert_allclose(hermitian @ vectors, vectors * values[..., None, :], atol=1e-12)
    with pytest.raises(Unsupported, match="32 rows or columns"):
        linalg.svd(zt.zeros((33, 33), dtype="complex64"))
