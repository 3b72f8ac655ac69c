"""The QR decomposition of complex matrices, by Householder reflections."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.errors import Unsupported
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.ops.complex_linear import inv
from ztorch.ops.complex_values import ComplexValue, all_of, choose, complex_op
from ztorch.ops.control import scan
from ztorch.ops.linear_algebra import LARGEST, column_at, columns_of


@complex_op()
def qr(x: ComplexValue, mode: str = "reduced") -> tuple[ComplexValue, ComplexValue]:
    if mode not in ("reduced", "complete"):
        raise shape_error(f"ops.qr(mode={mode!r}) must be 'reduced' or 'complete'")
    if x.rank < 2:
        raise shape_error("ops.qr needs matrices, not", x.shape)
    m, n = x.shape[-2:]
    if min(m, n) > LARGEST:
        raise Unsupported(f"ops.qr of complex {m} x {n} matrices: at most {LARGEST} columns are "
                          "supported; use NumPy on the array")
    if mode == "complete" and m > n:  # the columns of q beyond n are arbitrary
        return decomposed(x, m)
    q, r = decomposed(x.on_parts("stop_gradient"), min(m, n))
    parts = with_gradient([q.real, q.imag, r.real, r.imag], [x.real, x.imag], [], _gradient)
    return ComplexValue(parts[0], parts[1]), ComplexValue(parts[2], parts[3])


def decomposed(x: ComplexValue, width: int) -> tuple[ComplexValue, ComplexValue]:
    """q with this number of columns, and r with as many rows and a real diagonal."""
    *batch, m, n = x.shape
    count, d = min(m, n), x.real.dtype
    eye = OPS.broadcast_to(OPS.eye(m, width, dtype=d), (*batch, m, width))
    unit = ComplexValue(eye, OPS.zeros_like(eye))
    if not count:
        return unit, x[..., :width, :]

    def turn(rest: ComplexValue, j: Value
             ) -> tuple[ComplexValue, tuple[ComplexValue, ComplexValue]]:
        column = ComplexValue(column_at(rest.real, j), column_at(rest.imag, j))
        first = column.on_parts("take", OPS.reshape(j, (1,)), -2)
        at = OPS.iota((m, 1), 0)
        v, scale = _mirror(column, first, OPS.cast(OPS.greater(at, j), d),
                           OPS.cast(OPS.equal(at, j), d))
        return _mirrored(rest, v, scale), (v, scale)

    def turn_back(q: ComplexValue, row: tuple[ComplexValue, ComplexValue]
                  ) -> tuple[ComplexValue, None]:
        v, scale = row
        return _mirrored(q, v, scale.conjugate()), None

    rest, mirrors = scan(turn, x, columns_of(x.real, count))
    q, _ = scan(turn_back, unit, mirrors, reverse=True)
    r = rest[..., :width, :]
    return q, ComplexValue(OPS.triu(r.real), OPS.triu(r.imag, 1))


def _mirror(x: ComplexValue, first: ComplexValue, below: Value, unit: Value
            ) -> tuple[ComplexValue, ComplexValue]:
    """v and s of the reflection I - s v v' that reduces a column, from the row of its first element
    on, to one real number, as in LAPACK; v is zero if it already has this form."""
    others = x * below
    beneath = OPS.maximum(OPS.abs(others.real), OPS.abs(others.imag))
    beneath = OPS.max(beneath, axis=-2, keepdims=True)
    side = OPS.abs(first.imag)
    nothing = all_of(OPS.equal(beneath, 0.0), OPS.equal(side, 0.0))
    largest = OPS.maximum(OPS.maximum(beneath, side), OPS.abs(first.real))
    largest = OPS.where(nothing, 1.0, largest)  # so that no square overflows or underflows
    others, first = others.on_parts("divide", largest), first.on_parts("divide", largest)
    squares = OPS.sum(others.squares(), axis=-2, keepdims=True) + first.squares()
    length = OPS.copysign(OPS.sqrt(OPS.where(nothing, 1.0, squares)), first.real)
    start = ComplexValue(first.real + length, first.imag)
    scale = start.conjugate().on_parts("divide", length * OPS.where(nothing, 1.0, start.squares()))
    none = OPS.zeros_like(scale.real)
    return others + start * unit, choose(nothing, ComplexValue(none, none), scale)


def _mirrored(x: ComplexValue, v: ComplexValue, scale: ComplexValue) -> ComplexValue:
    """x minus `scale` times the components of its columns along v."""
    return x - scale * v * (v.conjugate() * x).on_parts("sum", axis=-2, keepdims=True)


def _gradient(upstreams: Sequence[Value], args: Sequence[Value],
              shared: Sequence[Value]) -> list[Value]:
    """As for real matrices, with adjoints; the diagonal of r stays real."""
    x = ComplexValue(*args)
    dq, dr = ComplexValue(*upstreams[:2]), ComplexValue(*upstreams[2:])
    m, n = x.shape[-2:]
    q, r = qr(x)
    if m >= n:
        slope = _square_gradient(q, r, dq, dr)
        return [slope.real, slope.imag]
    left, right = x[..., :m], x[..., m:]
    dq = dq + right @ dr[..., m:].adjoint()
    slope = _square_gradient(q, qr(left)[1], dq, dr[..., :m])
    beyond = q @ dr[..., m:]
    return [OPS.concat(slope.real, beyond.real, axis=-1),
            OPS.concat(slope.imag, beyond.imag, axis=-1)]


def _square_gradient(q: ComplexValue, r: ComplexValue, dq: ComplexValue,
                     dr: ComplexValue) -> ComplexValue:
    inner = (r @ dr.adjoint() - dq.adjoint() @ q).hermitian()
    return (dq + q @ inner) @ inv(r.adjoint())
