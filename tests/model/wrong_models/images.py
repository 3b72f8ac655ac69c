"""Convolutions, pooling, and other layers that change the size of images."""

from __future__ import annotations

from tests.model.wrong_models.cases import Case, begins, image, row, steps
from ztorch import layers as L

chw = begins(3, 16, 20)

CASES: dict[str, Case] = {
    "stride of zero": lambda: L.Conv2D(4, 3, strides=0),
    "no filters": lambda: L.Conv2D(0, 3),
    "a kernel of three sizes": lambda: L.Conv2D(4, (3, 3, 3)),
    "a kernel of no size": lambda: L.Conv1D(4, 0),
    "unknown padding": lambda: L.Conv2D(4, 3, padding="full"),
    "causal padding of images": lambda: L.Conv2D(4, 3, padding="causal"),
    "dilation of zero": lambda: L.Conv2D(4, 3, dilation_rate=0),
    "groups that do not divide the filters": lambda: L.Conv2D(4, 3, groups=3),
    "groups that do not divide the channels": lambda: image(L.Conv2D(4, 3, groups=2)),
    "a kernel larger than the image": lambda: image(L.Conv2D(4, 9, name="wide")),
    "a kernel larger than the sequence": lambda: steps(L.Conv1D(4, 8)),
    "a dilated kernel larger than the image": lambda: image(L.Conv2D(4, 3, dilation_rate=4)),
    "convolving rows": lambda: row(L.Conv2D(4, 3)),
    "convolving a sequence as an image": lambda: steps(L.Conv2D(4, 3)),
    "convolving an image as a sequence": lambda: image(L.Conv1D(4, 3)),
    "a convolution used for other channels": lambda: [
        image(L.Conv2D(channels, 1), shared)
        for shared in [L.Conv2D(2, 3, name="shared")] for channels in (3, 4)],
    "no depth": lambda: L.DepthwiseConv2D(3, depth_multiplier=0),
    "a depthwise kernel larger than the image": lambda: image(L.DepthwiseConv2D(10)),
    "separable filters below zero": lambda: L.SeparableConv2D(-4, 3),
    "output padding as large as the stride": lambda: L.Conv2DTranspose(4, 3, strides=2,
                                                                       output_padding=2),
    "transposed stride of zero": lambda: L.Conv2DTranspose(4, 3, strides=0),
    "unknown data format": lambda: L.Conv2D(4, 3, data_format="channels_middle"),
    "a pool larger than the image": lambda: image(L.MaxPooling2D(9)),
    "a pool of nothing": lambda: L.MaxPooling2D(0),
    "a pool with stride zero": lambda: L.AveragePooling2D(2, strides=0),
    "pooling rows": lambda: row(L.MaxPooling2D(2)),
    "global pooling of rows": lambda: row(L.GlobalAveragePooling2D()),
    "pooled away": lambda: image(L.MaxPooling2D(4), L.MaxPooling2D(2), L.MaxPooling2D(2)),
    "unknown interpolation": lambda: L.UpSampling2D(2, interpolation="cubicle"),
    "upsampling by half": lambda: L.UpSampling2D(0.5),
    "upsampling rows": lambda: row(L.UpSampling2D(2)),
    "padding below zero": lambda: L.ZeroPadding2D(-1),
    "cropping all there is": lambda: image(L.Cropping2D(4)),
    "cropping in words": lambda: L.Cropping1D("all"),
    "a kernel over channels that come first": lambda: chw(L.Conv2D(4, 5)),
    "a transposed image in groups": lambda: chw(L.Conv2D(6, 3, groups=3)),
    "a sequence with its channel first": lambda: begins(1, 30)(L.Conv1D(4, 5)),
    "pooling channels that come first": lambda: chw(L.AveragePooling2D(4)),
    "cropping channels that come first": lambda: chw(L.Cropping2D(3)),
    "channels last where first is said": lambda: begins(16, 20, 3)(
        L.Conv2D(4, 5, data_format="channels_first")),
    "group norm of channels that come first": lambda: begins(64, 8, 12)(
        L.GroupNormalization(32)),
    "a convolution of bytes": lambda: begins(8, 8, 3, dtype="uint8")(L.Conv2D(4, 3)),
    "a mean of bytes": lambda: begins(8, 8, 3, dtype="uint8")(L.AveragePooling2D(2)),
    "flat before a convolution": lambda: image(L.Flatten(), L.Conv2D(4, 3, name="late")),
}
