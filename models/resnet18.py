"""ResNet-18 for ImageNet: He et al., "Deep residual learning for image recognition" (2015).

Layers, sizes and the number of weights are those of PyTorch's resnet18. The small one has a quarter
of the channels and is for images of 64 x 64 pixels:

    ztorch train resnet18:small --out shapes.zt
    ztorch train resnet18 --data x.npy,y.npy --out resnet18.zt     # your images, (224, 224, 3)
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L
from ztorch.schedules import CosineDecay

SMALL = {"size": 64, "classes": 8, "width": 16}
SMALL_DATA = "shapes_64"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
SCHEDULE = CosineDecay(LEARNING_RATE, 630)  # to zero over the epochs below
METRICS = ("accuracy",)
EPOCHS = 10
BATCH_SIZE = 32
BAR = {"accuracy": 0.85}


def build(size: int = 224, classes: int = 1000, width: int = 64, stages: int = 4) -> Sequential:
    """A stem that reduces rows and columns to a quarter, stages of two blocks, the mean over
    positions, and a dense layer.

    >>> sum(w.size for w in build().weights if w.trains)
    11689512
    """
    blocks = [block(f"stage_{k + 1}_block_{n + 1}", width << k, 2 if k and not n else 1,
                    shortcut=k > 0 and n == 0) for k in range(stages) for n in range(2)]
    return Sequential([
        L.Input((size, size, 3)),
        *convolution("stem", width, 7, 2),
        L.ReLU(name="stem_relu"),
        L.ZeroPadding2D(1, name="pool_frame"),  # no output of a ReLU is below zero
        L.MaxPooling2D(3, 2, name="pool"),
        *(layer for block_layers in blocks for layer in block_layers),
        L.GlobalAveragePooling2D(name="mean"),
        L.Dense(classes, activation="softmax", name="classes"),
    ], name="resnet18", seed=1)


def block(name: str, filters: int, stride: int, shortcut: bool) -> list[L.Layer]:
    """Two convolutions with a residual connection."""
    other = Sequential(convolution("fit", filters, 1, stride), name="shortcut")
    return [L.Residual(*convolution("first", filters, 3, stride), L.ReLU(name="relu"),
                       *convolution("second", filters, 3, 1),
                       shortcut=other if shortcut else None, name=name),
            L.ReLU(name=f"{name}_relu")]


def convolution(name: str, filters: int, kernel: int, stride: int) -> list[L.Layer]:
    """A convolution with equal padding on both sides, where "same" would add more at the end."""
    frame = [L.ZeroPadding2D(kernel // 2, name=f"{name}_frame")] if kernel > 1 else []
    return [*frame,
            L.Conv2D(filters, kernel, stride, use_bias=False, kernel_initializer="he_normal",
                     name=name),
            L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")]
