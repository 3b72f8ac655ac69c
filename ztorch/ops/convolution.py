"""Convolutions over any number of axes, channels last, as windows and a matrix product."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ztorch.graph.batching import Examples, per_example, pointwise
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ops.phases import transposed
from ztorch.ops.reduction import widened
from ztorch.ops.windows import Shape, Sizes, for_each, pad_axes, paddings, spans

# Windows as rows of a matrix, which the product and its gradient both read, or a transpose. Unless
# they can be read in place, they are written once, in the order of their axes, instead of once per
# reader. If a product computes them, writing is its last step.
ROWS: Op = Op("rows", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
              grad=lambda o, g, y, x: (ROWS(g),), body=lambda e, index: e.read(0, index), cost=1,
              movement=True, written=True, batch=pointwise)


def _convolved_grad(o: Any, g: Value, y: Value, result: Value, x: Value, kernel: Value, low: Shape,
                    stride: Shape, dilation: Shape, groups: int) -> tuple:
    return g, transposed(g, kernel, low, x.shape[1:-1], stride, dilation, groups), None


def _convolved_batch(one: Value, many: Examples, **attrs: Any) -> Value:
    """With one kernel for all examples, they form one larger batch."""
    if many.batched[2]:
        return per_example(one, many, **attrs)
    result, x = Examples(many.count, many.args[:2], many.batched[:2]).spread()
    y = one.op(*(OPS.reshape(v, (math.prod(v.shape[:2]), *v.shape[2:])) for v in (result, x)),
               many.args[2], **attrs)
    return OPS.reshape(y, result.shape)


# The result of a convolution, with its input and kernel as arguments for `_convolved_grad`.
_CONVOLVED = Op("convolved", "map", lambda result, x, kernel, **attrs: (result.shape, result.dtype),
                numpy=lambda result, x, kernel, **attrs: result, grad=_convolved_grad,
                body=lambda e, index, **attrs: e.read(0, index), movement=True, alias=True,
                batch=_convolved_batch)
WIDE = 8  # channels from which `_convolved_grad` pays off: fewer leave most of a vector unused


# The fraction of window elements that are not padding, below which padding is not multiplied: 3 x 3
# windows with gaps of 12 on 28 x 28 have 0.51.
EDGE_OUTPUTS_MAX = 1 << 12  # most outputs that overlap padding, or window positions, to split
MULTIPLIED = 0.6
PARTS_MAX = 25  # most parts of a convolution to few filters: each is a kernel, or several


def window_slices(place: Shape, counts: Shape, stride: Shape, dilation: Shape) -> tuple[slice, ...]:
    """The elements that one position within the window reads as the window moves."""
    return (slice(None), *(slice(k * d, k * d + (n - 1) * s + 1, s)
                           for k, n, s, d in zip(place, counts, stride, dilation, strict=True)))


def conv_numpy(x: Any, kernel: Any, stride: Sizes = 1, padding: Any = "valid",
               dilation: Sizes = 1, groups: int = 1) -> Any:
    size, out = kernel.shape[:-2], kernel.shape[-1]
    stride, dilation = (for_each("", n, len(size)) for n in (stride, dilation))
    span = spans(size, dilation)
    pairs = np.transpose(paddings(padding, x.shape[1:-1], span, stride)).tolist()
    x = np.pad(x, [(0, 0), *pairs, (0, 0)])
    counts = tuple((n - k) // s + 1 for n, k, s in zip(x.shape[1:-1], span, stride, strict=True))
    y = np.zeros((len(x), *counts, out), x.dtype)
    into, share = kernel.shape[-2], out // groups
    for place in np.ndindex(*size):
        window = x[window_slices(place, counts, stride, dilation)]
        for g in range(groups):
            filters = slice(g * share, (g + 1) * share)
            y[..., filters] += window[..., g * into:(g + 1) * into] @ kernel[place][:, filters]
    return y


@op(Sample(((2, 6, 3), (3, 3, 4)), {"padding": "same"}),
    Sample(((2, 5, 6, 2), (3, 2, 2, 3)), {"stride": (2, 1)}),
    Sample(((1, 6, 5, 3), (2, 3, 3, 2)), {"padding": ((1, 0), (2, 1)), "dilation": (3, 2)}),
    Sample(((1, 5, 4, 4), (2, 2, 2, 6)), {"groups": 2, "padding": "same"}),
    Sample(((1, 5, 4, 3), (3, 3, 1, 6)), {"groups": 3, "padding": "same", "stride": 2}),
    Sample(((1, 7, 6, 2), (3, 3, 2, 3)), {"padding": ((5, 6), (9, 5)), "dilation": (5, 4)}),
    numpy=conv_numpy)
def conv(x: Value, kernel: Value, stride: Sizes = 1, padding: Any = "valid", dilation: Sizes = 1,
         groups: int = 1) -> Value:
    """A convolution over any number of axes, channels last.

    Args:
        x: Inputs `(batch, *axes, channels)`, floats.
        kernel: Kernel `(*window, channels / groups, filters)`, of the same dtype.
        stride: Step of the window: an integer, or one for each axis. Default: `1`.
        padding: `"valid"` for no padding, `"same"` for `ceil(length / stride)` outputs, or a pair
            (before, after) for each axis. Default: `"valid"`.
        dilation: Distance between the elements that a window reads: an integer, or one for each
            axis. Default: `1`.
        groups: Number of groups. Each group of filters reads its own group of channels.
            Default: `1`.

    Returns:
        A tensor `(batch, *new axes, filters)`. Padding may be skipped, so a weight that is infinite
        or NaN reaches the results for which it meets the inputs, and maybe others.

    Examples:
        >>> from ztorch.graph.op import leaf
        >>> image = leaf("input", "x", (1, 28, 28, 3), "float32")
        >>> conv(image, leaf("state", "k", (5, 5, 3, 8), "float32"), stride=2, padding="same").shape
        (1, 14, 14, 8)
    """
    need_ranks(x, kernel)
    *size, into, filters = kernel.shape
    axes = tuple(range(1, x.rank - 1))
    stride, dilation = (for_each(label, sizes, len(axes))
                        for label, sizes in (("stride", stride), ("dilation", dilation)))
    if groups < 1 or x.shape[-1] != into * groups or filters % groups:
        raise shape_error(f"inputs and kernel do not fit in {groups} groups:" if groups != 1 else
                          "channels of inputs and kernel do not fit:", x.shape, kernel.shape,
                          fix=f"the inputs' last axis must be {into * groups} and filters a "
                              f"multiple of {groups}" if groups > 1 else
                          f"the last axis of the inputs must be {into}")
    if into == 1 < groups < filters:  # a channel for each filter: vectors hold neighbors
        x = OPS.repeat(x, filters // groups, axis=-1)
        return conv(x, kernel, stride, padding, dilation, filters)
    span = spans(tuple(size), dilation)
    low, high = paddings(padding, x.shape[1:-1], span, stride)
    x, low, high = _without_frame(x, low, high, span)
    room = tuple(a + n + b for a, n, b in zip(low, x.shape[1:-1], high, strict=True))
    if any(k > n for k, n in zip(span, room, strict=True)):
        wide = f", which reaches over {span}," if span != tuple(size) else ""
        raise shape_error(f"the kernel{wide} is larger than the inputs:", kernel.shape, x.shape,
                          fix="use a smaller kernel, or padding='same'")
    parts = [_meetings(n, count, k, s, d, a) for n, count, k, s, d, a in zip(
        x.shape[1:-1], ((r - k) // s + 1 for r, k, s in zip(room, span, stride, strict=True)),
        size, stride, dilation, low, strict=True)]
    met = math.prod(sum(p.outputs * p.places for p in along) / (k * sum(p.outputs for p in along))
                    for along, k in zip(parts, size, strict=True))
    if met < MULTIPLIED and (filters >= WIDE or math.prod(map(len, parts)) <= PARTS_MAX):
        # Parts of gradients add up: numbers of 16 bits in float32, which is rounded once.
        return OPS.cast(_in_parts(widened(x), widened(kernel), parts, stride, dilation, groups),
                        x.dtype)
    even = set(stride) == {1} or set(dilation) == {1}
    # In reverse, too, groups have one channel where they have one now.
    alike = groups == 1 or (into == 1) == (filters == groups)
    # Without phases to interleave, only a sum of several filters to one channel does not pay.
    pays = x.shape[-1] >= WIDE or (set(stride) == {1} and (x.shape[-1] > 1 or filters == 1))
    if even and alike and math.prod(size) > 1 and pays and all(
            max(a, b) < k for a, b, k in zip(low, high, span, strict=True)):
        result = _products(OPS.stop_gradient(x), kernel, low, high, stride, dilation, groups)
        return _CONVOLVED(result, x, kernel, low=low, stride=stride, dilation=dilation,
                          groups=groups)
    return _products(x, kernel, low, high, stride, dilation, groups)


def _without_frame(x: Value, low: Shape, high: Shape, span: Shape) -> tuple[Value, Shape, Shape]:
    """The input without zeros that were padded around it, and the padding with them: so its
    gradient is computed for no position of the frame, and what follows it can be its epilogue."""
    if x.op.name != "pad" or x.attrs["value"] != 0:
        return x, low, high
    before, after = x.attrs["low"], x.attrs["high"]
    first, last = (tuple(a + b for a, b in zip(ends, frame[1:-1], strict=True))
                   for ends, frame in ((low, before), (high, after)))
    inside = not any(frame[axis] for frame in (before, after) for axis in (0, -1))
    if not inside or any(not 0 <= n < k for ends in (first, last)
                         for n, k in zip(ends, span, strict=True)):
        return x, low, high
    return x.args[0], first, last


@dataclass(frozen=True)
class _Part:
    """Outputs along one axis that overlap the input at the same window positions."""

    outputs: int
    first: int  # first window position that overlaps the input
    places: int  # number of consecutive positions that do
    start: int  # of the inputs that they read


def _meetings(length: int, outputs: int, size: int, stride: int, dilation: int,
              low: int) -> list[_Part]:
    """The outputs along an axis, by the window positions at which they do not overlap padding.

    >>> _meetings(28, 28, 3, 1, 24, 24)[1:]
    [_Part(outputs=20, first=1, places=1, start=4), _Part(outputs=4, first=0, places=2, start=0)]
    """
    inside = min(outputs, -(-low // stride))  # the first output whose window is inside the input
    behind = (length - 1 - (size - 1) * dilation + low) // stride + 1
    behind = max(inside, min(outputs, behind))  # the first output after those
    if max(size, inside + outputs - behind) > EDGE_OUTPUTS_MAX:
        return [_Part(outputs, 0, size, -low)]
    parts: list[_Part] = []
    for i in (*range(inside), *range(behind, outputs)):
        if i == behind > inside:
            parts.append(_Part(behind - inside, 0, size, inside * stride - low))
        at = i * stride - low
        first = max(0, -(at // dilation))
        places = max(0, min(size - 1, (length - 1 - at) // dilation) - first + 1)
        first = first if places else 0
        if parts and (parts[-1].first, parts[-1].places) == (first, places):
            parts[-1] = replace(parts[-1], outputs=parts[-1].outputs + 1)
        else:
            parts.append(_Part(1, first, places, at + first * dilation))
    if behind == outputs > inside:
        parts.append(_Part(behind - inside, 0, size, inside * stride - low))
    return parts


def _in_parts(x: Value, kernel: Value, parts: list[list[_Part]], stride: Shape, dilation: Shape,
              groups: int, axis: int = 0) -> Value:
    """The convolution if windows mostly overlap padding: for each part of the outputs, a
    convolution without padding of the window positions inside the input."""
    if axis == len(parts):
        return conv(x, kernel, stride, "valid", dilation, groups)
    results = []
    for part in parts[axis]:
        at, filters = axis + 1, kernel.shape[-1]
        if not part.places:
            rest = tuple(sum(p.outputs for p in along) for along in parts[axis + 1:])
            sizes = tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(
                x.shape[1:at], kernel.shape, stride, dilation, strict=False))
            results.append(OPS.zeros((x.shape[0], *sizes, part.outputs, *rest, filters), x.dtype))
            continue
        reach = (part.outputs - 1) * stride[axis] + (part.places - 1) * dilation[axis] + 1
        span = x[(slice(None),) * at + (slice(part.start, part.start + reach),)]
        places = kernel[(slice(None),) * axis + (slice(part.first, part.first + part.places),)]
        results.append(_in_parts(span, places, parts, stride, dilation, groups, axis + 1))
    return OPS.concat(*results, axis=axis + 1)


def _products(x: Value, kernel: Value, low: Shape, high: Shape, stride: Shape, dilation: Shape,
              groups: int) -> Value:
    """The convolution itself, for matching shapes."""
    *size, into, filters = kernel.shape
    axes = tuple(range(1, x.rank - 1))
    windows = OPS.windows(pad_axes(x, low, high), axes, tuple(size), stride, dilation)
    last = x.rank - 1  # (batch, *positions, channels, *window), from here channels come last
    windows = OPS.transpose(windows, (*range(last), *range(last + 1, windows.rank), last))
    if groups == 1:
        windows = windows if math.prod(size) == 1 else ROWS(windows)
        rows = OPS.reshape(windows, (*windows.shape[:last], math.prod(size) * into))
        return OPS.matmul(rows, OPS.reshape(kernel, (rows.shape[-1], filters)))
    if into == 1:
        return _depthwise(windows, kernel, tuple(range(last, windows.rank - 1)))
    return _grouped(windows, kernel, windows.shape[:last], groups)


def _depthwise(windows: Value, kernel: Value, places: Shape) -> Value:
    """A depthwise convolution: elementwise products, summed over the window. There is no matrix
    product, because channels do not mix."""
    channels = windows.shape[-1]
    products = windows * OPS.reshape(kernel, (*kernel.shape[:-2], channels))
    if all(windows.shape[k] == 1 for k in places):
        return OPS.reshape(products, (*windows.shape[:places[0]], channels))
    return OPS.sum(products, axis=places)


def _grouped(windows: Value, kernel: Value, positions: Shape, groups: int) -> Value:
    """One matrix product per group."""
    *size, into, filters = kernel.shape
    window, share = math.prod(size), filters // groups
    rows = OPS.reshape(ROWS(windows), (math.prod(positions), window, groups, into))
    rows = OPS.reshape(OPS.transpose(rows, (2, 0, 1, 3)), (groups, -1, window * into))
    matrices = OPS.transpose(OPS.reshape(kernel, (window * into, groups, share)), (1, 0, 2))
    y = OPS.matmul(rows, matrices)
    return OPS.reshape(OPS.transpose(y, (1, 0, 2)), (*positions, filters))


def need_ranks(x: Value, kernel: Value) -> None:
    if x.rank < 3 or kernel.rank != x.rank:
        raise shape_error("inputs and kernel of a convolution do not fit:", x.shape, kernel.shape,
                          fix="inputs are (batch, *axes, channels), the kernel has equal rank")
