"""What loop nests of Winograd convolutions share on processors and grids: the points of a tile, the
transform of one channel of a kernel, and that of its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.graph.value import Value
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.winograd_matrices import KERNEL_MATRIX, both_axes, transposed
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.winograd import KERNEL_SLOPES, KIND, POINTS, TILE, WINDOW


def transform_of(region: Region) -> Value:
    """The transform that a region is built around."""
    return next(v for v in region.members if v.op.kind == KIND)


def at_point(k: int, tile: Sequence[Var], column: Index) -> tuple[Index, ...]:
    """The position of point k of a tile in (points, tiles, columns)."""
    return Index(const=k), flatten(map(Index.of, tile), [a.extent for a in tile]), column


def channel_of(v: Value) -> Var:
    """A loop over the channels of a kernel, or of its gradient."""
    [x] = v.args
    return Var("c", x.shape[1] if v.op is KERNEL_SLOPES else x.shape[0] // WINDOW ** 2)


def store(e: Emitter, region: Region, v: Value, target: Mapping[Value, str],
          index: tuple[Index, ...], x: Operand) -> None:
    """x as the element of a transform at an index, with the epilogue of each element."""
    scope = e.within()
    scope.here[v] = x
    full = {region.outer: flatten(index, v.shape)}
    evaluate(scope, region.members, region, full, target)


def store_kernel(e: Emitter, region: Region, v: Value, target: Mapping[Value, str],
                 limits: Limits, channel: Var, column: Var) -> None:
    """The transform of a channel of a kernel."""
    [kernel] = v.args
    c, f = Index.of(channel), Index.of(column)
    at = [[e.element(kernel, (c + (i * WINDOW + j) * channel.extent, f)) for j in range(WINDOW)]
          for i in range(WINDOW)]
    points = both_axes(e.b, limits, KERNEL_MATRIX, at)
    for k, x in enumerate(x for line in points for x in line):
        store(e, region, v, target, (Index(const=k), c, f), x)


def store_kernel_slopes(e: Emitter, region: Region, v: Value, target: Mapping[Value, str],
                        limits: Limits, channel: Var, column: Var) -> None:
    """The gradient of a channel of a kernel."""
    [products] = v.args
    c, f = Index.of(channel), Index.of(column)
    points = [e.element(products, (Index(const=k), c, f)) for k in range(POINTS)]
    lines = [points[k:k + TILE] for k in range(0, POINTS, TILE)]
    slopes = both_axes(e.b, limits, transposed(KERNEL_MATRIX), lines)
    for k, slope in enumerate(x for line in slopes for x in line):
        store(e, region, v, target, (c + k * channel.extent, f), slope)
