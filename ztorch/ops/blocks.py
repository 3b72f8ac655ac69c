"""Ops that split and join axes, under Keras' names: image blocks, frames, axis patterns."""

from __future__ import annotations

import math
import re
from itertools import chain

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, shape_error
from ztorch.graph.value import Value
from ztorch.ops.windows import Sizes, for_each, spans


def _images(name: str, x: Value, data_format: str) -> bool:
    """Whether images have the channels first."""
    if x.rank != 4 or data_format not in ("channels_last", "channels_first"):
        raise shape_error(f"ops.{name} takes images of four axes, and data_format "
                          "'channels_last' or 'channels_first', not", x.shape)
    return data_format == "channels_first"


@composition(Sample(((1, 2, 3, 8),), {"block_size": 2}),
             Sample(((1, 8, 2, 3),), {"block_size": 2, "data_format": "channels_first"}))
def depth_to_space(x: Value, block_size: int, data_format: str = "channels_last") -> Value:
    """Rearranges channels into blocks of a larger image.

    Args:
        x: Images.
        block_size: Height and width of a block.
        data_format: The position of the channel axis. Default: `"channels_last"`.

    Returns:
        Images with fewer channels.
    """
    b = block_size
    if _images("depth_to_space", x, data_format):
        n, c, h, w = x.shape
        y = OPS.reshape(x, (n, c // b**2, b, b, h, w))
        return OPS.reshape(OPS.transpose(y, (0, 1, 4, 2, 5, 3)), (n, c // b**2, h * b, w * b))
    n, h, w, c = x.shape
    y = OPS.reshape(x, (n, h, w, b, b, c // b**2))
    return OPS.reshape(OPS.transpose(y, (0, 1, 3, 2, 4, 5)), (n, h * b, w * b, c // b**2))


@composition(Sample(((1, 4, 6, 2),), {"block_size": 2}),
             Sample(((1, 2, 4, 6),), {"block_size": 2, "data_format": "channels_first"}))
def space_to_depth(x: Value, block_size: int, data_format: str = "channels_last") -> Value:
    """Rearranges blocks of an image into channels of a smaller one.

    Args:
        x: Images.
        block_size: Height and width of a block.
        data_format: The position of the channel axis. Default: `"channels_last"`.

    Returns:
        Images with more channels.
    """
    b = block_size
    if _images("space_to_depth", x, data_format):
        n, c, h, w = x.shape
        y = OPS.reshape(x, (n, c, h // b, b, w // b, b))
        return OPS.reshape(OPS.transpose(y, (0, 1, 3, 5, 2, 4)), (n, c * b**2, h // b, w // b))
    n, h, w, c = x.shape
    y = OPS.reshape(x, (n, h // b, b, w // b, b, c))
    return OPS.reshape(OPS.transpose(y, (0, 1, 3, 2, 4, 5)), (n, h // b, w // b, c * b**2))


@composition(Sample(((2, 9),), {"sequence_length": 4, "sequence_stride": 2}))
def extract_sequences(x: Value, sequence_length: int, sequence_stride: int) -> Value:
    """Splits sequences into frames, which may overlap.

    Args:
        x: Sequences `(..., length)`.
        sequence_length: Length of a frame.
        sequence_stride: Distance between the starts of two frames.

    Returns:
        A tensor `(..., frames, sequence_length)`.
    """
    return OPS.windows(x, (x.rank - 1,), sequence_length, sequence_stride)


@composition(Sample(((1, 2, 5, 4),), {"kernel_size": (2, 3), "padding": 1, "stride": 2}))
def unfold(x: Value, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0,
           stride: Sizes = 1) -> Value:
    """The windows of images as columns.

    Args:
        x: Images `(batch, channels, height, width)`.
        kernel_size: Height and width of a window: an integer, or a pair.
        dilation: Distance between the elements of a window. Default: `1`.
        padding: Zeros at each border. Default: `0`.
        stride: Step of the window. Default: `1`.

    Returns:
        A tensor `(batch, channels * elements of a window, windows)`.
    """
    if x.rank != 4:
        raise shape_error("ops.unfold takes images (batch, channels, height, width), not", x.shape)
    size = for_each("kernel_size", kernel_size, 2)
    low = (0, 0, *((padding,) * 2 if isinstance(padding, int) else padding))
    windows = OPS.windows(OPS.pad(x, low, low), (2, 3), size, for_each("stride", stride, 2),
                       for_each("dilation", dilation, 2))
    y = OPS.transpose(windows, (0, 1, 4, 5, 2, 3))
    return OPS.reshape(y, (x.shape[0], x.shape[1] * math.prod(size), -1))


@composition(Sample(((1, 12, 6),), {"output_size": (5, 4), "kernel_size": (2, 3), "padding": 1,
                                    "stride": 2}))
def fold(x: Value, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1,
         padding: Sizes = 0, stride: Sizes = 1) -> Value:
    """Images from windows as columns, as `unfold` makes them. Where windows overlap, they add up.

    Args:
        x: Tensor `(batch, channels * elements of a window, windows)`.
        output_size: Height and width of the images: an integer, or a pair.
        kernel_size: Height and width of a window.
        dilation: Distance between the elements of a window. Default: `1`.
        padding: Zeros at each border, which are cut off. Default: `0`.
        stride: Step of the window. Default: `1`.

    Returns:
        Images `(batch, channels, height, width)`.

    Examples:
        >>> import numpy as np
        >>> import ztorch as zt
        >>> zt.ops.fold(np.ones((1, 4, 2), np.float32), (2, 3), 2)
        array([[[[1., 2., 1.],
                 [1., 2., 1.]]]], dtype=float32)
    """
    output, size, gap, step = (for_each(name, sizes, 2) for name, sizes in (
        ("output_size", output_size), ("kernel_size", kernel_size), ("dilation", dilation),
        ("stride", stride)))
    margin = (padding,) * 2 if isinstance(padding, int) else padding
    wide = tuple(n + 2 * p for n, p in zip(output, margin, strict=True))
    counts = tuple((n - k) // s + 1 for n, k, s in zip(wide, spans(size, gap), step, strict=True))
    if x.rank != 3 or x.shape[1] % math.prod(size) or x.shape[2] != math.prod(counts):
        raise shape_error(f"ops.fold takes (batch, channels * {math.prod(size)}, "
                          f"{math.prod(counts)}) for these sizes, not", x.shape)
    windows = OPS.reshape(x, (x.shape[0], -1, *size, *counts))
    images = OPS.overlap_add(OPS.transpose(windows, (0, 1, 4, 5, 2, 3)), (2, 3), wide, step, gap)
    return OPS.slice(images, (0, 0, *margin), (1,) * 4, (*images.shape[:2], *output))


@composition(Sample(((2, 6, 3),), {"pattern": "b (h w) c -> b c h w", "h": 2}))
def rearrange(tensor: Value, pattern: str, **axes_lengths: int) -> Value:
    """Reorders the axes of a tensor, and may split and join them.

    Args:
        tensor: Tensor of any dtype.
        pattern: Names of the axes before and after "->"; names in brackets share one axis.
        **axes_lengths: Sizes of split axes; one per bracket may be omitted.

    Returns:
        A tensor with the same elements.
    """
    sides = [re.findall(r"\([^()]*\)|\w+", side) for side in pattern.split("->")]
    groups = [[part.strip("()").split() for part in side] for side in sides]
    if len(groups) != 2 or "." in pattern or len(groups[0]) != tensor.rank or sorted(
            chain(*groups[0])) != sorted({*chain(*groups[1])}):
        raise shape_error(f"ops.rearrange({pattern!r}) does not name each axis once on both sides "
                          "for", tensor.shape)
    sizes = dict(axes_lengths)
    for group, size in zip(groups[0], tensor.shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        product = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1 or size % product or (not unknown and size != product):
            raise shape_error(f"ops.rearrange({pattern!r}): axis ({' '.join(group)}) of {size} is "
                              f"not split by {axes_lengths}")
        sizes |= dict.fromkeys(unknown, size // product)
    before, after = ([*chain(*side)] for side in groups)
    y = OPS.transpose(OPS.reshape(tensor, tuple(sizes[n] for n in before)),
                      tuple(before.index(n) for n in after))
    return OPS.reshape(y, tuple(math.prod(sizes[n] for n in group) for group in groups[1]))
