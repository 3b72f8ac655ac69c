"""U-Net, which gives each pixel a class: Ronneberger et al., "U-Net: convolutional networks for
biomedical image segmentation" (2015). It is small, and padded so that outputs are as large as
inputs.

    ztorch train unet --out masks.zt

It learns to find discs, squares and triangles. Two pixels in three are background.
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

SMALL = {"width": 4, "depth": 2}
DATA = "shape_masks"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 3e-3
METRICS = ("accuracy",)
EPOCHS = 10
BATCH_SIZE = 16
BAR = {"accuracy": 0.9}


def build(size: int = 32, classes: int = 4, width: int = 12, depth: int = 3) -> Sequential:
    """`depth` levels, each at half the size of the one above, with skip connections.

    >>> build().output_shape
    (None, 32, 32, 4)
    """
    return Sequential([
        L.Input((size, size, 3)),
        *level(width, depth),
        L.Conv2D(classes, 1, activation="softmax", name="classes"),
    ], name="unet", seed=1)


def level(width: int, depth: int) -> list[L.Layer]:
    """Two convolutions, then the deeper levels at half the size beside a skip connection, then two
    more convolutions."""
    if depth == 0:
        return convolutions("deepest", width)
    below = Sequential([
        L.MaxPooling2D(2, name="down"),
        *level(2 * width, depth - 1),
        L.Conv2DTranspose(width, 2, 2, name="up"),
    ], name="below")
    return [*convolutions("on_the_way_down", width),
            L.Concatenate(L.Identity(name="here"), below, name=f"level_{depth}"),
            *convolutions("on_the_way_up", width)]


def convolutions(name: str, width: int) -> list[L.Layer]:
    return [layer for k in (1, 2) for layer in (
        L.Conv2D(width, 3, padding="same", use_bias=False, kernel_initializer="he_normal",
                 name=f"{name}_{k}"),
        L.BatchNormalization(momentum=0.9, name=f"{name}_{k}_norm"),
        L.ReLU(name=f"{name}_{k}_relu"))]
