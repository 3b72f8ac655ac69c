"""Convolutions, pooling, and resampling of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


def _per_axis(c: OperatorCall, name: str, axes: int, default: int | None = None) -> list[int]:
    """An argument with an integer for each axis, which may also be one number for all axes."""
    values = c.integers(name, None if default is None else [default])
    return values * axes if len(values) == 1 else values


@call("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding",
      "convolution")
def _conv(c: OperatorCall) -> Result:
    axes = _axes(c)
    if c.get("transposed", False):
        return _transposed(c, axes)
    padding: Any = c.get("padding", 0)
    attrs: dict[str, Any] = {}
    if isinstance(padding, str):
        attrs["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        attrs["pads"] = _per_axis(c, "padding", axes, 0) * 2
    return _batched(c, axes, lambda x: c.node(
        "Conv", x, *_parameters(c), strides=_per_axis(c, "stride", axes, 1),
        dilations=_per_axis(c, "dilation", axes, 1), group=c.get("groups", 1), **attrs))


def _parameters(c: OperatorCall) -> list[str]:
    bias = c.get("bias")
    return [c.x("weight"), *([] if bias is None else [bias.name])]


@call("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(c: OperatorCall) -> Result:
    return _transposed(c, _axes(c))


def _transposed(c: OperatorCall, axes: int) -> str:
    return _batched(c, axes, lambda x: c.node(
        "ConvTranspose", x, *_parameters(c), strides=_per_axis(c, "stride", axes, 1),
        pads=_per_axis(c, "padding", axes, 0) * 2, group=c.get("groups", 1),
        output_padding=_per_axis(c, "output_padding", axes, 0),
        dilations=_per_axis(c, "dilation", axes, 1)))


def _axes(c: OperatorCall) -> int:
    """The number of axes along which the windows of an operator move."""
    return next((int(digit) for digit in c.op if digit.isdigit()), c.tensor(_image(c)).rank - 2)


def _image(c: OperatorCall) -> str:
    """The argument that holds images."""
    return "self" if "self" in c.spec.inputs else "input"


def _batched(c: OperatorCall, axes: int, operate: Callable[[str], str]) -> str:
    """The result of an operator on a batch of images, or on one image as a batch of one."""
    return _all_batched(c, axes, lambda x: [operate(x)])[0]


def _all_batched(c: OperatorCall, axes: int, operate: Callable[[str], list[str]]) -> list[str]:
    """As `_batched`, for an operator with several results."""
    x = c.tensor(_image(c))
    if x.rank == axes + 2:
        return operate(x.name)
    first = c.ints(0)
    return [c.node("Squeeze", y, first) for y in operate(c.node("Unsqueeze", x.name, first))]


# -- pooling ---------------------------------------------------------------------------------------


def _window(c: OperatorCall, axes: int) -> dict[str, Any]:
    kernel = _per_axis(c, "kernel_size", axes)
    return {"kernel_shape": kernel, "pads": _per_axis(c, "padding", axes, 0) * 2,
            "strides": _per_axis(c, "stride", axes) if c.get("stride") else kernel,
            "ceil_mode": int(c.get("ceil_mode", False))}


@call(*(f"max_pool{n}d{form}" for n in (1, 2, 3) for form in ("", "_with_indices")))
def _max_pool(c: OperatorCall) -> Result:
    axes = _axes(c)
    window = {**_window(c, axes), "dilations": _per_axis(c, "dilation", axes, 1)}
    if not c.gives(1):
        return _batched(c, axes, lambda x: c.node("MaxPool", x, **window))
    sizes = [n for n in c.tensor().dims[-axes:] if isinstance(n, int)]
    if len(sizes) < axes:
        c.unsupported("positions in an image whose size is open")

    def pooled(x: str) -> list[str]:
        y, at = c.nodes("MaxPool", [x], 2, **window)  # ONNX counts through the batch
        return [y, c.node("Mod", at, c.constant(np.int64(math.prod(sizes))))]

    return _all_batched(c, axes, pooled)


@call("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average_pool(c: OperatorCall) -> Result:
    window, divisor = _window(c, _axes(c)), c.get("divisor_override")
    if divisor and window["ceil_mode"]:
        c.unsupported("divisor_override with ceil_mode=True")
    y = _batched(c, _axes(c), lambda x: c.node(
        "AveragePool", x, **window,
        count_include_pad=int(bool(divisor) or c.get("count_include_pad", True))))
    share = math.prod(window["kernel_shape"]) / (divisor or 1)
    return c.node("Mul", y, c.number(share, c.tensor().dtype)) if divisor else y


# -- resampling ------------------------------------------------------------------------------------


@call("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(c: OperatorCall) -> Result:
    mode = ("linear", "nearest", "cubic")[c.get("interpolation_mode")]
    outside = ("zeros", "border", "reflection")[c.get("padding_mode")]
    x, grid, aligned = c.tensor("input"), c.x("grid"), bool(c.get("align_corners"))
    if (mode, outside) != ("cubic", "border"):
        return c.node("GridSample", x.name, grid, mode=mode, padding_mode=outside,
                      align_corners=int(aligned))
    # PyTorch clamps each neighbor to the border, ONNX clamps the point between them.
    sizes = np.array([n for n in x.dims[:1:-1] if isinstance(n, int)], x.dtype.working)
    if len(sizes) != x.rank - 2:
        c.unsupported("cubic samples beyond the border of an image whose size is open")

    def at(op: str, y: str, number: Any) -> str:
        return c.node(op, y, c.constant(np.asarray(number, x.dtype.working)))

    scale, shift = (sizes - 1, 0) if aligned else (sizes, -0.5)
    y = at("Add", at("Mul", at("Add", grid, 1), scale / 2), shift)  # counted in elements
    y = at("Sub", at("Max", at("Min", y, sizes + 1), -2), shift - 3)  # of the wider image
    wide = scale + 6
    ends = [0, 0] + [3] * len(sizes)
    return c.node("GridSample", c.node("Pad", x.name, c.ints(*ends, *ends), mode="edge"),
                  at("Sub", at("Mul", y, 2 / wide), 1), mode=mode, align_corners=int(aligned))


@call("affine_grid_generator")
def _affine_grid(c: OperatorCall) -> Result:
    return c.node("AffineGrid", c.x("theta"), c.ints(*c.get("size")),
                  align_corners=int(c.get("align_corners")))


@call("col2im")
def _fold(c: OperatorCall) -> Result:
    sizes, block = (c.ints(*c.integers(name)) for name in ("output_size", "kernel_size"))
    return _batched(c, 1, lambda columns: c.node(
        "Col2Im", columns, sizes, block, strides=_per_axis(c, "stride", 2, 1),
        pads=_per_axis(c, "padding", 2, 0) * 2, dilations=_per_axis(c, "dilation", 2, 1)))


@call("im2col")
def _unfold(c: OperatorCall) -> Result:
    x, [height, width] = c.tensor(), _per_axis(c, "kernel_size", 2)
    channels, n = int(x.dims[-3]), height * width
    elements = np.eye(n, dtype=x.dtype.working).reshape(n, 1, height, width)  # of the window
    kernel = c.constant(np.tile(elements, (channels, 1, 1, 1)))

    def columns(images: str) -> str:
        y = c.node("Conv", images, kernel, strides=_per_axis(c, "stride", 2, 1), group=channels,
                   pads=_per_axis(c, "padding", 2, 0) * 2, dilations=_per_axis(c, "dilation", 2, 1))
        return c.node("Reshape", y, c.ints(0, channels * n, -1))

    return _batched(c, 2, columns)


@call(*(f"upsample_{kind}.{overload}" for kind in (
    "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
    for overload in ("vec", "default")),
      *(f"_upsample_{kind}_aa.{overload}" for kind in ("bilinear2d", "bicubic2d")
        for overload in ("vec", "default")),
      *(f"_upsample_nearest_exact{n}d.{overload}" for n in (1, 2, 3)
        for overload in ("vec", "default")))
def _upsample(c: OperatorCall) -> Result:
    x = c.tensor(_image(c))
    size, factors = c.get("output_size"), c.get("scale_factors")
    if factors is None:
        scales = [c.get(name) for name in ("scales_d", "scales_h", "scales", "scales_w")]
        factors = [n for n in scales if n is not None]
    if "nearest_exact" in c.op:
        attributes: dict[str, Any] = {"mode": "nearest", "nearest_mode": "round_prefer_ceil",
                                      "coordinate_transformation_mode": "half_pixel"}
    elif "nearest" in c.op:
        attributes = {"mode": "nearest", "nearest_mode": "floor",
                      "coordinate_transformation_mode": "asymmetric"}
    else:
        attributes = {"mode": "cubic" if "cubic" in c.op else "linear", "cubic_coeff_a": -0.75,
                      "coordinate_transformation_mode":
                      "align_corners" if c.get("align_corners", False) else "half_pixel"}
        if attributes["mode"] == "linear":
            del attributes["cubic_coeff_a"]
    if c.op.endswith("_aa"):
        attributes |= {"antialias": 1, "exclude_outside": 1}
        if attributes["mode"] == "cubic":
            attributes["cubic_coeff_a"] = -0.5
    is_fixed = all(isinstance(n, int) for n in x.dims[2:])
    if factors and is_fixed and c.get("align_corners", False):
        # ONNX aligns the corners of fractional sizes, PyTorch those of the sizes that it computes.
        size = [math.floor(n * f) for n, f in zip(x.dims[2:], factors, strict=True)]
    elif factors:
        return c.node("Resize", x.name, "", c.constant(np.array([1, 1, *factors], np.float32)),
                      **attributes)
    sizes = c.node("Concat", c.node("Shape", x.name, start=0, end=2), c.ints(*size), axis=0)
    return c.node("Resize", x.name, "", "", sizes, **attributes)
