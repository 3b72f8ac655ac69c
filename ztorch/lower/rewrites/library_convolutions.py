"""Finds convolutions that a library computes, in plans whose products are a library's.

A convolution is a product of the rows of windows with filters. Its node reads the images without
their borders, so nothing is padded or packed. It adds a bias, and cuts off below zero.
"""

from __future__ import annotations

from typing import NamedTuple

from ztorch.abi import CONVOLVES
from ztorch.dtypes import DType, f32
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Op, Value, layer_scope, not_evaluated
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, certain, is_view, view_of
from ztorch.lower.tuning import LIBRARY_WORK

KIND = "convolution"  # of the op, and of its regions
Shape = tuple[int, ...]


def _infer(x: Value, w: Value, *bias: Value, shape: Shape, strides: Shape, dilations: Shape,
           low: Shape, high: Shape, relu: bool = False) -> tuple[Shape, DType]:
    return shape, x.dtype


# Images (batch, axes of the window, channels) convolved with filters (window, channels, filters).
CONVOLUTION = Op("convolution", KIND, _infer, not_evaluated)


def convolves(library: str, limits: Limits) -> bool:
    """Whether a library of the machine convolves."""
    version = dict(limits.libraries).get(library, "0").partition(".")[0]
    return library in CONVOLVES and version.isdigit() and int(version) >= CONVOLVES[library]


def with_library_convolutions(graph: Graph, library: str, limits: Limits) -> Graph:
    """The graph with a node for each convolution that the library computes."""
    if not convolves(library, limits):
        return graph
    readers: dict[Value, set[Value]] = {r: {r} for r in graph.roots}  # of a root: itself, too
    for v in graph.nodes():
        for a in v.args:
            readers.setdefault(a, set()).add(v)
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        out = rebuilt(v, tuple(new[a] for a in v.args))
        with layer_scope(v.layer):
            if v.op.kind == "contract":
                out = _of_windows(out)
            elif v.op.name == "reshape":
                out = _in_shape(out)
            elif v.op.name == "add" and readers[v.args[0]] == {v}:
                out = _with_bias(out)
            elif v.op.name == "where" and readers[v.args[2]] == {v, v.args[0]} and (
                    readers[v.args[0]] == {v}):
                out = _cut_off(out)
        new[v] = out
    return graph.with_roots(new[r] for r in graph.roots)


def convolution_on_buffers(v: Value) -> Value:
    """The node with operands that lie in memory along strides."""
    return rebuilt(v, tuple(a if in_memory(a) else COPY(a) for a in v.args))


class StridedOperand(NamedTuple):
    """An operand in memory."""

    source: Value
    first: int  # element of the source
    pitches: Shape  # distances between neighbors along each axis
    mirrored: bool = False  # whether elements along the axes of a window come from the last one on


def in_memory(v: Value, window: int = 0) -> StridedOperand | None:
    """An operand as it lies in memory; None if that is not along strides. Its first `window` axes
    may be mirrored, all of them."""
    axes = [Var(f"d{k}", n) for k, n in enumerate(v.shape)]
    index = [Index.of(a) for a in axes]
    base = view_of(v, index)
    if base is None or not base[1].is_affine or (is_view(v) and not certain(v, index)):
        return None
    factors = [base[1].factor(a) for a in axes]
    turned = [k for k, n in enumerate(v.shape[:window]) if n > 1]
    first, mirrored = base[1].const, bool(turned) and all(factors[k] < 0 for k in turned)
    for k in turned if mirrored else ():
        first += factors[k] * (v.shape[k] - 1)
        factors[k] = -factors[k]
    pitches: list[int] = []
    for k in reversed(range(v.rank)):  # libraries know a layout by its pitches, those of one, too
        near = pitches[0] * v.shape[k + 1] if pitches else 1
        pitches.insert(0, factors[k] if v.shape[k] > 1 else near)
    return StridedOperand(base[0], first, tuple(pitches), mirrored) if min(pitches) > 0 else None


class ConvolvedWindows(NamedTuple):
    """The operands of a product that convolves, and attributes of the op `CONVOLUTION`. That of
    transposed windows with slopes of results is the gradient of filters."""

    image: Value
    filters: Value  # or slopes
    attrs: dict[str, Shape]  # and the extents of the `window`
    slopes: bool = False


