"""ResNet: residual stages of convolutions over an image."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("resnet.",)
HEADS = ("ResNetForImageClassification", "ResNetModel")


def build(maker: LayerMaker, length: int | None) -> Model:
    """The model of a config, for images (rows, columns, channels)."""
    config = maker.config
    config.only(hidden_act="relu")  # so that zeros around an image are below its maxima
    widths = config.sizes("hidden_sizes", (256, 512, 1024, 2048))
    side = length or 224
    image = L.Input((side, side, config.size("num_channels", 3)), name="pixel_values")
    x = _convolved(maker, "embedder.embedder", image, config.size("embedding_size", 64), 7, 2)
    x = L.MaxPooling2D(3, 2)(L.ZeroPadding2D(1)(maker.activated("hidden_act", "relu", x)))
    before = config.size("embedding_size", 64)
    depths = config.depths("depths", (3, 4, 6, 3))
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for k in range(depth):
            down = stage > 0 or config.flag("downsample_in_first_stage")
            x = _block(maker, f"encoder.stages.{stage}.layers.{k}", x, before, width,
                       2 if down and k == 0 else 1)
            before = width
    pooled = L.GlobalAveragePooling2D(name="pooler")(x)
    if config.architecture == "ResNetModel":
        return Model(image, {"last_hidden_state": x, "pooler_output": pooled}, name="resnet")
    return Model(image, maker.dense("classifier.1", config.classes())(pooled), name="resnet")


def _block(maker: LayerMaker, name: str, x: Any, before: int, width: int, strides: int) -> Any:
    """Two or three convolutions with a residual connection."""
    basic = maker.config.text("layer_type", "bottleneck") == "basic"
    first = strides if maker.config.flag("downsample_in_bottleneck") else 1
    inner = width // 4
    sizes = ([(width, 3, strides), (width, 3, 1)] if basic else
             [(inner, 1, first), (inner, 3, strides // first), (width, 1, 1)])
    shortcut = x
    if before != width or strides != 1:
        shortcut = _convolved(maker, f"{name}.shortcut", x, width, 1, strides)
    for k, (filters, kernel, step) in enumerate(sizes):
        x = _convolved(maker, f"{name}.layer.{k}", x, filters, kernel, step)
        if k + 1 < len(sizes):
            x = maker.activated("hidden_act", "relu", x)
    return maker.activated("hidden_act", "relu", x + shortcut)


def _convolved(maker: LayerMaker, name: str, x: Any, filters: int, kernel: int,
               strides: int) -> Any:
    """A normalized convolution with the same padding on all sides."""
    padded = L.ZeroPadding2D(kernel // 2)(x) if kernel > 1 else x
    y = maker.conv(L.Conv2D, f"{name}.convolution", filters, kernel, strides, False)(padded)
    return maker.batch_norm(f"{name}.normalization")(y)
