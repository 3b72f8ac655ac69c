"""MobileNet: Howard et al., "MobileNets: efficient convolutional neural networks" (2017).

Each convolution is split into a depthwise one, over space, and a matrix that mixes channels. The
default is for images of 32 x 32 pixels; `build(224, 1000, alpha=1.0, small_pictures=False)` is the
one for ImageNet.

    ztorch train mobilenet --out shapes.zt
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

SMALL = {"alpha": 0.125, "blocks": 4}
DATA = "shapes"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 3e-3
METRICS = ("accuracy",)
EPOCHS = 16
BATCH_SIZE = 32
BAR = {"accuracy": 0.85}

FILTERS = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
HALVING = (1, 3, 5, 11)  # the blocks that halve rows and columns


def build(size: int = 32, classes: int = 10, alpha: float = 0.25,
          small_pictures: bool = True, blocks: int = len(FILTERS)) -> Sequential:
    """A convolution, up to 13 blocks, the mean over positions and a dense layer.

    `alpha` scales all numbers of channels. For small images, the first and the last halving are
    left out.

    >>> build(224, 1000, alpha=1.0, small_pictures=False).count_params()
    4253864
    """
    halving = HALVING[:-1] if small_pictures else HALVING
    return Sequential([
        L.Input((size, size, 3)),
        L.Conv2D(int(32 * alpha), 3, 1 if small_pictures else 2, padding="same", use_bias=False,
                 kernel_initializer="he_normal", name="stem"),
        *after("stem"),
        *(layer for k, filters in enumerate(FILTERS[:blocks])
          for layer in block(f"block_{k + 1}", int(filters * alpha), 2 if k in halving else 1)),
        L.GlobalAveragePooling2D(name="mean"),
        L.Dropout(1e-3),
        L.Dense(classes, activation="softmax", name="classes"),
    ], name="mobilenet", seed=1)


def block(name: str, filters: int, stride: int) -> list[L.Layer]:
    return [L.DepthwiseConv2D(3, stride, padding="same", use_bias=False,
                              depthwise_initializer="he_normal", name=f"{name}_space"),
            *after(f"{name}_space"),
            L.Conv2D(filters, 1, use_bias=False, kernel_initializer="he_normal",
                     name=f"{name}_channels"),
            *after(f"{name}_channels")]


def after(name: str) -> list[L.Layer]:
    return [L.BatchNormalization(momentum=0.9, name=f"{name}_norm"),
            L.ReLU(max_value=6.0, name=f"{name}_relu")]
