"""Derivatives of functions of complex tensors beside differences and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.evaluated import by_numpy
from tests.cases.grouping import together

Z = np.array([[1 + 2j, 3 - 4j, 0.5j], [-1.5, 2 - 0.25j, -0.75 - 1j]])


@pytest.fixture
def evaluated() -> Iterator[None]:
    with by_numpy():
        yield


FUNCTIONS = ("exp", "expm1", "log", "log1p", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
             "acos", "atan", "asinh", "acosh", "atanh", "square", "reciprocal", "abs", "angle", "conj", "sign")


def weighted(y: Any) -> Any:
    """A real number of a result: its parts, weighed."""
    weights = np.arange(1.0, 7.0).reshape(2, 3)
    return (y.real * weights).sum() + (y.imag * weights[::-1]).sum()


def slopes(f: Callable[[np.ndarray], float], z: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """dL/dreal + i dL/dimag by differences."""
    slope = np.zeros_like(z)
    for at in np.ndindex(z.shape):
        for unit in (1, 1j):
            ends = []
            for sign in (1, -1):
                moved = z.copy()
                moved[at] += sign * unit * step
                ends.append(f(moved))
            slope[at] += unit * (ends[0] - ends[1]) / (2 * step)
    return slope


@together()
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("evaluated")
def test_gradients_are_slopes(name: str) -> None:
    numpys = getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
                          "acosh": "arccosh", "atanh": "arctanh"}.get(name, name))
    z = Z * 0.8 + 0.03j  # off the branch cuts
    got = zt.grad(lambda w: weighted(getattr(zt.ops, name)(w)))(zt.tensor(z))
    np.testing.assert_allclose(got.numpy(), slopes(lambda w: float(weighted(numpys(w))), z), rtol=1e-6, atol=1e-8)


def _phases(vectors: np.ndarray) -> np.ndarray:
    """The signs that make the largest element of each column positive, as ours are."""
    largest = np.take_along_axis(vectors, np.argmax(abs(vectors), 0, keepdims=True), 0)
    return np.abs(largest) / largest


def _eigh(w: np.ndarray) -> Any:
    values, vectors = np.linalg.eigh(w)
    return values, vectors * _phases(vectors)


def _svd(w: np.ndarray) -> Any:
    u, s, vh = np.linalg.svd(w, full_matrices=False)
    phases = _phases(vh.conj().T)
    return u * phases, s, (vh.conj().T * phases).conj().T


def _of_qr(qr: Any, w: Any) -> Any:
    (wide_q, wide_r), (q, r) = qr(w), qr(w.T)
    return wide_q @ w.conj() * r[0, 1] + wide_r * q.T


def _of_eigh(eigh: Any, w: Any) -> Any:
    values, vectors = eigh(w @ w.conj().T)
    return (vectors * values) @ w + vectors[1, 0]


def _of_svd(svd: Any, w: Any) -> Any:
    (u, s, vh), (tall, _, _) = svd(w), svd(w.T * 1j)
    return (u * s**2) @ vh.conj() + vh * tall.T


COMPOUND = [
    ("qr", lambda o, w: _of_qr(o.qr, w), lambda w: _of_qr(np.linalg.qr, w)),
    ("eigh", lambda o, w: _of_eigh(o.eigh, w), lambda w: _of_eigh(_eigh, w)),
    ("svd", lambda o, w: _of_svd(lambda x: o.svd(x, full_matrices=False), w), lambda w: _of_svd(_svd, w)),
    ("divide", lambda o, w: w / (w[::-1] + 3), lambda w: w / (w[::-1] + 3)),
    ("power", lambda o, w: w ** (1.5 + 0.5j), lambda w: w ** (1.5 + 0.5j)), ("cube", lambda o, w: w**3, lambda w: w**3),
    ("prod", lambda o, w: w.prod(axis=1)[:, None] * w, lambda w: w.prod(1)[:, None] * w),
    ("cumprod", lambda o, w: o.cumprod(w, 1), lambda w: np.cumprod(w, 1)),
    ("matmul", lambda o, w: w @ w.conj().mT @ w, lambda w: w @ w.conj().T @ w),
    ("vecdot", lambda o, w: o.vecdot(w, w[::-1])[:, None] * w, lambda w: (w.conj() * w[::-1]).sum(-1)[:, None] * w),
    ("inv", lambda o, w: o.inv(w[:, :2] + np.eye(2)) @ w, lambda w: np.linalg.inv(w[:, :2] + np.eye(2)) @ w),
    ("solve", lambda o, w: o.solve(w[:, :2], w), lambda w: np.linalg.solve(w[:, :2], w)),
    ("det", lambda o, w: o.det(w[:, :2]) * w, lambda w: np.linalg.det(w[:, :2]) * w),
    ("fft", lambda o, w: o.fft(w) * w, lambda w: np.fft.fft(w) * w),
    ("where", lambda o, w: o.where(w.real > 0, w * w, 1j), lambda w: np.where(w.real > 0, w * w, 1j)),
]


@together()
@pytest.mark.parametrize(("name", "ours", "numpys"), COMPOUND, ids=[name for name, _, _ in COMPOUND])
@pytest.mark.usefixtures("evaluated")
def test_gradients_of_functions_of_many_are_slopes(name: str, ours: Any, numpys: Any) -> None:
    z = Z * 0.8 + 0.01 + 0.03j
    got = zt.grad(lambda w: weighted(ours(zt.ops, w)))(zt.tensor(z))
    np.testing.assert_allclose(got.numpy(), slopes(lambda w: float(weighted(numpys(w))), z), rtol=2e-6, atol=1e-7)


def test_gradients_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor(Z, requires_grad=True)
    (((t * 1j).exp() / (t + 2)).abs() ** 2).sum().backward()
    _, got = zt.value_and_grad(lambda w: (abs(zt.ops.exp(w * 1j) / (w + 2)) ** 2.0).sum())(zt.tensor(Z))
    np.testing.assert_allclose(got.numpy(), t.grad.numpy(), rtol=1e-12)
    _, back = zt.vjp(lambda w: w * w * w, zt.tensor(Z))
    u = torch.tensor(Z, requires_grad=True)
    (u * u * u).backward(torch.tensor(Z[::-1].copy()))
    np.testing.assert_allclose(back(zt.tensor(Z[::-1]))[0].numpy(), u.grad.numpy(), rtol=1e-12)
    _, change = zt.jvp(lambda w: w * w, [zt.tensor(Z)], [zt.tensor(1j * Z)])
    np.testing.assert_allclose(change.numpy(), 2j * Z * Z, rtol=1e-12)
    (torch.linalg.qr(v := torch.tensor(Z.T.copy(), requires_grad=True))[0][0].abs() ** 4).sum().backward()
    rows = zt.grad(lambda w: (abs(zt.ops.qr(w)[0][0]) ** 4.0).sum())(zt.tensor(Z.T))
    np.testing.assert_allclose(rows.numpy(), v.grad.numpy(), rtol=1e-10, atol=1e-12)
    flat = zt.grad(lambda w: abs(w).sum())(zt.zeros(2, "complex64"))  # as PyTorch has it
    assert flat.tolist() == [0, 0]
