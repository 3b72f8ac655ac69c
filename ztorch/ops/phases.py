"""Transposed convolutions as convolutions: one for stride 1, otherwise one for each phase of the
stride, which is the offset of a result between two windows."""

from __future__ import annotations

import itertools
import math

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.windows import Shape, spans


def transposed(g: Value, kernel: Value, low: Shape, lengths: Shape, stride: Shape, dilation: Shape,
               groups: int) -> Value:
    """The gradient of a convolution with respect to its input, from that of its result: one
    convolution for each phase of the stride. Either the stride or the dilation must be 1.

    Args:
        g: The gradient of the result.
        kernel: The kernel of the convolution.
        low: The padding before the input, for each axis.
        lengths: Sizes of the axes of the input.
        stride: The stride of the convolution.
        dilation: Its dilation.
        groups: Its number of groups.
    """
    size, (into, filters) = kernel.shape[:-2], kernel.shape[-2:]
    last = len(size)
    flipped = OPS.flip(kernel, tuple(range(last)))
    flipped = OPS.reshape(flipped, (*size, into, groups, filters // groups))
    flipped = OPS.reshape(OPS.transpose(flipped, (*range(last), last + 2, last + 1, last)),
                          (*size, filters // groups, groups * into))
    if set(stride) == {1}:
        before = tuple(k - 1 - a for k, a in zip(spans(size, dilation), low, strict=True))
        return _shifted_conv(g, flipped, before, lengths, dilation, groups)
    counts = tuple(-(-n // s) for n, s in zip(lengths, stride, strict=True))
    channels, parts = groups * into, []
    for phase in itertools.product(*map(range, stride)):
        first = tuple((p + a) % s for p, a, s in zip(phase, low, stride, strict=True))
        places = tuple(len(range(f, k, s)) for f, k, s in zip(first, size, stride, strict=True))
        if not all(places):
            parts.append(OPS.zeros((g.shape[0], *counts, channels), g.dtype))
            continue
        skipped = tuple((k - 1 - f) % s for k, f, s in zip(size, first, stride, strict=True))
        part = OPS.slice(flipped, (*skipped, 0, 0), (*stride, 1, 1),
                         (*places, *flipped.shape[last:]))
        before = tuple(t - 1 - (p + a) // s for t, p, a, s in zip(
            places, phase, low, stride, strict=True))
        parts.append(_shifted_conv(g, part, before, counts, dilation, groups))
    return _interleaved(parts, stride, (g.shape[0], *lengths, channels))


def transposed_at_once(x: Value, kernel: Value, low: Shape, lengths: Shape, stride: Shape) -> Value:
    """A transposed convolution of few filters, as one convolution whose channels are those of all
    phases: the few of one phase would leave most of a vector unused. Windows are whole strides.

    Args:
        x: Inputs `(batch, *axes, channels)`.
        kernel: Kernel `(*window, filters, channels)`.
        low: What is cut before the result, for each axis.
        lengths: Sizes of the axes of the result.
        stride: Distance between the windows of neighbors.
    """
    count, (filters, into) = len(stride), kernel.shape[-2:]
    places = tuple(k // s for k, s in zip(kernel.shape[:count], stride, strict=True))
    pairs = [n for pair in zip(places, stride, strict=True) for n in pair]
    windows, phases = tuple(range(0, 2 * count, 2)), range(1, 2 * count, 2)
    kernel = OPS.flip(OPS.reshape(kernel, (*pairs, filters, into)), windows)
    kernel = OPS.transpose(kernel, (*windows, 2 * count + 1, *phases, 2 * count))
    kernel = OPS.reshape(kernel, (*places, into, math.prod(stride) * filters))
    counts = tuple(-(-(n + a) // s) for n, a, s in zip(lengths, low, stride, strict=True))
    y = _shifted_conv(x, kernel, tuple(t - 1 for t in places), counts, (1,) * count, 1)
    y = OPS.reshape(y, (x.shape[0], *counts, *stride, filters))
    order = (n for k in range(1, count + 1) for n in (k, k + count))
    y = OPS.transpose(y, (0, *order, 2 * count + 1))
    sizes = (n * s for n, s in zip(counts, stride, strict=True))
    y = OPS.reshape(y, (x.shape[0], *sizes, filters))
    return OPS.slice(y, (0, *low, 0), (1,) * y.rank, (x.shape[0], *lengths, filters))


def _shifted_conv(g: Value, kernel: Value, before: Shape, counts: Shape, dilation: Shape,
                  groups: int) -> Value:
    """The first `counts` outputs of a convolution, with padding before the first element that may
    be negative, and as much after the last one as needed."""
    size = spans(kernel.shape[:-2], dilation)
    after = tuple(n + k - 1 - a - m for n, k, a, m in zip(
        counts, size, before, g.shape[1:-1], strict=True))
    start = tuple(max(0, -a) for a in before)
    lengths = tuple(m - f - max(0, -b) for m, f, b in zip(g.shape[1:-1], start, after, strict=True))
    g = OPS.slice(g, (0, *start, 0), (1,) * g.rank, (g.shape[0], *lengths, g.shape[-1]))
    padding = tuple((max(0, a), max(0, b)) for a, b in zip(before, after, strict=True))
    return OPS.conv(g, kernel, 1, padding, dilation, groups)


def _interleaved(parts: list[Value], stride: Shape, shape: Shape) -> Value:
    """A tensor that interleaves parts, with a stride, along the axes between batch and channels.
    Parts are ordered by their first position."""
    batch, *counts, channels = parts[0].shape
    pairs = [m for n in counts for m in (n, 1)]
    parts = [OPS.reshape(v, (batch, *pairs, channels)) for v in parts]
    for k, s in reversed([*enumerate(stride)]):
        parts = [OPS.concat(*parts[i:i + s], axis=2 + 2 * k) for i in range(0, len(parts), s)]
    sizes = (n * s for n, s in zip(counts, stride, strict=True))
    interleaved = OPS.reshape(parts[0], (batch, *sizes, channels))
    return OPS.slice(interleaved, (0,) * len(shape), (1,) * len(shape), shape)
