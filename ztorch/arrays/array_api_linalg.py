"""`zt.array_api.linalg`: the linear algebra of the array API standard for tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.standard import absent, on_tensors, total_dtype
from ztorch.arrays.tensor import Tensor, compute


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


_FUNCTIONS: dict[Callable[..., Any], str] = {
    lambda x, /: None: "det eigvalsh inv matrix_transpose svdvals",
    lambda x1, x2, /: None: "matmul outer solve",
    lambda x, /, *, upper=False: None: "cholesky",
    lambda x, /, *, keepdims=False, ord="fro": None: "matrix_norm",
    lambda x, n, /: None: "matrix_power",
    lambda x, /, *, axis=None, keepdims=False, ord=2: None: "vector_norm",
    lambda x1, x2, /, *, axis=-1: None: "cross vecdot",
    lambda x1, x2, /, *, axes=2: None: "tensordot",
}
for _signature, _names in _FUNCTIONS.items():
    for _name in _names.split():
        globals()[_name] = on_tensors(_name, inspect.signature(_signature), __name__)


def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues and eigenvectors of symmetric matrices: `zt.ops.eigh`."""
    return EighResult(*compute("eigh", (x,), {}))


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above `rtol` times the largest one: `zt.ops.matrix_rank`.
    `rtol` may be a tensor with one value for each matrix."""
    if not isinstance(rtol, Tensor):
        y: Tensor = compute("matrix_rank", (x,), {"rtol": rtol})
        return y
    s = compute("svdvals", (x,), {})
    return _above(s, rtol).sum(axis=-1).astype("int32")


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudoinverse: `zt.ops.pinv`. Singular values up to `rtol` times the largest one count as
    0; `rtol` may be a tensor with one value for each matrix."""
    if not isinstance(rtol, Tensor):
        y: Tensor = compute("pinv", (x,), {"rtol": rtol})
        return y
    if isinstance(x, ComplexTensor):  # computed from the real matrix [[a, -b], [b, a]]
        rows = [compute("concat", parts, {"axis": -1}) for parts in (
            (x.real, -x.imag), (x.imag, x.real))]
        blocks = pinv(compute("concat", tuple(rows), {"axis": -2}), rtol=rtol)
        n, m = x.shape[-1], x.shape[-2]
        z: Any = ComplexTensor(blocks[..., :n, :m], blocks[..., n:, :m])
        y = z
        return y
    u, s, vh = compute("svd", (x,), {"full_matrices": False})
    counts = _above(s, rtol)
    inverse = compute("where", (counts, 1 / compute("where", (counts, s, 1), {}), 0), {})
    y = (vh.mT * inverse[..., None, :]) @ u.mT
    return y


def _above(s: Tensor, rtol: Tensor) -> Tensor:
    """A mask of the singular values above `rtol` times the largest one of their matrix."""
    if not s.size:
        return s > 0
    above: Tensor = s > s.max(axis=-1, keepdims=True) * rtol.astype(s.dtype)[..., None]
    return above


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """The QR decomposition: `zt.ops.qr`."""
    return QRResult(*compute("qr", (x,), {"mode": mode}))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign and the logarithm of the determinant: `zt.ops.slogdet`."""
    return SlogdetResult(*compute("slogdet", (x,), {}))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition: `zt.ops.svd`."""
    return SVDResult(*compute("svd", (x,), {"full_matrices": full_matrices}))


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of each matrix; integers are summed in 64 bits."""
    d = total_dtype(x, dtype)
    y: Tensor = compute("trace", (x if x.dtype is d else x.astype(d), offset, -2, -1), {})
    return y


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of each matrix, as the last axis."""
    y: Tensor = compute("diagonal", (x, offset, -2, -1), {})
    return y


def __getattr__(name: str) -> Any:
    raise absent("zt.array_api.linalg", name)