def windows_of(product: Value, prepared: bool = True) -> ConvolvedWindows | None:
    """How a product convolves; None if it does not, or is too small for calls. Borders of one that
    is not `prepared` will not be stored."""
    left, right = product.args
    if product.rank != 2 or product.attrs.get("dot") or (
            product.size * left.shape[1] < LIBRARY_WORK):
        return None
    slopes = prepared and left.op.name == "transpose" and left.rank == 2
    left = left.args[0] if slopes else left
    steps = []
    for name in ("reshape", "rows", "transpose", "pick", "broadcast_to"):
        if left.op.name == name:
            steps.append(left)
            [left] = left.args
        elif name != "rows":  # a copy, which a prepared product lacks
            return None
    *_, transpose, pick, broadcast = steps
    axes = len(pick.attrs["axes"])
    spatial, extents = tuple(range(1, axes + 1)), (
        *broadcast.shape[:axes], left.shape[-1], product.shape[1])
    if pick.attrs["axes"] != spatial or left.rank != axes + 2 or (
            broadcast.shape[axes:] != left.shape) or transpose.attrs["axes"] != (
                0, *spatial, *range(axes + 2, 2 * axes + 2), axes + 1):
        return None
    if slopes:
        extents = (left.shape[0], *pick.attrs["counts"], product.shape[1])
    w = right.args[0] if right.op.name == "reshape" else right
    w = w if w.shape == extents else OPS.reshape(w, extents)
    low = high = (0,) * axes
    if left.op.name == "pad" and not left.attrs["value"] and (is_view(left) or not prepared):
        ends = [left.attrs[side] for side in ("low", "high")]
        if all(0 == end[0] == end[-1] and min(end) >= 0 for end in ends):
            low, high = (tuple(end[1:-1]) for end in ends)
            [left] = left.args
    return ConvolvedWindows(left, w, {
        "shape": (left.shape[0], *pick.attrs["counts"], product.shape[1]),
        "strides": tuple(pick.attrs["stride"]), "dilations": tuple(pick.attrs["dilation"]),
        "low": low, "high": high, "window": broadcast.shape[:axes]}, slopes)


def _of_windows(product: Value) -> Value:
    """A product that is a convolution, as such; unchanged if it is too small for calls."""
    if any(a.dtype is not f32 for a in (product, *product.args)):
        return product
    windows = windows_of(product, prepared=False)
    if windows is None:
        return product
    attrs = {name: value for name, value in windows.attrs.items() if name != "window"}
    y = CONVOLUTION(windows.image, windows.filters, **attrs)
    return OPS.reshape(y, product.shape)


def library_axes(along: Shape, filters: bool = False) -> Shape:
    """What images have along each axis, in the order of libraries, with channels second; or what
    filters have, which for us are the axes of the window, channels, filters."""
    return (along[-1], along[-2], *along[:-2]) if filters else (along[0], along[-1], *along[1:-1])


def _in_shape(v: Value) -> Value:
    """A reshaped convolution that is the convolution, as such."""
    [x] = v.args
    while x.op.name == "reshape":
        [x] = x.args
    return x if x.op is CONVOLUTION and x.shape == v.shape else v


def _with_bias(v: Value) -> Value:
    """A sum that is a convolution with a bias, as such."""
    y, bias = v.args
    if y.op is not CONVOLUTION or len(y.args) > 2 or y.attrs.get("relu") or (
            bias.op.name != "broadcast_to" or bias.args[0].shape != y.shape[-1:]):
        return v
    return Value(y.op, (*y.args, bias.args[0]), y.attrs, y.shape, y.dtype)


def _cut_off(v: Value) -> Value:
    """A choice that is a convolution cut off below zero, as such."""
    below, zero, y = v.args
    if y.op is not CONVOLUTION or below.op.name != "less_equal" or below.args[0] is not y or any(
            x.op.name != "full" or x.attrs["value"] != 0 for x in (below.args[1], zero)):
        return v
    return Value(y.op, y.args, {**y.attrs, "relu": True}, y.shape, y.dtype)
