"""Tensors with strides as values of a graph: read from a flat buffer, and written into one.

Only movements are used (pad, slice, reshape, transpose, concatenate), which lowering fuses into the
kernels that compute. An axis of stride s becomes a pair of axes: one with the axis' size, and one
of s elements, of which the next smaller stride takes its own.
"""

from __future__ import annotations

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.library.buffers import Shape, dense, span

Axes = list[tuple[int, int]]  # (size, stride), from the largest stride to the smallest


def read(flat: Value, shape: Shape, strides: Shape) -> Value:
    """The tensor of a shape that is in a flat buffer with these strides.

    >>> from ztorch.graph.evaluate import evaluate
    >>> from ztorch.graph.op import constant
    >>> x = constant(list(range(8)))
    >>> evaluate([read(x, (2, 2, 3), (4, 0, 1))], {})[0].tolist()
    [[[0, 1, 2], [0, 1, 2]], [[4, 5, 6], [4, 5, 6]]]
    """
    order = _nested("read", shape, strides)
    x = flat
    sizes: Shape = ()
    for k in order:
        n, s = shape[k], strides[k]
        x = OPS.reshape(_resized(x, n * s), (*sizes, n, s))
        sizes = (*sizes, n)
    x = OPS.reshape(x[..., :1], sizes)
    x = OPS.transpose(x, tuple(sorted(range(len(order)), key=order.__getitem__)))
    with_ones = tuple(n if k in order else 1 for k, n in enumerate(shape))
    return OPS.broadcast_to(OPS.reshape(x, with_ones), shape)


def write(y: Value, strides: Shape, old: Value | None) -> Value:
    """The flat buffer that holds a tensor with these strides.

    Args:
        y: The tensor.
        strides: The distance between neighbors on each axis.
        old: The flat buffer before; its elements between those of `y` stay. `None` where there are
            none between them.

    Examples:
        >>> from ztorch.graph.evaluate import evaluate
        >>> from ztorch.graph.op import constant
        >>> flat = write(constant([[1, 2], [3, 4]]), (3, 1), constant([9, 9, 9, 9, 9]))
        >>> evaluate([flat], {})[0].tolist()
        [1, 2, 9, 3, 4]
    """
    order = _nested("written", y.shape, strides)
    if any(strides[k] == 0 and n > 1 for k, n in enumerate(y.shape)):
        raise ConfigError(f"a result of shape {y.shape} cannot be written with strides {strides}: "
                          "several of its elements would share a place")
    axes = [(y.shape[k], strides[k]) for k in order]
    rest = [k for k in range(y.rank) if k not in order]  # of size 1: their place does not matter
    y = OPS.reshape(OPS.transpose(y, (*order, *rest)), tuple(n for n, _ in axes))
    if old is None:
        return OPS.reshape(y, (y.size,))
    return _merged(old, y, axes, 0)


def has_gaps(shape: Shape, strides: Shape) -> bool:
    """Whether other elements are between those of a tensor.

    >>> has_gaps((2, 3), (3, 1)), has_gaps((2, 3), (1, 2)), has_gaps((2, 3), (4, 1))
    (False, False, True)
    """
    return span(shape, strides) != span(shape, dense(shape))


def _nested(verb: str, shape: Shape, strides: Shape) -> list[int]:
    """The axes of more than one element, from the largest stride to the smallest."""
    order = sorted((k for k, n in enumerate(shape) if n > 1 and strides[k]),
                   key=lambda k: -strides[k])
    for k, axis in enumerate(order):
        inner = order[k + 1:]
        width = span([shape[j] for j in inner], [strides[j] for j in inner])
        if strides[axis] < width:
            raise ConfigError(f"a tensor of shape {shape} cannot be {verb} with strides {strides}: "
                              f"elements along axis {axis} are {strides[axis]} apart, and each "
                              f"holds {width}")
    return order


def _resized(x: Value, size: int) -> Value:
    """The last axis cut, or padded with zeros: its last row may end early."""
    length = x.shape[-1]
    if length >= size:
        return x[..., :size]
    none = (0,) * (x.rank - 1)
    return OPS.pad(x, (*none, 0), (*none, size - length))


def _merged(old: Value, y: Value, axes: Axes, depth: int) -> Value:
    """`old` (..., places), with the elements of y (..., sizes of the axes from depth on) in it."""
    length, outer = old.shape[-1], old.shape[:-1]
    if depth == len(axes):
        y = OPS.reshape(y, (*outer, 1))
        return y if length == 1 else OPS.concat(y, old[..., 1:], axis=-1)
    n, stride = axes[depth]
    blocks = OPS.reshape(_resized(old, n * stride), (*outer, n, stride))
    flat = OPS.reshape(_merged(blocks, y, axes, depth + 1), (*outer, n * stride))
    if length > n * stride:
        return OPS.concat(flat, old[..., n * stride:], axis=-1)
    return flat[..., :length]
