"""Ops of torch.export programs that ONNX lacks, in the domain `ztorch`."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.ops.control import scan
from ztorch.ops.statistics import root

_COMBINED = {"LogCumSumExp": "logaddexp", "CumMax": "maximum", "CumMin": "minimum"}


@node(*_COMBINED, domain="ztorch")
def _running(n: Node) -> Result:
    """Running results, as a loop, so that sums of exponentials do not overflow."""
    axis, combine = n.attr("axis"), getattr(OPS, _COMBINED[n.op])
    rows = OPS.moveaxis(n.value(0), axis, 0)
    if rows.shape[0] == 1:
        return n.value(0)

    def step(total: Value, row: Value) -> tuple[Value, Value]:
        total = combine(total, row)
        return total, total

    _, results = scan(step, rows[0], rows[1:])
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
    """Symmetric matrices with their numbers in the lower triangle."""
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


_TERMS = {2: 6, 4: 9, 8: 16}  # of the series of MatrixExp for norms up to 1/2, by bytes of dtype
_SQUARES = 24  # the largest number of squarings: enough for norms up to 2^23


@node("MatrixExp", domain="ztorch")
def _exponential(n: Node) -> Result:
    """By scaling and squaring: a short series of x / 2^k, which is then squared k times.

    k depends on the data, so the loop always runs as often as the largest k needs; iterations
    after the k-th multiply by the identity.
    """
    x = n.value(0)
    size = OPS.max(OPS.sum(OPS.abs(x), axis=-1, keepdims=True), axis=-2, keepdims=True)
    times = OPS.stop_gradient(OPS.ceil(OPS.log2(OPS.maximum(size, 2.0**-1)) + 1.0))
    scaled = x * OPS.exp2(-times)
    identity = OPS.broadcast_to(OPS.eye(x.shape[-1], dtype=x.dtype), x.shape)
    y = identity
    for k in range(_TERMS[x.dtype.bytes], 0, -1):
        y = identity + OPS.matmul(scaled, y) * (1 / k)

    def square(y: Value, k: Value) -> tuple[Value, Value]:
        y = OPS.matmul(y, OPS.where(k < times, y, identity))
        return y, k

    y, _ = scan(square, y, OPS.arange(0, _SQUARES, dtype=x.dtype))
    return y


@node("Root", domain="ztorch")
def _root(n: Node) -> Result:
    return root(n.value(0), n.attr("order"))


_OWN = (
    "copysign", "erfc", "erfinv", "exp2", "expm1", "floor_divide", "fmax", "fmin", "gcd",
    "heaviside", "hypot", "i0", "inner", "isclose", "isin", "isneginf", "isposinf", "kron", "lcm",
    "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logdet", "nanmean", "nansum", "nextafter",
    "remainder", "rot90", "signbit", "sinc", "trace", "trapezoid")


@node(*_OWN, domain="ztorch")
def _own(n: Node) -> Result:
    """Calls the op of this name, with the attributes as its options."""
    y: Value = getattr(OPS, n.op)(*n.values(), **{name: n.attr(name) for name in n.spec.attrs})
    return y
