"""Ops that programs of torch.export have and ONNX lacks, in the domain `ztorch`."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.ops.control import scan

_COMBINED = {"LogCumSumExp": "logaddexp", "CumMax": "maximum", "CumMin": "minimum"}


@node(*_COMBINED, domain="ztorch")
def _running(n: Node) -> Result:
    """One iteration after another: a sum of exponentials does not overflow."""
    axis, combine = n.attr("axis"), getattr(OPS, _COMBINED[n.op])
    rows = OPS.moveaxis(n.value(0), axis, 0)
    if rows.shape[0] == 1:
        return n.value(0)

    def turn(total: Value, row: Value) -> tuple[Value, Value]:
        total = combine(total, row)
        return total, total

    _, results = scan(turn, rows[0], rows[1:])
    return OPS.moveaxis(OPS.concat(rows[:1], results, axis=0), 0, axis)


@node("Inverse", "QR", "SlogDet", domain="ztorch")
def _of_matrix(n: Node) -> Result:
    x = n.value(0)
    if n.op == "QR":
        q, r = OPS.qr(x, mode=n.attr("mode", "reduced"))
        return q, r
    if n.op == "SlogDet":
        sign, log = OPS.slogdet(x)
        return sign, log
    return OPS.inv(x)


@node("Cholesky", domain="ztorch")
def _cholesky(n: Node) -> Result:
    return OPS.cholesky(n.value(0), upper=bool(n.attr("upper", 0)))


@node("Eigh", "Eigvalsh", "SVD", "SVDVals", "MatrixPower", domain="ztorch")
def _decomposed(n: Node) -> Result:
    x = n.value(0)
    if n.op == "Eigh":
        values, vectors = OPS.eigh(_lower(n, x))
        return values, vectors
    if n.op == "SVD":
        u, s, vh = OPS.svd(x, bool(n.attr("full", 1)))
        return u, s, vh
    if n.op == "MatrixPower":
        return OPS.matrix_power(x, n.attr("exponent"))
    return OPS.eigvalsh(_lower(n, x)) if n.op == "Eigvalsh" else OPS.svdvals(x)


def _lower(n: Node, x: Value) -> Value:
    """Symmetric matrices of which the lower triangle holds the numbers."""
    return OPS.matrix_transpose(x) if n.attr("upper", 0) else x


@node("Solve", "SolveTriangular", domain="ztorch")
def _solve(n: Node) -> Result:
    a, b = n.value(0), n.value(1)
    return OPS.solve(a, b) if n.op == "Solve" else OPS.solve_triangular(
        a, b, not n.attr("upper", 0))


@node("Quantile", domain="ztorch")
def _quantile(n: Node) -> Result:
    quantile = OPS.nanquantile if n.attr("without_nans", 0) else OPS.quantile
    y: Value = quantile(n.value(0), n.array(1).tolist(), n.attr("axis"), n.attr("method"),
                        bool(n.attr("keepdims", 0)))
    return y


@node("MatrixExp", domain="ztorch")
def _exponential(n: Node) -> Result:
    """Of a matrix divided by a power of two, so that a short series is exact, then squared as
    often. That depends on the data: of the iterations that are here, the later ones multiply by
    1."""
    x = n.value(0)
    size = OPS.max(OPS.sum(OPS.abs(x), axis=-1, keepdims=True), axis=-2, keepdims=True)
    times = OPS.stop_gradient(OPS.ceil(OPS.log2(OPS.maximum(size, 2.0**-1)) + 1.0))
    small = x * OPS.exp2(-times)
    one = OPS.broadcast_to(OPS.eye(x.shape[-1], dtype=x.dtype), x.shape)
    y = one
    for k in range(_TERMS[x.dtype.bytes], 0, -1):
        y = one + OPS.matmul(small, y) * (1 / k)

    def turn(y: Value, k: Value) -> tuple[Value, Value]:
        y = OPS.matmul(y, OPS.where(k < times, y, one))
        return y, k

    y, _ = scan(turn, y, OPS.arange(0, _SQUARES, dtype=x.dtype))
    return y


_TERMS = {2: 6, 4: 9, 8: 16}  # of the series, by bytes of the dtype, for norms up to 1/2
_SQUARES = 24


_OWN = (
    "copysign", "erfc", "erfinv", "exp2", "expm1", "fmax", "fmin", "gcd", "heaviside", "hypot",
    "i0", "inner", "isclose", "isin", "isneginf", "isposinf", "kron", "lcm", "log10", "log1p",
    "log2", "logaddexp2", "logdet", "nanmean", "nansum", "nextafter", "rot90", "signbit", "sinc",
    "trace", "trapezoid")


@node(*_OWN, domain="ztorch")
def _own(n: Node) -> Result:
    """Ops of ztorch by their names; attributes are their options."""
    y: Value = getattr(OPS, n.op)(*n.values(), **{name: n.attr(name) for name in n.spec.attrs})
    return y
