"""Operators that only move elements."""

from __future__ import annotations

import math

import numpy as np

from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

END = np.iinfo(np.int64).max  # as the end of a slice: the end of the axis


def axis_of(c: OperatorCall, x: CallTensor, name: str = "dim", default: int = 0) -> int:
    """The axis that an argument names, as a number from 0."""
    axis = c.get(name, default)
    if not isinstance(axis, int):
        c.unsupported(f"{name}={axis!r}")
    return axis % max(x.rank, 1)


def part(c: OperatorCall, x: str, axis: int, start: int | CallTensor, end: int | CallTensor,
         step: int | CallTensor = 1) -> str:
    """A slice along one axis."""
    return c.node("Slice", x, c.ints(start), c.ints(end), c.ints(axis), c.ints(step))


# -- shapes ----------------------------------------------------------------------------------------


@call("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def _view(c: OperatorCall) -> Result:
    return c.node("Reshape", c.x(), c.ints(*c.get("size" if "size" in c.spec.inputs else "shape")))


@call("flatten.using_ints")
def _flatten(c: OperatorCall) -> Result:
    x = c.tensor()
    first, last = axis_of(c, x, "start_dim"), axis_of(c, x, "end_dim", -1)
    shape = (0,) * first + (-1,)  # 0: as it is
    if last == x.rank - 1:
        return c.node("Reshape", x.name, c.ints(*shape))
    trailing = c.node("Shape", x.name, start=last + 1)
    return c.node("Reshape", x.name, c.node("Concat", c.ints(*shape), trailing, axis=0))


@call("unflatten.int")
def _unflatten(c: OperatorCall) -> Result:
    x = c.tensor()
    axis = axis_of(c, x)
    parts = [c.node("Shape", x.name, start=0, end=axis)] if axis else []
    parts.append(c.ints(*c.get("sizes")))
    if axis < x.rank - 1:
        parts.append(c.node("Shape", x.name, start=axis + 1))
    return c.node("Reshape", x.name, c.node("Concat", *parts, axis=0))


@call("squeeze.dim", "squeeze.dims", "squeeze")
def _squeeze(c: OperatorCall) -> Result:
    x = c.tensor()
    axes = c.integers("dim", range(x.rank)) if "dim" in c.spec.inputs else list(range(x.rank))
    removed = [a for a in axes if x.dims[a] == 1]
    return c.node("Squeeze", x.name, c.ints(*removed)) if removed else x.name


@call("unsqueeze", "unsqueeze_copy")
def _unsqueeze(c: OperatorCall) -> Result:
    return c.node("Unsqueeze", c.x(), c.ints(c.get("dim")))


@call("expand", "expand_copy", "broadcast_to")
def _expand(c: OperatorCall) -> Result:
    sizes = [1 if n == -1 else n for n in c.get("size")]  # 1: as it is
    return c.node("Expand", c.x(), c.ints(*sizes))


@call("view_as", "reshape_as")
def _view_as(c: OperatorCall) -> Result:
    return c.node("Reshape", c.x(), c.node("Shape", c.x("other")))


@call("broadcast_tensors")
def _broadcast_all(c: OperatorCall) -> Result:
    first, *others = [x.name for x in c.get("tensors")]
    for x in others:
        first = c.node("Expand", first, c.node("Shape", x))
    shape = c.node("Shape", first)
    return [c.node("Expand", x.name, shape) for x in c.get("tensors")]


@call("meshgrid.indexing", "meshgrid")
def _grid(c: OperatorCall) -> Result:
    tensors, rank = c.get("tensors"), len(c.result_names)
    order = list(range(rank))
    if c.get("indexing", "ij") == "xy" and rank > 1:
        order[:2] = [1, 0]
    wide = [c.node("Reshape", x.name, c.ints(*(-1 if order[k] == a else 1 for a in range(rank))))
            for k, x in enumerate(tensors)]
    shape = c.node("Shape", wide[0])
    for other in wide[1:]:
        shape = c.node("Max", shape, c.node("Shape", other))
    return [c.node("Expand", w, shape) for w in wide]


@call("expand_as")
def _expand_as(c: OperatorCall) -> Result:
    return c.node("Expand", c.x(), c.node("Shape", c.x("other")))


@call("repeat", "tile")
def _repeat(c: OperatorCall) -> Result:
    x, times = c.tensor(), c.get("repeats" if c.op == "repeat" else "dims")
    times = [*[1] * (x.rank - len(times)), *times]
    missing = len(times) - x.rank
    wide = c.node("Unsqueeze", x.name, c.ints(*range(missing))) if missing else x.name
    return c.node("Tile", wide, c.ints(*times))


@call("repeat_interleave.self_int")
def _repeat_each(c: OperatorCall) -> Result:
    x, times = c.tensor(), c.get("repeats")
    if c.get("dim") is None:  # of the flattened tensor
        x = CallTensor(c.node("Reshape", x.name, c.ints(-1)), x.dtype, (-1,))
    axis = axis_of(c, x)
    wide = c.node("Unsqueeze", x.name, c.ints(axis + 1))
    repeated = c.node("Tile", wide, c.ints(*[1] * (axis + 1), times, *[1] * (x.rank - axis - 1)))
    ends = [c.node("Shape", x.name, start=axis + 1)] if axis < x.rank - 1 else []
    start = [c.node("Shape", x.name, start=0, end=axis)] if axis else []
    return c.node("Reshape", repeated, c.node("Concat", *start, c.ints(-1), *ends, axis=0))


# -- order -----------------------------------------------------------------------------------------


def order_of(c: OperatorCall) -> list[int]:
    """For each axis of the result, the axis of the input."""
    x = c.tensor()
    order = list(range(x.rank))
    if c.op.startswith("permute"):
        return [a % x.rank for a in c.integers("dims")]
    if c.op == "numpy_T":
        return order[::-1]
    if c.op in ("mT", "mH", "adjoint"):
        return [*order[:-2], x.rank - 1, x.rank - 2]
    if x.rank > 1:
        first, second = ("axis0", "axis1") if "axis0" in c.spec.inputs else ("dim0", "dim1")
        a, b = axis_of(c, x, first, 0), axis_of(c, x, second, 1)
        order[a], order[b] = order[b], order[a]
    return order


@call("permute", "mT", "mH", "adjoint", "numpy_T", "transpose.int", "t", "swapaxes", "swapdims",
      "permute_copy", "transpose_copy.int", "t_copy")
def _permute(c: OperatorCall) -> Result:
    return c.node("Transpose", c.x(), perm=order_of(c))


@call("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def _moved(c: OperatorCall) -> Result:
    x = c.tensor()
    sources = dict(zip((a % x.rank for a in c.integers("destination")),
                       (a % x.rank for a in c.integers("source")), strict=True))
    others = iter(a for a in range(x.rank) if a not in sources.values())
    return c.node("Transpose", x.name, perm=[
        sources[k] if k in sources else next(others) for k in range(x.rank)])


@call("flip")
def _flip(c: OperatorCall) -> Result:
    axes = c.integers("dims")
    ends = [-END] * len(axes)
    return c.node("Slice", c.x(), c.ints(*[-1] * len(axes)), c.ints(*ends), c.ints(*axes),
                  c.ints(*[-1] * len(axes)))


@call("roll")
def _roll(c: OperatorCall) -> Result:
    x, is_flat = c.tensor(), not c.integers("dims", ())  # of the flattened tensor
    y = c.node("Reshape", x.name, c.ints(-1)) if is_flat else x.name
    sizes = [_count(x)] if is_flat else x.dims
    for shift, axis in zip(c.integers("shifts"), c.integers("dims", ()) or [0], strict=True):
        size = sizes[axis]
        shift = shift % max(size, 1) if isinstance(size, int) else shift
        if shift:
            y = c.node("Concat", part(c, y, axis, -shift, END), part(c, y, axis, 0, -shift),
                       axis=axis)
    return c.node("Reshape", y, c.node("Shape", x.name)) if is_flat else y


def _count(x: CallTensor) -> int | str:
    """The number of elements; a text if it is not known."""
    sizes = [n for n in x.dims if isinstance(n, int)]
    return math.prod(sizes) if len(sizes) == x.rank else "elements"


@call("ravel")
def _in_a_row(c: OperatorCall) -> Result:
    return c.node("Reshape", c.x(), c.ints(-1))


@call("fliplr", "flipud", "rot90")
def _turned(c: OperatorCall) -> Result:
    if c.op == "rot90":
        return c.nodes("rot90", [c.x()], 1, domain="ztorch", k=c.get("k", 1),
                       axes=tuple(c.integers("dims", (0, 1))))[0]
    return c.node("Slice", c.x(), c.ints(-1), c.ints(-END), c.ints(int(c.op == "fliplr")),
                  c.ints(-1))


# -- joined ----------------------------------------------------------------------------------------


@call("cat", "concat", "concatenate")
def _concat(c: OperatorCall) -> Result:
    tensors = c.get("tensors")
    parts = [x for x in tensors if x.dims != (0,)] or tensors[:1]  # PyTorch skips these
    return c.node("Concat", *(c.cast(x, c.result.dtype) for x in parts),
                  axis=axis_of(c, parts[0]))


@call("stack")
def _stack(c: OperatorCall) -> Result:
    parts = c.get("tensors")
    axis = c.get("dim", 0) % (parts[0].rank + 1)
    return c.node("Concat", *(c.node("Unsqueeze", c.cast(x, c.result.dtype), c.ints(axis))
                              for x in parts), axis=axis)


@call("constant_pad_nd", "pad")
def _pad(c: OperatorCall) -> Result:
    x, pads = c.tensor(), c.integers("pad")
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge",
            "circular": "wrap"}[c.get("mode", "constant")]
    low = [0] * (x.rank - len(pads) // 2) + pads[-2::-2]
    high = [0] * (x.rank - len(pads) // 2) + pads[::-2]
    value = c.number(c.get("value", 0), x.dtype) if mode == "constant" else ""
    return c.node("Pad", x.name, c.ints(*low, *high), value, mode=mode)


# -- blocks and diagonals --------------------------------------------------------------------------


@call("tril", "triu")
def _triangle(c: OperatorCall) -> Result:
    return c.node("Trilu", c.x(), c.constant(np.int64(c.get("diagonal", 0))),
                  upper=int(c.op == "triu"))


@call("pixel_shuffle", "pixel_unshuffle")
def _pixel_blocks(c: OperatorCall) -> Result:
    """Axes before the last three are one batch for ONNX."""
    x = c.tensor()
    if x.rank == 4:
        return _blocks_of_images(c, x.name)
    image = c.node("Shape", x.name, start=x.rank - 3)
    images = c.node("Reshape", x.name, c.node("Concat", c.ints(-1), image, axis=0))
    y = _blocks_of_images(c, images)
    shape = [c.node("Shape", x.name, start=0, end=x.rank - 3), c.node("Shape", y, start=1)]
    return c.node("Reshape", y, c.node("Concat", *shape, axis=0))


def _blocks_of_images(c: OperatorCall, images: str) -> str:
    if c.op == "pixel_shuffle":
        return c.node("DepthToSpace", images, blocksize=c.get("upscale_factor"), mode="CRD")
    n, channels = c.integers("downscale_factor")[0], int(c.tensor().dims[-3])
    y = c.node("SpaceToDepth", images, blocksize=n)  # its channels are (n, n, channels)
    split = c.node("Reshape", y, c.ints(0, n * n, channels, -1))
    return c.node("Reshape", c.node("Transpose", split, perm=[0, 2, 1, 3]), c.node("Shape", y))


@call("channel_shuffle")
def _channel_shuffle(c: OperatorCall) -> Result:
    x, groups = c.x(), c.integers("groups")[0]
    split = c.node("Reshape", x, c.ints(0, groups, int(c.tensor().dims[1]) // groups, -1))
    return c.node("Reshape", c.node("Transpose", split, perm=[0, 2, 1, 3]), c.node("Shape", x))


@call("diagonal", "diagonal_copy")
def _diagonal(c: OperatorCall) -> Result:
    x = c.tensor()
    return c.nodes("Diagonal", [x.name], 1, domain="ztorch", offset=c.get("offset", 0),
                   axes=[axis_of(c, x, "dim1", 0), axis_of(c, x, "dim2", 1)])[0]
