"""Eigenvalues and singular values of small complex matrices, by Jacobi rotations.

Of two neighboring columns, the second is multiplied by a phase that makes their product real; then
they rotate like real columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.errors import Unsupported
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.ops.complex_elements import size
from ztorch.ops.complex_orthogonal import decomposed
from ztorch.ops.complex_values import ComplexValue, complex_op
from ztorch.ops.control import scan
from ztorch.ops.eigen import diagonals, inverse_differences
from ztorch.ops.jacobi import rotation, sweeps
from ztorch.ops.matrices import axes_of_matrices
from ztorch.ops.reduction import Axes
from ztorch.ops.singular import no_gradient

LARGEST = 32  # columns: tested up to here; the number of rounds grows with the square


def _check(name: str, x: ComplexValue, square: bool) -> None:
    if x.rank < 2 or 0 in x.shape[-2:] or (square and x.shape[-1] != x.shape[-2]):
        raise shape_error(f"ops.{name} needs {'square ' if square else ''}matrices with elements, "
                          "not", x.shape)
    if min(x.shape[-2:]) > LARGEST:
        raise Unsupported(f"ops.{name} of complex {x.shape[-2]} x {x.shape[-1]} matrices: "
                          f"at most {LARGEST} rows or columns are supported; use NumPy on the "
                          "array")


def _towards_real(x: ComplexValue) -> ComplexValue:
    """The number of size 1 whose product with x is real and non-negative; 1 for 0."""
    length = size(x)
    zero = OPS.equal(length, 0.0)
    y = x.conjugate().on_parts("divide", OPS.where(zero, 1.0, length))
    return ComplexValue(OPS.where(zero, 1.0, y.real), y.imag)


def _beside_ones(x: ComplexValue) -> ComplexValue:
    """1 for each even column, and an element of x for its neighbor, as a row."""
    shape = (*x.shape[:-1], 1, 2 * x.shape[-1])
    parts = ((x.real, 1.0), (x.imag, 0.0))
    return ComplexValue(*(
        OPS.reshape(OPS.stack(OPS.full(y.shape, fill, y.dtype), y, axis=-1), shape)
        for y, fill in parts))


def _unit(x: ComplexValue, n: int) -> ComplexValue:
    eye = OPS.broadcast_to(OPS.eye(n, dtype=x.real.dtype), (*x.shape[:-2], n, n))
    return ComplexValue(eye, OPS.zeros_like(eye))


def _diagonalized(x: ComplexValue) -> tuple[Value, ComplexValue]:
    """The eigenvalues of Hermitian matrices with an even number of columns, unordered, and the
    eigenvectors as columns."""

    def rotated(state: tuple[ComplexValue, ComplexValue], _: None
                ) -> tuple[tuple[ComplexValue, ComplexValue], None]:
        y, vectors = state
        products = y.on_parts("diagonal", 1, -2, -1)[..., 0::2]
        phase = _beside_ones(_towards_real(products))
        y = y * phase * phase.conjugate().on_parts("matrix_transpose")
        values = OPS.diagonal(y.real, 0, -2, -1)
        turn = rotation(values[..., 0::2], values[..., 1::2], size(products))
        y = y.on_parts("matmul", turn)
        y = ComplexValue(*(OPS.matmul(OPS.matrix_transpose(turn), z) for z in (y.real, y.imag)))
        return (y, (vectors * phase).on_parts("matmul", turn)), None

    n = x.shape[-1]
    (y, vectors), _ = scan(rotated, (x, _unit(x, n)), length=sweeps(n, x.real.dtype) * (n - 1))
    return OPS.diagonal(y.real, 0, -2, -1), vectors


def _orthogonalized(x: ComplexValue) -> tuple[ComplexValue, ComplexValue]:
    """`(x @ v, v)` for a unitary v that makes the columns of x, an even number, orthogonal."""

    def rotated(state: tuple[ComplexValue, ComplexValue], _: None
                ) -> tuple[tuple[ComplexValue, ComplexValue], None]:
        y, vectors = state
        even, odd = y[..., 0::2], y[..., 1::2]
        first, second = (OPS.sum(z.squares(), axis=-2) for z in (even, odd))
        products = (even.conjugate() * odd).on_parts("sum", axis=-2)
        phase = _beside_ones(_towards_real(products))
        turn = rotation(first, second, size(products))
        y, vectors = y * phase, vectors * phase
        return (y.on_parts("matmul", turn), vectors.on_parts("matmul", turn)), None

    n = x.shape[-1]
    result: tuple[ComplexValue, ComplexValue]
    result, _ = scan(rotated, (x, _unit(x, n)), length=sweeps(n, x.real.dtype) * (n - 1))
    return result


def _scaled(x: ComplexValue) -> tuple[ComplexValue, Value]:
    """Matrices divided by their largest part, so that no square overflows, and that part."""
    most = OPS.maximum(OPS.abs(x.real), OPS.abs(x.imag))
    most = OPS.max(most, axis=(-2, -1), keepdims=True)
    most = OPS.where(OPS.greater(most, 0.0), most, 1.0)
    return x.on_parts("divide", most), most


def _phases(vectors: ComplexValue) -> ComplexValue:
    """The factor that makes the largest element of each column real and positive."""
    at = OPS.argmax(OPS.stop_gradient(vectors.squares()), axis=-2, keepdims=True)
    mask = OPS.equal(OPS.iota((vectors.shape[-2], 1), 0), at)
    return _towards_real(ComplexValue(*(
        OPS.sum(OPS.where(mask, y, 0.0), axis=-2, keepdims=True)
        for y in (vectors.real, vectors.imag))))


@complex_op()
def eigh(x: ComplexValue) -> tuple[Value, ComplexValue]:
    _check("eigh", x, square=True)
    values, vectors = _eigen(ComplexValue(OPS.tril(x.real), OPS.tril(x.imag)).hermitian())
    return values, vectors * _phases(vectors)


@complex_op()
def eigvalsh(x: ComplexValue) -> Value:
    return eigh(x)[0]


def _eigen(x: ComplexValue) -> tuple[Value, ComplexValue]:
    """Eigenvectors may be multiplied by any phase, which has no gradient. The normalization below
    chooses a phase that the matrix determines."""
    values, vectors = _eigen_of(x.on_parts("stop_gradient"))
    parts = with_gradient([values, vectors.real, vectors.imag], [x.real, x.imag], [],
                          _eigen_gradient)
    return parts[0], ComplexValue(parts[1], parts[2])


def _eigen_of(x: ComplexValue) -> tuple[Value, ComplexValue]:
    n = x.shape[-1]
    x, most = _scaled(x)
    # A step of the QR algorithm reorders matrices with large and small elements, which rotate
    # slowly.
    q, r = decomposed(x, n)
    turned = (r @ q).on_parts("tril").hermitian()
    if n % 2:
        turned = turned.on_parts("pad", (0,) * x.rank, (*(0,) * (x.rank - 2), 1, 1))
    values, vectors = _diagonalized(turned)
    values, vectors = values[..., :n], q @ vectors[..., :n, :n]
    order = OPS.argsort(values)
    vectors = vectors.on_parts("take_along_axis", OPS.expand_dims(order, -2), -1)
    return OPS.take_along_axis(values, order, -1) * OPS.squeeze(most, -1), vectors


def _eigen_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                    shared: Sequence[Value]) -> list[Value]:
    values, vectors = _eigen(ComplexValue(*args))
    inner = vectors.adjoint() @ ComplexValue(*upstreams[1:]) * inverse_differences(values)
    inner = ComplexValue(inner.real + diagonals(upstreams[0]), inner.imag)
    slope = vectors @ inner @ vectors.adjoint()
    slope = (slope + slope.adjoint()) * 0.5
    return [slope.real, slope.imag]


@complex_op()
def svd(x: ComplexValue, full_matrices: bool = True, compute_uv: bool = True
        ) -> Value | tuple[ComplexValue, Value, ComplexValue]:
    if not compute_uv:
        return svdvals(x)
    _check("svd", x, square=False)
    u, s, v = _singular(x, full_matrices)
    k = s.shape[-1]
    phases = _phases(v[..., :k])
    ends = [(y[..., :k] * phases, y[..., k:]) for y in (u, v)]
    u, v = (first if not rest.shape[-1] else ComplexValue(
        OPS.concat(first.real, rest.real, axis=-1), OPS.concat(first.imag, rest.imag, axis=-1))
        for first, rest in ends)
    return u, s, v.adjoint()


@complex_op()
def svdvals(x: ComplexValue) -> Value:
    _check("svdvals", x, square=False)
    return _singular(x, False)[1]


def _singular(x: ComplexValue, full_matrices: bool) -> tuple[ComplexValue, Value, ComplexValue]:
    """u, s and v, whose phases have no gradient, as in `_eigen`."""
    full = full_matrices and x.shape[-1] != x.shape[-2]
    u, s, v = _singular_of(x.on_parts("stop_gradient"), full)
    parts = with_gradient([u.real, u.imag, s, v.real, v.imag], [x.real, x.imag], [],
                          no_gradient if full else _singular_gradient)
    return ComplexValue(*parts[:2]), parts[2], ComplexValue(*parts[3:])


def _singular_of(x: ComplexValue, full: bool) -> tuple[ComplexValue, Value, ComplexValue]:
    m, n = x.shape[-2:]
    if m < n:
        v, s, u = _singular_of(x.adjoint(), full)
        return u, s, v
    x, most = _scaled(x)
    q, r = decomposed(x, m if full else n)
    columns = r[..., :n, :].adjoint()
    if n % 2:
        columns = columns.on_parts("pad", (0,) * x.rank, (*(0,) * (x.rank - 1), 1))
    columns, left = _orthogonalized(columns)
    columns, left = columns[..., :n], left[..., :n, :n]  # a zero column stays in place
    order = OPS.argsort(OPS.sum(columns.squares(), axis=-2), descending=True)
    columns, left = (y.on_parts("take_along_axis", OPS.expand_dims(order, -2), -1)
                     for y in (columns, left))
    right, triangle = decomposed(columns, n)  # unitary even if columns are zero
    s = OPS.diagonal(triangle.real, 0, -2, -1)
    right = right * OPS.expand_dims(OPS.where(OPS.less(s, 0.0), -1.0, OPS.ones_like(s)), -2)
    u = q[..., :n] @ left
    if full:
        u = ComplexValue(OPS.concat(u.real, q.real[..., n:], axis=-1),
                         OPS.concat(u.imag, q.imag[..., n:], axis=-1))
    return u, OPS.abs(s) * OPS.squeeze(most, -1), right


def _singular_gradient(upstreams: Sequence[Value], args: Sequence[Value],
                       shared: Sequence[Value]) -> list[Value]:
    """As for real matrices, plus the relative phase of a pair of vectors."""
    du, ds, dv = ComplexValue(*upstreams[:2]), upstreams[2], ComplexValue(*upstreams[3:])
    u, s, v = _singular(ComplexValue(*args), False)
    apart, row, column = inverse_differences(s * s), OPS.expand_dims(s, -2), OPS.expand_dims(s, -1)
    zero = OPS.equal(s, 0.0)
    inverse = OPS.where(zero, 0.0, 1.0 / OPS.where(zero, 1.0, s))
    of_u, of_v = u.adjoint() @ du, v.adjoint() @ dv
    inner = (of_u - of_u.adjoint()) * (apart * row) + (of_v - of_v.adjoint()) * (apart * column)
    turned = OPS.diagonal(of_u.imag, 0, -2, -1) * inverse
    inner = ComplexValue(inner.real + diagonals(ds), inner.imag + diagonals(turned))
    slope = u @ inner @ v.adjoint()
    inverse = OPS.expand_dims(inverse, -2)
    if u.shape[-2] > u.shape[-1]:  # the component outside the span of u
        slope = slope + (du - u @ of_u) * inverse @ v.adjoint()
    if v.shape[-2] > v.shape[-1]:
        slope = slope + u @ ((dv - v @ of_v) * inverse).adjoint()
    return [slope.real, slope.imag]


@complex_op()
def matrix_rank(x: ComplexValue, tol: float | None = None, rtol: float | None = None) -> Value:
    d = x.real.dtype
    share = max(x.shape[-2:]) * 2.0 ** (1 - d.significand) if rtol is None else rtol
    s = svdvals(x)
    least = OPS.max(s, -1, True) * share if tol is None else tol
    y: Value = OPS.sum(OPS.cast(s > least, "int32"), axis=-1)
    return y


@complex_op()
def matrix_norm(x: ComplexValue, ord: float | str = "fro", keepdims: bool = False) -> Value:
    y: Value
    if ord not in (2, -2, "nuc"):
        y = OPS.matrix_norm(size(x), ord, keepdims)
        return y
    s = svdvals(x)
    y = OPS.sum(s, -1) if ord == "nuc" else OPS.max(s, -1) if ord == 2 else OPS.min(s, -1)
    return OPS.expand_dims(y, (-2, -1)) if keepdims else y


@complex_op()
def norm(x: ComplexValue, ord: float | str | None = None, axis: Axes = None,
         keepdims: bool = False) -> Value:
    axes = axes_of_matrices(ord, axis, x.rank)
    y: Value
    if axes is None:
        y = OPS.vector_norm(size(x), ord, axis, keepdims)
        return y
    y = matrix_norm(x.on_parts("moveaxis", axes, (-2, -1)), ord)
    return OPS.expand_dims(y, axes) if keepdims else y
